"""Finds what other writers have done to a table since the changefeed's last commit."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from applier.errors import BY_HAND, TableMismatch
from applier.sink.commit.stamp import CHANGEFEED, EPOCH, OFFSETS, RESOLVED_TS, Stamp, damaged
from applier.sink.format.own_columns import COLUMNS, OwnColumns

if TYPE_CHECKING:
    from applier.sink.iceberg.snapshot import Snapshot
    from applier.sink.iceberg.table import Table

BACKFILL = "applier.backfill"
"""Entry of the stamp of each commit to a branch: which backfill made it."""

FOREIGN = "applier.foreign-rows"
"""Table property: others have written rows, or may have, so no key may be taken for new, in this run or a later one."""


class Trace(NamedTuple):
    """What the history of the head shows.

    `is_foreign` means that others have changed rows since our last commit (a compaction changes none), `is_cut` that
    the history has expired before that commit, and no longer lists it. The rest is the stamp of our newest commit in
    the history; None, and no offsets, where there is none.
    """

    is_foreign: bool
    is_cut: bool
    resolved_ts: int | None = None
    epoch: int | None = None
    offsets: str = ""


def trace(history: Iterable[Snapshot], changefeed: str) -> Trace:
    """Walk back through the snapshots of a table to the newest commit of a changefeed: one step, if no other writer
    committed.
    """
    is_foreign = is_cut = False
    for snapshot in history:
        if BACKFILL in snapshot.summary:
            # Built beside the table up to a resolved ts of its own, and then shown: it is as new as the table was.
            return Trace(is_foreign, False)
        if snapshot.summary.get(CHANGEFEED) == changefeed:
            stamped, epoch = snapshot.summary.get(RESOLVED_TS, ""), snapshot.summary.get(EPOCH, "")
            return Trace(is_foreign, False, int(stamped), int(epoch), snapshot.summary.get(OFFSETS, ""))
        is_foreign = is_foreign or snapshot.operation != "replace"
        is_cut = snapshot.parent_id is not None
    return Trace(is_foreign, is_cut)


def is_older(known: Stamp | None, found: Trace) -> bool:
    """Whether the head of a table is older than the table's stamp: the rows between are not in it any more."""
    if known is None or found.resolved_ts is None or found.epoch is None:
        return False
    if known.resolved_ts:
        return found.resolved_ts < known.resolved_ts
    # In offset order. Commits that add no rows say nothing of offsets.
    offsets = known.extra.get(OFFSETS, "")
    return found.epoch < known.epoch or bool(offsets and found.offsets and offsets != found.offsets)


def lacks(history: Iterable[Snapshot], listed: int, history_of: Callable[[int], Iterable[Snapshot]]) -> bool:
    """Whether the head of a table was set to a snapshot that lies before the listed one, which the table had.

    Commits on top of the older snapshot change nothing about that, except those of a backfill that is shown, which has
    read what was missing. Histories are newest first; `history_of` gives that of any snapshot, () for one that has
    expired.
    """
    passed = []
    for snapshot in history:
        if listed in (snapshot.id, snapshot.parent_id):
            # Its parent may have expired, and counts all the same.
            return False
        passed.append(snapshot)
    older = {snapshot.id for snapshot in history_of(listed)}
    for snapshot in passed:
        if snapshot.id in older:
            return True
        if BACKFILL in snapshot.summary:
            return False
    return not older and _is_restored(passed)


def _is_restored(history: Sequence[Snapshot]) -> bool:
    """Whether metadata that does not know a snapshot is from before it, as from a backup: it has not expired there.

    A commit of applier that is still in the history is an earlier one then: of those up to the newest checkpoint, that
    of the snapshot was the last.
    """
    return not history or any(CHANGEFEED in item.summary and item.operation != "replace" for item in history)


def rolled_back(table: Table, known: Stamp | None, found: Trace) -> TableMismatch | None:
    """The refusal of a table whose head is older than its stamp."""
    if known is None or not is_older(known, found):
        return None
    if known.resolved_ts:
        return _refusal(
            table, f"is stamped with resolved ts {known.resolved_ts}", f"shows resolved ts {found.resolved_ts}"
        )
    stamped = f"is stamped with epoch {known.epoch} and {known.extra.get(OFFSETS, '')}"
    return _refusal(table, stamped, f"shows epoch {found.epoch} and {found.offsets}")


def set_back(table: Table, listed: int) -> TableMismatch | None:
    """The refusal of a table that was set to a snapshot before one that it had; None if it was not.

    The stamp does not tell such commits apart that carry the same one: those of two DDL, or one by other means.
    """
    if table.snapshot_id == listed or not lacks(table.history(), listed, table.history):
        return None
    return _refusal(table, f"was at snapshot {listed}", f"shows the older snapshot {table.snapshot_id}")


def changed(table: Table, known: Stamp | None) -> TableMismatch | None:
    """The refusal of a table of which others dropped or renamed columns; None if it has all that applier wrote.

    Raises:
        TableMismatch: The property was edited.
    """
    text = known.extra.get(COLUMNS) if known else None
    if not text:
        return None
    try:
        own = OwnColumns.read(text)
    except ValueError as error:
        raise damaged(table) from error
    if own.fit(table.schema):
        return None
    names = own.lost(table.schema, table.former_schemas())
    columns = f"column{'s' if len(names) != 1 else ''} {', '.join(names)}".strip()
    what = f"Others have dropped or renamed {columns} of table {table}, so older rows lack values."
    way_out = (
        "If a column was renamed, give it its name back and start `applier run -c FILE` again; else build the table "
        f"anew from its CREATE TABLE with `applier resume -c FILE --tables TABLE`, or {BY_HAND}"
    )
    return TableMismatch(what, way_out)


def own_columns(table: Table, pending: Table | None = None) -> dict[str, str]:
    """The property that says which columns are applier's, where the table does not say so or they change.

    Args:
        table: The table before a commit.
        pending: What a change of columns makes of it; None for a commit without one.
    """
    text = table.file_layout.properties.get(COLUMNS)
    if pending is None:
        return {} if text else {COLUMNS: OwnColumns.of(table.schema).to_text()}
    own = OwnColumns.read(text) if text else OwnColumns.of(table.schema)
    return {COLUMNS: own.behind(table.schema, pending.schema).to_text()}


def vouched_columns(table: Table, names: Container[str]) -> dict[str, str]:
    """The property of a table that a user vouches for: columns of these names are applier's, whoever made them."""
    others = [field.id for field in table.schema.fields if field.name not in names]
    return {COLUMNS: OwnColumns.of(table.schema, others).to_text()}


def _refusal(table: Table, was: str, shows: str) -> TableMismatch:
    what = f"Table {table} was rolled back by hand: it {was}, but {shows}"
    way_out = (
        "Set it to its newest snapshot again (system.set_current_snapshot), or build it anew from its CREATE TABLE "
        "with `applier resume -c FILE --tables TABLE`."
    )
    return TableMismatch(what, way_out)
