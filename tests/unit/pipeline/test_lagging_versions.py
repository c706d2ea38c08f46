"""Columns of a table that rows alone describe, under version numbers that are hashes, over partitions that lag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.changefeed.window import OffsetRange
from applier.decode.debezium.rows import own_version
from applier.errors import SchemaChangeRefused
from applier.pipeline.batches.batch import Batch, ReadExtent
from applier.pipeline.scan.task_result import Part
from applier.pipeline.schema_changes.follow_rows import follow
from applier.sink.evolve.plan import plan
from applier.sink.evolve.steps import AddField, DropField

NAME = TableName("shop", "t")
PLACE = TopicPartition("shop", 0)

KEY, A, AB, AC = ("id",), ("id", "a"), ("id", "a", "b"), ("id", "a", "c")

Row = tuple[int, tuple[str, ...]]
"""Commit ts, which is the key of the row and each of its values, and columns."""


def version(columns: Sequence[str]) -> TableVersion:
    """The version that a row of Debezium describes."""
    found = tuple(Column(name, ColumnType("bigint"), nullable=name != "id") for name in columns)
    return own_version(TableVersion(NAME, 0, found, handle_key=("id",)))


@dataclass
class Lake:
    """A table in memory, which is evolved as the plan says."""

    newest: int = 0
    tracked: TableVersion | None = None
    rows: dict[int, dict[str, int]] = field(default_factory=dict)

    def track(self, found: TableVersion) -> None:
        """Take note of the table as it is."""
        self.tracked = found

    def follow(self, found: TableVersion) -> None:
        """Evolve the table."""
        assert self.tracked is not None
        evolution = plan(self.tracked, found, (), TypeRules())
        if evolution.only_empty:
            raise SchemaChangeRefused(evolution.only_empty[0].reason)
        for step in evolution.steps:
            if isinstance(step, AddField | DropField):
                for row in self.rows.values():
                    row.pop(step.name, None)
        self.tracked = found

    def apply(self, rows: Sequence[Row]) -> None:
        """Apply one step."""
        parts = [_part(columns, rows) for columns in dict.fromkeys(columns for _, columns in rows)]
        batch = Batch(NAME, parts, 0, extent=ReadExtent({}, {}))
        state = SimpleNamespace(
            versions={},
            tables=SimpleNamespace(get=lambda _: self.tracked),
            loaded={},
            changed_at=lambda _: 0,
            track=self.track,
        )
        targets = SimpleNamespace(
            covered=lambda _: AppliedOffsets(newest=self.newest), maker=SimpleNamespace(rules=TypeRules())
        )
        is_new = self.tracked is None
        if is_new:
            self.track(batch.newest)
        follow(*_unchecked(batch, state, targets, self), is_new=is_new)
        for ts, columns in rows:
            self.rows[ts] = {name: ts for name in columns if cast("TableVersion", self.tracked).column(name)}
        self.newest = max(self.newest, batch.newest_ts)


def _part(columns: tuple[str, ...], rows: Sequence[Row]) -> Part:
    stamps = [ts for ts, other in rows if other == columns]
    return Part.of(version(columns), pa.table({"\0ts": stamps, "\0present": [columns != KEY] * len(stamps)}))


def _unchecked(*values: Any) -> tuple[Any, ...]:
    return values


def arrivals(random: Random, rows: Sequence[Row]) -> list[list[Row]]:
    """The rows over two partitions, each in order, read in steps that take any number of each."""
    partitions: tuple[list[Row], list[Row]] = [], []
    for row in rows:
        random.choice(partitions).append(row)
    steps = []
    while any(partitions):
        taken = [random.randint(0, len(rest)) for rest in partitions]
        steps.append([row for rest, count in zip(partitions, taken, strict=True) for row in rest[:count]])
        for rest, count in zip(partitions, taken, strict=True):
            del rest[:count]
    return [step for step in steps if step]


def arrived(seed: int, rows: Sequence[Row]) -> Lake:
    """The table once all rows have come, in an order that is drawn."""
    lake = Lake()
    for step in arrivals(Random(seed), rows):
        lake.apply(step)
    return lake


def upstream(*phases: tuple[str, ...]) -> list[Row]:
    """Three rows of each version in turn."""
    return [(1 + 3 * number + at, columns) for number, columns in enumerate(phases) for at in range(3)]


@pytest.mark.parametrize("phases", [(A, AB), (AB, A), (A, AB, A), (A, AB, (*AB, "c"))])
def test_no_order_of_arrival_loses_a_value_or_parks(phases: tuple[tuple[str, ...], ...]) -> None:
    """The table ends with the columns of the newest row, and each value that was written in one of them."""
    rows = upstream(*phases)
    for seed in range(200):
        lake = arrived(seed, rows)
        assert [column.name for column in cast("TableVersion", lake.tracked).columns] == list(phases[-1])
        expected = {ts: {name: ts for name in columns if name in phases[-1]} for ts, columns in rows}
        assert lake.rows == expected, seed


def test_a_rename_is_refused_in_any_order_of_arrival() -> None:
    """It looks like a column that went and another one that came: the values of neither are given up."""
    for seed in range(100):
        with pytest.raises(SchemaChangeRefused, match="no statement shows whether they were renamed"):
            arrived(seed, upstream(AB, AC))


def test_a_column_that_was_dropped_and_added_again_is_empty_in_former_rows() -> None:
    """The commit ts show the version between, in one step with the newest."""
    lake = Lake()
    lake.apply([(1, AB)])
    lake.apply([(2, A), (3, AB)])
    assert lake.rows == {1: {"id": 1, "a": 1}, 2: {"id": 2, "a": 2}, 3: {"id": 3, "a": 3, "b": 3}}


def test_a_column_that_goes_and_comes_back_in_one_step_is_refused() -> None:
    """The rows that held it before lost its values upstream."""
    lake = Lake()
    lake.apply([(1, A)])
    with pytest.raises(SchemaChangeRefused, match="Columns b of table shop.t were gone and came back in one step"):
        lake.apply([(2, AB), (3, A), (4, AB)])


def test_a_delete_by_the_key_alone_takes_no_column_away() -> None:
    """With `delete-only-output-handle-key-columns`, and in Avro, it holds nothing else."""
    lake = Lake()
    lake.apply([(1, A), (2, A)])
    lake.apply([(3, KEY)])
    assert lake.rows[2] == {"id": 2, "a": 2}


def test_a_delete_by_the_key_alone_shows_no_columns_of_its_time() -> None:
    """A row from before it, of a partition that lags, may be the first that shows a new column."""
    lake = Lake()
    lake.apply([(1, A)])
    lake.apply([(9, KEY)])
    lake.apply([(5, AB)])
    assert lake.rows[5] == {"id": 5, "a": 5, "b": 5}


def test_a_table_whose_newest_row_is_not_known_gives_no_column_up() -> None:
    """A stamp of an earlier applier does not name it: rows of another version may lag behind."""
    lake = Lake(tracked=version(AB), rows={2: {"id": 2, "a": 2, "b": 2}})
    lake.apply([(1, A)])
    assert lake.rows[2]["b"] == 2
    lake.apply([(3, A)])
    assert [column.name for column in cast("TableVersion", lake.tracked).columns] == ["id", "a"]


def test_the_stamp_names_the_newest_row_of_all_commits() -> None:
    """A partition that lags does not take it back."""
    first = AppliedOffsets().after({PLACE: OffsetRange(0, 7)}, 0, {}, 9)
    later = AppliedOffsets.from_text(first.to_text()).after({PLACE: OffsetRange(7, 8)}, 0, {}, 5)
    assert AppliedOffsets.from_text(later.to_text()).newest == 9
