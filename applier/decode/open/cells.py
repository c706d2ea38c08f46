"""Reads what the type codes and flags of the cells of an Open row say of its columns, and how its values are read.

Codes are MySQL's; flags are TiCDC's own (`pkg/sink/codec/internal/column.go` of pingcap/tiflow).
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import msgspec

from applier.changefeed.table import Column, ColumnType, Index

BINARY = 1
HANDLE_KEY = 2
GENERATED = 4
PRIMARY_KEY = 8
NULLABLE = 64
UNSIGNED = 128

_FLOAT = 4
_UNSIGNED_CODES = frozenset({1, 2, 3, 4, 5, 8, 9, 246})
_NAMES = {
    1: "tinyint",
    2: "smallint",
    3: "int",
    4: "float",
    5: "double",
    7: "timestamp",
    8: "bigint",
    9: "mediumint",
    10: "date",
    11: "time",
    12: "datetime",
    13: "year",
    14: "date",
    16: "bit",
    225: "vector",
    245: "json",
    246: "decimal",
    247: "enum",
    248: "set",
}
_ESCAPED = {15: ("varchar", "varbinary"), 253: ("varchar", "varbinary"), 254: ("char", "binary")}
"""Types whose text is plain, and whose bytes are escaped."""
_ENCODED = {
    249: ("tinytext", "tinyblob"),
    250: ("mediumtext", "mediumblob"),
    251: ("longtext", "longblob"),
    252: ("text", "blob"),
}
"""Types whose text and bytes are both in base64."""


class Cell(msgspec.Struct, gc=False):
    """One column of a row.

    Attributes:
        t: MySQL's type code, of a NULL too.
        v: The value: text, number or null. Fractions stay text, so that a float is rounded once only.
        f: Flags; very old streams have none.
        h: The column belongs to the handle key.
    """

    t: Annotated[int, msgspec.Meta(ge=0, le=255)]
    v: Any
    f: Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)] = 0
    h: bool = False


Reader = Callable[[Any], Any]
"""Turns a value as it came, not NULL, into the wire value that `decode/values.py` knows.

It raises one of `UNREADABLE` for what is not of the column's form.
"""

UNREADABLE = (ValueError, TypeError, OverflowError)


def to_column(name: str, cell: Cell) -> Column:
    """What a cell says of its column."""
    generated = "stored" if cell.f & GENERATED else None
    return Column(name, _column_type(cell), nullable=bool(cell.f & NULLABLE), generated=generated)


def _column_type(cell: Cell) -> ColumnType:
    texts = _ESCAPED.get(cell.t) or _ENCODED.get(cell.t)
    if texts is not None:
        return ColumnType(texts[cell.f & BINARY])
    unsigned = bool(cell.f & UNSIGNED) and cell.t in _UNSIGNED_CODES
    return ColumnType(_NAMES.get(cell.t, f"code {cell.t}"), unsigned)


def keys(cells: Mapping[str, Cell]) -> tuple[tuple[Index, ...], tuple[str, ...]]:
    """The primary key as an index, and the handle key where it is another one."""
    primary = tuple(name for name, cell in cells.items() if cell.f & PRIMARY_KEY)
    handle = tuple(name for name, cell in cells.items() if cell.h or cell.f & HANDLE_KEY)
    indexes = (Index("PRIMARY", primary, unique=True, primary=True),) if primary else ()
    return indexes, () if handle == primary else handle


def reader(cell: Cell) -> Reader | None:
    """How to read the values of a column; None where they are wire values already."""
    if cell.t in _ENCODED:
        return partial(binascii.a2b_base64, strict_mode=True)
    if cell.t in _ESCAPED and cell.f & BINARY:
        return unescape
    return str if cell.t == _FLOAT else None


def unescape(text: str) -> bytes:
    r"""Bytes of the body of a Go string literal, as `strconv.Quote` writes it.

    `\x80` is one byte, `\u0080` the UTF-8 form of a character, and printable characters stand for themselves.
    """
    raw = str.encode(text)
    return _ESCAPE.sub(_replacement, raw) if b"\\" in raw else raw


def _replacement(match: re.Match[bytes]) -> bytes:
    return _BYTES[match[1]]


class _Bytes(dict[bytes, bytes]):
    """Bytes of each escape, without its backslash; characters are worked out when they are first met."""

    def __missing__(self, escape: bytes) -> bytes:
        if len(escape) not in (5, 9):
            raise ValueError
        self[escape] = chr(int(escape[1:], 16)).encode()
        return self[escape]


_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.|$)", re.DOTALL)
_BYTES = _Bytes(
    {
        **{b"x%02x" % byte: bytes([byte]) for byte in range(256)},
        **{bytes([name]): bytes([byte]) for name, byte in zip(b'abfnrtv\\"', b'\a\b\f\n\r\t\v\\"', strict=True)},
    }
)
