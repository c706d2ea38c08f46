"""The rows that a decode task takes, reduced by table version, segment and topic."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from applier.changefeed.event import RowChange
from applier.changefeed.message import TopicPartition
from applier.changefeed.row_block import ColumnBlock, Ints
from applier.changefeed.table import TableName, TableVersion
from applier.decode.decoder import WireForm
from applier.errors import ValueRefused
from applier.order.reduce import KeyedGroup, KeylessGroup, group
from applier.order.reduce_columns import BlockGroup
from applier.pipeline.scan.admission import Admission
from applier.pipeline.scan.task_result import Part, TaskResult, Waiting
from applier.pipeline.scan.task_versions import TaskVersions
from applier.pipeline.scan.type_rows import Typing, columns_of

if TYPE_CHECKING:
    from applier.pipeline.scan.decode_task import DecodeTask

_Group: TypeAlias = KeyedGroup | KeylessGroup | BlockGroup
_G = TypeVar("_G", bound=_Group)


class RowGroups:
    """Rows of a task, until they are made into parts of its result.

    Args:
        job: What the task must do.
        wire: How its protocol writes values.
        versions: The table versions that it knows.
        admission: Takes rows whose values do not fit their table.
        found: What it found.
    """

    def __init__(
        self, job: DecodeTask, wire: WireForm, versions: TaskVersions, admission: Admission, found: TaskResult
    ) -> None:
        self._job = job
        self._wire = wire
        self._versions = versions
        self._admission = admission
        self._found = found
        self._rows: dict[tuple[TableName, int, int, str], KeyedGroup | KeylessGroup] = {}
        self._runs: dict[tuple[TableName, TopicPartition], tuple[int, int]] = {}
        self._blocks: dict[tuple[TableName, int, int, str, Hashable], BlockGroup] = {}

    def run(self, row: RowChange, place: TopicPartition) -> int:
        """Number of the run of rows of one commit ts that the next row of a table belongs to in a partition."""
        last, number = self._runs.get((row.name, place), (-1, 0))
        if row.commit_ts != last:
            number += 1
            self._runs[row.name, place] = row.commit_ts, number
        return number

    def add_row(self, row: RowChange, number: int, place: TopicPartition, offset: int, index: int, run: int) -> None:
        """Take a row of a segment.

        Args:
            row: The row.
            number: Number of the segment.
            place: Its partition.
            offset: Offset of its message.
            index: Its number among the events of the message.
            run: As in `KeylessEvent`.
        """
        where = row.name, row.version, number, place.topic
        rows = self._rows.get(where) or self._begun(self._rows, where, group, row.commit_ts, place)
        if rows is None:
            return
        position = place.partition, offset, index
        if self._job.try_all:
            one = group(rows.version)
            one.add(row, position)
            self._typing(rows.version).table(*columns_of(one))
        # Only what this very pass read counts: rows above the watermark are read again, before the resolved ts that
        # their partition had sent by then.
        replay = rows.is_bag and row.commit_ts <= self._found.resolved.get(place, 0)
        rows.add(row, position, replay=replay, run=run)
        self._found.counts["rows"] += 1

    def add_block(self, block: ColumnBlock, number: int, place: TopicPartition, offsets: Ints) -> None:
        """Take rows of a segment; `offsets` are those of the messages that the block's places count."""
        where, count = (block.name, block.version, number, place.topic, block.form), len(block.places)
        rows = self._blocks.get(where)
        if rows is None:
            rows = self._begun(self._blocks, where, BlockGroup, int(block.commit_ts.min()), place, count)
        if rows is not None:
            rows.add(block, place.partition, offsets)
            self._found.counts["rows"] += count

    def _begun(
        self,
        groups: dict[Any, _G],
        where: tuple[Any, ...],
        kind: Callable[..., _G],
        ts: int,
        place: TopicPartition,
        count: int = 1,
    ) -> _G | None:
        name, number, cut, *_ = where
        version = self._versions.get(name, number)
        if version is None:
            self._found.wait(Waiting(name, number, ts, count, place))
            return None
        groups[where] = kind(self._versions.typed(version, cut), by_place=not self._job.ordered)
        return groups[where]

    def finish(self) -> None:
        """Make the rows parts of what the task found; those of each group are forgotten then."""
        announced, self._found.topics = self._found.topics, {}
        for groups in cast("list[dict[Any, _Group]]", [self._rows, self._blocks]):
            while groups:
                where = next(iter(groups))
                self._finish(where, groups.pop(where))
        self._found.topics |= announced

    def _finish(self, where: tuple[Any, ...], rows: _Group) -> None:
        name, _, number, topic, *_ = where
        typing = self._typing(rows.version)
        meta, values = rows.columns() if isinstance(rows, BlockGroup) else columns_of(rows)
        if not meta:
            return
        try:
            table, zero_dates = typing.table(meta, values)
        except ValueRefused:
            # All of them at once: a pass that names one would have to be repeated for each.
            for partition, offset, error in typing.refused(meta, values):
                self._admission.reject(TopicPartition(topic, partition), offset, error, [name])
            return
        self._found.counts["zero_dates"] += zero_dates
        self._found.parts.setdefault((name, number), []).append(Part(typing.version, table, topic))
        self._found.topics[name] = topic

    def _typing(self, version: TableVersion) -> Typing:
        return Typing(version, self._wire, self._job.rules)
