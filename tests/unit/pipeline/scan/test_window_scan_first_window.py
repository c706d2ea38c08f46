"""The first window, the largest of all, is read once: what it makes is known from its first messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.types import TypeRules
from applier.decode.options import DecoderOptions
from applier.errors import DecodeError
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.row_groups import Typing, Values
from applier.pipeline.scan.scanner import HEAD_MESSAGES, WindowScanner
from applier.pipeline.scan.window_scan import WindowScan
from applier.runtime.logs import Stopwatch
from applier.runtime.places import Where
from tests.known import known_at
from tests.unit.pipeline.scan.test_window_scan_dead_letters import _SCHEMA, TS, MessageSource, _message, _row

CREATE = _message("CREATE", 0, sql="CREATE TABLE `shop`.`stock` (`id` INT PRIMARY KEY)", tableSchema=_SCHEMA)


def _rows(count: int) -> list[dict[str, Any]]:
    return [_row("INSERT", number, str(number), number) for number in range(1, count + 1)]


def _survey(source: MessageSource) -> WindowScan:
    template = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (), upto=0)
    scanner = WindowScanner(source, template, rows_describe=False, keep_bad=False)
    ends = {place: span.end for place, span in source.window.ranges.items()}
    known = known_at()
    return scanner.scan(source.window, known, ends, Stopwatch(), where=Where.TASKS)


def test_rows_behind_a_create_are_read_once() -> None:
    """They are behind it from the start, and not found to be after all of them were reduced."""
    rows = _rows(3 * HEAD_MESSAGES)
    source = MessageSource([CREATE, *rows, _message("WATERMARK", len(rows))])

    found = _survey(source)

    assert source.passes == 1
    assert [len(ddl.names) for ddl in found.ddl] == [1]
    assert {number for _, number in found.results.parts} == {1}
    assert found.results.counts["applied"] == len(rows)


@pytest.mark.parametrize("before", [HEAD_MESSAGES - 1, HEAD_MESSAGES, HEAD_MESSAGES + 1])
def test_a_create_further_on_cuts_the_same_rows(before: int) -> None:
    """Wherever it stands, it is applied once, and the rows behind it belong to it."""
    others = [_message("WATERMARK", 0) for _ in range(before)]
    rows = _rows(10)
    source = MessageSource([*others, CREATE, *rows, _message("WATERMARK", len(rows))])

    found = _survey(source)

    assert [ddl.commit_ts for ddl in found.ddl] == [TS]
    assert {number for _, number in found.results.parts} == {1}
    assert found.results.counts["applied"] == len(rows)


def test_a_bad_message_among_the_first_is_told_as_ever() -> None:
    """The look ahead leaves it to the pass over the whole window."""
    source = MessageSource([CREATE, *_rows(2), {"type": "INSERT"}, _message("WATERMARK", 9)])

    found = _survey(source)

    assert isinstance(found.error, DecodeError)
    assert found.window.ranges[next(iter(found.window.ranges))].end == 3


def test_rows_among_the_first_are_given_types_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the look ahead, too: it has no use for them, and to name each that does not fit costs more than a step."""
    typed: list[int] = []
    table = Typing.table

    def counted(self: Typing, meta: pa.Table, values: Values) -> tuple[pa.Table, int]:
        typed.append(len(meta))
        return table(self, meta, values)

    monkeypatch.setattr(Typing, "table", counted)
    source = MessageSource([CREATE, *_rows(5), _message("WATERMARK", 9)])

    _survey(source)

    assert typed == [5]
