"""Decoders forget before they fill the memory, and what they forget costs time alone."""

from __future__ import annotations

import json

import pytest

from applier.changefeed.event import Bootstrap, RowChange
from applier.decode import bounded_cache
from applier.decode.bounded_cache import Bounded, BoundedLists
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a test reaches."""
    monkeypatch.setattr(bounded_cache, "MAX_KEPT", 6)
    monkeypatch.setattr(bounded_cache, "MAX_ALIKE", 3)


def test_a_dictionary_is_emptied_before_it_grows_too_large() -> None:
    """It never holds more than its bound; what is there already may be set again."""
    kept: Bounded[int, str] = Bounded()
    sizes = []
    for number in range(20):
        kept[number] = "new"
        kept[number] = "newer"
        sizes.append(len(kept))

    assert max(sizes) == 6
    assert kept[19] == "newer"


def test_lists_are_bounded_each_and_together() -> None:
    """A list of one key is searched from end to end, so it has a bound of its own."""
    kept: BoundedLists[str, int] = BoundedLists()
    for number in range(10):
        kept.keep("same", number)
        assert len(kept["same"]) <= 3
    assert kept["same"][-1] == 9
    for number in range(20):
        kept.keep(f"key {number}", number)
        assert sum(map(len, kept.values())) <= 6


def test_rows_of_more_descriptions_than_fit_are_still_decoded() -> None:
    """Each row of ever new columns refers to a version that was announced, before and after everything is forgotten."""
    decoder = build("canal-json", DecoderOptions())
    announced = set()
    for number in [*range(30), *range(30)]:
        message = {
            "type": "INSERT",
            "database": "d",
            "table": "t",
            "pkNames": None,
            "mysqlType": {"id": "int", f"c{number}": "decimal"},
            "data": [{"id": "1", f"c{number}": "1.5"}],
        }
        *first, row = decoder.decode(None, json.dumps(message).encode())
        announced |= {event.version.version for event in first if isinstance(event, Bootstrap)}
        assert isinstance(row, RowChange)
        assert row.version in announced
