"""Marks in place of escapes: the same values as by the slow way, which takes data with every byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.decode.dump import csv_rows
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.escape_marks import marked

_TEXT = st.lists(
    st.sampled_from([b"\\\\", b'\\"', b"\\n", b"\\0", b"\\r", b"N", b"n", b"A", b"\x1f", b"\xa9"]), max_size=9
)
_CELL = st.just(b"\\N") | _TEXT.map(lambda parts: b'"%s"' % b"".join(parts))


@given(st.lists(_CELL, min_size=1, max_size=9))
def test_values_are_those_of_the_slow_way(cells: list[bytes]) -> None:
    """Runs of backslashes, NULL, and bytes that marks would take."""
    data = b"".join(cell + b",1\n" for cell in cells)
    with pytest.MonkeyPatch.context() as patch:
        quick = csv_rows.read_csv(data, CsvForm(), ["a", "b"])
        patch.setattr(csv_rows, "marked", lambda data, form: None)
        assert quick.equals(csv_rows.read_csv(data, CsvForm(), ["a", "b"]))


def test_a_mark_stands_for_each_kind_of_escape() -> None:
    """The length stays, and so does NULL."""
    data = b'"\\\\N\\n","\\n",\\N\r\n'
    found = marked(data, CsvForm())
    assert found == (b'"\x1faN\x1fb","\x1fb",\\N\r\n', [(b"\x1fa", ord("\\")), (b"\x1fb", ord("n"))])


def test_a_backslash_at_the_very_end_stays() -> None:
    """Nothing stands behind it."""
    assert marked(b"\\", CsvForm()) == (b"\\", [])


def test_data_with_every_byte_leaves_no_mark() -> None:
    """The slow way is taken."""
    assert marked(bytes(range(256)), CsvForm()) is None
