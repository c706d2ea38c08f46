"""What tasks found: all of it, once, whatever process they ran in, and only for as long as somebody wants it."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterable
from functools import partial
from io import BytesIO

import pyarrow as pa
import pytest

from applier.changefeed.event import SchemaChange
from applier.changefeed.fate import Fate
from applier.changefeed.message import PartitionMessages, Position, TopicPartition
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.consume.window_size import WindowTooLargeError
from applier.consume.workers.transport import outcome, pickled, read, settled, write
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


def _carried(*results: TaskResult | Exception) -> BytesIO:
    def job(result: TaskResult | Exception, messages: Iterable[PartitionMessages]) -> TaskResult:
        assert list(messages) == []
        if isinstance(result, Exception):
            raise result
        return result

    pipe = BytesIO()
    for one in results:
        write(pickled(outcome(partial(job, one), [])), pipe)
    pipe.seek(0)
    return pipe


def _shown(result: TaskResult) -> dict[str, object]:
    shown = {name: getattr(result, name) for name in TaskResult.__slots__}
    bad = [(bad.partition, bad.offset, type(bad.error), vars(bad.error), bad.tables) for bad in result.bad]
    return {**shown, "bad": bad}


def test_results_arrive_as_they_were_found() -> None:
    """Each from its process, whole, one behind the other."""
    results = [_result(3, P0), _result(1000, P1, segment=2), TaskResult()]
    pipe = _carried(*results)

    found = settled(read(pipe) for _ in results)

    assert list(map(_shown, found)) == list(map(_shown, results))
    assert not pipe.read()


@pytest.mark.parametrize("kept", [0, 1, 100, -1])
def test_a_result_that_is_cut_short_is_none(kept: int) -> None:
    """Its process ended while it wrote."""
    whole = _carried(_result(1000, P0)).read()

    with pytest.raises((EOFError, pickle.UnpicklingError)):
        read(BytesIO(whole[:kept]))


@pytest.mark.parametrize(
    "error", [TransientError("away", "wait."), RegistryDenied("no", "log in."), WindowTooLargeError(7, 3)]
)
def test_a_task_that_cannot_go_on_says_why(error: Exception) -> None:
    """In the process that waits for it, by the error that was raised."""
    pipe = _carried(_result(3, P0), error)

    with pytest.raises(type(error)) as raised:
        settled([read(pipe), read(pipe)])

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
    found = read(_carried(_result(100_000, P0)))
    held = pa.total_allocated_bytes() - before

    del found

    assert held > 1_000_000
    assert pa.total_allocated_bytes() == before


def test_rows_left_out_of_a_column_do_not_travel() -> None:
    """A few rows of a large column: pyarrow by itself would send all of it."""
    result = TaskResult(parts={(NAME, 0): [Part.of(VERSION, _rows(100_000).slice(7, 2))]})

    assert len(_carried(result).getvalue()) < 10_000
