"""A second table on the metadata of a first one: it is changed aside, and then shown in place of the first at once."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from applier.changefeed.history import KEPT_FROM
from applier.changefeed.shape import SHAPE
from applier.errors import BY_HAND, OutsideRefused
from applier.sink.format.own_columns import COLUMNS
from applier.sink.format.types import ADDED_COLUMNS, RENAMED_COLUMNS, schema_json
from applier.sink.iceberg.catalog import Catalog, Identifier
from applier.sink.iceberg.commit import CommitFailure, set_properties
from applier.sink.iceberg.java import Java, JavaError, translated
from applier.sink.iceberg.snapshot import MAIN
from applier.sink.iceberg.table import Table

_NO_CLONES = ("UnsupportedOperationException", "IllegalArgumentException")

BUILT_ON = "applier.built-on"
"""Property of a clone, and of a table that shows it: its job, an id, and a hash of what the table was before."""

_OWN = "applier.", "applier-maintenance."
"""How the properties begin that applier sets: fences, stamps and maintenance change nothing that a clone is built on.
"""

_CUT = "write.metadata.delete-after-commit.enabled"
_LOG_STAYS = {_CUT: "false"}
"""Property of a clone, whose log begins with that of its base: its commits would remove the metadata file of a base
that stands still, and with it the table. The base keeps its own value.
"""

_CUT_LATER = "applier-maintenance.cuts-log-later"
"""Property of a clone whose base lets old metadata files go: so does the clone once it is a table of its own."""

_PASSING = ("last-sequence-number", "last-updated-ms", "current-snapshot-id", "refs", "snapshots", "next-row-id")
_LOGS = ("metadata-log", "snapshot-log", "statistics", "partition-statistics")


def clone(catalog: Catalog, table: Table, identifier: Identifier, job: str, base: Table | None = None) -> Table:
    """Register a table, freshly loaded, under a second name, as it is now; a table that has that name already gives it
    up.

    Both share the files so far. What is written to one is not seen in the other, and neither may be purged or rid of
    orphan files while both are there. The clone of a job takes the place of `base`; of the table itself when absent.

    Raises:
        OutsideRefused: The catalog registers no tables, as one of type `hadoop`.
    """
    catalog.drop(identifier)
    catalog.ensure_namespace(identifier[:-1])
    metadata = table.metadata_file
    try:
        with translated(f"Cannot register {'.'.join(identifier)}"):
            handle = catalog.handle.registerTable(catalog._table(identifier), metadata)
    except JavaError as error:
        if error.kind not in _NO_CLONES:
            raise
        what = f"Catalog {catalog.name} cannot register a second table on the files of {table}: {error.detail}"
        raise OutsideRefused(what, BY_HAND) from None
    with translated(f"Cannot change the properties of table {'.'.join(identifier)}"):
        later = {_CUT_LATER: "true"} if table.setting(_CUT) == "true" else {}
        set_properties(handle, {**mark(job, base or table), **_LOG_STAYS, **later})
    return catalog.table_of(handle, identifier)


def mark(job: str, base: Table | None = None) -> dict[str, str]:
    """The property of a clone of a job, or of a table that the job makes where there is none."""
    return {BUILT_ON: f"{job}-{uuid.uuid4().hex} {'' if base is None else _hash(base)}"}


def is_of(table: Table, job: str) -> bool:
    """Whether a job has made a table, or shown its clone as this table."""
    return (table.setting(BUILT_ON) or "").startswith(f"{job}-")


def cut_again(table: Table) -> dict[str, str]:
    """The property by which a clone that was renamed into place lets old metadata files go, where it lacks that yet.

    Not before its job has ended: until then a start may go back to the base, whose metadata file is in the log.
    """
    known = table.file_layout.properties
    return {_CUT: "true"} if _CUT_LATER in known and known.get(_CUT) == _LOG_STAYS[_CUT] else {}


def _facts(table: Table) -> dict[str, Any]:
    """Everything that the metadata of a table says but its rows, and what applier notes there."""
    current = table.handle.operations().current()
    written = json.loads(str(table.java.iceberg.TableMetadataParser.toJson(current)))
    kept = {key: value for key, value in written.items() if key not in (*_PASSING, *_LOGS)}
    properties = written["properties"].items()
    others = {key: value for key, value in properties if not key.startswith(_OWN) and key not in _LOG_STAYS}
    return {**kept, "properties": others}


def _hash(table: Table) -> str:
    return hashlib.sha256(json.dumps(_facts(table), sort_keys=True).encode()).hexdigest()


def begin_anew(catalog: Catalog, table: Table, columns: pa.Schema, *, key: Sequence[str], **options: Any) -> Table:
    """Replace columns and rows of a table, as CREATE OR REPLACE TABLE does: its identity and its history stay.

    Columns and options are as of `Catalog.create`.
    """
    with translated(f"Cannot replace the columns of table {table}"):
        schema = schema_json(columns, key)
        builder = catalog._builder(table.identifier, schema, options["partition"], options["sort"])
        noted = dict.fromkeys((ADDED_COLUMNS, RENAMED_COLUMNS, SHAPE, KEPT_FROM), "")
        properties = {**noted, **options["properties"], COLUMNS: "", **_LOG_STAYS}
        builder.withProperties(catalog.java.map(properties)).replaceTransaction().commitTransaction()
    found = catalog.load(table.identifier)
    return table if found is None else found


def is_built_on(copy: Table, table: Table) -> bool:
    """Whether a table is what it was when it was cloned, or what it became when its clone was shown, and no more:
    rows, columns, partitions, order and properties.

    Others may have given it columns or partition fields since, under the numbers that those of the clone have.
    """
    head, (_, _, base) = table.snapshot_id, (copy.setting(BUILT_ON) or "").partition(" ")
    is_same = _holds_all_of(copy, table) if has_shown(copy, table) else base == _hash(table)
    return is_same and (head is None or copy.has_snapshot(head))


def has_shown(copy: Table, table: Table) -> bool:
    """Whether readers were shown a clone as this table. The clone may have moved on since, and others the table."""
    return copy.setting(BUILT_ON) is not None and copy.setting(BUILT_ON) == table.setting(BUILT_ON)


def _holds_all_of(copy: Table, table: Table) -> bool:
    own, other = _facts(copy), _facts(table)
    lists = ("schemas", "partition-specs", "sort-orders")
    return own["properties"] == other["properties"] and all(item in own[name] for name in lists for item in other[name])


def show(table: Table, copy: Table) -> None:
    """Let a table be what its clone is: columns, rows and properties, in one commit; may be called again.

    Both are freshly loaded, and nothing else may have written the table since it was cloned. The steps are changes of
    the metadata that is there, so a REST catalog takes them as well.

    Raises:
        CommitFailure: The table has moved, or the catalog does not answer.
    """
    java, other = table.java, copy.handle.operations().current()
    with _changing(table, copy, is_current=True) as (build, base):
        if other.currentSnapshot() is not None:
            build.setBranchSnapshot(int(other.currentSnapshot().snapshotId()), MAIN)
        elif base.currentSnapshot() is not None:
            build.removeRef(MAIN)
        own = {*_LOG_STAYS, _CUT_LATER}
        kept = {key: value for key, value in copy.properties.items() if key not in own}
        gone = [key for key in table.properties if key not in kept and key not in own]
        build.setProperties(java.map(kept))
        build.removeProperties(java.jvm.java.util.HashSet(java.texts(gone)))


def show_in_branch(table: Table, copy: Table, branch: str) -> None:
    """Let a branch of a table show the rows of its clone, which has a snapshot; see `show`."""
    with _changing(table, copy, is_current=False) as (build, _):
        build.setBranchSnapshot(int(copy.handle.currentSnapshot().snapshotId()), branch)


def drop_branch(table: Table, branch: str) -> None:
    """Forget a branch; its snapshots stay until they expire."""
    with translated(f"Cannot drop branch {branch} of table {table}"):
        if table.handle.snapshot(branch) is not None:
            table.handle.manageSnapshots().removeBranch(branch).commit()


@contextmanager
def _changing(table: Table, copy: Table, *, is_current: bool) -> Iterator[tuple[Any, Any]]:
    """A change of the metadata of a table, and the metadata that it is made on.

    The table gets all snapshots of its clone, and columns, partition spec and sort order, which are its current ones
    then where that is asked for.
    """
    java = table.java
    operations, other = table.handle.operations(), copy.handle.operations().current()
    base = operations.current()
    try:
        with translated(f"Commit to table {table} failed"):
            build = java.iceberg.TableMetadata.buildFrom(base)
            _bring_schemas(table, build, base, other, is_current=is_current)
            # Older ones that the table lacks have expired there, and their files with them.
            newest = int(base.lastSequenceNumber()) if table.format_version > 1 else -1
            for snapshot in _lacking(java, base.snapshots(), other.snapshots(), "snapshotId"):
                if int(snapshot.sequenceNumber()) > newest:
                    build.addSnapshot(snapshot)
            yield build, base
            operations.commit(base, build.build())
            table.refresh()
    except JavaError as error:
        raise CommitFailure(error.action, error.kind, error.detail, None) from None


def _bring_schemas(table: Table, build: Any, base: Any, other: Any, *, is_current: bool) -> None:
    """Bring the columns, the partition spec and the sort order over, under the numbers that they have in the clone."""
    java = table.java
    for schema in sorted(_lacking(java, base.schemas(), other.schemas(), "schemaId"), key=lambda each: each.schemaId()):
        build.addSchema(schema)
    if is_current:
        # First: the library binds a new partition spec and a new sort order to the current columns.
        build.setCurrentSchema(int(other.currentSchemaId()))
    for spec in _lacking(java, base.specs(), other.specs(), "specId"):
        build.addPartitionSpec(spec)
    for order in _lacking(java, base.sortOrders(), other.sortOrders(), "orderId"):
        build.addSortOrder(order)
    if is_current:
        build.setDefaultPartitionSpec(int(other.defaultSpecId()))
        build.setDefaultSortOrder(int(other.defaultSortOrderId()))


def _lacking(java: Java, these: Any, those: Any, number: str) -> list[Any]:
    """Those Java objects whose number none of these has."""
    known = {getattr(each, number)() for each in java.items(these)}
    return [each for each in java.items(those) if getattr(each, number)() not in known]
