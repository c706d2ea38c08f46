"""Determines from a table's metadata whether a user set it to an older snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from applier import wording
from applier.changefeed.table import TableName
from applier.commands.catalog_reader import LakeTable
from applier.config.settings import Config
from applier.sink.commit.foreign_commits import BACKFILL, is_older, lacks, trace
from applier.sink.commit.stamp import CHANGEFEED, RESOLVED_TS, Stamp, read
from applier.watch.report import Trouble, spark_name


def rollback(name: TableName, table: LakeTable, cut: int | None, config: Config) -> Trouble | None:
    """Find out whether a table was rolled back, by the rules by which `run` refuses it.

    A head that was made on `cut`, the snapshot that the newest checkpoint lists, is no rollback: a compaction, rows of
    another writer.
    """
    changefeed = config.changefeed.name
    known, found = own_stamp(table.properties, changefeed), trace(table.history(table.snapshot_id), changefeed)
    is_behind = is_older(known, found)
    if not is_behind and (cut is None or not lacks(table.history(table.snapshot_id), cut, table.history)):
        return None
    newest = _newest(table, known, cut)
    than = f"snapshot {newest}, its newest" if newest is not None else "its stamp"
    shown = f"it shows snapshot {table.snapshot_id}, which is older than {than}"
    # It may lack a DDL of that very commit ts.
    bound = str(found.resolved_ts - 1) if is_behind and found.resolved_ts else "beginning"
    because = f"Table {table} was rolled back by hand: {shown}."
    return Trouble(because, _way_out(name, table, newest, bound, config))


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
    if known is not None and known.resolved_ts and (lost := [*_stamped(table, known, shown)]):
        return lost[-1]
    return cut if cut in table.snapshots and cut not in shown else None


def _stamped(table: LakeTable, known: Stamp, shown: Collection[int]) -> Iterator[int]:
    """Snapshots with the newest stamp that are not shown; those of branches have it from their backfill."""
    wanted = {CHANGEFEED: known.changefeed, RESOLVED_TS: str(known.resolved_ts)}
    for snapshot in table.snapshots.values():
        is_newest = wanted.items() <= snapshot.summary.items() and BACKFILL not in snapshot.summary
        if is_newest and snapshot.id not in shown:
            yield snapshot.id


def _way_out(name: TableName, table: LakeTable, newest: int | None, bound: str, config: Config) -> str:
    if newest is None:
        return wording.set_again(name, "", bound, config.path)
    identifier = spark_name(table.identifier).replace("'", "\\'")
    call = f"CALL {spark_name([config.catalog.name])}.system.set_current_snapshot('{identifier}', {newest})"
    return wording.set_again(name, call, bound, config.path)
