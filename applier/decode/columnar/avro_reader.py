"""Reads many Avro datums of one schema at once, each field as an array with one entry a datum.

All datums advance together, a field at a time, so that what Python does for each is done once for thousands. A datum
that is not what the schema says is marked and passed over: the decoder that reads it alone reports what is wrong.
Schemas with types that TiCDC does not give to columns have no such reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_PAD = 16
"""Bytes behind the last datum, so that a look beyond an end, which is noticed later, finds something."""

_BITS = 7
_LAST_SHIFT = 63


class Unsupported(Exception):
    """A schema that only a general reader reads."""


@dataclass(slots=True)
class Datums:
    """Where the reading of many datums is: at the next byte of each, whose last lies before its end.

    Those that are not what the schema says are odd. The data are the bytes of all of them.
    """

    data: Bytes
    at: Ints
    end: Ints
    odd: Flags

    @staticmethod
    def of(messages: Sequence[bytes], start: int) -> Datums:
        """Datums that begin behind so many bytes of their messages."""
        sizes = np.fromiter(map(len, messages), np.int64, len(messages))
        ends = np.cumsum(sizes)
        data = np.frombuffer(b"".join([*messages, bytes(_PAD)]), np.uint8)
        return Datums(data, ends - sizes + start, ends, sizes < start)

    def part(self, rows: Ints) -> Datums:
        """Some of them. What is read there is not read here until `rejoin`."""
        return Datums(self.data, self.at[rows], self.end[rows], self.odd[rows])

    def rejoin(self, rows: Ints, part: Datums) -> None:
        """Go on where a part has come to."""
        self.at[rows], self.odd[rows] = part.at, part.odd

    def advance(self, sizes: Ints | int) -> Ints:
        """Pass over so many bytes; returns where they begin."""
        start = self.at
        short = sizes > self.end - start
        if short.any():
            self.odd |= short
            sizes = np.where(short, 0, sizes)
        self.at = start + sizes
        return start

    def longs(self) -> Ints:
        """A number each, in Avro's variable length."""
        number = self.data[self.advance(1)].astype(np.uint64)
        more = np.flatnonzero(number >= 1 << _BITS)
        number &= (1 << _BITS) - 1
        shift = _BITS
        while len(more):
            byte = self.data[self.at[more]].astype(np.uint64)
            self.at[more] += 1
            if shift == _LAST_SHIFT:
                self.odd[more[byte > 1]] = True
            number[more] |= (byte & ((1 << _BITS) - 1)) << shift
            more = more[byte >= 1 << _BITS] if shift < _LAST_SHIFT else more[:0]
            shift += _BITS
        beyond = self.at > self.end
        if beyond.any():
            self.odd |= beyond
            self.at = np.minimum(self.at, self.end)
        return (number >> 1).view(np.int64) ^ -(number & 1).view(np.int64)

    def is_done(self) -> Flags:
        """Those that were read to the end and are nothing odd."""
        done: Flags = ~self.odd & (self.at == self.end)
        return done


@dataclass(frozen=True, slots=True)
class Numbers:
    """A number, or a truth, each."""

    values: npt.NDArray[Any]
    present: Flags | None = None


@dataclass(frozen=True, slots=True)
class Texts:
    """Bytes each: where they begin, and how many."""

    data: Bytes
    starts: Ints
    sizes: Ints
    present: Flags | None = None


@dataclass(frozen=True, slots=True)
class Records:
    """A record, which some may lack: the fields of those rows that have it, ascending; None for all."""

    fields: dict[str, Values]
    rows: Ints | None = None


@dataclass(frozen=True, slots=True)
class Zoned:
    """A time zone and a wall clock each."""

    locations: Texts
    clocks: Texts


Values: TypeAlias = "Numbers | Texts | Zoned | Records | None"
"""Values of one field; None for null in all."""

Read: TypeAlias = "Callable[[Datums], Values]"
ReadRecords: TypeAlias = Callable[[Datums], Records]


def reader(schema: Any) -> ReadRecords:
    """A reader of the datums of a schema of records, as `fastavro.parse_schema` gives it: all names are whole.

    Raises:
        Unsupported: It has types that are read otherwise, or is damaged.
    """
    if not isinstance(schema, dict) or schema["type"] != "record":
        raise Unsupported(schema)
    try:
        return _record(schema, {})
    except (KeyError, TypeError, AttributeError) as error:  # fastavro accepts, for instance, a number as a name.
        raise Unsupported(schema) from error


def _reader(schema: Any, named: dict[str, Any]) -> Read:
    if isinstance(schema, list):
        return _union([_reader(branch, named) for branch in schema])
    if isinstance(schema, dict):
        if schema["type"] == "record":
            return _record(schema, named)
        return _reader(schema["type"], named)
    if not isinstance(schema, str) or schema not in named.keys() | _SIMPLE.keys():
        raise Unsupported(schema)
    return _reader(named[schema], named) if schema in named else _SIMPLE[schema]


