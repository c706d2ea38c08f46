"""The rows that a decode task takes, reduced by table version, segment and topic."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from applier.changefeed.event import Op, RowChange
from applier.changefeed.fate import Fate
from applier.changefeed.message import TopicPartition
from applier.changefeed.row_block import ColumnBlock, Ints
from applier.changefeed.table import Column, TableName, TableVersion
from applier.changefeed.ts import LOGICAL
from applier.changefeed.types import TypeRules
from applier.decode.decoder import WireForm
from applier.decode.large_messages import handle_key_only
from applier.decode.values.alike import to_column
from applier.errors import DecodeError, ValueRefused
from applier.order.barrier import segments
from applier.order.changes import ChangeBlocks, ChangesGroup, as_changes
from applier.order.feed_order import FeedOrder, undated
from applier.order.reduce import BlockGroup, Group, group
from applier.pipeline.scan.sample import Sample, as_sent, is_shown
from applier.pipeline.scan.task_result import BadMessage, Part, TaskResult, Waiting
from applier.pipeline.scan.task_versions import DdlMarks, TaskVersions

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

    def fate_of(self, name: TableName, commit_ts: int, place: TopicPartition, offset: int) -> Fate | None:
        """What becomes of a row of which a message shows no more, its commit ts 0 for none; None if it is due."""
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
        fates = {name: self.fate_of(name, error.commit_ts, place, offset) for name in error.tables or found}
        due = sorted(name for name, fate in fates.items() if fate is None)
        if due or not fates:
            located = error.at(*place, offset, self.protocol)
            self.found.bad.append(BadMessage(place, offset, located, tuple(due)))
            return True
        first = min(fates)
        self._pass(Fate.HELD if Fate.HELD in fates.values() else cast("Fate", fates[first]), first, place, offset)
        return False


_Column: TypeAlias = "Sequence[Any] | pa.Array[Any]"

Values: TypeAlias = Mapping[str, _Column]
"""Wire values of some rows, per column."""


@dataclass(frozen=True, slots=True)
class Typing:
    """Gives values their types."""

    version: TableVersion
    wire: WireForm
    rules: TypeRules

    @property
    def _columns(self) -> Sequence[Column]:
        """Those whose values leave the task; a table with an excluded key column is refused before it is written."""
        columns, shape = self.version.columns, self.rules.shape_of(self.version.name)
        if not shape.exclude:
            return columns
        return [column for column in columns if column.name in self.version.key or not shape.excludes(column.name)]

    def table(self, meta: pa.Table, values: Values) -> tuple[pa.Table, int]:
        """Append the own columns of the table to `KEYED_SCHEMA` or `KEYLESS_SCHEMA`; also how many zero dates were met.

        Raises:
            ValueRefused: A value does not fit its column.
        """
        zero_dates = 0
        for column in self._columns:
            if column.name in values:
                array, zeros = to_column(values[column.name], column, self.version, self.wire, self.rules)
                meta = meta.append_column(column.name, array)
                zero_dates += zeros
        return meta, zero_dates

    def sample(self, meta: pa.Table, values: Values, rows: pa.Table) -> Sample | None:
        """The newest of the rows that these values make, if any is whole and was not sent before."""
        is_whole = np.asarray(meta["\0present"]) | self.rules.shape_of(self.version.name).is_soft
        if "\0replay" in meta.column_names:
            is_whole = is_whole & ~np.asarray(meta["\0replay"])
        if not is_whole.any():
            return None
        chosen = np.flatnonzero(is_whole)
        at = int(chosen[np.argmax(np.asarray(meta["\0ts"])[chosen])])
        shown = [column.name for column in self.version.columns if is_shown(self.version, column, self.rules)]
        sent = {name: values[name][at : at + 1] for name in shown if name in values}
        own, _ = Typing(self.version, self.wire, as_sent(self.rules)).table(meta.slice(at, 1), sent)
        # Slices would keep, and hand over, all rows.
        return Sample(self.version, {name: own[name][0].as_py() for name in sent}, rows.take([at]))

    def refused(self, meta: pa.Table, values: Values) -> Iterator[tuple[int, int, ValueRefused]]:
        """Partition, offset and reason of each row with a value that does not fit; the first one's reason counts."""
        found: dict[int, ValueRefused] = {}
        for column in self._columns:
            if column.name in values:
                for row, error in self._refused(values[column.name], column, 0):
                    found.setdefault(row, error)
        for row in sorted(found):
            found[row].concern(self.version.name, meta["\0ts"][row].as_py())
            yield meta["\0partition"][row].as_py(), meta["\0offset"][row].as_py(), found[row]

    def _refused(self, values: _Column, column: Column, first: int) -> Iterator[tuple[int, ValueRefused]]:
        """Values that do not fit, found by halves, as nearly all of them do; column by column, as all may be bad."""
        try:
            to_column(values, column, self.version, self.wire, self.rules)
        except ValueRefused as error:
            if len(values) == 1:
                yield first, error
                return
            half = len(values) // 2
            yield from self._refused(values[:half], column, first)
            yield from self._refused(values[half:], column, first + half)


