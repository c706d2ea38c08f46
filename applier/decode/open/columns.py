"""Decodes many rows of the Open protocol at once into columns; `decoder.py` decodes what does not fit.

Reads events; a message can hold several. A message with an event that must be read alone is left to the decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.row_block import ColumnBlock, without
from applier.decode.columnar.groups import GroupedReader, OldRows, Reader, no_old_rows
from applier.decode.columnar.json_columns import JsonColumn, JsonRows, old_struct, row_struct
from applier.decode.json_messages import Tso
from applier.decode.open.cells import BINARY, Cell, reader
from applier.decode.row_schemas import Description
from applier.errors import DecodeError

_START = b'{"ts":'
_TS = b'"ts"'
_SIGNED_ZERO = b'"v":-0'
_OLD = b'}},"p":{'
"""What stands before the old image. A value is never an object, so two braces close the new image and no cell of it."""

_OPS = {(b'{"u":{', False): Op.UPSERT, (b'{"u":{', True): Op.UPDATE, (b'{"d":{', False): Op.DELETE}
"""Kind of an event by the beginning of its value and whether that holds an old image."""

_OP_BYTES = 6

Head: TypeAlias = tuple[bytes, Op]
"""The key of an event behind its commit ts, and its kind, which the reader of its value has to find true."""

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


class _Stamp(msgspec.Struct, gc=False):
    ts: Tso


_STAMPS = msgspec.json.Decoder(_Stamp)


_UNCHANGED = Cell(0, msgspec.UNSET)
"""A cell that the old image leaves out."""


class EventHeads:
    """Recognises the heads of events. Most have that of the one before."""

    def __init__(self) -> None:
        self._seen: tuple[bytes, tuple[bytes, bool]] = (b"", (b"", False))
        self._last: Head = (b"", Op.UPSERT)

    def __call__(self, key: bytes | None, body: bytes | None) -> Head | None:
        """The head of an event; None for one that is read alone."""
        if key is None or body is None or not key.startswith(_START) or _SIGNED_ZERO in body:
            return None
        seen = key[key.find(b",") :], (body[:_OP_BYTES], _OLD in body)
        if self._seen != seen:
            tail, op = seen[0], _OPS.get(seen[1])
            if op is None or _TS in tail:
                return None
            self._seen, self._last = seen, (tail, op)
        return self._last


def rows_reader(
    beginning: Head, description: Description, cells: Mapping[str, Cell], kept: frozenset[Op]
) -> JsonRows | None:
    """A reader of events with one head, and of rows like these cells, in the version of their description now.

    Old rows are asked for of the `kept` kinds of changes.

    None if they must be read one by one; it raises ValueError for that, too.
    """
    if any(cell.t not in _KINDS for cell in cells.values()):
        return None
    version, op = description.settled, beginning[1]
    parse = _parser(op, list(cells) if op in kept else version.key, cells)
    return JsonRows(
        version,
        op,
        tuple(_column(name, cell) for name, cell in cells.items()),
        lambda key, body: (_STAMPS.decode(key), parse(body)),
        lambda event: event[0].ts,
        (lambda event: event[1].d) if op is Op.DELETE else (lambda event: event[1].u),
        (lambda event: event[1].p) if op is Op.UPDATE else None,
        cell=".v",
        scales=dict(description.scales),
        marked=[number for number, cell in enumerate(cells.values()) if cell.h],
        kept=kept,
    )


def _column(name: str, cell: Cell) -> JsonColumn:
    types, kind = _KINDS[cell.t]
    if cell.t in _ESCAPED and cell.f & BINARY:
        kind = pa.binary()
    return JsonColumn(name, kind, types, str if cell.t == _DOUBLE else reader(cell))


def _parser(op: Op, held: Sequence[str], cells: Mapping[str, Cell]) -> Callable[[bytes], Any]:
    """A decoder of events with just these columns, of these types and flags; what is None in it must not be there."""
    row = row_struct(list(cells), [_cell(cell) for cell in cells.values()])
    members: list[Any] = [("d", row), ("u", None, None), ("p", None, None)]
    if op is Op.UPDATE:
        old = old_struct(held, [Cell] * len(held), msgspec.field(default_factory=lambda: _UNCHANGED))
        members = [("u", row), ("p", old), ("d", None, None)]
    elif op is Op.UPSERT:
        members = [("u", row), ("p", None, None), ("d", None, None)]
    return msgspec.json.Decoder(msgspec.defstruct("Event", members, gc=False), float_hook=str).decode


def _cell(cell: Cell) -> Any:
    flags = ("f", Literal[cell.f], 0) if cell.f == 0 else ("f", Literal[cell.f])
    handle: Any = ("h", bool) if cell.h else ("h", None, None)
    fields: list[Any] = [("t", Literal[cell.t]), ("v", Any), flags, handle]
    return msgspec.defstruct("Cell", fields, gc=False, kw_only=True)


class OpenBulk:
    """The `Bulk` of the Open protocol. `split` cuts a message into its events, or raises DecodeError."""

    def __init__(
        self,
        split: Callable[[bytes | None, bytes | None], Sequence[tuple[bytes, bytes]]],
        reader: Callable[[Head, bytes | None, bytes | None, OldRows], Reader | None],
    ) -> None:
        self._split = split
        self._events = GroupedReader(EventHeads(), reader)

    def read(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], old_rows: OldRows = no_old_rows
    ) -> tuple[list[ColumnBlock], list[int]]:
        """See `Bulk`."""
        events: list[tuple[int, int, bytes, bytes]] = []
        left: set[int] = set()
        for place, (key, value) in enumerate(zip(keys, values, strict=True)):
            try:
                events += [(place, number, *event) for number, event in enumerate(self._split(key, value))]
            except DecodeError:
                left.add(place)
        if not events:
            return [], sorted(left)
        messages, numbers, heads, bodies = zip(*events, strict=True)
        found, rest = self._events.read(heads, bodies, old_rows)
        left.update(messages[number] for number in rest)
        places, indexes = np.array(messages), np.array(numbers)
        # Of a message that is left alone no row is taken.
        placed = [replace(block, places=places[block.places], indexes=indexes[block.places]) for block in found]
        blocks = [without(block, left) for block in placed]
        return [block for block in blocks if len(block.places)], sorted(left)
