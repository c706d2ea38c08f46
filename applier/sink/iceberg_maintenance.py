"""A table in, the same rows in fewer files out: Iceberg's own maintenance, so that main moves only by our fence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from applier.sink.iceberg_commit import Fence
from applier.sink.iceberg_java import JavaError, translated
from applier.sink.iceberg_table import Table
from applier.sink.progress import EPOCH, Stamp
from applier.sink.snapshot import MAIN

BRANCH = "applier-maintenance"
"""Branch in which files are rewritten. It is there while that lasts; one that a crash left is taken again."""

_FUNCTION = ("lang.Object", "util.function.Function")


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did.

    Attributes:
        data_files: Data files that are gone.
        added: Data files that took their place.
        delete_files: Delete files that are gone; a deletion vector counts as one.
    """

    data_files: int
    added: int
    delete_files: int


def compact(table: Table, options: Mapping[str, str], stamp: Stamp, expected: int) -> Compacted:
    """Rewrite data files without their dead rows, in the table's sort order where it has one.

    Iceberg's action commits by itself and knows no fence, so it commits to a branch. Main is fast-forwarded to that
    branch in a transaction, which Iceberg refuses if anything about the table has changed meanwhile.

    Args:
        table: The table; it is as of after the compaction then.
        options: Options of `RewriteDataFiles`, which also say which files are worth it.
        stamp: What the snapshots say, and the table's properties.
        expected: The head that the caller has looked at.

    Raises:
        JavaError: Somebody else committed, or catalog or storage did not answer; main is as it was, unless the
            answer alone was lost.
    """
    java, handle = table.java, table.handle
    with translated(f"Cannot compact table {table}"):
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
    """Bring the entries of all data manifests together; no data file is touched.

    Returns:
        Manifests that took their place.

    Raises:
        JavaError: Somebody else committed, or catalog or storage did not answer.
    """
    with translated(f"Cannot rewrite the manifests of table {table}"):
        transaction = table.handle.newTransaction()
        update = _manifests(table, transaction, stamp, expected).clusterBy(_together(table))
        update.commit()
        _stamp(transaction, stamp)
        transaction.commitTransaction()
        table.refresh()
        return int(table.handle.currentSnapshot().summary().get("manifests-created") or 0)


def manifests(table: Table) -> int:
    """Manifests of the head, as its summary counts them."""
    head = table.handle.snapshot(table.branch)
    summary: Mapping[str, str] = {} if head is None else table.java.plain(head.summary())
    return int(summary.get("manifests-created", 0)) + int(summary.get("manifests-kept", 0))


def snapshot_count(table: Table) -> int:
    """Snapshots that the table keeps, as last read."""
    return int(table.handle.operations().current().snapshots().size())


def snapshot_times(table: Table) -> dict[int, int]:
    """Unix milliseconds of every snapshot that the table keeps, by id."""
    # One call for all: a snapshot at a time costs two each.
    metadata = json.loads(table.java.iceberg.TableMetadataParser.toJson(table.handle.operations().current()))
    return {int(one["snapshot-id"]): int(one["timestamp-ms"]) for one in metadata.get("snapshots", ())}


def expire(table: Table, before: int, keep: int = 1) -> None:
    """Drop snapshots with the files that only they need. Those that a branch or tag names stay.

    Args:
        table: The table.
        before: Unix milliseconds; younger snapshots stay.
        keep: Snapshots of each branch that stay in any case.

    Raises:
        JavaError: Catalog or storage did not answer.
    """
    with translated(f"Cannot expire snapshots of table {table}"):
        table.handle.expireSnapshots().expireOlderThan(before).retainLast(keep).commit()
        table.refresh()


def remove_orphans(table: Table, before: int, key: str, now: int) -> int:
    """Remove files below the table's location that no snapshot knows.

    Only its own folders `data` and `metadata` are searched: the location of another table may lie below this one's.

    Args:
        table: The table.
        before: Unix milliseconds; younger files stay, they may belong to a commit that is under way.
        key: Table property that will say when this was done.
        now: Unix milliseconds, for that property.

    Raises:
        JavaError: Catalog or storage did not answer, or a folder lies elsewhere than the metadata says.
    """
    removed = 0
    with translated(f"Cannot remove orphan files of table {table}"):
        actions = table.java.iceberg.spark.actions.SparkActions.get(table.java.session._jsparkSession)
        for folder in ("data", "metadata"):
            if table.setting(f"write.{folder}.path") is None and _exists(table, folder):
                action = actions.deleteOrphanFiles(table.handle).location(f"{table.location}/{folder}")
                result = action.usePrefixListing(True).olderThan(before).execute()
                removed += int(result.orphanFilesCount())
        table.handle.updateProperties().set(key, str(now)).commit()
        table.refresh()
    return removed


def _publish(table: Table, stamp: Stamp) -> None:
    """Let main show what the branch shows, and forget the branch; main must be where the branch began."""
    handle = table.handle
    transaction = handle.newTransaction()
    head = handle.snapshot(BRANCH)
    transaction.manageSnapshots().fastForwardBranch(MAIN, BRANCH).removeBranch(BRANCH).commit()
    if head.summary().get(EPOCH) is None:
        # Of two snapshots that the action makes where it also drops delete files, only the first is stamped.
        _manifests(table, transaction, stamp, int(head.snapshotId())).commit()
    _stamp(transaction, stamp)
    transaction.commitTransaction()
    table.refresh()


def _manifests(table: Table, transaction: Any, stamp: Stamp, expected: int) -> Any:
    table.java.accept_callbacks()
    update = transaction.rewriteManifests()
    for key, value in stamp.entries().items():
        update.set(key, value)
    return update.validateWith(Fence(table.java.iceberg, expected))


def _stamp(transaction: Any, stamp: Stamp) -> None:
    update = transaction.updateProperties()
    for key, value in stamp.entries().items():
        update.set(key, value)
    update.commit()


def _together(table: Table) -> Any:
    """A `java.util.function.Function` that gives every data file the same cluster, without a call back for each."""
    java = table.java
    handles = java.jvm.java.lang.invoke
    anything, function = (java.jvm.java.lang.Class.forName(f"java.{name}") for name in _FUNCTION)
    constant = handles.MethodHandles.constant(anything, "all")
    taking = handles.MethodHandles.dropArguments(constant, 0, java.list([anything]))
    return handles.MethodHandleProxies.asInterfaceInstance(function, taking)


def _exists(table: Table, folder: str) -> bool:
    """Whether there is any file in a folder of the table."""
    try:
        with translated(f"Cannot list the files of table {table}"):
            return bool(table.handle.io().listPrefix(f"{table.location}/{folder}").iterator().hasNext())
    except JavaError as error:
        # Object stores know no folders; others say so where there is none.
        if "FileNotFound" in error.detail:
            return False
        raise
