"""Command `status`: how far a changefeed is, who holds it, and the queries that read all its tables as of one moment.

It reads the control tables and the metadata of the tables through PyIceberg; no Spark, no row of a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

from applier import wording
from applier.changefeed.checkpoint import Checkpoint, Cut
from applier.changefeed.history import COMPLETE_FROM, SUFFIX
from applier.changefeed.table import TableName
from applier.commands.catalog_reader import Lake, LakeTable, open_lake
from applier.commands.control_reader import ControlView
from applier.commands.status.cut import Engine, queries
from applier.config.settings import Config
from applier.errors import TransientError
from applier.order.feed_order import ORDERS
from applier.pipeline.first_look import lost_catalog, new_lake
from applier.pipeline.tables import kept_tables
from applier.pipeline.tables.ddl_stamp import DROPPED_AT
from applier.pipeline.tables.loads import LoadRecord, place_of
from applier.pipeline.tables.rerouted import settled
from applier.sink.commit.foreign_commits import BACKFILL, is_older, lacks, trace
from applier.sink.commit.stamp import CHANGEFEED, RESOLVED_TS, Stamp, read
from applier.sink.control.tables import CHECKPOINTS
from applier.watch.compose import Facts, compose, dropped_table, empty, in_cut
from applier.watch.progress import TableHead, moved, table_progress, with_records
from applier.watch.report import DroppedTable, StatusReport, Trouble, iso_of, spark_name


def rollback(name: TableName, table: LakeTable, cut: int | None, known: Stamp | None, config: Config) -> Trouble | None:
    """Find out whether a table was rolled back, by the rules by which `run` refuses it.

    A head that was made on `cut`, the snapshot that the newest checkpoint lists, is no rollback: a compaction, rows of
    another writer. `known` is the stamp of the changefeed.
    """
    found = trace(table.history(table.snapshot_id), config.changefeed.name)
    is_behind = is_older(known, found)
    if not is_behind and (cut is None or not lacks(table.history(table.snapshot_id), cut, table.history)):
        return None
    newest, call = _newest(table, known, cut), ""
    than = f"snapshot {newest}, its newest" if newest is not None else "its stamp"
    shown = f"it shows snapshot {table.snapshot_id}, which is older than {than}"
    # It may lack a DDL of that very commit ts.
    bound = str(found.resolved_ts - 1) if is_behind and found.resolved_ts else "beginning"
    because = f"Table {table} was rolled back by hand: {shown}."
    if newest is not None:
        identifier = spark_name(table.identifier).replace("'", "\\'")
        call = f"CALL {spark_name([config.catalog.name])}.system.set_current_snapshot('{identifier}', {newest})"
    return Trouble(because, wording.set_again(name, call, bound, config.path))


def own_stamp(properties: Mapping[str, str], changefeed: str) -> Stamp | None:
    """The stamp of a changefeed in the properties of a table; None where there is none, or none that can be read."""
    try:
        known = read(properties)
    except (KeyError, ValueError):
        return None
    return known if known is not None and known.changefeed == changefeed else None


def _newest(table: LakeTable, known: Stamp | None, cut: int | None) -> int | None:
    """The snapshot that the table should show; None if it has expired."""
    shown = {snapshot.id for snapshot in table.history(table.snapshot_id)}
    if known is not None and known.resolved_ts:
        wanted = {CHANGEFEED: known.changefeed, RESOLVED_TS: str(known.resolved_ts)}
        stamped = (it for it in table.snapshots.values() if wanted.items() <= it.summary.items())
        # The snapshots of a branch have the stamp from their backfill.
        if lost := [it.id for it in stamped if BACKFILL not in it.summary and it.id not in shown]:
            return lost[-1]
    return cut if cut in table.snapshots and cut not in shown else None


_THREADS = 8


def status(
    config: Config, *, max_lag_seconds: float | None = None, now_ms: int, engine: Engine | None = None
) -> StatusReport:
    """Find out how far a changefeed is; its tables are stale from a lag of `max_lag_seconds` on, whatever explains it,
    by default from the configured one on. The queries of the cut are for an `engine`, by its moment; without
    one they are Spark's, by snapshots.

    Raises:
        ConfigError: The catalog cannot be read without Spark, or the route of tables was changed.
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
            last = settled(last, config.route.identifier, lake.holds)
            found = _tables(lake, last, config)
            heads = [
                (name, place, _head(name, found.get(place), last, config)) for name, place in _places(last, config)
            ]
            last = with_records(last, {name: head.stamp for name, _, head in heads if head is not None})
            tables = [(name, table_progress(name, place, head, last)) for name, place, head in heads]
            dropped, unknown = _dropped(view, last, config)
            facts = Facts(last, tables, view.decisions(), view.letters(), steps, dropped)
            report = compose(
                config, facts, max_lag_seconds, now_ms, lambda name: _loaded(lake, name, config), is_strict=is_strict
            )
            report = replace(report, notes=(*report.notes, *unknown, *_late_changes(lake, last, config)))
            if engine is None or not report.cut:
                return report
            cut = Cut(in_cut(last, report.tables), last.cut.at)
            return replace(report, cut=queries(engine, config.catalog, cut, found, lake.metadata_of))
        report = empty(config, max_lag_seconds, now_ms)
        if epoch := view.lost_epoch():
            lost = f"The control table {'.'.join(view.name(CHECKPOINTS))} is lost: other tables know epoch {epoch}."
            return replace(report, notes=(Trouble(lost),))
        error = None if lake.namespaces() else lost_catalog(config)
        way_out = f"{wording.begin(config.path)} {wording.WAY_TO_THE_LAKE.capitalize()}"
        new = Trouble(error.what, error.hint) if error else Trouble(new_lake(config), way_out)
        return replace(report, stale=(new,))


