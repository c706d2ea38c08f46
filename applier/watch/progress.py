"""How far a table and a step are, for whoever found it out: the running process in its JVM, `status` in the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.fate import Fate
from applier.changefeed.table import TableName
from applier.changefeed.ts import age
from applier.pipeline.tables.ddl_stamp import DROPPED_AT
from applier.sink.commit.stamp import Stamp
from applier.sink.control.table_record import TableRecord
from applier.sink.iceberg.snapshot import Figures
from applier.watch.report import StepProgress, TableProgress, TableState, Trouble, iso, iso_of


class TableHead(NamedTuple):
    """What the metadata of a table shows.

    Attributes:
        figures: Those of its head; None while it has none.
        stamp: The newest one of the changefeed; None where it has not written the table.
        has_cut: The snapshot that the newest checkpoint lists is kept.
        rolled_back: Why it shows less than it did, and what ends that; None for a table that was not set back.
    """

    figures: Figures | None = None
    stamp: Stamp | None = None
    has_cut: bool = True
    rolled_back: Trouble | None = None


def with_records(last: Checkpoint, stamps: Mapping[TableName, Stamp | None]) -> Checkpoint:
    """A checkpoint with what tables say of themselves since, by their stamps: they lack rows, or have left the feed."""
    tables = dict(last.tables)
    for name, stamp in stamps.items():
        record = None if stamp is None else TableRecord.told_by(stamp.extra)
        is_settled = last.moving is None or name not in last.moving.tables
        if record is not None and (record.name, record.job) == (name, "") and is_settled:
            known, own = tables[name].completeness, record.known
            if known is None or (not known.is_parked and own.is_parked) or (known.is_live and not own.is_live):
                tables[name] = tables[name]._replace(completeness=own)
    return replace(last, tables=tables)


def table_progress(
    name: TableName, identifier: tuple[str, ...], head: TableHead | None, last: Checkpoint
) -> TableProgress:
    """How far a table is by its metadata, whatever is recorded of its rows; None for one that the catalog lacks."""
    cut = last.snapshots.get(identifier)
    if head is not None and head.stamp and DROPPED_AT in head.stamp.extra and cut is None:
        head = None  # It is another one, which was dropped upstream and is kept.
    if head is None:
        state: TableState = "empty" if cut is None else "missing"
        return TableProgress(str(name), ".".join(identifier), state, cut_snapshot_id=cut)
    stamp = head.stamp.resolved_ts if head.stamp else 0
    state = _state(head, cut, stamp, last.resolved_ts)
    found, back = head.figures, head.rolled_back if state == "rolled back" else None
    return TableProgress(
        table=str(name),
        iceberg=".".join(identifier),
        state=state,
        resolved_ts=stamp or None,
        resolved=iso_of(stamp),
        rows=found.rows if found else 0,
        files=found.files if found else 0,
        committed=iso(found.committed_ms) if found else None,
        snapshot_id=found.snapshot_id if found else None,
        cut_snapshot_id=cut,
        because=back.because if back else None,
        way_out=back.way_out if back else None,
    )


def _state(head: TableHead, cut: int | None, stamp: int, resolved_ts: int) -> TableState:
    if head.stamp and DROPPED_AT in head.stamp.extra:
        return "dropped"
    if head.rolled_back:
        return "rolled back"
    if stamp > resolved_ts > 0:
        return "ahead"
    if cut is None:
        return "empty"
    return "in step" if head.has_cut else "expired"


def step_progress(
    step: int, at_ms: int, resolved_ts: int | None, counts: Mapping[str, int], seconds: Mapping[str, float]
) -> StepProgress:
    """What a step did, which was written down at a Unix time in milliseconds; without a watermark it has no lag."""
    return StepProgress(
        step=step,
        at=iso(at_ms),
        lag_seconds=age(resolved_ts, at_ms) if resolved_ts else None,
        messages=counts.get("messages", 0),
        rows=counts.get(Fate.APPLIED, 0),
        tables=counts.get("tables", 0),
        backlog=counts.get("backlog"),
        seconds={stage: round(spent, 3) for stage, spent in seconds.items()},
    )
