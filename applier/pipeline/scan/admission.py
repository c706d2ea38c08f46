"""Which rows a decode task takes: each rule stands in `row` for one row, and in the same order in `block` for many."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np

from applier.changefeed.event import Op, RowChange
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
        if isinstance(fate, str):
            self._pass(fate, place, offset)
            return None
        return segment(self._job.cuts, row.name, fate) if self._job.cuts else 0

    def is_due(self, name: TableName, commit_ts: int, place: TopicPartition, offset: int) -> bool:
        """Whether a row is to be applied of which a message shows no more; the commit ts is 0 where it shows none."""
        return not isinstance(self._fate_of(name, commit_ts, place, offset), str)

    def _fate(self, row: RowChange, place: TopicPartition, offset: int) -> int | str:
        """The commit ts that places a due row among the DDL of its table; else which of `COUNTS` it adds to."""
        job, name = self._job, row.name
        if row.commit_ts > job.upto:
            return "left"
        if not self.admits(name):
            return "excluded"
        placed = self._placed(row, place, offset)
        if placed is None or (job.late and self._is_ended(name, row.commit_ts)):
            return "replayed"
        return placed

    def _fate_of(self, name: TableName, commit_ts: int, place: TopicPartition, offset: int) -> int | str:
        if not commit_ts:
            return 0 if self.admits(name) else "excluded"
        return self._fate(RowChange(name, 0, commit_ts, Op.UPSERT, None, None), place, offset)

    def _pass(self, fate: str, place: TopicPartition, offset: int) -> None:
        self._found.counts[fate] += 1
        if fate == "left":
            self._found.hold(place, offset)

    def block(self, block: ColumnBlock, place: TopicPartition, where: Ints) -> Iterator[tuple[int, ColumnBlock]]:
        """The rows of a block that are due, by segment; `where` has their offsets."""
        job, name, stamps = self._job, block.name, block.commit_ts
        out = stamps > job.upto
        if out.any():
            self._found.counts["left"] += int(out.sum())
            self._found.hold(place, int(where[out].min()))
        if not self.admits(name):
            self._found.counts["excluded"] += int((~out).sum())
            return
        if not (job.order.by_place or stamps.all()):
            for offset in where[(stamps == 0) & ~out].tolist():
                self.reject(place, offset, undated(name, block.op), [name])
            out |= stamps == 0
        again, placed = job.order.of_block(name, place, where, stamps)
        self._found.counts["replayed"] += int(again.sum())
        if name in job.late:
            for number in np.flatnonzero(~out & ~again & (stamps <= job.late[name].points[-1])).tolist():
                out[number] = self._is_ended(name, int(stamps[number]))
                self._found.counts["replayed"] += int(out[number])
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
            self._pass("left", place, offset)
            return False
        fates = {name: self._fate_of(name, error.commit_ts, place, offset) for name in error.tables or found}
        due = sorted(name for name, fate in fates.items() if not isinstance(fate, str))
        if due or not fates:
            located = error.at(*place, offset, self._job.protocol)
            self._found.bad.append(BadMessage(place, offset, located, tuple(due)))
            return True
        self._pass(str(fates[min(fates)]), place, offset)
        return False
