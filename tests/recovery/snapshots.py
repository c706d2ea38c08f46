"""The snapshots of a replay's tables: what counts twice, and what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pyiceberg.table import Table as IcebergTable

from applier.changefeed.table import TableName
from tests.replay import Replay


def heads(found: Replay) -> dict[tuple[str, ...], int]:
    """Newest snapshot of each table that has one, by identifier."""
    snapshots = ((found.identifier(name), table.current_snapshot()) for name, table in tables(found))
    return {identifier: snapshot.snapshot_id for identifier, snapshot in snapshots if snapshot is not None}


def faults_of(found: Replay) -> list[str]:
    """Snapshots with rows that were stamped alike, and stamps that went back; [] if every change counts once."""
    problems = []
    for name, table in tables(found):
        stamps = [snapshot.summary.additional_properties for snapshot in table.metadata.snapshots if snapshot.summary]
        # A DDL that writes rows anew is stamped with its commit ts, as are the rows below it, and with its text.
        marks = [(int(stamp["applier.resolved-ts"]), stamp.get("applier.ddl", "")) for stamp in stamps]
        with_rows = [mark for mark, stamp in zip(marks, stamps, strict=True) if int(stamp.get("added-records", 0))]
        problems += [f"{name}: {count} snapshots at {mark}" for mark, count in Counter(with_rows).items() if count > 1]
        times = [resolved_ts for resolved_ts, _ in marks]
        if times != sorted(times):
            problems.append(f"{name}: resolved ts went back: {times}")
    return problems


def tables(found: Replay) -> Iterator[tuple[TableName, IcebergTable]]:
    """All tables of a replay, as PyIceberg sees them."""
    for name in sorted(found.tables()):
        yield name, found.catalog.load_table(found.identifier(name))
