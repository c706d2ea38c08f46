"""Evidence for the completeness of tables: how a table becomes live, incomplete or parked, and what that excludes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from applier import wording
from applier.changefeed.checkpoint import Cut, RequestOutcome, Resuming
from applier.changefeed.completeness import LIVE, Completeness, Reason, Why, incomplete
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName
from applier.config.settings import Config
from applier.ddl import actions
from applier.ddl.late_rows import losing
from applier.ddl.parser import parse
from applier.ddl.spelling import Spelling
from applier.errors import SchemaChangeRefused, TableIncomplete, TableMismatch
from applier.order.renames import sequence
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.state import State
from applier.pipeline.tables import parking, table_records
from applier.pipeline.tables.changefeed import ADOPTED
from applier.pipeline.tables.listed_tables import SNAPSHOT
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime.logs import logger
from applier.sink.commit.foreign_commits import set_back, vouched_columns
from applier.sink.control.control import SchemaDecision
from applier.sink.control.rows import IgnoredFor
from applier.sink.write.table_writer import TableWriter

_SHOWN = 5


def judge(state: State, targets: TargetTables, config: Config, *, is_start: bool = True) -> None:
    """Determine the completeness of each table at a start.

    A table that `tables.include` does not admit any more is parked from here on. One that it admits again resumes, and
    so does each whose cause may have gone: the attempt shows it. Only what a user parked stays so.
    """
    admits = config.filter.admits
    is_placed = targets.feed.order.parts_at_ddl
    made = begun(state, is_placed=is_placed) if is_start else {}
    unrecorded = (name for name in state.tables if name not in state.completeness)
    state.completeness |= {name: incomplete(Why.UNRECORDED) for name in unrecorded}
    _leave_out_unlisted(state, targets, admits)
    for name, known in list(state.completeness.items()):
        if not admits(name):
            if not known.is_parked:
                parking.park(state, targets, name, Reason(Why.LEFT_OUT))
            elif known.is_due or known.why is Why.LEFT_OUT_BEFORE:
                # What had parked it is mended, or the attempt shows it again.
                state.completeness[name] = replace(known, reason=Reason(Why.LEFT_OUT), is_due=False)
        elif is_start and name not in state.unsettled:
            try_again(state, targets, name)
    _end_letters(state, targets)
    for name, item in made.items():
        before = state.completeness.get(name)
        if item.is_left_out and admits(name) and (before is None or (before.is_parked and before.position is None)):
            position = item.position if is_placed else None
            state.completeness.pop(name, None)  # As in `_follow_begun`.
            reason = Reason(Why.LEFT_OUT_BEFORE)
            state.completeness[name] = Completeness(reason, state.resolved_ts, position, is_due=is_placed)


def _leave_out_unlisted(state: State, targets: TargetTables, admits: Callable[[TableName], bool]) -> None:
    """Park tables that `tables.include` leaves out and whose checkpoint is lost.

    Where such a table is in the feed, its stamp alone does not show: DDL at that very ts may be in it, or not.
    """
    for name in state.unsaid.keys() - state.completeness if state.checkpoint.is_lost else ():
        if not admits(name):
            state.completeness[name] = Completeness(Reason(Why.LEFT_OUT), targets.applied_ts(name) or 0)


def try_again(state: State, targets: TargetTables, name: TableName) -> None:
    """Let a parked table resume at a start, unless only a command brings it back."""
    known = state.completeness.get(name)
    if known is None or not known.why.is_tried_again:
        return
    if known.why is Why.LEFT_OUT:
        known = state.completeness[name] = replace(known, reason=Reason(Why.LEFT_OUT_BEFORE))
    if known.position is None:
        return
    # One whose Iceberg table is still damaged would only fail again.
    if damage_at(state, targets, name, known.position) is None:
        state.completeness[name] = known.coming_back


def damage_at(
    state: State, targets: TargetTables, name: TableName, position: FeedPosition | None
) -> TableMismatch | None:
    """Why the table that readers see cannot go on from its place in the feed; a loaded one takes its place."""
    if position is not None and position.is_loaded:
        return None
    version = None if position is None else state.versions.get((position.name, position.version or 0))
    damage = targets.damage(name, is_listed=position is not None and position.version is not None, version=version)
    if damage is not None or position is None or not position.table.startswith(SNAPSHOT):
        return damage
    writer = targets.writer(name)
    return None if writer is None else set_back(writer.table, int(position.table.removeprefix(SNAPSHOT)))


class Begun(NamedTuple):
    """How a table came to be, as the audit of DDL shows it.

    Attributes:
        position: The place in front of its CREATE TABLE.
        is_made: The DDL that left it without older rows was applied: every row since is in the table.
        is_left_out: `tables.include` left the table out at that time.
    """

    position: FeedPosition
    is_made: bool
    is_left_out: bool


def end_letters(state: State, targets: TargetTables) -> None:
    """Once no dead letter is left, tables that lacked only rows of dead letters are whole again."""
    if _end_letters(state, targets):
        write(state, targets, state.checkpoint.resuming)


def _end_letters(state: State, targets: TargetTables) -> bool:
    states = state.completeness.items()
    lacking = [name for name, known in states if known.why is Why.LETTERS]
    parked = [name for name, known in states if known.lacked is not None and known.lacked.why is Why.LETTERS]
    letters = state.control.letters(every=True) if lacking or parked else []
    if not (lacking or parked) or any(letter.error for letter in letters):
        return False
    for name in lacking if letters else ():
        _show(state, targets, name, replace(state.completeness[name], reason=LIVE.reason))
    # Letters that were made up for leave a trace: without any, nothing shows which rows the tables lack.
    for name in () if letters else [*lacking, *parked]:
        known, lost = state.completeness[name], Reason(Why.LETTERS_LOST)
        state.completeness[name] = replace(known, lacked=lost) if known.is_parked else replace(known, reason=lost)
    return bool(lacking) or not letters


def begun(state: State, *, is_placed: bool = True) -> dict[TableName, Begun]:
    """How each table came to be whose CREATE TABLE or TRUNCATE the audit of DDL holds, by the names of now.

    Where nothing shows the place of DDL among rows, a run passes a RENAME that it refused: no table here got the name.
    """
    # The audit has a row for each part of a statement, and more where it was refused first, or by a job.
    statements: dict[int, dict[str, list[SchemaDecision]]] = {}
    for item in (item for item in state.control.decisions() if item.decision != "lost"):
        statements.setdefault(item.commit_ts, {}).setdefault(item.sql, []).append(item)
    found: dict[TableName, Begun] = {}
    names = Spelling((), (item.table for texts in statements.values() for items in texts.values() for item in items))
    for texts in statements.values():
        for written, items in _as_made(texts.values(), found):
            names.meet_database(items[0].table.database)
            action = names.spelt(written)
            names.follow(action)
            own = [item for item in items if item.table in actions.touches(action)[:1]] or items
            is_passed = own[-1].decision == "refused" and not is_placed
            _follow_begun(found, actions.effect(action), own[-1], is_passed=is_passed)
    return found


def _as_made(
    texts: Iterable[list[SchemaDecision]], there: Iterable[TableName]
) -> list[tuple[actions.Action, list[SchemaDecision]]]:
    """The actions of one commit ts: renames of tables that were left out stand in the audit in any order."""
    found: list[tuple[actions.Action, list[SchemaDecision]]] = []
    for items in texts:
        first = items[0].table
        with suppress(SchemaChangeRefused):
            found += [(action, items) for action in parse(items[0].sql, first.database, first, first)]
    pairs = [(action.table, action.to) for action, _ in found if isinstance(action, actions.RenameTable)]
    if len(pairs) < len(found) or any(items[-1].ignored_for is not IgnoredFor.LEFT_OUT for _, items in found):
        return found
    concerned = {name for pair in pairs for name in pair}
    order = sequence(pairs, concerned & set(there))
    if order is None:
        # Nothing shows which table has which name from here on.
        return [(actions.DropTable(actions.touches(action)[0]), items) for action, items in found]
    return [found[place] for place in order]


def _follow_begun(
    found: dict[TableName, Begun], done: actions.Effect, made: SchemaDecision, *, is_passed: bool
) -> None:
    is_made, is_left_out = made.decision in ("applied", "rewritten"), made.ignored_for is IgnoredFor.LEFT_OUT
    for table in (*done.created, *(to for _, to in done.moved)):
        found.pop(table, None)  # Another table had the name, maybe in other letters, which its key would keep.
    for table in done.created:
        found[table] = Begun(FeedPosition(table, made.commit_ts - 1), is_made, is_left_out)
    for table in done.emptied if is_made else ():
        emptied = Begun(FeedPosition(table, made.commit_ts), is_made, is_left_out=False)
        found[table] = found.get(table, emptied)._replace(is_made=True)
    for table in done.removed:
        found.pop(table, None)
    for table, to in done.moved:
        if table in found:
            item = found.pop(table)
            found[to] = item._replace(is_left_out=item.is_left_out or is_passed)


def adopt(state: State, targets: TargetTables, name: TableName, why: str) -> None:
    """Take a table for whole because the user says so.

    Raises:
        TableMismatch: The catalog has no such table, or it holds no rows.
    """
    # Whatever table has the name now is the one that the user means.
    targets.forget(name)
    writer = targets.writer(name)
    if writer is None or writer.head is None:
        it = ".".join(targets.identifier(name))
        unwritten = f"Table {it} holds no rows: nothing was ever written to it."
        hint = f"{state.ways.load([name])}; that makes it live, also where the upstream table is empty."
        raise TableMismatch(unwritten if writer else f"Table {it} is not in the catalog.", hint)
    _take_columns(state, targets, name, writer)
    _show(state, targets, name, Completeness(Reason(Why.ADOPTED, why)))


def _take_columns(state: State, targets: TargetTables, name: TableName, writer: TableWriter) -> None:
    """Let a table that a user brought to its upstream have the columns that it has now: else it counts as damaged."""
    version, known = state.tables.get(name), writer.known
    if version is not None and known is not None:
        entries = vouched_columns(writer.table, {column.name for column in version.columns})
        if not entries.items() <= known.extra.items():
            targets.feed.add(writer, entries)
            targets.forget(name)


def _show(state: State, targets: TargetTables, name: TableName, known: Completeness) -> None:
    """Let a table be part of the cut again."""
    state.completeness[name] = known
    writer = targets.writer(name)
    if writer is not None:
        targets.follow(writer)


def meet(names: Iterable[TableName], ddl: Sequence[Ddl], state: State, targets: TargetTables, config: Config) -> None:
    """Take note of the tables whose rows arrive, before any row is written.

    Raises:
        TableIncomplete: Nothing proves that a table is whole, and the configuration refuses such tables.
    """
    coming = {name for item in ddl for name in item.brought}
    new = sorted({name for name in names if name not in coming and (name not in state.tables or is_unmet(name, state))})
    found = {name: _met(name, state, targets, config) for name in new}
    lacking = [name for name, item in found.items() if not item.is_live]
    if lacking and config.tables.incomplete == "refuse":
        raise _refusal(lacking)
    state.completeness |= found
    warn(state, lacking)


def _met(name: TableName, state: State, targets: TargetTables, config: Config) -> Completeness:
    """What a table is whose rows come first: it may say so itself where its checkpoint is lost."""
    if (said := state.unsaid.get(name)) is not None:
        return said.judged or said.record.known
    return Completeness(Reason(Why.LOADED_BEFORE if _is_loaded(targets, name, config) else Why.NO_CREATE))


def meet_ddl(name: TableName, state: State, targets: TargetTables, config: Config) -> None:
    """Take note of a table that a DDL changes before any row of it has come; its rows are yet to be judged."""
    why = Why.LOADED_BEFORE if _is_loaded(targets, name, config) else Why.UNMET
    state.completeness[name] = Completeness(Reason(why))


def meet_absent(action: actions.Action, state: State, admits: Callable[[TableName], bool]) -> None:
    """Take note of a table that a DDL changes and that is not here: it is there upstream, whoever made it."""
    done = actions.effect(action)
    moved = dict(done.moved)
    gone = {name for name in done.leaving(actions.touches(action)) if name not in moved}
    for name in (moved.get(name, name) for name in actions.touches(action)[:1] if name not in gone):
        if admits(name) and name not in state.completeness:
            state.completeness[name] = incomplete(Why.NO_CREATE)
            warn(state, [name])


def is_unmet(name: TableName, state: State) -> bool:
    """Whether DDL alone concerned a table so far whose CREATE TABLE the feed does not hold: no row of it has come."""
    return (known := state.completeness.get(name)) is not None and known.why is Why.UNMET


def follow(action: actions.Action, state: State, targets: TargetTables, *, ignored: bool) -> None:
    """Move the completeness of tables past an action that they have taken.

    Where the configuration has `ignored` it, a TRUNCATE has emptied no table, and so made none whole, and a RENAME has
    moved no rows unless a user has.
    """
    known, done = state.completeness, actions.effect(action)
    for table in done.created:
        known[table] = _whole(known.get(table))
    for table in () if ignored else done.emptied:
        if table in known and not known[table].is_parked:
            known[table] = _whole(known[table])
    for table in done.restored:
        known[table] = _recovered(targets, table, known.get(actions.touches(action)[0]))
    for table, other in () if ignored else done.exchanged:
        _exchanged(known, table, other)
    gone = {name: known.pop(name, None) for name in done.leaving(known)}
    for table, to in done.moved:
        known.pop(to, None)
        if (found := gone[table]) is not None:
            is_left = ignored and found.is_live and targets.writer(table) is not None
            known[to] = replace(found, reason=Reason(Why.NOT_RENAMED)) if is_left else found
    _follow_partners(known, gone, dict(done.moved))


def _follow_partners(
    known: dict[TableName, Completeness], gone: Iterable[TableName], to: Mapping[TableName, TableName]
) -> None:
    """Let tables that resume together know each other by the names of now: a command would find no other."""
    left = set(gone)
    for name, found in known.items():
        if not left.isdisjoint(found.partners):
            names = [to.get(other, other) for other in found.partners if other not in left or other in to]
            known[name] = replace(found, partners=tuple(other for other in names if other != name))


def _whole(before: Completeness | None) -> Completeness:
    """A table without older rows; one that is being brought back stays known by where it began."""
    return LIVE if before is None or before.is_parked else replace(LIVE, origin=before.origin)


def _exchanged(known: dict[TableName, Completeness], table: TableName, other: TableName) -> None:
    """Let two tables that have exchanged rows both be incomplete, if one was: its missing rows may be in the other."""
    for name, partner in ((table, other), (other, table)):
        found = known.get(partner)
        if found is not None and found.state == "incomplete" and name in known and known[name].is_live:
            known[name] = replace(known[name], reason=Reason(Why.EXCHANGED, str(partner)))


def doubt(state: State, names: Iterable[TableName], reason: Reason) -> None:
    """Tables that may lack a row from here on are no longer whole, and leave the cut."""
    whole = [name for name in dict.fromkeys(names) if name in state.completeness and state.completeness[name].is_live]
    for name in whole:
        state.completeness[name] = replace(state.completeness[name], reason=reason)
    warn(state, whole)


def doubt_late(state: State, late: Mapping[TableName, Iterable[int]]) -> None:
    """Let tables be no longer whole that rows belong to which came behind a DDL of an earlier step."""
    for name, points in sorted(late.items()):
        for point in sorted(points):
            for owner in losing(name, point, state.ddl.past):
                known, reason = state.completeness.get(owner), Reason(Why.LATE, str(point))
                if known is None or point <= loaded_at(state, owner):
                    continue
                if known.is_parked:
                    state.completeness[owner] = replace(known, lacked=known.lacked or reason)
                elif known.why is Why.LETTERS or (known.origin is not None and _is_news(known, point)):
                    # Of a table that is brought back, the changefeed learns it at the end: others may lack the row.
                    state.completeness[owner] = replace(known, reason=reason)
                else:
                    doubt(state, [owner], reason)


def _is_news(known: Completeness, point: int) -> bool:
    """Whether an incomplete table does not say yet that rows of before a DDL came late, or says so of a later DDL."""
    return not known.is_live and (known.why is not Why.LATE or point < int(known.reason.detail))


def loaded_at(state: State, name: TableName) -> int:
    """TSO of the export that a table has, or gets as it is brought back; 0 for none."""
    known = state.completeness.get(name)
    position = None if known is None else known.position
    coming = (position.version or 0) if position is not None and position.is_loaded else 0
    return max(state.loaded.get(name, 0), coming)


def keep(state: State, targets: TargetTables) -> None:
    """Let the checkpoint say what a start has found out about the tables."""
    if state.tracked() != state.checkpoint.tables:
        write(state, targets, state.checkpoint.resuming)


def write(
    state: State,
    targets: TargetTables,
    resuming: Resuming | None,
    handled: Mapping[str, RequestOutcome] | None = None,
) -> None:
    """Write a checkpoint between two steps, with the job under way and outcomes of requests; see `kept`."""
    state.keep(kept(state, targets), resuming, handled)


def kept(state: State, targets: TargetTables, upto: int | None = None) -> Cut:
    """Let the tables say what is known of them, for the checkpoint that is about to say so; the consistent cut.

    It has the tables that show every row at the resolved ts, and from here on each snapshot is younger. Maintenance
    may commit beside a step: its snapshots are younger too, and show the same rows as the heads do.

    Args:
        state: What the checkpoint is made of.
        targets: The tables.
        upto: Resolved ts of a step that is done; None between two steps, where it stays.
    """
    table_records.keep(state, targets)
    live = {targets.identifier(name) for name, found in state.completeness.items() if found.is_live}
    heads = {identifier: head for identifier, head in targets.snapshots.items() if identifier in live}
    ahead = {targets.identifier(name) for name, ts in state.ahead.items() if upto is None or ts > upto}
    if not ahead:
        return Cut(heads, targets.catalog.java.clock.cut())
    # A step that failed has left rows above the resolved ts in them: no head, and no later moment, may show these.
    last = state.checkpoint.cut if upto is None else Cut()
    before = {identifier: head for identifier, head in last.heads.items() if identifier in ahead & live}
    return Cut({place: head for place, head in heads.items() if place not in ahead} | before, last.at)


def _recovered(targets: TargetTables, name: TableName, live: Completeness | None) -> Completeness:
    """The completeness of a table that comes back: that of the drop, or of the truncated table beside it."""
    before = table_records.of_any(targets, name)
    if before is None and live is not None:
        return live
    return incomplete(Why.CAME_BACK) if before is None or before.known.is_parked else before.known


def _is_loaded(targets: TargetTables, name: TableName, config: Config) -> bool:
    """True if a table had rows before any applier wrote it, and the configuration says that such tables were loaded."""
    writer = targets.writer(name) if config.changefeed.start == "midstream" else None
    if writer is None:
        return False
    return writer.table.setting(ADOPTED) is not None or (writer.known is None and writer.head is not None)


def _refusal(names: Sequence[TableName]) -> TableIncomplete:
    shown = ", ".join(map(str, names[:_SHOWN])) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    what = f"Rows arrive of tables whose CREATE TABLE the feed does not hold, so earlier rows may be missing: {shown}."
    hint = (
        'load them first and set changefeed.start = "midstream"; or leave them out in tables.include; or set '
        'tables.incomplete = "allow", which keeps what arrives and marks the tables as incomplete.'
    )
    return TableIncomplete(what, hint)


def warn(state: State, names: Iterable[TableName] | None = None) -> None:
    """Log tables that are not whole, all that are not live unless some are named: a line for all in the same state."""
    if names is None:
        names = sorted(name for name, found in state.completeness.items() if not found.is_live)
    for tables, known in wording.alike((name, state.completeness[name]) for name in names):
        because, way_out = wording.clause(known.reason), state.ways.of(tables, known)
        shown = ",".join(map(str, tables))
        logger().warning("table is not whole", table=shown, state=known.state, because=because, way_out=way_out)
