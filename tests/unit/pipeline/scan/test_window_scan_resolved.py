"""The resolved ts of a window is sought from its end: few messages are decoded for it, and the highest counts."""

from __future__ import annotations

from typing import Any

import pytest

from applier.changefeed.types import TypeRules
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.scan.watermarks import TAIL_MESSAGES
from applier.pipeline.scan.window_scan import WindowScan
from applier.runtime.logs import Stopwatch
from applier.runtime.places import Where
from tests.known import known_at
from tests.unit.pipeline.scan.test_window_scan_dead_letters import _SCHEMA, PLACE, TS, MessageSource, _message, _row

BOOTSTRAP = {**_message("BOOTSTRAP", 0, tableSchema=_SCHEMA), "commitTs": 0}


def _survey(messages: list[dict[str, Any]], *, where: Where) -> WindowScan:
    source = MessageSource([BOOTSTRAP, *messages])
    template = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (), upto=0)
    scanner = WindowScanner(source, template, rows_describe=False, keep_bad=False)
    ends = {place: span.end for place, span in source.window.ranges.items()}
    known = known_at()
    return scanner.scan(source.window, known, ends, Stopwatch(), where=where)


@pytest.mark.parametrize("where", [Where.HERE, Where.TASKS])
@pytest.mark.parametrize("behind", [0, 3, TAIL_MESSAGES, 3 * TAIL_MESSAGES])
def test_rows_behind_the_last_watermark_wait(behind: int, *, where: Where) -> None:
    """However many they are, those before it are due."""
    before = [_row("INSERT", number, str(number), number) for number in range(1, 11)]
    after = [_row("INSERT", number, str(number), number) for number in range(21, 21 + behind)]

    found = _survey([*before, _message("WATERMARK", 20), *after], where=where)

    assert found.resolved == {PLACE: TS + 20}
    assert found.upto == TS + 20
    assert found.results.counts["applied"] == len(before)


@pytest.mark.parametrize("where", [Where.HERE, Where.TASKS])
def test_the_highest_counts_where_ticdc_went_back(*, where: Where) -> None:
    """After a restart TiCDC sends again from before what it had resolved, and lower watermarks with it."""
    rows = [_row("INSERT", number, str(number), number) for number in (5, 15)]
    again = [rows[0], _message("WATERMARK", 10)]

    found = _survey([*rows, _message("WATERMARK", 20), *again], where=where)

    assert found.resolved == {PLACE: TS + 20}
    assert found.results.counts["applied"] == 3


def test_what_lies_before_the_last_watermark_is_not_decoded_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a window that is read at once, the search decodes what is behind it, and itself."""
    decoded = []

    class Counting:
        def __init__(self) -> None:
            self.decoder = build("simple", DecoderOptions())

        def decode(self, key: bytes | None, value: bytes | None) -> Any:
            decoded.append(value)
            return self.decoder.decode(key, value)

    monkeypatch.setattr("applier.pipeline.scan.scanner.decoder_of_thread", lambda *_: Counting())
    rows = [_row("INSERT", number, str(number), number) for number in range(1, 101)]

    found = _survey([*rows, _message("WATERMARK", 200), _row("INSERT", 300, "3", 300)], where=Where.HERE)

    assert found.resolved == {PLACE: TS + 200}
    assert len(decoded) == 2
