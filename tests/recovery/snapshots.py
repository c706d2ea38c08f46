"""The snapshots of tables: what counts twice, and what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation

from applier.changefeed.table import TableName
from tests.replay import Replay


def heads(found: Replay) -> dict[tuple[str, ...], int]:
    """Newest snapshot of each table that has one, by identifier."""
    snapshots = ((found.identifier(name), table.current_snapshot()) for name, table in _tables(found))
    return {identifier: snapshot.snapshot_id for identifier, snapshot in snapshots if snapshot is not None}


def changed_since(found: Replay, listed: Mapping[tuple[str, ...], int]) -> list[str]:
    """Tables whose rows were changed after the snapshots that a checkpoint lists; [] if it lists one cut."""
    problems = []
    for name, table in _tables(found):
        head, last = table.current_snapshot(), listed.get(found.identifier(name))
        while head is not None and head.snapshot_id != last:
            summary = head.summary.additional_properties if head.summary else {}
            if any(key.startswith(("added-", "deleted-", "removed-")) for key in summary):
                problems.append(f"{name}: rows were changed after snapshot {last}")
            head = None if head.parent_snapshot_id is None else table.snapshot_by_id(head.parent_snapshot_id)
    return problems


def faults_of(found: Replay) -> list[str]:
    """What `repeated` says of all tables of a replay."""
    return [line for name, table in _tables(found) for line in repeated(str(name), table.metadata)]


def repeated(name: str, metadata: TableMetadata) -> list[str]:
    """Snapshots with rows that were stamped alike, and stamps that went back; [] if every change counts once.

    A compaction changes no row, and has the stamp of the snapshot before it.
    """
    summaries = [snapshot.summary for snapshot in metadata.snapshots if snapshot.summary]
    stamps = [summary.additional_properties for summary in summaries if summary.operation is not Operation.REPLACE]
    stamps = [stamp for stamp in stamps if "applier.resolved-ts" in stamp]
    # A DDL that writes rows anew is stamped with its commit ts, as are the rows below it, and with its text.
    more = ("applier.ddl", "applier.offsets")
    marks = [(stamp["applier.resolved-ts"], *(stamp.get(key, "") for key in more)) for stamp in stamps]
    with_rows = [mark for mark, stamp in zip(marks, stamps, strict=True) if int(stamp.get("added-records", 0))]
    problems = [f"{name}: {count} snapshots at {mark}" for mark, count in Counter(with_rows).items() if count > 1]
    times = [int(stamp["applier.resolved-ts"]) for stamp in stamps]
    return problems + ([f"{name}: resolved ts went back: {times}"] if times != sorted(times) else [])


def _tables(found: Replay) -> Iterator[tuple[TableName, IcebergTable]]:
    """All tables of a replay, as PyIceberg sees them."""
    for name in sorted(found.tables()):
        yield name, found.catalog.load_table(found.identifier(name))
