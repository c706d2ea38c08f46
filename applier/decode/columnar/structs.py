"""Messages of one shape in, their rows by column out: the quick way for what a feed is full of.

Messages that begin with the same bytes, up to the letter of their type, are rows of one table and kind. From one of
them a struct is made that has just these columns, and msgspec checks while it parses that a message has them, too.
Whatever differs in the least, a column more or a flag that is set, is left to the decoder, message by message. So the
quick way decides how fast a row is read, never what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

import msgspec
import numpy as np

from applier.changefeed.event import Op
from applier.changefeed.row_block import Block, FixedRow, RowBlock, RowShape
from applier.changefeed.table import TableName

ENOUGH = 50
"""Messages of one beginning that pay for a struct of their own."""

_MAX_HEADS = 10_000
_LONGEST_HEAD = 1_000


class Bulk(Protocol):
    """Reads what it can of many messages at once. One instance belongs to one decoder."""

    def read(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> tuple[Sequence[Block], Sequence[int]]:
        """The rows that can be read at once, and the places of all other messages."""


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads messages that begin alike.

    Attributes:
        name: Their table.
        version: What their rows refer to.
        op: Their kind.
        shape: The columns of their rows.
        decode: Reads a message into a struct that has just what these messages have.
        commit_ts: Path of the commit ts in it.
        image: Takes the row out of it.
        before: Takes the key columns of the old image of an update out of it, or None where it has none: a struct with
            fields `k0`, `k1`, … that are UNSET where the old image lacks them.
        scales: Columns of decimals whose scale shows only in their text, and the scale that `version` has.
    """

    name: TableName
    version: int
    op: Op
    shape: RowShape
    decode: Callable[[bytes], Any]
    commit_ts: str
    image: Callable[[Any], FixedRow]
    before: Callable[[Any], Any] | None = None
    scales: tuple[tuple[str, int], ...] = ()

    def read(self, values: Sequence[bytes], places: list[int]) -> tuple[RowBlock, list[int]]:
        """The rows of some messages, and the places of those that are not as they seemed."""
        decode = self.decode
        odd: list[int] = []
        try:
            messages: list[Any] = [decode(values[place]) for place in places]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            messages, places, odd = _one_by_one(decode, values, places)
        rows = [self.image(message) for message in messages]
        strange = self._strange(messages, rows)
        if strange:
            odd += [places[number] for number in strange]
            kept = [number for number in range(len(places)) if number not in strange]
            messages, places = [messages[number] for number in kept], [places[number] for number in kept]
            rows = [rows[number] for number in kept]
        stamps = np.array(list(map(attrgetter(self.commit_ts), messages)), np.int64)
        where = np.array(places, np.int64)
        return RowBlock(self.name, self.version, self.op, self.shape, where, stamps, rows), odd

    def _strange(self, messages: list[Any], rows: list[FixedRow]) -> set[int]:
        """Updates that change a key, and rows with decimals of another scale: those are of another version."""
        strange: set[int] = set()
        if self.before is not None:
            numbers = range(len(self.shape.key))
            old = attrgetter(*(f"k{number}" for number in numbers))
            new = attrgetter(*(f"c{self.shape.names.index(name)}" for name in self.shape.key))
            unchanged = msgspec.UNSET if len(numbers) == 1 else (msgspec.UNSET,) * len(numbers)
            for n, (before, row) in enumerate(zip(map(self.before, messages), rows, strict=True)):
                if before is not None and (key := old(before)) != new(row) and key != unchanged:
                    strange.add(n)
        for name, scale in self.scales:
            texts = map(attrgetter(f"c{self.shape.names.index(name)}"), rows)
            strange.update(n for n, text in enumerate(texts) if text is not None and not has_scale(text, scale))
        return strange


class BulkReader:
    """Reads many messages whose value shows by its first bytes what it is; see `Bulk`.

    Args:
        mark: What stands before the first letter of the type, in messages of rows.
        reader: Makes a reader from a message, or gives None: then messages that begin as it does are left alone.
    """

    def __init__(self, mark: bytes, reader: Callable[[bytes], RowReader | None]) -> None:
        self._mark = mark
        self._reader = reader
        self._readers: dict[bytes, RowReader | None] = {}
        self._met: dict[bytes, int] = {}

    def read(self, _keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> tuple[list[RowBlock], list[int]]:
        """See `Bulk`; the keys say nothing."""
        alike, rest = self._grouped(values)
        blocks = []
        for head, places in alike.items():
            reader = self._reader_of(head, values, places)
            if reader is None:
                rest += places
                continue
            block, odd = reader.read(values, places)  # type: ignore[arg-type]  # a message without value has no head
            if 2 * len(odd) > len(places):
                # The table has changed: the next message shows how.
                del self._readers[head]
            rest += odd
            if block.rows:
                blocks.append(block)
        return blocks, sorted(rest)

    def _grouped(self, values: Sequence[bytes | None]) -> tuple[dict[bytes, list[int]], list[int]]:
        mark, size = self._mark, len(self._mark) + 1
        alike: dict[bytes, list[int]] = {}
        rest: list[int] = []
        last, places = b"\0", rest
        for place, value in enumerate(values):
            # Most messages begin as the one before.
            if value is not None and not value.startswith(last):
                at = value.find(mark, 0, _LONGEST_HEAD)
                last, places = (
                    (value[: at + size], alike.setdefault(value[: at + size], [])) if at > 0 else (b"\0", rest)
                )
            (rest if value is None else places).append(place)
        return alike, rest

    def _reader_of(self, head: bytes, values: Sequence[bytes | None], places: list[int]) -> RowReader | None:
        reader = self._readers.get(head)
        if reader is None:
            met = self._met[head] = self._met.get(head, 0) + len(places)
            sample = values[places[-1]]
            if met >= ENOUGH and sample is not None:
                reader = self._reader(sample)
            if reader is not None:
                self._readers[head] = reader
            elif len(self._met) > _MAX_HEADS:
                self._met.clear()
        return reader


def key_columns(key: Sequence[str]) -> type[msgspec.Struct]:
    """The struct of the key columns of an old image: `k0`, `k1`, …, UNSET for those that it lacks."""
    numbered = list(enumerate(key))
    fields: list[tuple[str, Any, Any]] = [(f"k{number}", Any, msgspec.UNSET) for number, _ in numbered]
    return msgspec.defstruct("Key", fields, gc=False, rename={f"k{number}": name for number, name in numbered})


def _one_by_one(
    decode: Callable[[bytes], Any], values: Sequence[bytes], places: list[int]
) -> tuple[list[Any], list[int], list[int]]:
    """Messages that are as expected, their places, and the places of the others."""
    messages, good, odd = [], [], []
    for place in places:
        try:
            messages.append(decode(values[place]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            odd.append(place)
        else:
            good.append(place)
    return messages, good, odd


def has_scale(text: str, scale: int) -> bool:
    """Whether the text of a decimal has so many digits after the point."""
    return text[-scale - 1 : -scale] == "." if scale else "." not in text
