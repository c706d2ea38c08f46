"""Runs Iceberg's own maintenance on a table, fenced like every commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from applier.sink.commit.stamp import EPOCH, Stamp
from applier.sink.iceberg.commit import set_properties
from applier.sink.iceberg.java import translated
from applier.sink.iceberg.snapshot import MAIN
from applier.sink.iceberg.table import Table

BRANCH = "applier-maintenance"
"""Branch in which files are rewritten. It is there while that lasts; one that a crash left is taken again."""

_FUNCTION = "java.util.function.Function"


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did: data files that are gone, data files that took their place, and delete files that are
    gone.

    A deletion vector counts as a delete file.
    """

    data_files: int
    added: int
    delete_files: int


def compact(table: Table, options: Mapping[str, str], stamp: Stamp, expected: int) -> Compacted:
    """Rewrite data files without their dead rows, in the table's sort order where it has one.

    Iceberg's action makes its own commit and knows no fence, so it commits to a branch. Main is fast-forwarded to that
    branch in a transaction, which Iceberg refuses if anything about the table has changed meanwhile, since the caller
    has looked at the expected head. The options are those of `RewriteDataFiles`, which also say which files are worth
    it. The table is as of after the compaction then.

    Raises:
        JavaError: Another writer committed, or catalog or storage did not answer; main is as it was, unless the answer
            alone was lost.
    """
    java, handle = table.java, table.handle
    with translated(f"Cannot compact table {table}"):
        # Iceberg's action knows no clock either.
        java.own.PreparedCommit.awaitClock(handle.currentSnapshot(), table.after)
        references = handle.manageSnapshots()
        is_left = handle.snapshot(BRANCH) is not None
        (references.replaceBranch if is_left else references.createBranch)(BRANCH, expected).commit()
        action = java.iceberg.spark.actions.SparkActions.get(java.session._jsparkSession).rewriteDataFiles(handle)
        action = action.options(java.map(options)).toBranch(BRANCH)
        for key, value in stamp.entries().items():
            action = action.snapshotProperty(key, value)
        result = (action.sort() if handle.sortOrder().isSorted() else action.binPack()).execute()
        table.refresh()
        _publish(table, stamp)
    return Compacted(
        int(result.rewrittenDataFilesCount()), int(result.addedDataFilesCount()), int(result.removedDeleteFilesCount())
    )


def rewrite_manifests(table: Table, stamp: Stamp, expected: int) -> int:
    """Bring the entries of all data manifests together, and count the new manifests; no data file is touched.

    Raises:
        JavaError: Another writer committed, or catalog or storage did not answer.
    """
    with translated(f"Cannot rewrite the manifests of table {table}"):
        transaction = table.handle.newTransaction()
        update = _manifests(table, transaction, stamp, expected).clusterBy(table.java.constant(_FUNCTION, "all"))
        update.commit()
        set_properties(transaction, stamp.entries())
        table.java.own.PreparedCommit.refuseOld(transaction.table().currentSnapshot(), table.after)
        transaction.commitTransaction()
        table.refresh()
        return int(table.handle.currentSnapshot().summary().get("manifests-created") or 0)


def manifests(table: Table) -> int:
    """Manifests of the head, as its summary counts them."""
    head = table.handle.currentSnapshot()
    summary: Mapping[str, str] = {} if head is None else table.java.plain(head.summary())
    return int(summary.get("manifests-created", 0)) + int(summary.get("manifests-kept", 0))


def data_files(table: Table) -> int:
    """Data files of the head, as its summary counts them."""
    head = table.handle.currentSnapshot()
    return 0 if head is None else int(head.summary().get("total-data-files") or 0)


def snapshot_count(table: Table) -> int:
    """Snapshots that the table keeps, as last read."""
    return int(table.handle.operations().current().snapshots().size())


def snapshot_times(table: Table) -> dict[int, int]:
    """Unix milliseconds of every snapshot that the table keeps, by id."""
    # One call for all: a snapshot at a time costs two each.
    metadata = json.loads(table.java.iceberg.TableMetadataParser.toJson(table.handle.operations().current()))
    return {int(one["snapshot-id"]): int(one["timestamp-ms"]) for one in metadata.get("snapshots", ())}


def expire(table: Table, before: int, keep: int = 1) -> None:
    """Drop snapshots from before some Unix milliseconds with the files that only they need.

    Those that a branch or tag names stay, and `keep` snapshots of each branch.

    Raises:
        JavaError: Catalog or storage did not answer.
    """
    with translated(f"Cannot expire snapshots of table {table}"):
        update = table.handle.expireSnapshots().expireOlderThan(before).retainLast(keep)
        gone = next(table.java.items(update.apply()), None)
        if gone is not None:
            # Without one by name, Iceberg removes the file of every deleted entry: a vector that was replaced takes
            # its Puffin file along, in which those of other data files still count. It is one that goes anyway: by name
            # Iceberg refuses what a tag has, and takes what a branch is to keep.
            update = update.expireSnapshotId(gone.snapshotId())
        update.commit()
        table.refresh()


def set_property(table: Table, key: str, value: str) -> None:
    """Set one table property.

    Raises:
        JavaError: The catalog did not answer.
    """
    with translated(f"Cannot set property {key} of table {table}"):
        set_properties(table.handle, {key: value})
        table.refresh()


def unset_properties(table: Table, prefix: str) -> None:
    """Remove the table properties that begin with a prefix; what the table holds stays.

    Raises:
        JavaError: The catalog did not answer.
    """
    with translated(f"Cannot change the properties of table {table}"):
        set_properties(table.handle, {}, [key for key in table.properties if key.startswith(prefix)])


def _publish(table: Table, stamp: Stamp) -> None:
    """Let main show what the branch shows, and forget the branch; main must be where the branch began."""
    handle = table.handle
    transaction = handle.newTransaction()
    head = handle.snapshot(BRANCH)
    table.java.own.PreparedCommit.refuseOld(head, table.after)
    # The history of main gets an entry of the time at which this is done.
    table.java.own.PreparedCommit.awaitClock(head, table.after)
    transaction.manageSnapshots().fastForwardBranch(MAIN, BRANCH).removeBranch(BRANCH).commit()
    if head.summary().get(EPOCH) is None:
        # Of two snapshots that the action makes where it also drops delete files, only the first is stamped.
        _manifests(table, transaction, stamp, int(head.snapshotId())).commit()
    set_properties(transaction, stamp.entries())
    transaction.commitTransaction()
    table.refresh()


def _manifests(table: Table, transaction: Any, stamp: Stamp, expected: int) -> Any:
    update = transaction.rewriteManifests()
    for key, value in stamp.entries().items():
        update.set(key, value)
    return update.validateWith(table.java.own.PreparedCommit.fence(str(expected), table.after))
