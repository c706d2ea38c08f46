"""Which rows a decode task takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from applier.changefeed.event import Op
from applier.changefeed.fate import Fate
from applier.changefeed.message import TopicPartition
from applier.changefeed.row_block import Ints
from applier.changefeed.table import TableName
from applier.errors import DecodeError
from applier.order.barrier import segments
from applier.order.feed_order import FeedOrder, undated
from applier.pipeline.scan.ddl_marks import DdlMarks
from applier.pipeline.scan.task_result import BadMessage, TaskResult

_FATES = list(Fate)
_DUE, _UNDATED = -1, -2
"""Numbers of what becomes of a row: a place in `_FATES`, or one of these."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Admits rows that are due, and notes why the others are not.

    Args:
        found: What the task found; counts and bad messages are added.
    """

    admits: Callable[[TableName], bool]
    protocol: str
    upto: int
    order: FeedOrder
    marks: DdlMarks
    found: TaskResult

    def take(
        self, name: TableName, ops: Sequence[Op], place: TopicPartition, where: Ints, stamps: Ints
    ) -> Iterator[tuple[int, Ints]]:
        """The segments of a table that rows belong to, and the numbers of the rows of each that are due.

        `where` has the offset of each row, and `stamps` its commit ts; 0 for none.
        """
        fates, placed = self._fates(name, place, where, stamps)
        for number in np.flatnonzero(fates == _UNDATED).tolist():
            self.reject(place, int(where[number]), undated(name, ops[number]), [name])
        for code in np.unique(fates[fates >= 0]).tolist():
            chosen = fates == code
            self._pass(_FATES[code], name, place, int(where[chosen].min()), int(chosen.sum()))
        due = np.flatnonzero(fates == _DUE)
        for number, rows in segments(placed[due], self.marks.cuts.get(name, ())) if len(due) else ():
            yield number, due[rows]

    def is_due(self, name: TableName, commit_ts: int, place: TopicPartition, offset: int) -> bool:
        """Whether a row is to be applied of which a message shows no more; the commit ts is 0 where it shows none."""
        return self._fate_of(name, commit_ts, place, offset) is None

    def _fate_of(self, name: TableName, commit_ts: int, place: TopicPartition, offset: int) -> Fate | None:
        """What becomes of such a row; None if it is due."""
        if commit_ts:
            codes, _ = self._fates(name, place, np.array([offset]), np.array([commit_ts]))
            return None if codes[0] == _DUE else _FATES[codes[0]]
        if self.admits(name):
            return None
        # It may be of the table that a DDL gives the name to.
        return Fate.HELD if name in self.marks.moving else Fate.LEFT_OUT

    def _fates(
        self, name: TableName, place: TopicPartition, where: Ints, stamps: Ints
    ) -> tuple[npt.NDArray[np.int8], Ints]:
        """What becomes of each row, and the commit ts that places it among the DDL of its table."""
        codes = np.full(len(stamps), _DUE, np.int8)
        codes[stamps > self.upto] = _FATES.index(Fate.HELD)
        if not self.admits(name):
            codes[codes == _DUE] = _FATES.index(Fate.LEFT_OUT)
            return codes, stamps
        if not self.order.by_place:
            codes[(codes == _DUE) & (stamps == 0)] = _UNDATED
        again, placed = self.order.placed(name, place, where, stamps)
        codes[(codes == _DUE) & again] = _FATES.index(Fate.HAD)
        if name in self.marks.late:
            for number in np.flatnonzero((codes == _DUE) & (stamps <= self.marks.late[name].points[-1])).tolist():
                if self._is_ended(name, int(stamps[number])):
                    codes[number] = _FATES.index(Fate.DOUBTED)
        return codes, placed

    def _pass(self, fate: Fate, name: TableName | None, place: TopicPartition, offset: int, count: int = 1) -> None:
        self.found.fates[fate, name] += count
        if fate is Fate.HELD:
            self.found.hold(place, offset)

    def _is_ended(self, name: TableName, commit_ts: int) -> bool:
        """Note a late row; whether its table has gone, or has another name now."""
        late = self.marks.late.get(name)
        point = None if late is None else late.point(commit_ts)
        if late is None or point is None:
            return False
        self.found.late.setdefault(name, set()).add(point)
        return commit_ts <= late.ended

    def reject(self, place: TopicPartition, offset: int, error: DecodeError, found: Collection[TableName] = ()) -> bool:
        """Note a message that cannot be used, unless no table that it may concern is due a row of it; True if one is.

        `found` are the tables that it may concern, where the error has none; empty if they are not known.
        """
        if error.commit_ts > self.upto:
            self._pass(Fate.HELD, None, place, offset)
            return False
        self.found.has_unplaced |= not error.commit_ts
        fates = {name: self._fate_of(name, error.commit_ts, place, offset) for name in error.tables or found}
        due = sorted(name for name, fate in fates.items() if fate is None)
        if due or not fates:
            located = error.at(*place, offset, self.protocol)
            self.found.bad.append(BadMessage(place, offset, located, tuple(due)))
            return True
        first = min(fates)
        self._pass(Fate.HELD if Fate.HELD in fates.values() else cast("Fate", fates[first]), first, place, offset)
        return False
