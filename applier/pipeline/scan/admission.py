"""Which rows a decode task takes: each rule stands in `row` for one row, and in the same order in `block` for many."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, cast

import numpy as np

from applier.changefeed.event import Op, RowChange
from applier.changefeed.fate import Fate
from applier.changefeed.filter import TableFilter
from applier.changefeed.message import TopicPartition
from applier.changefeed.row_block import ColumnBlock, Ints
from applier.changefeed.table import TableName
from applier.errors import DecodeError
from applier.order.barrier import segment
from applier.order.feed_order import undated
from applier.order.reduce_columns import segments
from applier.pipeline.scan.task_result import BadMessage, TaskResult

if TYPE_CHECKING:
    from applier.pipeline.scan.decode_task import DecodeTask


class Admission:
    """Admits rows that are due, and notes why the others are not.

    Attributes:
        admits: Whether the configuration replicates a table.

    Args:
        job: What the task must do.
        found: What it found; counts and bad messages are added.
    """

    def __init__(self, job: DecodeTask, found: TaskResult) -> None:
        self.admits = TableFilter(job.include).admits
        self._job = job
        self._found = found
        self._placed = job.order.placed

    def row(self, row: RowChange, place: TopicPartition, offset: int) -> int | None:
        """The segment of its table that a row belongs to; None if it is not due.

        Raises:
            IncompleteRow: It has no commit ts, which orders the changes of this feed.
        """
        fate = self._fate(row, place, offset)
        if isinstance(fate, Fate):
            self._pass(fate, row.name, place, offset)
            return None
        return segment(self._job.cuts, row.name, fate) if self._job.cuts else 0

    def is_due(self, name: TableName, commit_ts: int, place: TopicPartition, offset: int) -> bool:
        """Whether a row is to be applied of which a message shows no more; the commit ts is 0 where it shows none."""
        return not isinstance(self._fate_of(name, commit_ts, place, offset), Fate)

    def _fate(self, row: RowChange, place: TopicPartition, offset: int) -> int | Fate:
        """The commit ts that places a due row among the DDL of its table; else what becomes of the row."""
        job, name = self._job, row.name
        if row.commit_ts > job.upto:
            return Fate.HELD
        if not self.admits(name):
            return Fate.LEFT_OUT
        placed = self._placed(row, place, offset)
        if placed is None:
            return Fate.HAD
        return Fate.DOUBTED if job.late and self._is_ended(name, row.commit_ts) else placed

    def _fate_of(self, name: TableName, commit_ts: int, place: TopicPartition, offset: int) -> int | Fate:
        if commit_ts:
            return self._fate(RowChange(name, 0, commit_ts, Op.UPSERT, None, None), place, offset)
        if self.admits(name):
            return 0
        # It may be of the table that a DDL gives the name to.
        return Fate.HELD if name in self._job.moving else Fate.LEFT_OUT

    def _pass(self, fate: Fate, name: TableName | None, place: TopicPartition, offset: int, count: int = 1) -> None:
        self._found.fates[fate, name] += count
        if fate is Fate.HELD:
            self._found.hold(place, offset)

    def block(self, block: ColumnBlock, place: TopicPartition, where: Ints) -> Iterator[tuple[int, ColumnBlock]]:
        """The rows of a block that are due, by segment; `where` has their offsets."""
        job, name, stamps = self._job, block.name, block.commit_ts
        out = stamps > job.upto
        if out.any():
            self._pass(Fate.HELD, name, place, int(where[out].min()), int(out.sum()))
        if not self.admits(name):
            self._pass(Fate.LEFT_OUT, name, place, 0, int((~out).sum()))
            return
        if not (job.order.by_place or stamps.all()):
            for offset in where[(stamps == 0) & ~out].tolist():
                self.reject(place, offset, undated(name, block.op), [name])
            out |= stamps == 0
        again, placed = job.order.of_block(name, place, where, stamps)
        again &= ~out  # What is not due, or cannot be placed, has its fate already.
        self._pass(Fate.HAD, name, place, 0, int(again.sum()))
        if name in job.late:
            for number in np.flatnonzero(~out & ~again & (stamps <= job.late[name].points[-1])).tolist():
                out[number] = self._is_ended(name, int(stamps[number]))
                self._pass(Fate.DOUBTED, name, place, 0, int(out[number]))
        due = np.flatnonzero(~out & ~again)
        for number, rows in segments(placed[due], job.cuts.get(name, ())) if len(due) else ():
            yield number, block if len(rows) == len(stamps) else block.part(due[rows])

    def _is_ended(self, name: TableName, commit_ts: int) -> bool:
        """Note a late row; whether its table has gone, or has another name now."""
        late = self._job.late.get(name)
        point = None if late is None else late.point(commit_ts)
        if late is None or point is None:
            return False
        self._found.late.setdefault(name, set()).add(point)
        return commit_ts <= late.ended

    def reject(self, place: TopicPartition, offset: int, error: DecodeError, found: Collection[TableName] = ()) -> bool:
        """Note a message that cannot be used, unless no table that it may concern is due a row of it; True if one is.

        Args:
            place: Its partition.
            offset: Its offset.
            error: Why.
            found: Tables that it may concern, where the error has none; empty if they are not known.
        """
        if error.commit_ts > self._job.upto:
            self._pass(Fate.HELD, None, place, offset)
            return False
        self._found.has_unplaced |= not error.commit_ts
        fates = {name: self._fate_of(name, error.commit_ts, place, offset) for name in error.tables or found}
        due = sorted(name for name, fate in fates.items() if not isinstance(fate, Fate))
        if due or not fates:
            located = error.at(*place, offset, self._job.protocol)
            self._found.bad.append(BadMessage(place, offset, located, tuple(due)))
            return True
        first = min(fates)
        self._pass(Fate.HELD if Fate.HELD in fates.values() else cast("Fate", fates[first]), first, place, offset)
        return False
