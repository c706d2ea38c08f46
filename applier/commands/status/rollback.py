"""Tells a table that was set to an older snapshot by hand, from the metadata that its catalog has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from applier.changefeed.table import TableName
from applier.commands.catalog_reader import LakeTable
from applier.commands.status.spark_name import spark_name
from applier.config.settings import Config
from applier.sink.commit.foreign_commits import BACKFILL, Trace, is_older, lacks, trace
from applier.sink.commit.stamp import CHANGEFEED, RESOLVED_TS, Stamp, read


class Rollback(NamedTuple):
    """A table that was rolled back.

    Attributes:
        because: What the metadata shows.
        way_out: What makes the table whole again, to be pasted.
    """

    because: str
    way_out: str


def rollback(name: TableName, table: LakeTable, cut: int | None, config: Config) -> Rollback | None:
    """Find out whether a table was rolled back, by the rules by which `run` refuses it.

    A head that was made on the snapshot of the cut is none: a compaction, rows of another writer.

    Args:
        name: The upstream table.
        table: The Iceberg table.
        cut: The snapshot that the newest checkpoint lists; None if it lists none.
        config: The configuration.
    """
    changefeed = config.changefeed.name
    known, found = _stamp(table.properties, changefeed), trace(table.history(table.snapshot_id), changefeed)
    is_behind = is_older(known, found)
    if not is_behind and (cut is None or not lacks(table.history(table.snapshot_id), cut, table.history)):
        return None
    newest = _newest(table, known, cut)
    than = f"snapshot {newest}, its newest" if newest is not None else "its stamp"
    because = (
        f"Table {table} was rolled back by hand: it shows snapshot {table.snapshot_id}, which is older than {than}."
    )
    return Rollback(because, _way_out(name, table, newest, _bound(found, is_behind=is_behind), config))


def _stamp(properties: Mapping[str, str], changefeed: str) -> Stamp | None:
    try:
        known = read(properties)
    except (KeyError, ValueError):
        return None
    return known if known is not None and known.changefeed == changefeed else None


def _newest(table: LakeTable, known: Stamp | None, cut: int | None) -> int | None:
    """The snapshot that the table should show; None if it has expired."""
    shown = {snapshot.id for snapshot in table.history(table.snapshot_id)}
    lost = [*_stamped(table, known)] if known is not None and known.resolved_ts else []
    beyond = [snapshot_id for snapshot_id in lost if snapshot_id not in shown]
    if beyond:
        return beyond[-1]
    return cut if cut in table.snapshots and cut not in shown else None


def _stamped(table: LakeTable, known: Stamp) -> Iterator[int]:
    """Snapshots with the newest stamp; those of branches that no reader sees have it from their backfill."""
    wanted = {CHANGEFEED: known.changefeed, RESOLVED_TS: str(known.resolved_ts)}
    for snapshot in table.snapshots.values():
        if wanted.items() <= snapshot.summary.items() and BACKFILL not in snapshot.summary:
            yield snapshot.id


def _bound(found: Trace, *, is_behind: bool) -> str:
    return str(found.resolved_ts) if is_behind and found.resolved_ts else "beginning"


def _way_out(name: TableName, table: LakeTable, newest: int | None, bound: str, config: Config) -> str:
    repair = f"`applier backfill -c {config.path} --from {bound} --repair --tables '{name}'`"
    if newest is None:
        return f"run {repair}, which applies what it lacks."
    identifier = spark_name(table.identifier).replace("'", "\\'")
    call = f"CALL {spark_name([config.catalog.name])}.system.set_current_snapshot('{identifier}', {newest})"
    return f"set it to that snapshot again, in Spark SQL with `{call}`; or apply what it lacks with {repair}."
