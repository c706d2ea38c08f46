"""Bad messages, kept in the control table `dead_letters`: whole, or without key and value where columns are hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from applier.changefeed.message import HIDDEN, rows_of
from applier.changefeed.window import OffsetRange, Window
from applier.consume.source import Source
from applier.consume.window_size import WindowTooLargeError
from applier.pipeline.scan.task_result import BadMessage
from applier.pipeline.state import ControlTables
from applier.sink.control.control import DeadLetter

_LOT_OFFSETS = 256
"""Offsets that are read at once to get at bad messages. Good ones between them are read for nothing: not too many."""


def set_aside(
    bad: Sequence[BadMessage], source: Source, control: ControlTables, step: int, *, hides: bool = False
) -> None:
    """Keep bad messages, read again as they were sent, as dead letters of the step that passes them over.

    Without key and value where the configuration `hides` columns: nothing shows which of them a bad message holds.
    """
    letters = [letter for lot in _lots(bad) for letter in _letters(lot, source, step)]
    letters = [replace(letter, key=None, value=HIDDEN) for letter in letters] if hides else letters
    if letters:
        control.bury(letters)


def _letters(lot: Sequence[BadMessage], source: Source, step: int) -> list[DeadLetter]:
    """Bad messages of one partition, read at once, or half of them at a time where they are too large together."""
    errors = {item.offset: str(item.error) for item in lot}
    try:
        found = rows_of(source.collect(Window({lot[0].partition: OffsetRange(min(errors), max(errors) + 1)})))
    except WindowTooLargeError:
        # One message alone is always read.
        half = len(lot) // 2
        return [letter for part in (lot[:half], lot[half:]) for letter in _letters(part, source, step)]
    return [
        DeadLetter(
            topic=message["topic"],
            partition=message["partition"],
            offset=message["offset"],
            timestamp=message["timestamp"],
            key=message["key"],
            value=message["value"],
            error=errors[message["offset"]],
            step=step,
        )
        for message in found
        if message["offset"] in errors
    ]


def _lots(bad: Sequence[BadMessage]) -> list[list[BadMessage]]:
    """Bad messages by partition, those of each near to one another: a read costs a Spark job however little it gets."""
    lots: list[list[BadMessage]] = []
    for item in sorted(bad, key=lambda item: (item.partition, item.offset)):
        if lots and lots[-1][0].partition == item.partition and item.offset - lots[-1][0].offset < _LOT_OFFSETS:
            lots[-1].append(item)
        else:
            lots.append([item])
    return lots
