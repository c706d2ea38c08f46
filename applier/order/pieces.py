"""Cuts reduced rows into pieces by key, so that all changes of a key meet in one task whoever decoded them.

A piece holds the rows of one range of the first column of the key whose hashes begin with the same bits. How many bits
these are is up to the task that cuts, by the number of its rows: a share takes several short pieces, or looks through
one that is too coarse for it.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

PIECE_ROWS = 2_000
"""Rows of a piece: few enough that a share seldom finds one too coarse, enough that what carries it weighs little."""

PIECE_BYTES = 8 << 20
"""Bytes of a piece, about, where so many rows have more: what carries it takes 2 GB at the most."""

_FEW = 8
"""Rows of a part stay together, whatever their range, where they are less than this part of a piece."""

ANYWHERE = -1
"""The range of rows that stay together."""

SOURCE = b"source"
"""Metadata of a piece: the topic, the table and the version of its rows."""

_BITS = 32
_WORD = np.arange(8)

_MOST_LEVEL = 12
"""Bits of the hashes that part a range at the most."""

Hashes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"


class Share(NamedTuple):
    """The rows of a batch that one task stages.

    Attributes:
        start: Its first range.
        end: The range behind its last.
        level: Bits of the hashes that are the same.
        number: These bits.
    """

    start: int = 0
    end: int = 1 << 30
    level: int = 0
    number: int = 0

    @property
    def is_all(self) -> bool:
        """Whether it is the whole batch."""
        return self == Share()


@dataclass(frozen=True, slots=True)
class Pieces:
    """Reduced rows of a part that stay in the task that decoded them: what others need to know of them.

    Attributes:
        task: Number of the task.
        part: Number of the part in it.
        columns: Name and type of each key column; without a key `IMAGE`, and all columns.
        ranges: Of each piece the range, or `ANYWHERE`.
        levels: Of each piece how many bits of the hashes are the same.
        numbers: Of each piece these bits.
        rows: Of each piece the number of its rows.
        marks: Of each piece what `marked` says of it.
        row_bytes: Bytes of a row in memory, on average.
    """

    task: int
    part: int
    columns: tuple[tuple[str, pa.DataType], ...]
    ranges: Sequence[int]
    levels: Sequence[int]
    numbers: Sequence[int]
    rows: Sequence[int]
    marks: Sequence[int]
    row_bytes: float

    @property
    def size(self) -> float:
        """Bytes of its rows in memory."""
        return sum(self.rows) * self.row_bytes

    def of(self, share: Share) -> Iterator[tuple[int, bool]]:
        """Numbers of the pieces that a share takes, and whether it has to look through the piece for its rows."""
        for number, (place, level, bits) in enumerate(zip(self.ranges, self.levels, self.numbers, strict=True)):
            if place == ANYWHERE:
                yield number, not share.is_all
            elif share.start <= place < share.end:
                excess = level - share.level
                if excess >= 0 and bits >> excess == share.number:
                    yield number, False
                elif excess < 0 and share.number >> -excess == bits:
                    yield number, True


def cut(
    rows: pa.Table, key: Sequence[str], splits: Sequence[int], piece_rows: int = PIECE_ROWS
) -> Iterator[tuple[tuple[int, int, int], pa.Table]]:
    """Pieces of the rows of a part, each with its range, its level and its number.

    Args:
        rows: The rows.
        key: Names of the key columns; of rows without a key `merge.IMAGE`.
        splits: Where ranges of the first key column begin, if it holds whole numbers.
        piece_rows: Rows of a piece, about.
    """
    if rows.num_rows <= piece_rows // _FEW:
        yield (ANYWHERE, 0, 0), rows
        return
    places, hashes = _ranges(rows[key[0]], splits), _hashes(rows, key)
    counts = np.bincount(places, minlength=len(splits) + 1)
    levels = np.ceil(np.log2(np.maximum(counts / piece_rows, 1))).astype(np.uint64)
    numbers = hashes >> (np.uint64(_BITS) - levels[places])
    codes = places.astype(np.uint64) << np.uint64(_BITS) | numbers
    order = np.argsort(codes, kind="stable")
    rows, codes = rows.take(order), codes[order]
    starts = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
        place, number = divmod(int(codes[start]), 1 << _BITS)
        yield (place, int(levels[place]), number), rows.slice(start, end - start)


def marked(rows: pa.Table) -> int:
    """A number that differs where a piece holds other rows: by their source, and the place where each was read."""
    found = zlib.crc32((rows.schema.metadata or {}).get(SOURCE, b""))
    for name in ("\0partition", "\0offset", "\0index"):
        found = zlib.crc32(rows[name].to_numpy().tobytes(), found)
    return found


def within(rows: pa.Table, key: Sequence[str], splits: Sequence[int], share: Share) -> pa.Table:
    """The rows of a piece that belong to a share; arguments as of `cut`."""
    places, numbers = _ranges(rows[key[0]], splits), _hashes(rows, key) >> np.uint64(_BITS - share.level)
    chosen = (places >= share.start) & (places < share.end) & (numbers == share.number)
    return rows.filter(pa.array(chosen))


def shares(parts: Sequence[Pieces], most_bytes: float) -> list[Share]:
    """The shares that the parts of one batch are staged in, of about so many bytes each."""
    sizes: defaultdict[int, float] = defaultdict(float)
    for part in parts:
        for place, rows in zip(part.ranges, part.rows, strict=True):
            sizes[place] += rows * part.row_bytes
    # Equal keys of two types need not have equal hashes, and rows of a former key lie where that one's hashes say.
    if sum(sizes.values()) <= most_bytes or len({part.columns for part in parts}) > 1:
        return [Share()]
    found, start, held = list[Share](), 0, 0.0
    for place in range(max(sizes) + 1):
        size = sizes[place]
        if held and held + size > most_bytes:
            found.append(Share(start, place))
            start, held = place, 0.0
        if level := min(_MOST_LEVEL, math.ceil(math.log2(max(size / most_bytes, 1)))):
            if start < place:
                found.append(Share(start, place))  # Rows that stay together may lie in ranges that show none.
            found += [Share(place, place + 1, level, number) for number in range(1 << level)]
            start = place + 1
        else:
            held += size
    return [*found, Share(start)]


def _ranges(column: pa.ChunkedArray[Any], splits: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    if not splits or not pa.types.is_integer(column.type):
        return np.zeros(len(column), np.int64)
    return np.searchsorted(np.asarray(splits), _whole(column), side="right").astype(np.int64)


def _hashes(rows: pa.Table, key: Sequence[str]) -> Hashes:
    """The upper bits of a hash of each key: of equal keys, in columns of equal types, the same ones."""
    found = np.zeros(rows.num_rows, np.uint64)
    with np.errstate(over="ignore"):
        for name in key:
            for word in _words(rows[name]):
                found = (found ^ word) * np.uint64(0x9E3779B97F4A7C15)
                found ^= found >> np.uint64(29)
        found *= np.uint64(0xBF58476D1CE4E5B9)
    return found >> np.uint64(64 - _BITS)


def _words(column: pa.ChunkedArray[Any]) -> Iterator[Hashes]:
    """The values of a column as numbers; nothing of types whose equal values may differ in their bytes."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        yield _whole(column).view(np.uint64)
    elif pa.types.is_decimal(kind):
        yield from _bytes(column.cast(pa.string()))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        yield from _bytes(column)


def _whole(column: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return np.asarray(column.fill_null(0).to_numpy()).astype(np.int64)


def _bytes(column: Any) -> Iterator[Hashes]:
    """The length, the first and the last bytes of each value: UUIDs differ in both, names with a prefix in the last."""
    values: Any = column.cast(pa.large_binary()).fill_null(b"").combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks else pa.array([], pa.large_binary())
    _, ends, held = values.buffers()
    edges = np.frombuffer(ends, np.int64)[values.offset : values.offset + len(values) + 1]
    starts, lengths = edges[:-1], np.diff(edges)
    yield lengths.astype(np.uint64)
    data = np.frombuffer(held, np.uint8) if held is not None and held.size else np.zeros(1, np.uint8)
    for first in (starts, starts + 8, np.maximum(edges[1:] - 8, starts), np.maximum(edges[1:] - 16, starts)):
        places = first[:, None] + _WORD
        word = np.where(places < edges[1:, None], data[np.minimum(places, len(data) - 1)], 0).astype(np.uint8)
        yield np.ascontiguousarray(word).view(np.uint64).ravel()
