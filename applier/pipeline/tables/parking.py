"""Parks tables: no rows and no DDL are applied to them, and their place in the feed is kept."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from applier import wording
from applier.changefeed.completeness import Completeness, Reason, Why, incomplete
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName
from applier.config.settings import Config
from applier.ddl.actions import touches
from applier.errors import TableMismatch, TerminalError
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.state import State
from applier.pipeline.tables.listed_tables import SNAPSHOT
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime.logs import logger
from applier.sink.commit.foreign_commits import set_back
from applier.ways_out import WaysOut


def park(
    state: State,
    targets: TargetTables,
    name: TableName,
    reason: Reason,
    partners: tuple[TableName, ...] = (),
    begin: FeedPosition | None = None,
) -> None:
    """Apply no rows and no DDL of a table from here on; readers keep its last true snapshot.

    A table that is parked already keeps its place in the feed. The partners are tables that resume with it. A table
    that is not known yet is placed at `begin`.
    """
    known = state.completeness.get(name, incomplete(Why.NO_CREATE))
    together = tuple(dict.fromkeys([*known.partners, *partners]))
    if known.is_parked:
        state.completeness[name] = replace(known, partners=together)
        return
    order = targets.feed.order
    # Another table that has its name says nothing of it.
    applied = (targets.applied_ts(name) or 0) if order.has_watermark and targets.damage(name) is None else 0
    state.completeness[name] = Completeness(
        reason,
        since=max(state.resolved_ts, applied),
        position=_position(state, targets, name) or begin,
        lacked=None if known.is_live else known.reason,
        partners=together,
        origin=known.origin,
    )


def _position(state: State, targets: TargetTables, name: TableName) -> FeedPosition | None:
    """Where a table is, within a step: its rows and DDL up to here are applied; None for one that is not known."""
    version, last = state.tables.get(name), state.checkpoint
    if version is None:
        return None
    ts, ddl = state.ddl.altered.get(name, (0, ()))
    is_timed = targets.feed.order.has_watermark
    if ts <= last.resolved_ts or not is_timed:
        ts, ddl = last.resolved_ts, (*last.ddl, *ddl)
    return FeedPosition(
        name,
        ts,
        ddl,
        # Without an offset of its own, a partition would be read from wherever it begins by then.
        last.partitions if is_timed else {**state.entered, **last.partitions},
        version.version,
        state.tables.partitioning(name),
        last.feed.passed.get(name, {}),
        table=identity(targets, name),
    )


def identity(targets: TargetTables, name: TableName) -> str:
    """What a table is, as `FeedPosition.table` has it."""
    listed, identifier = targets.listed, targets.identifier(name)
    if (lacked := _set_back_from(targets, name)) is not None:
        return f"{SNAPSHOT}{lacked}"
    if known := listed.identity(identifier):
        return known
    writer = None if targets.damage(name) is not None else targets.writer(name)
    head = listed.head(identifier)
    if writer is not None and (writer.known is not None or head is None):
        return writer.table.identity
    return "" if head is None else f"{SNAPSHOT}{head}"


def _set_back_from(targets: TargetTables, name: TableName) -> int | None:
    """The snapshot that a table must have again, of those that were set to an older one; None for any other.

    A parked table is listed with no snapshot: at the next start it would count as repaired.
    """
    listed, identifier = targets.listed, targets.identifier(name)
    if (head := listed.head(identifier)) is not None:
        with suppress(TableMismatch):
            writer = targets.writer(name)
            if writer is not None and listed.identity(identifier) in ("", writer.table.identity):
                return head if set_back(writer.table, head) else None
    return None


def reason_of(why: Why, error: TerminalError, name: TableName, ways: WaysOut, ddl: int = 0) -> Reason:
    """Why a table is parked that an error concerns; the ways out are those of the changefeed."""
    return Reason(why, error.clause, ddl, ways.of_error(error.mend, name))


def report(state: State, name: TableName) -> None:
    """Log that a table was parked, why, and how it comes back."""
    found = state.completeness[name]
    because, way_out = wording.clause(found.reason), state.ways.of([name], found)
    logger().warning("table parked", table=str(name), because=because, way_out=way_out)


def give_up(state: State, name: TableName, error: TerminalError, *, is_lost: bool = False) -> None:
    """Leave a table parked that cannot be brought back; if it is lost, the feed will never hold what it misses."""
    known = state.completeness[name]
    # A person who had it brought back no longer has it parked on purpose.
    why = Why.ROW if known.why is Why.BY_HAND else known.why
    reason = reason_of(why, error, name, state.ways, error.ddl if why is Why.DDL else 0)
    position = None if is_lost else known.position
    state.completeness[name] = replace(known, is_due=False, reason=reason, position=position)
    report(state, name)


def refusing(ddl: Ddl, state: State, config: Config) -> list[TableName]:
    """The tables to park for a DDL that cannot be applied; () if the changefeed cannot go on without it."""
    admits = config.filter.admits
    names: list[TableName] = []
    for action, done in ddl.done:
        if any(table in state.tables for table, _ in done.moved):
            # Rows of both names follow, and they do not show whose they are.
            return []
        names += done.brought or touches(action)
    found = [name for name in dict.fromkeys(names or ddl.swept) if admits(name) or name in state.parked]
    return found if set(found) - state.parked else []


def follow_include(state: State, targets: TargetTables, name: TableName, *, is_wanted: bool) -> None:
    """Let a parked table resume whose new name `tables.include` admits, and park one whose name it does not."""
    known = state.completeness.get(name)
    if known is None:
        return
    if not known.is_parked:
        if not is_wanted:
            park(state, targets, name, Reason(Why.LEFT_OUT))
    elif is_wanted and known.why.is_left_out:
        known = replace(known, reason=Reason(Why.LEFT_OUT_BEFORE))
        state.completeness[name] = known if known.position is None else known.coming_back
    elif not is_wanted and (known.why is not Why.LEFT_OUT or known.is_due):
        state.completeness[name] = replace(known, reason=Reason(Why.LEFT_OUT), is_due=False)
