"""Compares the images of a row with the checksums that came with it.

The checksum is CRC-32 over the columns that are not NULL, in order of TiDB's column ids (TiDB
`pkg/util/rowcodec/common.go`). The Simple protocol does not show the ids. They follow the order of the columns unless
one was placed by FIRST or AFTER, or got a new id by MODIFY. So a row is whole if it matches in the order of the columns
or in one that a few such DDL can have left, and damaged otherwise: each row proves itself, whatever was read before it.
An order that a row has proven spares the rows like it the search; among so few orders out of 2^32 numbers, hardly one
matches by chance.
"""

from __future__ import annotations

import binascii
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import combinations, islice, permutations
from struct import Struct
from typing import Any
from zlib import crc32

import msgspec

from applier.changefeed.event import Image, RowChange
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import BINARIES, INTEGERS
from applier.decode.bounded_cache import Bounded
from applier.decode.simple.json_form import Checksum
from applier.decode.values.dates import ZonedText, zone_named
from applier.errors import DecodeError

_U64 = Struct("<Q")
_U32 = Struct("<I")
_F64 = Struct("<d")
_F32 = Struct("<f")
_MASK = (1 << 64) - 1
_MAX_KNOWN = 100_000

_MOST_ORDERS = 100_000
"""Orders in which one row is tried: all of eight columns, and of fifty those in which DDL have moved three."""
_MOST_BYTES = 1 << 28
"""Bytes of which checksums are made for it, a tenth of a second's work."""
_MOST_SEARCHES = 8
"""Searches in vain for a version in a pass, after which rows are tried in the order of the columns or a proven one."""

Encode = Callable[[Any], bytes]
_Order = tuple[int, ...]
_Layout = tuple[TableName, int, tuple[str, ...]]


class RowChecksums:
    """Verifies the rows of one changefeed. A row that does not hold all columns of its version passes.

    Where it `is_ordered`, the columns of the versions are in order of their ids.
    """

    def __init__(self, *, is_ordered: bool = False) -> None:
        self._is_ordered = is_ordered
        self._encoders: dict[tuple[TableName, int], list[tuple[str, Encode]]] = {}
        self._orders: Bounded[_Layout, _Order] = Bounded()
        self._vain: Counter[tuple[TableName, int]] = Counter()

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
            raise _damaged(change, "TiCDC found that a row of {} differs from its checksum")
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
        declared = tuple(range(len(pieces)))
        if self._is_ordered:
            return _crc(pieces, declared) == expected
        layout = (change.name, change.version, names)
        if (proven := self._orders.get(layout)) is not None:
            return _crc(pieces, proven) == expected
        order = next((order for order in self._tried(layout, pieces) if _crc(pieces, order) == expected), None)
        if order is None:
            self._vain[layout[:2]] += 1
        elif _shows_order(pieces):
            self._orders[layout] = order
        return order is not None

    def _tried(self, layout: _Layout, pieces: Sequence[bytes]) -> Iterable[_Order]:
        """Orders that a row is tried in, likely ones first."""
        if self._vain[layout[:2]] >= _MOST_SEARCHES:
            return (tuple(range(len(pieces))),)
        most = _MOST_BYTES // (sum(map(len, pieces)) + 1)
        return islice(_orders(len(pieces)), max(1, min(_MOST_ORDERS, most)))


def _shows_order(pieces: Sequence[bytes]) -> bool:
    """Whether no two columns could change places unseen, as equal ones could, or a number 0 and an empty text."""
    return len(set(pieces)) == len(pieces) and all(one + two != two + one for one, two in combinations(pieces, 2))


def _crc(pieces: Sequence[bytes], order: _Order) -> int:
    return crc32(b"".join([pieces[number] for number in order]))


def _orders(count: int) -> Iterator[_Order]:
    """Orders of so many columns by id: as they stand, with one moved to any place, with more and more moved to the end.

    A column that DDL place or make anew has a higher id than all before it.
    """
    every = tuple(range(count))
    yield every
    for moved in every:
        left = (*every[:moved], *every[moved + 1 :])
        yield from ((*left[:place], moved, *left[place:]) for place in every if place != moved)
    for length in range(2, count):
        for last in permutations(every, length):
            yield (*(number for number in every if number not in last), *last)


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
    zone = zone_named(location)
    if zone is None:
        raise ValueError
    local = datetime.fromisoformat(text).replace(tzinfo=zone)
    if local.utcoffset() != local.replace(fold=1).utcoffset():
        raise ValueError  # The hour passes twice, and which of the two is meant is not on the wire.
    return local.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") + text[19:]


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
