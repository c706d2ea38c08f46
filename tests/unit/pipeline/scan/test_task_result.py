"""What tasks found: all of it, once, whatever process they ran in, and only for as long as somebody wants it."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from functools import partial

import pyarrow as pa
import pytest

from applier.changefeed.event import SchemaChange
from applier.changefeed.fate import Fate
from applier.changefeed.message import PartitionMessages, Position, TopicPartition
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.consume.window_size import WindowTooLargeError
from applier.consume.workers.transport import CELLS, packed, settled, unpacked
from applier.errors import DecodeError, IncompleteRow, RegistryDenied, SchemaUnknown, TransientError
from applier.order.barrier import Barrier
from applier.pipeline.scan.task_result import BadMessage, Part, TaskResult, Waiting

NAME = TableName("db", "t")
VERSION = TableVersion(NAME, 7, (Column("id", ColumnType("bigint")),))
P0, P1 = TopicPartition("a", 0), TopicPartition("a", 1)


def _rows(count: int) -> pa.Table:
    # Of a larger one: what is left out of it must not travel.
    numbers = pa.array(range(-5, count), pa.int64())
    texts = pa.array([str(number) for number in range(-5, count)])
    return pa.table({"\0ts": numbers, "\0present": pa.array([True] * (count + 5)), "id": texts}).slice(5)


def _result(count: int, place: TopicPartition, *, segment: int = 0, at: int = 9) -> TaskResult:
    result = TaskResult(
        parts={(NAME, segment): [Part.of(VERSION, _rows(count), place.topic)]},
        barriers=[Barrier(SchemaChange(at, "DROP TABLE t", "db", before=VERSION), "a", Position(0, at, 0))],
        versions={(NAME, at): VERSION},
        topics={NAME: place.topic},
        bad=[
            BadMessage(place, at, error, (NAME,))
            for error in (DecodeError("what", "hint"), SchemaUnknown("which", "", 3), IncompleteRow("row"))
        ],
    )
    result.receive(place, count)
    result.resolve(place, at)
    result.hold(P0, at)
    result.wait(Waiting(NAME, 8, at, 2, P0))
    result.fates[Fate.APPLIED, NAME] += count
    return result


def _cells(*results: TaskResult | Exception) -> pa.Table:
    def job(result: TaskResult | Exception, messages: Iterable[PartitionMessages]) -> TaskResult:
        assert list(messages) == []
        if isinstance(result, Exception):
            raise result
        return result

    return pa.Table.from_batches([cell for one in results for cell in packed(partial(job, one), [])])


def _shown(result: TaskResult) -> dict[str, object]:
    shown = {name: getattr(result, name) for name in TaskResult.__slots__}
    bad = [(bad.partition, bad.offset, type(bad.error), vars(bad.error), bad.tables) for bad in result.bad]
    return {**shown, "bad": bad}


@pytest.mark.parametrize("is_one_chunk", [False, True])
def test_results_arrive_as_they_were_found(*, is_one_chunk: bool) -> None:
    """Each from its process, whole, however the batches were put together on the way."""
    results = [_result(3, P0), _result(1000, P1, segment=2), TaskResult()]
    cells = _cells(*results)

    found = settled(unpacked(cells.combine_chunks() if is_one_chunk else cells))

    assert list(map(_shown, found)) == list(map(_shown, results))
    assert cells.schema == CELLS


def test_cells_of_other_sizes_are_read_as_well() -> None:
    """Spark may be set to give binary types of another size."""
    cells = _cells(_result(3, P0))
    cells = cells.set_column(1, "cell", cells["cell"].cast(pa.large_binary()))

    assert list(map(_shown, settled(unpacked(cells)))) == [_shown(_result(3, P0))]


@pytest.mark.parametrize(
    "error", [TransientError("away", "wait."), RegistryDenied("no", "log in."), WindowTooLargeError(7, 3)]
)
def test_a_task_that_cannot_go_on_says_why(error: Exception) -> None:
    """In the process that waits for it, by the error that was raised."""
    with pytest.raises(type(error)) as raised:
        settled(unpacked(_cells(_result(3, P0), error)))

    assert (str(raised.value), vars(raised.value)) == (str(error), vars(error))


def test_results_of_tasks_are_added_up() -> None:
    """Rows, DDL and bad messages one after the other; of places the lowest held and the highest resolved."""
    first, second = _result(3, P0), _result(4, P0, at=5)

    found = TaskResult.sum([first, second, _result(2, P1, segment=1)])

    assert found.parts == {
        (NAME, 0): [*first.parts[NAME, 0], *second.parts[NAME, 0]],
        (NAME, 1): [Part.of(VERSION, _rows(2), "a")],
    }
    assert [barrier.change.commit_ts for barrier in found.barriers] == [9, 5, 9]
    assert [bad.offset for bad in found.bad] == [9] * 3 + [5] * 3 + [9] * 3
    assert found.versions == {(NAME, 9): VERSION, (NAME, 5): VERSION}
    assert (found.topics, found.read) == ({NAME: "a"}, {P0: 7, P1: 2})
    assert (found.resolved, found.held) == ({P0: 9, P1: 9}, {P0: 5})
    assert list(found.waiting.values()) == [Waiting(NAME, 8, 5, 6, P0)]
    assert (found.counts["messages"], found.counts["applied"]) == (9, 9)


def test_rows_that_nobody_wants_any_more_take_no_memory() -> None:
    """A long backlog would fill the machine with what was applied long ago."""
    gc.collect()
    before = pa.total_allocated_bytes()
    found = settled(unpacked(_cells(_result(100_000, P0))))
    held = pa.total_allocated_bytes() - before

    del found

    assert held > 1_000_000
    assert pa.total_allocated_bytes() == before


def test_rows_left_out_of_a_column_do_not_travel() -> None:
    """A few rows of a large column: pyarrow by itself would send all of it."""
    result = TaskResult(parts={(NAME, 0): [Part.of(VERSION, _rows(100_000).slice(7, 2))]})

    assert _cells(result).nbytes < 10_000
