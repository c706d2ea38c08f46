"""Groups similar messages, and decodes the rows of each group by column; each protocol says what is similar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from applier.changefeed.event import Op
from applier.changefeed.row_block import ColumnBlock
from applier.changefeed.table import TableName
from applier.decode.bounded_cache import Bounded
from applier.errors import DecodeError

FEWEST = 150
"""Messages of one kind that pay for reading them together."""

_MOST_BYTES = 64 << 20
"""Bytes of messages that are read together."""

UNFIT = (ValueError, TypeError, OverflowError)
"""Raised for a value that is not as the others; Arrow's own errors are of these types."""

TYPE_MARK = b',"type":"'
"""What stands before the type of a message in JSON; in Canal-JSON, database, table and key columns come before it."""

_LONGEST_HEAD = 1_000

_Head = TypeVar("_Head")

OldRows: TypeAlias = Callable[[TableName], frozenset[Op]]
"""Kinds of changes of a table whose old rows are asked for, whole."""


def no_old_rows(_name: TableName) -> frozenset[Op]:
    """None is asked for."""
    return frozenset()


class Bulk(Protocol):
    """Reads what it can of many messages at once. One instance belongs to one decoder."""

    def read(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], old_rows: OldRows = no_old_rows
    ) -> tuple[Sequence[ColumnBlock], Sequence[int]]:
        """The rows that can be read at once, and the places of all other messages."""


class Reader(Protocol):
    """Reads messages with one head."""

    def suits(self, old_rows: OldRows) -> bool:
        """Whether its blocks have just the old rows that are asked for."""

    def read(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], places: npt.NDArray[np.int64]
    ) -> tuple[list[ColumnBlock], npt.NDArray[np.bool_]]:
        """The rows of some messages, whose places are among all that were read, and which messages it leaves alone.

        Raises:
            ValueError: Some value is not as all must be, so they cannot be read together; or another of `UNFIT`.
        """


class TypeHeads:
    """Recognises messages by their first bytes, up to the first letter of their type."""

    def __init__(self) -> None:
        self._last = b"\0"

    def __call__(self, _key: bytes | None, value: bytes | None) -> bytes | None:
        """What a message begins with; None for one that shows no type."""
        if value is None:
            return None
        if not value.startswith(self._last):  # Most messages begin as the one before.
            at = value.find(TYPE_MARK, 0, _LONGEST_HEAD)
            if at < 0:
                return None
            self._last = value[: at + len(TYPE_MARK) + 1]
        return self._last


class GroupedReader(Generic[_Head]):
    """The `Bulk` of protocols whose messages show by their bytes what else is like them.

    A head is what messages that are read together have in common, None to leave one alone. Its reader is made from one
    of its messages. They are left alone where it is None, or cannot be made: DecodeError, or one of `UNFIT`.
    """

    def __init__(
        self,
        head: Callable[[bytes | None, bytes | None], _Head | None],
        reader: Callable[[_Head, bytes | None, bytes | None, OldRows], Reader | None],
    ) -> None:
        self._head = head
        self._reader = reader
        self._readers: Bounded[_Head, Reader] = Bounded()

    def forget(self) -> None:
        """Make all readers anew: what they were made of has changed."""
        self._readers.clear()

    def read(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], old_rows: OldRows = no_old_rows
    ) -> tuple[list[ColumnBlock], list[int]]:
        """See `Bulk`."""
        alike: dict[_Head | None, list[int]] = {}
        for place, head in enumerate(map(self._head, keys, values)):
            alike.setdefault(head, []).append(place)
        rest = alike.pop(None, [])
        blocks: list[ColumnBlock] = []
        for head, places in alike.items():
            if head is None or len(places) < FEWEST:
                rest += places
                continue
            for some in _pieces(values, places):
                found, odd = self._read(head, keys, values, some, old_rows)
                blocks += found
                rest += odd
        return blocks, sorted(rest)

    def _read(
        self,
        head: _Head,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        places: list[int],
        old_rows: OldRows,
    ) -> tuple[list[ColumnBlock], list[int]]:
        """Rows of messages with one head, and the places of those that are left alone."""
        numbers = np.array(places)
        try:
            reader = self._readers.get(head)
            if reader is None or not reader.suits(old_rows):
                reader = self._reader(head, keys[places[-1]], values[places[-1]], old_rows)
            if reader is None:
                return [], places
            self._readers[head] = reader
            blocks, odd = reader.read([keys[place] for place in places], [values[place] for place in places], numbers)
        except (DecodeError, *UNFIT):
            return [], places
        if 2 * np.count_nonzero(odd) > len(places):
            # It was made from a message that is not like the others.
            del self._readers[head]
        return [block for block in blocks if len(block.places)], numbers[odd].tolist()


def _pieces(messages: Sequence[bytes | None], places: list[int]) -> Iterator[list[int]]:
    """Places cut so that their messages are not too many bytes together."""
    if sum(len(messages[place] or b"") for place in places) <= _MOST_BYTES:
        yield places
        return
    start, size = 0, 0
    for number, place in enumerate(places):
        size += len(messages[place] or b"")
        if size > _MOST_BYTES:
            yield places[start : number + 1]
            start, size = number + 1, 0
    if start < len(places):
        yield places[start:]