_Group: TypeAlias = Group | BlockGroup
_Changes: TypeAlias = ChangesGroup | ChangeBlocks
_G = TypeVar("_G", bound=_Group)
_C = TypeVar("_C", ChangesGroup, ChangeBlocks)

_CHANGES = 20_000
"""Images of changes that are kept as they were sent, before they become columns: none of them is reduced."""


class _Sent(NamedTuple):
    """A row, with its place, and of one without a key what `KEYLESS_SCHEMA` has."""

    row: RowChange
    position: tuple[int, int, int]
    replay: bool
    run: int


@dataclass(slots=True)
class RowGroups:
    """Rows of a task, until they are made into parts of its result; see `DecodeTask` for `try_all` and `samples`."""

    wire: WireForm
    versions: TaskVersions
    admission: Admission
    rules: TypeRules
    try_all: bool
    samples: bool = False
    _sent: dict[tuple[TableName, int, bool], list[_Sent]] = field(default_factory=dict, init=False)
    _rows: dict[tuple[TableName, int, int, str, bool], Group] = field(default_factory=dict, init=False)
    _runs: dict[tuple[TableName, TopicPartition], tuple[int, int]] = field(default_factory=dict, init=False)
    _blocks: dict[tuple[TableName, int, int, str, Hashable], BlockGroup] = field(default_factory=dict, init=False)
    _changes: dict[tuple[Any, ...], _Changes] = field(default_factory=dict, init=False)

    @property
    def _by_place(self) -> bool:
        return self.admission.order.by_place

    @property
    def _found(self) -> TaskResult:
        return self.admission.found

    def take_row(self, row: RowChange, place: TopicPartition, offset: int, index: int) -> None:
        """Take a row, until `take_rows`; `index` is its number among the events of its message."""
        name, ts = row.name, row.commit_ts
        run, replay = 0, False
        if name in self.versions.counted:
            # Rows that are not due count, too: they part a run from the same one sent again.
            run = self._run(name, place, ts)
            # Only what this very pass read counts: rows above the watermark are read again, before the resolved ts
            # that their partition had sent by then. A millisecond may stand for any commit ts in it.
            highest = ts | LOGICAL if self._by_place and not ts & LOGICAL else ts
            replay = highest <= self._found.resolved.get(place, 0)
        sent = _Sent(row, (place.partition, offset, index), replay, run)
        self._sent.setdefault((name, row.version, row.is_reduced), []).append(sent)

    def take_rows(self, place: TopicPartition) -> None:
        """Take those of the rows of a partition that are due."""
        taken, self._sent = self._sent, {}
        for (name, version, is_reduced), rows in taken.items():
            ops = [sent.row.op for sent in rows]
            where = np.array([sent.position[1] for sent in rows], np.int64)
            stamps = np.array([sent.row.commit_ts for sent in rows], np.int64)
            for number, due in self.admission.take(name, ops, place, where, stamps):
                group_of = name, version, number, place.topic, is_reduced
                chosen = [rows[at] for at in due.tolist()]
                found = self._rows.get(group_of)
                if found is None:
                    keeps = self.rules.shape_of(name).is_soft
                    kind = partial(group, by_place=self._by_place, keeps_deleted=keeps)
                    found = self._begun(self._rows, group_of, kind, int(stamps[due].min()), place, len(chosen))
                if found is not None:
                    keeping = partial(ChangesGroup, keeps_old=self.rules.shape_of(name).keeps_old)
                    kept = self._kept(group_of, found.version, keeping)
                    self._add(found, kept, chosen, place)
                    if kept is not None and len(kept) >= _CHANGES:
                        self._finish_changes(group_of, self._changes.pop(group_of))

    def _kept(self, where: tuple[Any, ...], version: TableVersion, kind: Callable[..., _C]) -> _C | None:
        """What keeps every change of these rows; None where none is asked for.

        A table without a key is refused once its rows come to it.
        """
        if not version.key or not self.rules.shape_of(version.name).history:
            return None
        return cast("_C", self._changes.setdefault(where, kind(version)))

    def _add(self, rows: Group, kept: ChangesGroup | None, chosen: Sequence[_Sent], place: TopicPartition) -> None:
        bad, fates = set[int](), self._found.fates
        for row, position, replay, run in chosen:
            offset = position[1]
            try:
                if offset in bad:
                    fates[Fate.SET_ASIDE, row.name] += 1
                    continue
                if row.is_reduced and (kept is not None or not rows.version.key):
                    raise handle_key_only(str(row.name))
                if self.try_all:
                    one = group(rows.version)
                    one.add(row, position)
                    self._typing(rows.version).table(*one.columns())
                rows.add(row, position, replay=replay, run=run)
                if kept is not None:
                    kept.add(row, position)
            except DecodeError as error:
                bad.add(offset)
                error.concern(row.name, row.commit_ts)
                self.admission.reject(place, offset, error)
            else:
                fates[Fate.APPLIED, row.name] += 1

    def take_block(self, block: ColumnBlock, place: TopicPartition, offsets: Ints) -> None:
        """Take the rows of a block that are due; `offsets` are those of the messages that its places count."""
        ops, where = [block.op] * len(block.places), offsets[block.places]
        for number, chosen in self.admission.take(block.name, ops, place, where, block.commit_ts):
            due = block if len(chosen) == len(block.places) else block.part(chosen)
            group_of, count = (due.name, due.version, number, place.topic, due.form), len(due.places)
            rows = self._blocks.get(group_of)
            if rows is None:
                kind = partial(BlockGroup, by_place=self._by_place)
                rows = self._begun(self._blocks, group_of, kind, int(due.commit_ts.min()), place, count)
            if rows is not None:
                rows.add(due, place.partition, offsets)
                if (kept := self._kept(group_of, rows.version, ChangeBlocks)) is not None:
                    kept.add(due, place.partition, offsets)
                self._found.fates[Fate.APPLIED, due.name] += count

    def _run(self, name: TableName, place: TopicPartition, ts: int) -> int:
        """Number of the run of rows of one commit ts that the next row of a table belongs to in a partition."""
        last, number = self._runs.get((name, place), (-1, 0))
        if ts != last:
            number += 1
            self._runs[name, place] = ts, number
        return number

    def _begun(
        self,
        groups: dict[Any, _G],
        where: tuple[Any, ...],
        kind: Callable[..., _G],
        ts: int,
        place: TopicPartition,
        count: int,
    ) -> _G | None:
        name, number, cut, *_ = where
        version = self.versions.get(name, number)
        if version is None:
            # Another pass holds them: the watermark stays below the first of them.
            self._found.wait(Waiting(name, number, ts, count, place))
            self._found.fates[Fate.HELD, name] += count
            return None
        groups[where] = kind(self.versions.typed(version, cut, ts))
        return groups[where]

    def finish(self) -> None:
        """Make the rows parts of what the task found; those of each group are forgotten then."""
        announced, self._found.topics = self._found.topics, {}
        while self._changes:
            where = next(iter(self._changes))
            self._finish_changes(where, self._changes.pop(where))
        for groups in cast("list[dict[Any, _Group]]", [self._rows, self._blocks]):
            while groups:
                where = next(iter(groups))
                self._finish(where, groups.pop(where), is_reduced=groups is self._rows and where[-1])
        self._found.topics |= announced

    def _finish(self, where: tuple[Any, ...], rows: _Group, *, is_reduced: bool) -> None:
        name, _, number, topic, *_ = where
        typing = self._typing(rows.version)
        meta, values = rows.columns()
        if not meta:
            return
        try:
            table, zero_dates = typing.table(meta, values)
        except ValueRefused:
            if self.rules.shape_of(name).history and typing.version.key:
                return  # Each is among the changes, too, and was rejected there.
            # All of them at once: a pass that names one would have to be repeated for each.
            for partition, offset, error in typing.refused(meta, values):
                self.admission.reject(TopicPartition(topic, partition), offset, error)
            return
        self._found.measures["zero_dates"] += zero_dates
        if self.samples and not is_reduced and (sample := typing.sample(meta, values, table)) is not None:
            self._found.samples[name] = sample.newer(self._found.samples.get(name))
        part = Part.of(typing.version, table, topic, is_reduced=is_reduced)
        self._found.parts.setdefault((name, number), []).append(part)
        self._found.topics[name] = topic

    def _finish_changes(self, where: tuple[Any, ...], rows: _Changes) -> None:
        name, _, number, topic, *_ = where
        typing = self._typing(rows.version)
        meta, values = rows.columns()
        try:
            table, _ = typing.table(meta, values)
        except ValueRefused:
            for partition, offset, error in typing.refused(meta, values):
                self.admission.reject(TopicPartition(topic, partition), offset, error)
            return
        part = Part.of(*as_changes(table, typing.version), topic)
        self._found.parts.setdefault((name, number), []).append(part)

    def is_whole(self, block: ColumnBlock) -> bool:
        """Whether a block holds all that its table keeps of its rows: nothing says if a deleted row is whole."""
        return block.op is not Op.DELETE or not self.rules.shape_of(block.name).is_soft

    def _typing(self, version: TableVersion) -> Typing:
        return Typing(version, self.wire, self.rules)
