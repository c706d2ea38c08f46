"""Fences a table, so that every commit of an earlier owner of the changefeed is refused.

A commit is refused by the head that it was planned on, not by an epoch that is not written yet. So a process that takes
the lease from one that may wake up again moves the head of every table, idle ones too, before anything else.
"""

from __future__ import annotations

from typing import NamedTuple

from applier.errors import CheckpointConflict
from applier.sink.commit.committer import Committer, retrying
from applier.sink.commit.foreign_commits import trace
from applier.sink.commit.stamp import OFFSETS, RESOLVED_TS, Stamp, guard, progress
from applier.sink.iceberg.commit import Change
from applier.sink.iceberg.table import Table


class Fenced(NamedTuple):
    """A fence: the head of a table before it (None without rows), and its head now, which shows the same rows."""

    table: tuple[str, ...]
    before: int | None
    head: int


class _Overtaken(CheckpointConflict):
    """The earlier holder committed just now: what it wrote counts, and the fence goes up behind it."""


def fence(table: Table, changefeed: str, epoch: int, upto: int, *, unwritten: bool = False) -> Fenced | None:
    """Make a commit without rows under this epoch, so that processes of earlier epochs can commit no more.

    What the table says of its progress stays as it is. `upto` is the highest epoch whose process may still be alive.
    There is nothing to do, and None is returned, where a later epoch has written the table, or no applier has, unless
    an `unwritten` table is fenced as well.

    Raises:
        TableMismatch: It belongs to another changefeed.
        CheckpointConflict: A newer applier holds it, or the earlier one keeps committing.
        TransientError: The catalog did not answer.
    """
    return retrying(_Overtaken)(_fence, Committer(table, changefeed, epoch), upto, unwritten=unwritten)


def _fence(committer: Committer, upto: int, *, unwritten: bool) -> Fenced | None:
    table, changefeed, epoch = committer.table, committer.changefeed, committer.epoch
    committer.open()
    known = committer.known or (Stamp(changefeed, 0, 0) if unwritten else None)
    if known is None or known.epoch > upto:
        return None
    # Without the extra entries: the commit of a DDL is found by them.
    stamp = Stamp(changefeed, epoch, known.resolved_ts)
    summary = {**stamp.entries(), **(_shown(table, changefeed) if committer.rolled_back is not None else {})}
    before = committer.head
    try:
        for attempt in committer.attempts(stamp):
            with attempt:
                committer.send(Change(summary=summary, properties=stamp.entries()))
    except CheckpointConflict as error:
        found = progress(table, changefeed)
        guard(table, found, found, epoch)
        raise _Overtaken(error.what, error.hint) from error
    return Fenced(table.identifier, before, committer.made)


def _shown(table: Table, changefeed: str) -> dict[str, str]:
    """What the head of a table that was rolled back says of itself: the fence must not make it look newer."""
    found = trace(table.history(), changefeed)
    return {RESOLVED_TS: str(found.resolved_ts), **({OFFSETS: found.offsets} if found.offsets else {})}
