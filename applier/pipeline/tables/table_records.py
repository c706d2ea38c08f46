"""What tables say of themselves in their properties, held against what the checkpoint says of them.

A step that is repeated, a checkpoint that is lost or old, and a table that a job has shown: each finds here what is
true of the rows that are there. What a table says counts where the checkpoint takes it for better than it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.table import TableName
from applier.errors import TableMismatch
from applier.pipeline.state import State, Unsaid
from applier.pipeline.tables.target_tables import TargetTables
from applier.sink.control.table_record import RECORD, TableRecord


def recall(state: State, targets: TargetTables) -> None:
    """Let what tables say of themselves count, at a start or after a step that failed.

    Names that no checkpoint lists, or that a step has moved in part, are left to `settle`.
    """
    state.unsaid = {}
    for name in state.names:
        record = told(targets, name)
        if record is None:
            continue
        known = state.completeness.get(name)
        if known is None or (name in state.unsettled and not _is_listed(state, targets, name)):
            state.unsaid[name] = Unsaid(record)
            if known is None and record.known.is_parked:
                # Its rows are left out from the first window on.
                state.completeness[name] = record.known
        else:
            state.completeness[name] = _merged(known, record.known, state, targets, name)


def _is_listed(state: State, targets: TargetTables, name: TableName) -> bool:
    """Whether the table that has a name now is the one that the checkpoint lists under it."""
    tracked, writer = state.checkpoint.tables.get(name), targets.writer(name)
    return tracked is not None and writer is not None and writer.table.identity == tracked.identity


def remember(state: State) -> None:
    """Keep what a start made of tables that no checkpoint lists: the feed is yet to bring them, from before."""
    for name, said in state.unsaid.items():
        if name in state.unsettled:
            continue  # The step moves it to its name, and what is known of it with it.
        state.unsaid[name] = said._replace(judged=state.completeness.get(name))


def _merged(
    known: Completeness, own: Completeness, state: State, targets: TargetTables, name: TableName
) -> Completeness:
    """What a table is of which the checkpoint knows, by what it says of itself."""
    if known.is_parked:
        # It was parked again, or brought back, after the checkpoint was written; a job under way finds that out itself.
        is_newer = own.since > known.since if own.is_parked else (targets.applied_ts(name) or 0) > known.since > 0
        return replace(own, origin=known.origin) if is_newer and state.checkpoint.resuming is None else known
    return _worse(known, own)


def _worse(known: Completeness | None, own: Completeness) -> Completeness:
    """What a table is of which something better may be known than it says; it does not say where a job began."""
    if known is None:
        return own
    return replace(own, origin=known.origin) if own.is_parked or (known.is_live and not own.is_live) else known


def hold(
    state: State,
    targets: TargetTables,
    names: Iterable[TableName],
    before: Mapping[TableName, Completeness],
    *,
    is_left_out: bool,
) -> None:
    """Let tables lack what they lack by their own word, behind a DDL that they have already.

    A feed that is read anew shows what the tables were then. Rows that follow are committed with what is known here.

    Args:
        state: What is known, moved past the DDL; it is changed.
        targets: The tables.
        names: The tables that have the DDL, and are there behind it.
        before: What was known before it: a parked table may be due since it said that it is parked.
        is_left_out: `tables.include` leaves them out now.
    """
    for name in names:
        said, record, known = state.unsaid.get(name), told(targets, name), before.get(name)
        if record is None:
            continue
        own = said.judged if said is not None and said.judged is not None and said.record == record else record.known
        if own.is_parked and known is not None and known.is_parked:
            own = known
        elif not own.is_parked and is_left_out:
            # A step that died made it, and since then its rows are left out.
            own = Completeness(Reason(Why.LEFT_OUT), targets.applied_ts(name) or 0)
        state.completeness[name] = _worse(state.completeness.get(name), own)


def settle(state: State, targets: TargetTables, *, is_read: bool) -> None:
    """Let what tables say of themselves count that this step has met: the feed alone does not show what they lack.

    Where the feed `is_read` as far as the tables are, those that nothing has shown do not come any more.
    """
    for name in list(state.unsaid):
        if name not in state.tables and name not in state.completeness and not is_read:
            continue
        said, now = state.unsaid.pop(name), told(targets, name)
        if now is None or (name not in state.tables and not _track(state, name)):
            continue
        own = (said.judged if now == said.record else None) or now.known
        state.completeness[name] = _worse(state.completeness.get(name), own)


def _track(state: State, name: TableName) -> bool:
    """Know a table by its newest version, which no message shows any more: the feed does not reach back so far."""
    versions = [version for version in state.versions.values() if version.name == name]
    if versions:
        state.tables.put(max(versions, key=lambda version: (not version.keys_only, version.version)))
    return bool(versions)


def told(targets: TargetTables, name: TableName) -> TableRecord | None:
    """What a table says of itself to this changefeed or job; None for one that is not there, or says nothing.

    A copy may say what its table said to another job, and a name may stand for a table that has left it.
    """
    record = of_any(targets, name)
    return record if record is not None and (record.name, record.job) == (name, targets.records.job) else None


def of_any(targets: TargetTables, name: TableName) -> TableRecord | None:
    """What the table of a name says of itself, to whomever; None where it says nothing, or cannot be opened."""
    with suppress(TableMismatch):
        writer = targets.writer(name)
        if writer is not None and writer.known is not None and writer.rolled_back is None:
            text = writer.table.setting(RECORD)
            return None if text is None else TableRecord.told_by({RECORD: text})
    return None


def keep(state: State, targets: TargetTables) -> None:
    """Let each table say what is known of it now, before a checkpoint says so."""
    kept = targets.records.kept
    new = {name: known for name, known in state.completeness.items() if kept.get(name) is not known}
    new = {name: known for name, known in new.items() if not _is_to_wait(state, name, known)}
    writing = [name for name, known in new.items() if _is_to_say(targets, name, known)]
    targets.side_by_side(lambda name: _say(targets, name, new[name]), writing)
    kept |= new


def _say(targets: TargetTables, name: TableName, known: Completeness) -> None:
    if (writer := targets.writer(name)) is not None:
        targets.committed(writer, targets.feed.add(writer, targets.records.entries(name, writer, known)))


def _is_to_wait(state: State, name: TableName, known: Completeness) -> bool:
    """Whether a table must stay as it is for now: a job shows a copy of it, and that says what is known."""
    resuming = state.checkpoint.resuming
    is_copied = resuming is not None and (known.is_due or name in resuming.progress.tables)
    return is_copied or name in state.unsettled or (known.needs_export and known.why is not Why.LOADING)


def _is_to_say(targets: TargetTables, name: TableName, known: Completeness) -> bool:
    """Whether a table does not say yet what is known of it; one that others have changed is not written to."""
    if targets.damage(name) is not None:
        return False
    writer = targets.writer(name)
    if writer is None or writer.known is None or not targets.records.entries(name, writer, known):
        return False
    # A copy of a whole table says so with its next rows; until then the progress of its job does.
    return not (targets.records.job and known.is_live and told(targets, name) is None)


def doubted(targets: TargetTables, name: TableName, reason: Reason) -> dict[str, str]:
    """Entries of a commit that finds its table to lack rows, if that was whole so far."""
    known = targets.records.known(name)
    if known is None or not known.is_live:
        return {}
    return targets.records.entries(name, targets.writer(name), replace(known, reason=reason))