def _late_changes(lake: Lake, last: Checkpoint, config: Config) -> list[Trouble]:
    """Tables of changes that lack earlier ones; nothing is read for tables without."""
    changes = config.type_rules.changes
    owners = {(*at[:-1], f"{at[-1]}{SUFFIX}"): name for name, at in _places(last, config) if changes(name) is not None}
    with ThreadPoolExecutor(_THREADS) as pool:
        found = [table for table in pool.map(lake.table, owners) if table is not None]
    return [
        Trouble(f"Table {table} {_reach(int(since), config.type_rules.shape_of(name).history_days)}", table=str(name))
        for name, table in ((owners[table.identifier], table) for table in found)
        if (since := table.properties.get(COMPLETE_FROM)) is not None
    ]


def _reach(since: int, days: int | None) -> str:
    removed = "" if days is None else f": those of days more than history_days = {days} back are removed"
    return f"has the changes above commit ts {since} ({iso_of(since + 1)}), and may lack earlier ones{removed}."


def _places(last: Checkpoint, config: Config) -> list[tuple[TableName, tuple[str, ...]]]:
    return [(name, config.route.identifier(name)) for name in sorted(last.tables)]


def _tables(lake: Lake, last: Checkpoint, config: Config) -> dict[tuple[str, ...], LakeTable]:
    with ThreadPoolExecutor(_THREADS) as pool:
        found = pool.map(lambda item: lake.table(item[1]), _places(last, config))
    return {table.identifier: table for table in found if table is not None}


def _dropped(
    view: ControlView, last: Checkpoint, config: Config
) -> tuple[list[DroppedTable] | None, tuple[Trouble, ...]]:
    """The tables that were dropped upstream and are kept; None, and why, where the catalog does not show them.

    Each namespace that has or had a table of the changefeed is listed once. Loaded are those of its tables alone that
    the checkpoint does not list, and that have the name that a kept one would have.
    """
    lake, own = view.lake, {place for _, place in _places(last, config)}
    try:
        places = {config.route.identifier(name): name for name in sorted({*view.names(), *last.tables})}
        with ThreadPoolExecutor(_THREADS) as pool:
            listed = chain(*pool.map(lake.tables, kept_tables.namespaces(places)))
            named = {at: kept_tables.upstream(at, None, places) for at in listed if at not in own}
            found = [*pool.map(lake.table, [at for at, name in named.items() if name is not None])]
    except TransientError as error:
        return None, (Trouble(f"Which dropped tables are kept is not known: {error.what}", error.hint),)
    kept = []
    for table in found:
        stamp = None if table is None else own_stamp(table.properties, config.changefeed.name)
        if table is None or stamp is None or DROPPED_AT not in stamp.extra:
            continue
        dropped_ts = int(stamp.extra[DROPPED_AT])
        if (name := kept_tables.upstream(table.identifier, dropped_ts, places)) is not None:
            kept.append(dropped_table(name, table.identifier, dropped_ts, config, table.figures))
    return kept, ()


def _head(name: TableName, table: LakeTable | None, last: Checkpoint, config: Config) -> TableHead | None:
    """What the metadata of a table shows; one that was rolled back shows less than the cut."""
    if table is None:
        return None
    cut = last.cut.heads.get(table.identifier)
    stamp = own_stamp(table.properties, config.changefeed.name)
    has_cut = cut is None or cut in table.snapshots
    # Others have expired the cut of one that is ahead: a backup of before it would have an older stamp.
    is_ahead = stamp is not None and stamp.resolved_ts > last.resolved_ts
    listed = cut if has_cut or not is_ahead else None
    return TableHead(table.figures, stamp, has_cut, rollback(name, table, listed, stamp, config))


def _loaded(lake: Lake, name: TableName, config: Config) -> float | None:
    """Share of its export that is in the table which it is loaded into."""
    table = lake.table(place_of(config.changefeed.name, name))
    load = None if table is None else LoadRecord.told_by(table.properties)
    return None if load is None else round(load.share, 3)
