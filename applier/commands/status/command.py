"""Command `status`: how far a changefeed is, who holds it, and the queries that read all its tables as of one moment.

It reads the control tables and the metadata of the tables through PyIceberg; no Spark, no row of a table.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from applier import wording
from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.table import TableName
from applier.commands.catalog_reader import Lake, LakeTable, open_lake
from applier.commands.control_reader import ControlView
from applier.commands.status.cut import Engine, queries
from applier.commands.status.rollback import own_stamp, rollback
from applier.config.settings import Config
from applier.order.feed_order import ORDERS
from applier.pipeline.first_look import lost_catalog, new_lake
from applier.pipeline.tables.loads import LoadRecord, place_of
from applier.sink.control.tables import CHECKPOINTS
from applier.watch.compose import Facts, compose, empty, in_cut
from applier.watch.progress import TableHead, table_progress, with_records
from applier.watch.report import StatusReport, Trouble
from applier.watch.steps import moved

_THREADS = 8


def status(
    config: Config, *, max_lag_seconds: float | None = None, now_ms: int, engine: Engine = "spark"
) -> StatusReport:
    """Find out how far a changefeed is; its tables are stale from a lag of `max_lag_seconds` on, whatever explains it,
    by default from the configured one on. The queries of the cut are for an `engine`.

    Raises:
        ConfigError: The catalog cannot be read without Spark.
        TransientError: The catalog or its storage does not answer.
        TerminalError: The newest checkpoint cannot be read.
    """
    is_strict = max_lag_seconds is not None
    if max_lag_seconds is None:
        max_lag_seconds = config.http.max_lag_seconds
    with open_lake(config.catalog) as lake:
        view = ControlView(lake, config.changefeed.name)
        last = view.checkpoint()
        if last is not None:
            steps = moved(view.recent(last), ORDERS[config.changefeed.order])
            heads = _heads(lake, last, config)
            last = with_records(last, {name: head.stamp for name, _, head in heads if head is not None})
            tables = [(name, table_progress(name, place, head, last)) for name, place, head in heads]
            facts = Facts(last, tables, view.decisions(), view.letters(), steps)
            report = compose(
                config, facts, max_lag_seconds, now_ms, lambda name: _loaded(lake, name, config), is_strict=is_strict
            )
            if engine == "spark" or not report.cut:
                return report
            cut = queries(engine, config.catalog, in_cut(last, report.tables), lake.metadata_of)
            return replace(report, cut=cut)
        report = empty(config, max_lag_seconds, now_ms)
        if epoch := view.lost_epoch():
            lost = f"The control table {'.'.join(view.name(CHECKPOINTS))} is lost: other tables know epoch {epoch}."
            return replace(report, notes=(Trouble(lost),))
        error = None if lake.namespaces() else lost_catalog(config)
        way_out = f"{wording.begin(config.path)} {wording.WAY_TO_THE_LAKE.capitalize()}"
        new = Trouble(error.what, error.hint) if error else Trouble(new_lake(config), way_out)
        return replace(report, stale=(new,))


def _heads(lake: Lake, last: Checkpoint, config: Config) -> list[tuple[TableName, tuple[str, ...], TableHead | None]]:
    names, route = sorted(last.tables), config.route
    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(lambda name: lake.table(route.identifier(name)), names))
    pairs = zip(names, map(route.identifier, names), found, strict=True)
    return [(name, place, _head(name, table, last, config)) for name, place, table in pairs]


def _head(name: TableName, table: LakeTable | None, last: Checkpoint, config: Config) -> TableHead | None:
    """What the metadata of a table shows; one that was rolled back shows less than the cut."""
    if table is None:
        return None
    cut = last.snapshots.get(table.identifier)
    stamp = own_stamp(table.properties, config.changefeed.name)
    has_cut = cut is None or cut in table.snapshots
    return TableHead(table.figures, stamp, has_cut, rollback(name, table, cut, config))


def _loaded(lake: Lake, name: TableName, config: Config) -> float | None:
    """Share of its export that is in the table which it is loaded into."""
    table = lake.table(place_of(config.changefeed.name, name))
    load = None if table is None else LoadRecord.told_by(table.properties)
    return None if load is None else round(load.share, 3)
