"""Many rows of the Open protocol in, their columns out: the quick way of `open_protocol.py`.

What is read is events, of which a message can hold many; a message with one that must be read alone is left whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.row_block import Block, ColumnBlock, Ints, without
from applier.changefeed.table import TableVersion
from applier.decode.columnar.groups import GroupedReader, Reader
from applier.decode.columnar.json_columns import JsonColumn, JsonRows, row_struct
from applier.decode.columnar.structs import has_scale
from applier.decode.open.cells import BINARY, Cell, reader
from applier.errors import DecodeError

_START = b'{"ts":'
_TS = b'"ts"'
_SIGNED_ZERO = b'"v":-0'
_OPS = {b'{"u":{': Op.UPDATE, b'{"d":{': Op.DELETE}
_OP_BYTES = 6
_TS_DIGITS = 18
"""Digits that surely make a commit ts."""

Head: TypeAlias = tuple[bytes, bytes]
"""The key of an event behind its commit ts, and the beginning of its value."""

_INT, _TEXT, _REAL = frozenset({int}), frozenset({str}), frozenset({int, str})
_KINDS: dict[int, tuple[frozenset[type], pa.DataType]] = {
    **dict.fromkeys((1, 2, 3, 8, 9, 13, 16, 247, 248), (_INT, pa.int64())),
    **dict.fromkeys((4, 5), (_REAL, pa.string())),
    **dict.fromkeys((7, 10, 11, 12, 14, 15, 225, 245, 246, 253, 254), (_TEXT, pa.string())),
    **dict.fromkeys((249, 250, 251, 252), (_TEXT, pa.binary())),
}
"""What values of each type code are, and what they become if they are not escaped."""

_ESCAPED = frozenset({15, 253, 254})
_DOUBLE = 5


class EventHeads:
    """Recognises the heads of events. Most have that of the one before."""

    def __init__(self) -> None:
        self._last: Head = (b"", b"")

    def __call__(self, key: bytes | None, body: bytes | None) -> Head | None:
        """The head of an event; None for one that is read alone."""
        if key is None or body is None or not key.startswith(_START) or _SIGNED_ZERO in body:
            return None
        tail, start = key[key.find(b",") :], body[:_OP_BYTES]
        if self._last == (tail, start):
            return self._last
        if start not in _OPS or tail[:1] != b"," or _TS in tail:
            return None
        self._last = tail, start
        return self._last


def rows_reader(
    beginning: Head, version: TableVersion, scales: Mapping[str, int], cells: Mapping[str, Cell]
) -> Reader | None:
    """A reader of events with one head; None if they must be read one by one.

    Args:
        beginning: The head.
        version: What the rows refer to.
        scales: Columns of decimals whose scale shows only in their text, and the scale that the version has.
        cells: The row of one of them.
    """
    if not version.key or any(cell.t not in _KINDS for cell in cells.values()):
        return None
    columns = tuple(_column(name, cell) for name, cell in cells.items())
    if any(column.name in version.key and column.reader is str for column in columns):
        return None  # of floats as a key, equal ones may be written in two ways
    op = _OPS[beginning[1]]
    try:
        decode = _message(op, cells)
    except ValueError:  # a column with a name that msgspec does not take
        return None
    handle = tuple(number for number, cell in enumerate(cells.values()) if cell.h)
    return OpenColumns(version, op, columns, decode, dict(scales), handle)


def _column(name: str, cell: Cell) -> JsonColumn:
    types, kind = _KINDS[cell.t]
    if cell.t in _ESCAPED and cell.f & BINARY:
        kind = pa.binary()
    return JsonColumn(name, types, kind, str if cell.t == _DOUBLE else reader(cell))


def _message(op: Op, cells: Mapping[str, Cell]) -> Callable[[bytes], Any]:
    """A decoder of events with just these columns, of these types and flags; what is None in it must not be there."""
    described = [_cell(cell) for cell in cells.values()]
    row: Any = row_struct(list(cells), described)
    old: Any = row_struct(list(cells), [cell | msgspec.UnsetType for cell in described], default=msgspec.UNSET)
    members: list[Any] = [("d", row), ("u", None, None), ("p", None, None)]
    if op is Op.UPDATE:
        members = [("u", row), ("p", old | None, None), ("d", None, None)]
    return msgspec.json.Decoder(msgspec.defstruct("Event", members, gc=False), float_hook=str).decode


def _cell(cell: Cell) -> Any:
    flags = ("f", Literal[cell.f], 0) if cell.f == 0 else ("f", Literal[cell.f])
    handle: Any = ("h", bool) if cell.h else ("h", None, None)
    fields: list[Any] = [("t", Literal[cell.t]), ("v", Any), flags, handle]
    return msgspec.defstruct("Cell", fields, gc=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class OpenColumns(JsonRows):
    """Reads rows of one table and kind.

    Attributes:
        scales: Columns of decimals, and the scale that they must have.
        handle: Numbers of the columns that must be marked as those of the handle key.
    """

    scales: Mapping[str, int]
    handle: tuple[int, ...]

    def read(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], places: npt.NDArray[np.int64]
    ) -> tuple[list[ColumnBlock], npt.NDArray[np.bool_]]:
        """See `Reader`."""
        events = [self._event(value or b"") for value in values]
        stamps = np.array([_commit_ts(key or b"") for key in keys], np.int64)
        events = [event if ts >= 0 else None for event, ts in zip(events, stamps, strict=True)]
        odd = np.array([event is None for event in events])
        events = [event for event in events if event is not None]
        strange = self._strange(events)
        odd[np.flatnonzero(~odd)[sorted(strange)]] = True
        rows = [self._row(event) for number, event in enumerate(events) if number not in strange]
        if not rows:
            return [], odd
        columns = {column.name: column.array(_values(rows, number)) for number, column in enumerate(self.columns)}
        return self.block(places[~odd], stamps[~odd], columns), odd

    def _event(self, body: bytes) -> Any:
        try:
            return self.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _row(self, event: Any) -> Any:
        return event.d if self.op is Op.DELETE else event.u

    def _strange(self, events: Sequence[Any]) -> set[int]:
        """Rows with other flags or scales, which are of another version, and updates that change a key."""
        rows, strange = [self._row(event) for event in events], set[int]()
        for number in self.handle:
            marked = map(attrgetter(f"c{number}.h"), rows)
            strange.update(n for n, is_marked in enumerate(marked) if not is_marked)
        for number, column in enumerate(self.columns):
            scale = self.scales.get(column.name)
            if scale is not None:
                texts = enumerate(_values(rows, number))
                strange.update(n for n, text in texts if text is not None and not _has_scale(text, scale))
        olds = [n for n, event in enumerate(events) if event.p is not None]
        for number, column in enumerate(self.columns):
            if olds and (column.reader is not None or column.name in self.version.key):
                strange |= self._moved(number, column, {n: events[n].p for n in olds}, rows)
        return strange

    def _moved(self, number: int, column: JsonColumn, olds: Mapping[int, Any], rows: Sequence[Any]) -> set[int]:
        """Updates that change a key column. Of other columns it is only seen that they can be read."""
        cells = ((n, getattr(old, f"c{number}")) for n, old in olds.items())
        values = {n: cell.v for n, cell in cells if cell is not msgspec.UNSET}
        if column.name not in self.version.key:
            column.array(list(values.values()))
            return set()
        return {n for n, value in values.items() if value != getattr(rows[n], f"c{number}").v}


def _values(rows: Sequence[Any], number: int) -> list[Any]:
    return list(map(attrgetter(f"c{number}.v"), rows))


def _has_scale(text: Any, scale: int) -> bool:
    return isinstance(text, str) and has_scale(text, scale)


def _commit_ts(key: bytes) -> int:
    """The commit ts that the key of an event begins with; -1 where it is no usual one."""
    digits = key[len(_START) : key.index(b",")]
    is_usual = digits.isdigit() and len(digits) <= _TS_DIGITS and (digits[:1] != b"0" or digits == b"0")
    return int(digits) if is_usual else -1


class OpenBulk:
    """The `Bulk` of the Open protocol.

    Args:
        split: Cuts a message into its events, or raises DecodeError.
        reader: Makes a reader of events like one of them; see `GroupedReader`.
    """

    def __init__(
        self,
        split: Callable[[bytes | None, bytes | None], Sequence[tuple[bytes, bytes]]],
        reader: Callable[[Head, bytes | None, bytes | None], Reader | None],
    ) -> None:
        self._split = split
        self._events = GroupedReader(EventHeads(), reader)

    def read(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> tuple[list[Block], list[int]]:
        """See `Bulk`."""
        messages: list[int] = []
        indexes: list[int] = []
        heads: list[bytes | None] = []
        bodies: list[bytes | None] = []
        left: set[int] = set()
        for place, (key, value) in enumerate(zip(keys, values, strict=True)):
            try:
                events = self._split(key, value)
            except DecodeError:
                left.add(place)
                continue
            messages += [place] * len(events)
            indexes += range(len(events))
            heads += [event[0] for event in events]
            bodies += [event[1] for event in events]
        blocks, rest = self._events.read(heads, bodies)
        left.update(messages[number] for number in rest)
        placed = (_placed(block, np.array(messages), np.array(indexes), left) for block in blocks)
        return [block for block in placed if len(block.places)], sorted(left)


def _placed(block: ColumnBlock, messages: Ints, indexes: Ints, left: set[int]) -> Block:
    """A block of events as one of messages, without the rows of messages that are left alone."""
    return without(replace(block, places=messages[block.places], indexes=indexes[block.places]), left)