def _record(schema: Any, named: dict[str, Any]) -> ReadRecords:
    named[schema["name"]] = schema
    fields = {field["name"]: _reader(field["type"], named) for field in schema["fields"]}
    return lambda datums: Records({name: read(datums) for name, read in fields.items()})


def _union(branches: list[Read]) -> Read:
    def read(datums: Datums) -> Values:
        branch = datums.longs()
        datums.odd |= (branch < 0) | (branch >= len(branches))
        found: Values = None
        for number, read_branch in enumerate(branches):
            rows = np.flatnonzero(branch == number)
            if len(rows) == len(branch):
                return read_branch(datums)
            part = datums.part(rows)
            values = read_branch(part)
            datums.rejoin(rows, part)
            if isinstance(values, Numbers | Texts | Records):
                if found is not None:
                    raise Unsupported
                found = _scattered(values, rows, len(branch))
        return found

    if sum(branch is not _null for branch in branches) > 1:
        raise Unsupported
    return read


def _scattered(values: Numbers | Texts | Records, rows: Ints, count: int) -> Values:
    if isinstance(values, Records):
        return Records(values.fields, rows)
    present = np.zeros(count, np.bool_)
    present[rows] = True
    if isinstance(values, Numbers):
        return Numbers(_spread(values.values, rows, count), present)
    return Texts(values.data, _spread(values.starts, rows, count), _spread(values.sizes, rows, count), present)


def _spread(values: npt.NDArray[Any], rows: Ints, count: int) -> npt.NDArray[Any]:
    spread = np.zeros(count, values.dtype)
    spread[rows] = values
    return spread


def _null(_datums: Datums) -> Values:
    return None


def _long(datums: Datums) -> Values:
    return Numbers(datums.longs())


def _boolean(datums: Datums) -> Values:
    byte = datums.data[datums.advance(1)]
    datums.odd |= byte > 1
    return Numbers(byte == 1)


def sized(datums: Datums) -> Texts:
    """Bytes behind their number, each."""
    sizes = datums.longs()
    datums.odd |= sizes < 0
    sizes = np.where(datums.odd, 0, sizes)
    starts = datums.advance(sizes)
    return Texts(datums.data, starts, np.where(datums.odd, 0, sizes))


def real(size: int) -> Callable[[Datums], Numbers]:
    """A reader of floating-point numbers of so many bytes."""

    def read(datums: Datums) -> Numbers:
        starts = datums.advance(size)
        raw = datums.data[starts[:, None] + np.arange(size)]
        return Numbers(raw.view(f"<f{size}").astype(np.float64).ravel())

    return read


_SIMPLE: dict[str, Read] = {
    "null": _null,
    "boolean": _boolean,
    "int": _long,
    "long": _long,
    "float": real(4),
    "double": real(8),
    "bytes": sized,
    "string": sized,
}


def taken(values: Numbers | Texts, rows: Ints) -> Numbers | Texts:
    """The values of some datums."""
    present = None if values.present is None else values.present[rows]
    if isinstance(values, Numbers):
        return Numbers(values.values[rows], present)
    return Texts(values.data, values.starts[rows], values.sizes[rows], present)


def to_arrow(values: Numbers | Texts, kind: pa.DataType) -> pa.Array[Any]:
    """Values as an array of a kind: of numbers `int64`, `float64` or `bool_`; of bytes `binary`, `string` or a decimal.

    Such a decimal has 38 digits, and its bytes are two's complement, big-endian, and no more than `DECIMAL_BYTES`.

    Raises:
        pa.ArrowInvalid: A text is not UTF-8.
    """
    if isinstance(values, Numbers):
        return pa.array(values.values, kind, mask=None if values.present is None else ~values.present)
    validity = None if values.present is None else _buffer(np.packbits(values.present, bitorder="little"))
    count = len(values.starts)
    if pa.types.is_decimal(kind):
        return pa.Array.from_buffers(kind, count, [validity, _buffer(_integers(values))])
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(values.sizes, out=offsets[1:])
    places = np.repeat(values.starts - offsets[:-1], values.sizes) + np.arange(offsets[-1])
    buffers = [validity, _buffer(offsets), _buffer(values.data[places])]
    return pa.Array.from_buffers(pa.binary(), count, buffers).cast(kind)


_buffer: Callable[[Any], pa.Buffer] = pa.py_buffer  # Its own types do not know NumPy.

DECIMAL_BYTES = 15
"""Bytes of numbers that surely have no more than 38 digits."""


def _integers(values: Texts) -> Bytes:
    """Two's complement of 16 bytes, little-endian, from that of any size, big-endian."""
    width = max(int(values.sizes.max(initial=0)), 1)
    places = np.arange(width)
    last = (values.starts + values.sizes - 1)[:, None]
    is_held = places < values.sizes[:, None]
    digits = np.where(is_held, values.data[np.where(is_held, last - places, 0)], 0)
    fill = np.where((values.data[values.starts] >= 0x80) & (values.sizes > 0), 0xFF, 0).astype(np.uint8)
    whole = np.repeat(fill[:, None], 16, axis=1)
    whole[:, :width] = np.where(is_held, digits, fill[:, None])
    return whole
