"""Reduced rows become one fenced commit per table and segment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from applier.changefeed.completeness import Reason, Why
from applier.changefeed.history import COMPLETE_FROM, changes_version
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.ts import LOGICAL
from applier.changefeed.types import TypeRules
from applier.ddl.schema_tracker import Tables
from applier.errors import SchemaChangeRefused, TableIncomplete, TableMismatch, TerminalError, ValueRefused
from applier.pipeline.batches.batch import Batch
from applier.pipeline.batches.stager import BatchRows, Stager
from applier.pipeline.tables import history_gap, table_records
from applier.pipeline.tables.changefeed import ADOPTED, FILTERED
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime import failpoints
from applier.runtime.pulse import PULSE
from applier.sink.commit.stamp import OFFSETS, Stamp
from applier.sink.write.table_writer import CommitWork, TableWriter

ABOUT_A_TABLE = (TableMismatch, ValueRefused, TableIncomplete, SchemaChangeRefused)
"""Errors of a commit that concern its table alone."""

R = TypeVar("R")
T = TypeVar("T")

INEXACT = (ADOPTED, FILTERED)
"""Entries of a commit, or properties, of a table that may hold a row of a key that is new, or lack one of another."""


def commit(
    targets: TargetTables,
    batches: Sequence[Batch],
    tracked: Tables,
    complete: Collection[TableName],
    refused: dict[TableName, TerminalError],
    stager: Stager,
) -> dict[TableName, CommitWork]:
    """Commit batches of different tables, several at a time.

    Args:
        targets: The tables.
        batches: At most one per table.
        tracked: Each table as its DDL left it.
        complete: The tables that must hold every row that a change updates or deletes.
        refused: Takes what is wrong with single tables, to which nothing is committed.
        stager: Stages their rows.
    """
    apart = [batch.apart() for batch in batches]
    owners = {changes.name: changes.owner or changes.name for _, changes in apart if changes is not None}

    def guarded(name: TableName, work: Callable[[], R | None]) -> R | None:
        PULSE.beat()
        try:
            return work()
        except ABOUT_A_TABLE as error:
            targets.confirm()
            refused[owners.get(name, name)] = error
            targets.close(name)
            return None

    def prepared(batch: Batch) -> Prepared | None:
        return guarded(batch.name, lambda: _prepared(targets, batch, tracked, stager))

    def committed(item: Prepared) -> CommitWork | None:
        return guarded(item.name, lambda: _committed(targets, item, is_complete=item.name in complete))

    def each(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return [work(items[0])] if len(items) == 1 else targets.side_by_side(work, items) if items else []

    def due(name: TableName) -> bool:
        return owners.get(name, name) not in refused

    rows = [item for item in each(prepared, [batch for batch, _ in apart]) if item is not None]
    changes = [changes for _, changes in apart if changes is not None and due(changes.name)]
    beside = [item for item in each(prepared, changes) if item is not None]
    ready = [item for item in (*beside, *rows) if due(item.name)]
    stager.stage_ahead([item.rows for item in ready])
    # Changes come first: a step that dies behind them is repeated for the table, and takes none of them again.
    each(committed, [item for item in beside if due(item.name)])
    ready = [item for item in rows if due(item.name)]
    return {item.name: work for item, work in zip(ready, each(committed, ready), strict=True) if work is not None}


class Prepared(NamedTuple):
    """A batch whose table is ready for its commit."""

    name: TableName
    writer: TableWriter
    stamp: Stamp
    rows: BatchRows


def _prepared(targets: TargetTables, batch: Batch, tracked: Tables, stager: Stager) -> Prepared | None:
    order = targets.feed.order
    if not batch.is_doomed:
        targets.listed.refuse_lost(targets.identifier(batch.name), targets.writer(batch.name))
    now = _now(batch, tracked)
    if now.keys_only and targets.writer(batch.name) is None:
        # Deletes alone do not say what the table looks like, and find no row where there is none.
        return None
    if batch.owner is not None and (owner_now := tracked.get(batch.owner)) is not None:
        history_gap.set_aside_unfit(targets, batch.name, batch.owner, owner_now)
    # A table that is made here holds nothing: a crash before its first commit must not pass for that commit.
    begin = history_gap.begun(targets, batch.name) if batch.owner is None else _begin(targets, batch, batch.owner)
    writer = targets.ensure(now, targets.stamp(batch.name, 0, begin))
    if targets.listed.is_strict:
        # A writer that was opened within the step may have found the table rolled back.
        writer.hold_to(None)
    if writer.known is None:
        targets.confirm()
    failpoints.reach("table-ensured")
    had = 0 if batch.owner is None or writer.known is None else writer.known.resolved_ts
    stamp = targets.stamp(batch.name, max(batch.upto, had), {**_offsets(targets, batch), **begin}, writer)
    owner = targets.writer(batch.owner or batch.name) or writer
    is_marked = any(mark in stamp.extra or owner.table.setting(mark) is not None for mark in INEXACT)
    # A watermark shows that a table of changes has all up to its stamp, unless messages of before come again.
    above = 0 if is_marked else had
    exact = order.has_watermark and not is_marked and (bool(above) or batch.is_above(writer.known))
    rules = targets.maker.rules
    fits = batch.fits(now, writer.table, None if order.parts_at_ddl else rules, _whole(rules, now, writer))
    merging = batch.merging(rules.shape_of(batch.name), by_place=order.by_place, exact=exact, above=above)
    return Prepared(batch.name, writer, stamp, stager.rows(batch, fits, merging, writer))


def _whole(rules: TypeRules, now: TableVersion, writer: TableWriter) -> frozenset[str]:
    """Columns that deletes must hold: where their rows stay, all that the table has of upstream."""
    if not rules.shape_of(now.name).is_soft:
        return frozenset()
    taken = (column.name for column in now.columns if rules.takes(now.name, column))
    return frozenset(taken) & writer.table.schema.names


def _now(batch: Batch, tracked: Tables) -> TableVersion:
    known = tracked.get(batch.owner or batch.name)
    if known is None:
        return batch.newest
    return known if batch.owner is None else changes_version(known)


def _begin(targets: TargetTables, batch: Batch, owner: TableName) -> dict[str, str]:
    """Above which commit ts a table of changes has all, where this commit begins it late, or passes over a load."""
    table, changes = targets.writer(owner), targets.writer(batch.name)
    if changes is not None and changes.known is not None:
        return history_gap.named(targets, owner, changes)
    whole, passed = targets.records.known(owner), history_gap.passed(table)
    # One that has had rows, and may have none now, has had changes: others have dropped them, or none were kept.
    if whole is not None and whole.is_live and (table is None or table.head is None):
        return {COMPLETE_FROM: str(passed)} if passed else {}
    # Without rows of before nothing shows where the feed began.
    return {COMPLETE_FROM: str(history_gap.applied(table) or min(part.first_ts or 0 for part in batch.parts) - 1)}


def _committed(targets: TargetTables, item: Prepared, *, is_complete: bool) -> CommitWork | None:
    """The commit of a batch: planned, staged and sent, again on a newer head where another writer is first."""
    rows, writer = item.rows, item.writer
    if rows.is_empty:
        return None
    lacking = {} if is_complete else table_records.doubted(targets, item.name, Reason(Why.NOT_FOUND))
    work = CommitWork(is_complete=is_complete, lacking=lacking)
    for attempt in writer.attempts(work, item.stamp):
        with attempt:
            plan = writer.plan(rows.merging.key, exact=rows.merging.exact, work=work)
            if not writer.take(work, rows.staged(plan)):
                writer.take(work, rows.staged(replace(plan, exact=False)))
    rows.let_go()
    targets.committed(writer, work.snapshot_id)
    return work


def _offsets(targets: TargetTables, batch: Batch) -> dict[str, str]:
    """What the commit of a batch says of the messages that the table has: of the topics of its rows alone."""
    if batch.extent is None:
        return {}
    topics = {part.topic for part in batch.parts}
    window = {place: span for place, span in batch.extent.window.items() if place.topic in topics}
    newest = batch.newest_ts
    # A commit ts that is a millisecond stands for any of it.
    newest = newest if newest & LOGICAL or not newest else newest | LOGICAL
    covered = targets.covered(batch.name).after(window, batch.upto, batch.extent.topic_ids, newest)
    return {OFFSETS: covered.to_text()}


def doubt(targets: TargetTables, names: Iterable[TableName]) -> None:
    """Mark tables as filtered: from now on every key is looked up. The mark is durable."""
    for name in names if targets.feed.order.has_watermark else ():
        writer = targets.writer(name)
        known = writer.known if writer else None
        if writer is not None and known is not None and writer.table.setting(FILTERED) is None:
            # The mark alone changes: rows above this resolved ts are yet to come.
            stamp = targets.feed.stamp(known.resolved_ts, {**known.extra, FILTERED: "true"}, writer)
            targets.committed(writer, writer.stamp(stamp).snapshot_id)
