"""Values that do not fit their columns: each row is named once, and finding them costs little even if all are bad."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.types import TypeRules
from applier.decode.decoder import WireForm
from applier.decode.values.convert import _convert
from applier.pipeline.scan.row_groups import Typing, Values
from tests.builders import version

TYPING = Typing(version(("id", "int"), ("a", "int"), ("b", "date")), WireForm("base64", "index", "UTC"), TypeRules())


def _meta(rows: int) -> pa.Table:
    """Rows at the offsets 100, 101, … of partition 3, of a commit ts each from 7 on."""
    places = list(range(rows))
    return pa.table(
        {"\0ts": [7 + at for at in places], "\0partition": [3] * rows, "\0offset": [100 + at for at in places]}
    )


def test_each_row_is_named_once_with_the_first_column_that_does_not_fit() -> None:
    """One row has a bad value in one column, another in the other, a third in both."""
    values: Values = {"id": ["1", "2", "3", "4"], "a": ["1", "x", None, "y"], "b": ["2024-01-01", None, "z", "z"]}

    found = list(TYPING.refused(_meta(4), values))

    assert [place[:2] for place in found] == [(3, 101), (3, 102), (3, 103)]
    assert [(error.tables, error.commit_ts) for _, _, error in found] == [
        ((TYPING.version.name,), ts) for ts in (8, 9, 10)
    ]
    assert [str(error).split(" cannot")[0] for _, _, error in found] == [
        f"A value of shop.account.{column}" for column in ("a", "b", "a")
    ]


def test_rows_that_all_fit_are_none() -> None:
    """Nothing is refused without a reason."""
    assert list(TYPING.refused(_meta(2), {"id": ["1", "2"], "a": [None, "7"]})) == []


def test_rows_that_are_all_bad_take_two_looks_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A feed whose every row is refused, say for the members of an enum that no message tells, ends with its sentence.

    Looks at all columns in every half would be twenty times as many for a window of a hundred thousand rows.
    """
    looks: list[int] = []

    def counted(values: Any, *rest: Any) -> Any:
        looks.append(len(values))
        return _convert(values, *rest)

    monkeypatch.setattr("applier.decode.values.convert._convert", counted)
    rows = 1_024
    values: Values = {"id": [str(row) for row in range(rows)], "a": ["x"] * rows, "b": [None] * rows}

    assert len(list(TYPING.refused(_meta(rows), values))) == rows
    assert len(looks) == (2 * rows - 1) + 2
