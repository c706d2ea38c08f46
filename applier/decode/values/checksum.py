"""Compares the images of a row with the checksums that came with it.

The checksum is CRC-32 over the columns that are not NULL, in order of TiDB's column ids (TiDB
`pkg/util/rowcodec/common.go`). The feed does not show the ids. They follow the order of the columns unless one was
placed by FIRST or AFTER, so a mismatch alone proves nothing. It is taken for damage only after another row of the
same table version, with the same columns not NULL, has matched, and that row could not have matched in another order,
its columns being all different.
"""

from __future__ import annotations

import binascii
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from struct import Struct
from typing import Any
from zlib import crc32
from zoneinfo import ZoneInfo

import msgspec

from applier.changefeed.event import Image, RowChange
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import BINARIES, INTEGERS
from applier.decode.bounded_cache import MAX_KEPT
from applier.decode.simple.json_form import Checksum
from applier.decode.values.dates import ZonedText
from applier.errors import DecodeError, IncompleteRow

_U64 = Struct("<Q")
_U32 = Struct("<I")
_F64 = Struct("<d")
_F32 = Struct("<f")
_MASK = (1 << 64) - 1
_MAX_KNOWN = 100_000

Encode = Callable[[Any], bytes]
_Layout = tuple[TableName, int, tuple[str, ...]]


class RowChecksums:
    """Verifies the rows of one changefeed. What it cannot verify passes: see the module."""

    def __init__(self) -> None:
        self._encoders: dict[tuple[TableName, int], list[tuple[str, Encode]]] = {}
        self._proven: set[_Layout] = set()

    def learn(self, version: TableVersion) -> None:
        """Make the columns of a table version known."""
        if len(self._encoders) > _MAX_KNOWN:
            self._encoders.clear()
        self._encoders[version.name, version.version] = [
            (column.name, _ENCODERS.get(column.type.name, _text)) for column in version.columns
        ]

    def verify(self, change: RowChange, checksum: Checksum) -> None:
        """Compare the images of a change with its checksums.

        Raises:
            DecodeError: TiCDC marked the row as corrupted, or an image differs from its checksum.
        """
        if checksum.corrupted:
            # TiCDC wrote the message so: the name of its table is whole.
            error = _damaged(change, "TiCDC found that a row of {} differs from its checksum")
            raise IncompleteRow(error.what, error.hint, change.name)
        if change.after is not None and checksum.current and not self._matches(change, change.after, checksum.current):
            raise _damaged(change, "A row of {} differs from its checksum")
        # TiDB's own number for an old image is of the columns at its time, which may be fewer than the image now has.
        old = checksum.previous if checksum.version else 0
        if change.before is not None and old and not self._matches(change, change.before, old):
            raise _damaged(change, "An old row of {} differs from its checksum")

    def _matches(self, change: RowChange, image: Image, expected: int) -> bool:
        encoders = self._encoders.get((change.name, change.version))
        if encoders is None or any(name not in image for name, _ in encoders):
            return True  # Nothing to compare with: an absent column may be generated, or left out by a selector.
        names = tuple(name for name, _ in encoders if image[name] is not None)
        try:
            pieces = [encode(image[name]) for name, encode in encoders if image[name] is not None]
        except (ValueError, TypeError, AttributeError, OverflowError, struct.error):
            return True  # Values that are no values are found when they are written.
        layout = (change.name, change.version, names)
        if crc32(b"".join(pieces)) != expected:
            return layout not in self._proven
        if layout not in self._proven and len(set(pieces)) == len(pieces):
            if len(self._proven) >= MAX_KEPT:
                self._proven.clear()
            self._proven.add(layout)
        return True


def _damaged(change: RowChange, what: str) -> DecodeError:
    return DecodeError(
        f"{what.format(change.name)} (checksum, commit ts {change.commit_ts}).",
        "It was damaged between TiDB and here, or holds bytes that are not UTF-8: compare it with the row in TiDB.",
    )


def _integer(value: Any) -> bytes:
    return _U64.pack(int(value) & _MASK)


def _text(value: Any) -> bytes:
    data: bytes = value.encode()
    return _U32.pack(len(data)) + data


def _binary(value: Any) -> bytes:
    data = value if isinstance(value, bytes) else binascii.a2b_base64(value)
    return _U32.pack(len(data)) + data


def _timestamp(value: Any) -> bytes:
    return _text(_in_utc(value.value, value.location) if isinstance(value, ZonedText) else value)


def _in_utc(text: str, location: str) -> str:
    if location == "UTC" or text.startswith("0000"):
        return text
    local = datetime.fromisoformat(text).replace(tzinfo=_zone(location))
    if local.utcoffset() != local.replace(fold=1).utcoffset():
        raise ValueError  # The hour passes twice, and which of the two is meant is not on the wire.
    return local.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") + text[19:]


@lru_cache(maxsize=1024)
def _zone(location: str) -> ZoneInfo:
    try:
        return ZoneInfo(location)
    except (OSError, LookupError) as error:
        raise ValueError from error


def _vector(value: Any) -> bytes:
    numbers = msgspec.json.decode(value, type=list[float])
    return _U32.pack(len(numbers)) + Struct(f"<{len(numbers)}f").pack(*numbers)


_ENCODERS: dict[str, Encode] = {
    **dict.fromkeys((*INTEGERS, "year", "enum", "set", "bit"), _integer),
    **dict.fromkeys(BINARIES, _binary),
    "float": lambda value: _F64.pack(_F32.unpack(_F32.pack(float(value)))[0]),
    "double": lambda value: _F64.pack(float(value)),
    "timestamp": _timestamp,
    "vector": _vector,
}
"""How TiDB encodes a value for its checksum; one of any other type as its text."""
