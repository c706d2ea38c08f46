"""Lets a changefeed that has applied nothing begin at an export, with the tables that were loaded from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from applier.changefeed.completeness import LIVE
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.table import TableName
from applier.errors import TerminalError
from applier.pipeline.jobs.copies import Copies
from applier.pipeline.tables import completeness
from applier.pipeline.tables.loads import LoadRecord, LoadTables, route
from applier.runtime import failpoints
from applier.runtime.logs import logger

if TYPE_CHECKING:
    from applier.pipeline.step import Pipeline


def is_unstarted(main: Pipeline) -> bool:
    """Whether a changefeed has applied nothing, and read nothing."""
    return not main.state.resolved_ts and not main.state.checkpoint.partitions


def refuse_unloaded(main: Pipeline) -> None:
    """Refuse to follow a changefeed that is to begin at an export, before that is loaded.

    Raises:
        TerminalError: It has read nothing yet, and tables of it are being loaded, or an export is configured.
    """
    is_loading = any(known.why.is_loaded for known in main.state.completeness.values())
    if is_unstarted(main) and (is_loading or main.config.upstream.dump):
        name, load = main.config.changefeed.name, f"`applier load -c {main.config.path}`"
        begun = "A load has begun and not ended" if is_loading else "upstream.dump names an export"
        hint = f"Run {load}{' again, which goes on' if is_loading else ''}"
        raise TerminalError(f"Changefeed {name} begins at an export: {begun[0].lower()}{begun[1:]}.", f"{hint}.")


def begin(main: Pipeline, names: Sequence[TableName], readings: Mapping[TopicPartition, Reading]) -> None:
    """Show tables that were loaded, and let the changefeed begin at the TSO of their export.

    After a crash at any point the same may be done again.

    Args:
        main: The pipeline of the changefeed; see `is_unstarted`.
        names: The tables; each is loaded as a whole.
        readings: Where each partition is read from.
    """
    loads = LoadTables(main.targets.catalog, main.targets.feed.name)
    copies, state, tso = Copies(main.targets, "load", route(main.targets.feed.name)), main.state, 0
    for name in names:
        copies.show(name, name)
        load = _shown(main, name)
        tso = load.tso
        state.track(load.version)
        state.tables.put(load.version, load.partitioning)
        state.loaded[name] = load.tso
        state.completeness[name] = LIVE
    failpoints.reach("load-shown")
    cut, upto = completeness.cut(state, main.targets), main.targets.feed.order.as_of(tso) or 0
    state.advance(upto, readings, cut, {"tables": len(names)}, ())
    failpoints.reach("load-begun")
    for name in names:
        loads.discard(name, tso)
    logger().info("changefeed begins", tables=len(names), resolved_ts=tso)


def _shown(main: Pipeline, name: TableName) -> LoadRecord:
    writer = main.targets.writer(name)
    load = None if writer is None else LoadRecord.told_by(writer.table.properties)
    assert load is not None  # noqa: S101 - it has just been shown
    return load
