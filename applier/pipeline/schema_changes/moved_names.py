"""Names that the DDL of a step free or give away: while they do, the catalog does not show whose a name is."""

from __future__ import annotations

from dataclasses import replace

from applier.changefeed.checkpoint import Moving
from applier.changefeed.filter import TableFilter
from applier.changefeed.table import TableName
from applier.errors import ConfigError
from applier.pipeline.scan.window_scan import WindowScan
from applier.pipeline.state import State


def moved_by(scan: WindowScan, state: State) -> Moving:
    """The names that the DDL of a window free or give away, and how far the window reads."""
    tables: dict[TableName, int] = {}
    for ddl in scan.ddl:
        for done in ddl.effects:
            names = (*done.leaving(state.tables), *done.created, *(to for _, to in done.moved))
            tables |= dict.fromkeys(names, ddl.commit_ts)
    return Moving(tables, {place: span.end for place, span in scan.window.ranges.items()})


def begin(state: State) -> None:
    """Keep which names a step frees or gives away, and how far it reads, before it changes the first of its tables."""
    known, coming = state.checkpoint.moving or Moving({}, {}), state.ddl.to_move
    ends = {place: max(end, known.ends.get(place, 0)) for place, end in coming.ends.items()}
    moving = Moving({**known.tables, **coming.tables}, {**known.ends, **ends})
    if moving != known:
        state.write(lambda last: replace(last, moving=moving))


def refuse_unfinished(state: State) -> None:
    """Refuse, by ConfigError, to change what a table is while only the repetition of a failed step shows whose its
    name is.
    """
    if state.checkpoint.moving is not None:
        what = f"{_unfinished(state)}."
        way_out = f"Let `applier run -c {state.ways.config} --once` finish it, and give the command again."
        raise ConfigError([f"{what} {way_out}"])


def refuse_left_out(state: State, include: TableFilter) -> None:
    """Refuse to leave a table out between a step that failed and its repetition, which could not come to its end.

    Raises:
        ConfigError: `tables.include` does not admit a live table that the step was to rename, drop or create.
    """
    for name in state.unsettled:
        known = state.completeness.get(name)
        if known is not None and not known.is_parked and not include.admits(name):
            what = f"{_unfinished(state)}, and now tables.include leaves out {name}."
            finish = f"let `applier run -c {state.ways.config} --once` finish the step"
            raise ConfigError([f"{what} Admit it, {finish}, and leave it out then."])


def _unfinished(state: State) -> str:
    names = ", ".join(sorted(map(str, state.unsettled)))
    if not names:
        return "A step that stopped half-way has changed partitions"
    return f"A step that stopped half-way has renamed or dropped some of these tables: {names}"
