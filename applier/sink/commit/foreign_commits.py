"""Finds what other writers have done to a table since the changefeed's last commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from applier.errors import TableMismatch
from applier.sink.commit.stamp import CHANGEFEED, EPOCH, OFFSETS, RESOLVED_TS, Stamp

if TYPE_CHECKING:
    from applier.sink.iceberg.table import Table

BACKFILL = "applier.backfill"
"""Entry of the stamp of each commit to a branch: which backfill made it."""

FOREIGN = "applier.foreign-rows"
"""Table property: others have written rows, so no key may be taken for new, in this run or a later one."""


class Trace(NamedTuple):
    """What the history of the head shows.

    Attributes:
        is_foreign: Others have changed rows since our last commit; a compaction changes none.
        is_cut: The history has expired before our last commit, so nothing shows it.
        resolved_ts: Stamp of our newest commit in it; None if there is none.
        epoch: The same of its epoch.
        offsets: The same of the messages that it covers; "" where its summary does not say.
    """

    is_foreign: bool
    is_cut: bool
    resolved_ts: int | None = None
    epoch: int | None = None
    offsets: str = ""


def trace(table: Table, changefeed: str) -> Trace:
    """Walk back from the head to the newest commit of a changefeed: one step, if no other writer committed."""
    is_foreign = is_cut = False
    for snapshot in table.history():
        if BACKFILL in snapshot.summary:
            # Built beside the table up to a resolved ts of its own, and then shown: it is as new as the table was.
            return Trace(is_foreign, False)
        if snapshot.summary.get(CHANGEFEED) == changefeed:
            stamped, epoch = snapshot.summary.get(RESOLVED_TS, ""), snapshot.summary.get(EPOCH, "")
            return Trace(is_foreign, False, int(stamped), int(epoch), snapshot.summary.get(OFFSETS, ""))
        is_foreign = is_foreign or snapshot.operation != "replace"
        is_cut = snapshot.parent_id is not None
    return Trace(is_foreign, is_cut)


def rolled_back(table: Table, known: Stamp | None, found: Trace) -> TableMismatch | None:
    """The refusal of a table whose head is older than its stamp: the rows between are not in it any more."""
    if known is None or found.resolved_ts is None or found.epoch is None:
        return None
    stamped, shown = f"resolved ts {known.resolved_ts}", f"resolved ts {found.resolved_ts}"
    is_older = found.resolved_ts < known.resolved_ts
    if known.resolved_ts == 0:
        # In offset order. Commits that add no rows say nothing of offsets.
        offsets = known.extra.get(OFFSETS, "")
        is_older = found.epoch < known.epoch or bool(offsets and found.offsets and offsets != found.offsets)
        stamped, shown = f"epoch {known.epoch} and {offsets}", f"epoch {found.epoch} and {found.offsets}"
    if not is_older:
        return None
    what = f"Table {table} was rolled back by hand: it is stamped with {stamped}, but shows {shown}"
    way_out = (
        "Set it to its newest snapshot again (system.set_current_snapshot), or apply what it lacks with "
        "applier backfill --repair."
    )
    return TableMismatch(what, way_out)
