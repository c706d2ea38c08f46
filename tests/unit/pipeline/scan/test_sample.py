"""A sample of a table is its newest whole row, and holds no hidden value as it was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.filter import TablePattern
from applier.changefeed.shape import Shape
from applier.changefeed.types import TypeRules
from applier.decode.decoder import WireForm
from applier.pipeline.scan.row_groups import Typing
from applier.pipeline.scan.sample import Sample
from applier.pipeline.scan.task_result import TaskResult
from tests.builders import ACCOUNT, version

VALUES: Mapping[str, Sequence[Any]] = {
    "id": ["1", "2", "3", "4"],
    "c": ["a", "b", "c", None],
    "v": ["k", "l", "m", None],
    "d": ["2026-01-01", "0000-00-00", "2026-01-03", None],
}
WIRE = WireForm("base64", "index", "UTC")
HIDING = Shape(exclude=frozenset({"c"}), masks={"v": "redact"}, casts={"id": "string"})


def meta(stamps: Sequence[int], present: Sequence[bool], **more: Sequence[Any]) -> pa.Table:
    """Where rows are from, as far as a sample asks for it."""
    place = {name: [0] * len(stamps) for name in ("\0partition", "\0offset", "\0index")}
    return pa.table(
        {"\0ts": stamps, "\0present": present, **place, **{f"\0{name}": each for name, each in more.items()}}
    )


def sample(shape: Shape, about: pa.Table, values: Mapping[str, Any] = VALUES) -> Sample | None:
    """The sample of these rows."""
    columns = version(("id", "bigint"), ("c", "varchar"), ("v", "varchar"), ("d", "date"))
    typing = Typing(columns, WIRE, TypeRules(shapes=[(TablePattern(str(ACCOUNT)), shape)]))
    return typing.sample(about, values, typing.table(about, values)[0])


@pytest.mark.parametrize("form", ["lists", "arrays"])
def test_the_newest_whole_row_counts(form: str) -> None:
    """As values of messages and of blocks; a deleted row has its key alone. Zero dates are seen."""
    values = VALUES if form == "lists" else {name: pa.array(each) for name, each in VALUES.items()}
    found = sample(HIDING, meta([5, 8, 6, 9], [True, True, True, False]), values)

    assert found is not None
    assert found.sent == {"id": 2, "d": "0000-00-00"}
    assert found.row.select(["id", "v", "d"]).to_pylist() == [{"id": "2", "v": "***", "d": None}]
    assert "c" not in found.row.column_names


def test_a_deleted_row_counts_where_it_stays() -> None:
    """Nothing else counts without a row that is there, nor does one that was sent before."""
    stamps = [5, 8, 6, 9]
    assert sample(Shape(), meta(stamps, [False] * 4)) is None
    kept = sample(Shape(is_soft=True), meta(stamps, [False] * 4))
    assert kept is not None
    assert kept.sent["id"] == 4
    again = sample(Shape(), meta(stamps, [True] * 4, replay=[False, True, False, True]))
    assert again is not None
    assert again.sent["id"] == 3


def test_of_several_tasks_the_newer_one_counts() -> None:
    """Whatever their order is."""
    older = sample(Shape(), meta([1, 2, 3, 4], [True] * 4))
    newer = sample(Shape(), meta([9, 2, 3, 4], [True] * 4))
    assert older is not None
    assert newer is not None
    for first, second in ((older, newer), (newer, older)):
        found = TaskResult.sum([TaskResult(samples={ACCOUNT: first}), TaskResult(samples={ACCOUNT: second})])
        assert found.samples[ACCOUNT].sent["id"] == 1
