"""Evidence for the completeness of tables: how a table becomes live, incomplete or parked, and what that excludes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from applier.changefeed.completeness import LEFT_OUT, LIVE, NO_CREATE, UNMET, UNRECORDED, Completeness
from applier.changefeed.filter import TableFilter
from applier.changefeed.table import TableName
from applier.config.settings import Config
from applier.ddl import actions as say
from applier.ddl.parser import parse
from applier.errors import SchemaChangeRefused, TableIncomplete, TableMismatch
from applier.pipeline.schema_changes.stamp import DROPPED_STATE
from applier.pipeline.schema_changes.statements import Ddl
from applier.pipeline.state import State
from applier.pipeline.target_tables import ADOPTED, TargetTables
from applier.runtime.logs import logger

_CAME_BACK = "it came back from a drop, and nothing shows what it lacked before"
_SHOWN = 5


def judge(state: State, targets: TargetTables, config: Config) -> None:
    """Know the completeness of each table at a start.

    A table that `tables.include` does not admit any more is parked from here on. One that it admits again stays
    parked: the rows of the time between are missing, and the rows that follow would not mend that.
    """
    admits = TableFilter(config.tables.include).admits
    unknown = [name for name in state.tables if name not in state.completeness]
    made = _made_by_the_feed(state) if unknown else set()
    for name in unknown:
        is_whole = name in made or _is_loaded(targets, name, config)
        state.completeness[name] = LIVE if is_whole else Completeness("incomplete", reason=UNRECORDED)
    now = parked(state, targets, LEFT_OUT)
    for name in state.tables:
        known = state.completeness[name]
        if not admits(name) and known.state != "parked":
            state.completeness[name] = now
        elif admits(name) and known == now:
            # Nothing was applied meanwhile, so no row is missing.
            _show(state, targets, name, LIVE)


def adopt(state: State, targets: TargetTables, name: TableName, why: str) -> None:
    """Take a table for whole because the user says so.

    Raises:
        TableMismatch: The catalog has no such table, or it holds no rows.
    """
    writer = targets.writer(name)
    if writer is None or writer.head is None:
        what = f"Table {'.'.join(targets.identifier(name))} is not in the catalog, or holds no rows."
        raise TableMismatch(what, "load the rows of the upstream table first, then give the command again.")
    _show(state, targets, name, Completeness("live", reason=f"adopted: {why}"))


def _show(state: State, targets: TargetTables, name: TableName, known: Completeness) -> None:
    """Let a table be part of the cut again."""
    state.completeness[name] = known
    writer = targets.writer(name)
    if writer is not None:
        targets.committed(writer, writer.head)


def parked(state: State, targets: TargetTables, reason: str) -> Completeness:
    """The completeness of a table of which no row beyond the checkpoint is applied."""
    if targets.ordered:
        return Completeness("parked", since=state.resolved_ts, reason=reason)
    return Completeness("parked", offsets=state.next_offsets, reason=reason)


def warn(state: State) -> None:
    """Log each table that is not live."""
    for name, found in sorted(state.completeness.items()):
        if not found.is_live:
            _warn(name, found)


def meet(names: Iterable[TableName], ddl: Sequence[Ddl], state: State, targets: TargetTables, config: Config) -> None:
    """Take note of tables of which rows arrive, before any of them is written.

    Args:
        names: The tables of a window's rows.
        ddl: The DDL of the window.
        state: What is known; it is changed.
        targets: The tables.
        config: Says what becomes of tables that may lack rows.

    Raises:
        TableIncomplete: Nothing proves that a table is whole, and the configuration refuses such tables.
    """
    coming = {name for item in ddl for action in item.actions for name in _brought(action)}
    new = sorted({name for name in names if name not in coming and (name not in state.tables or is_unmet(name, state))})
    found = {
        name: Completeness("live", reason="it was loaded before")
        if _is_loaded(targets, name, config)
        else Completeness("incomplete", reason=NO_CREATE)
        for name in new
    }
    lacking = [name for name, item in found.items() if not item.is_live]
    if lacking and config.tables.incomplete == "refuse":
        raise _refusal(lacking)
    state.completeness |= found
    for name in lacking:
        _warn(name, found[name])


def meet_ddl(name: TableName, state: State, targets: TargetTables, config: Config) -> None:
    """Take note of a table that a DDL changes before any row of it has come; its rows are yet to be judged."""
    is_loaded = _is_loaded(targets, name, config)
    loaded = Completeness("live", reason="it was loaded before")
    state.completeness[name] = loaded if is_loaded else Completeness("incomplete", reason=UNMET)


def is_unmet(name: TableName, state: State) -> bool:
    """Whether DDL alone concerned a table so far whose CREATE TABLE the feed does not hold: no row of it has come."""
    known = state.completeness.get(name)
    return known is not None and known.reason == UNMET


def follow(action: say.Action, state: State, targets: TargetTables, *, ignored: bool) -> None:
    """Move the completeness of tables past a DDL that the feed carries.

    Args:
        action: The action, which the tables have taken.
        state: What is known; it is changed.
        targets: The tables.
        ignored: The configuration ignores it: a TRUNCATE has emptied no table, and so made none whole.
    """
    known = state.completeness
    match action:
        case say.CreateTable(table):
            known[table] = LIVE
        case say.TruncateTable(table) if table in known and known[table].state != "parked" and not ignored:
            known[table] = LIVE
        case say.DropTable(table):
            known.pop(table, None)
        case say.DropDatabase(database):
            for name in [name for name in known if name.database.lower() == database.lower()]:
                del known[name]
        case say.RenameTable(table, to):
            known.pop(to, None)
            if table in known:
                known[to] = known.pop(table)
        case say.RecoverTable(table, to):
            known[to or table] = _recovered(targets, to or table, known.get(table))


def pass_over(group: Sequence[say.Action], state: State) -> None:
    """Take note of a DDL that a parked table has not taken: it no longer has the columns of its upstream table."""
    for name in {name for action in group for name in say.touches(action)} & state.parked:
        state.completeness[name] = replace(state.completeness[name], missed_ddl=True)


def cut(state: State, targets: TargetTables) -> Mapping[tuple[str, ...], int]:
    """Heads of the tables that show every row at the resolved ts: the consistent cut."""
    live = {targets.identifier(name) for name, found in state.completeness.items() if found.is_live}
    return {identifier: head for identifier, head in targets.snapshots.items() if identifier in live}


def _brought(action: say.Action) -> tuple[TableName, ...]:
    """Tables that a DDL makes, brings back or gives a name: what they hold, the feed shows."""
    match action:
        case say.CreateTable(table):
            return (table,)
        case say.RenameTable(_, to):
            return (to,)
        case say.RecoverTable(table, to):
            return (to or table,)
        case _:
            return ()


def _recovered(targets: TargetTables, name: TableName, live: Completeness | None) -> Completeness:
    """The completeness of a table that comes back: that of the drop, or of the truncated table beside it."""
    writer = targets.writer(name)
    before = writer.table.setting(DROPPED_STATE) if writer is not None else None
    if before is None and live is not None:
        return live
    return LIVE if before == "live" else Completeness("incomplete", reason=_CAME_BACK)


def _is_loaded(targets: TargetTables, name: TableName, config: Config) -> bool:
    """True if a table had rows before any applier wrote it, and the configuration says that such tables were loaded."""
    writer = targets.writer(name) if config.changefeed.start == "midstream" else None
    if writer is None:
        return False
    return writer.table.setting(ADOPTED) is not None or (writer.known is None and writer.head is not None)


def _made_by_the_feed(state: State) -> set[TableName]:
    """Tables whose CREATE TABLE or TRUNCATE was applied, as the audit of an older version shows."""
    made: set[TableName] = set()
    for item in state.control.decisions():
        if item.decision not in ("applied", "rewritten"):
            continue
        try:
            actions = parse(item.sql, item.table.database, item.table, item.table)
        except SchemaChangeRefused:
            continue
        for action in actions:
            match action:
                case say.CreateTable(table) | say.TruncateTable(table):
                    made.add(table)
                case say.DropTable(table):
                    made.discard(table)
                case say.RenameTable(table, to) if table in made:
                    made.discard(table)
                    made.add(to)
    return made


def _refusal(names: Sequence[TableName]) -> TableIncomplete:
    shown = ", ".join(map(str, names[:_SHOWN])) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    what = f"Rows arrive of tables whose CREATE TABLE the feed does not hold, so earlier rows may be missing: {shown}."
    hint = (
        'load them first and set changefeed.start = "midstream"; or leave them out in tables.include; or set '
        'tables.incomplete = "allow", which keeps what arrives and marks the tables as incomplete.'
    )
    return TableIncomplete(what, hint)


def _warn(name: TableName, found: Completeness) -> None:
    logger().warning(
        "table is not whole", table=str(name), state=found.state, because=found.reason, way_out=found.way_out(name)
    )
