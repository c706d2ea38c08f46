"""Command `status`: how far a changefeed is, who holds it, and the queries that read all its tables as of one moment.

It reads the control tables and the metadata of the tables through PyIceberg; no Spark, no row of a table.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.route import Route
from applier.changefeed.table import TableName
from applier.commands.catalog_reader import Lake, LakeTable, open_lake
from applier.commands.control_reader import ControlView
from applier.commands.status.rollback import rollback
from applier.config.settings import Config
from applier.order.feed_order import ORDERS
from applier.pipeline.tables.loads import Load, place_of
from applier.sink.commit.stamp import RESOLVED_TS
from applier.sink.control.tables import CHECKPOINTS
from applier.watch.compose import Facts, compose, empty
from applier.watch.report import StatusReport, TableProgress, TableState, Trouble, iso, iso_of
from applier.watch.steps import moved

_THREADS = 8


def status(config: Config, *, max_lag_seconds: float | None = None, now_ms: int) -> StatusReport:
    """Find out how far a changefeed is; its tables are stale from a lag of `max_lag_seconds` on, by default the
    configured one.

    Raises:
        ConfigError: The catalog cannot be read without Spark.
        TransientError: The catalog or its storage does not answer.
        TerminalError: The newest checkpoint cannot be read.
    """
    if max_lag_seconds is None:
        max_lag_seconds = config.http.max_lag_seconds
    with open_lake(config.catalog) as lake:
        view = ControlView(lake, config.changefeed.name)
        last = view.checkpoint()
        if last is not None:
            steps = moved(view.recent(last), ORDERS[config.changefeed.order])
            facts = Facts(last, _tables(lake, last, config), view.decisions(), view.letters(), steps)
            return compose(config, facts, max_lag_seconds, now_ms, loaded=lambda name: _loaded(lake, name, config))
        report = empty(config, max_lag_seconds, now_ms)
        if epoch := view.lost_epoch():
            lost = f"The control table {'.'.join(view.name(CHECKPOINTS))} is lost: other tables know epoch {epoch}."
            return replace(report, notes=(Trouble(lost),))
        return report


def _tables(lake: Lake, last: Checkpoint, config: Config) -> list[tuple[TableName, TableProgress]]:
    names, route = sorted(last.tables), Route(config.tables.route)
    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(lambda name: lake.table(route.identifier(name)), names))
    pairs = zip(names, found, strict=True)
    return [(name, _progress(name, route.identifier(name), table, last, config)) for name, table in pairs]


def _loaded(lake: Lake, name: TableName, config: Config) -> float | None:
    """Share of its export that is in the table which it is loaded into."""
    table = lake.table(place_of(config.changefeed.name, name))
    load = None if table is None else Load.told_by(table.properties)
    return None if load is None else round(load.share, 3)


def _progress(
    name: TableName, identifier: tuple[str, ...], table: LakeTable | None, last: Checkpoint, config: Config
) -> TableProgress:
    """How far a table is by its metadata; a table that was rolled back shows less than the cut."""
    cut = last.snapshots.get(identifier)
    iceberg = ".".join(identifier)
    if table is None:
        return TableProgress(str(name), iceberg, "empty" if cut is None else "missing", cut_snapshot_id=cut)
    text = table.properties.get(RESOLVED_TS, "")
    stamp = int(text) if text.isdecimal() else None
    progress = TableProgress(
        table=str(name),
        iceberg=iceberg,
        state=_state(table, cut, stamp, last.resolved_ts),
        resolved_ts=stamp or None,
        resolved=iso_of(stamp),
        rows=max(0, table.rows - table.dead_rows),
        files=table.files,
        committed=None if table.committed_ms is None else iso(table.committed_ms),
        snapshot_id=table.snapshot_id,
        cut_snapshot_id=cut,
    )
    found = rollback(name, table, cut, config)
    if found is None or progress.state == "dropped":
        return progress
    return replace(progress, state="rolled back", because=found.because, way_out=found.way_out)


def _state(table: LakeTable, cut: int | None, stamp: int | None, resolved_ts: int) -> TableState:
    if "applier.dropped-at" in table.properties:
        return "dropped"
    if stamp is not None and stamp > resolved_ts > 0:
        return "ahead"
    if cut is None:
        return "empty"
    return "in step" if cut in table.snapshots else "expired"
