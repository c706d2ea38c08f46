"""Hashes the rows of an Arrow table, by what their cells hold: one number a row, computed by column.

A cell counts by its exact value: letters that a collation takes for one differ, and so do NULL and an empty text. 0.0
and -0.0 are one value, and so are all NaN. Two different rows get one number with a chance of 2^-64, which no data can
raise: the seed is another in each run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
"""A 64-bit number for each row or word."""

_BLOCK_BYTES = 2 << 20
"""Bytes of rows that are hashed at once: what is computed of them takes several times as much."""

_WORD = 8
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class RowHash:
    """Hashes rows of the same columns; those of the key come by their places, () for a table without one."""

    key: tuple[int, ...]
    seed: int

    def of(self, rows: pa.Table) -> tuple[Numbers, Numbers]:
        """The number of each row, and that of its key: of the whole row without one."""
        parts = list(map(self._of_block, _blocks(rows)))
        if not parts:
            return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
        return np.concatenate([row for row, _ in parts]), np.concatenate([key for _, key in parts])

    def _of_block(self, rows: pa.Table) -> tuple[Numbers, Numbers]:
        cells = [_cells(column, _seed(self.seed, number)) for number, column in enumerate(rows.columns)]
        row = _together(cells)
        return row, _together([cells[number] for number in self.key]) if self.key else row


def _blocks(rows: pa.Table) -> Iterator[pa.Table]:
    step = max(1, rows.num_rows * _BLOCK_BYTES // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _seed(seed: int, number: int) -> np.uint64:
    return np.uint64(_mixed(np.array([(seed + number + 1) & 0xFFFFFFFFFFFFFFFF], np.uint64) * _ODD)[0])


def _together(cells: Sequence[Numbers]) -> Numbers:
    """One number of those of several columns. Without the last step, cells could change places with other rows."""
    return _mixed(np.sum(cells, axis=0, dtype=np.uint64))


def _mixed(numbers: Numbers) -> Numbers:
    """Spread each bit over all others: the finalizer of MurmurHash3 for 64 bits (`fmix64`). Changes its argument."""
    numbers ^= numbers >> np.uint64(33)
    numbers *= np.uint64(0xFF51AFD7ED558CCD)
    numbers ^= numbers >> np.uint64(33)
    numbers *= np.uint64(0xC4CEB9FE1A85EC53)
    numbers ^= numbers >> np.uint64(33)
    return numbers


def _cells(column: Any, seed: np.uint64) -> Numbers:
    """A number for each cell of a column."""
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # Arrow gives one chunk, or none where there is no row.
        values = pa.concat_arrays(values.chunks)
    found = _mixed(_values(values, seed) + seed)
    if values.null_count:
        empty = np.asarray(values.is_null().to_numpy(zero_copy_only=False))
        found[empty] = _mixed(np.array([~seed], np.uint64))[0]
    return found


def _values(values: Any, seed: np.uint64) -> Numbers:
    kind = values.type
    if pa.types.is_list(kind):
        items = _without_signs(np.asarray(values.values.to_numpy(zero_copy_only=False)))
        return _texts(_plain(values.offsets) * items.itemsize, items.view(np.uint8), seed)
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return _fixed(values, kind.byte_width, seed)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        _, offsets, data = values.buffers()
        ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
        return _texts(ends.astype(np.int64), np.frombuffer(data or b"", np.uint8), seed)
    if pa.types.is_floating(kind):
        real: Numbers = _without_signs(values.fill_null(0).to_numpy().astype(np.float64)).view(np.uint64)
        return real
    plain = values.cast(pa.int8()) if pa.types.is_boolean(kind) else values
    if not pa.types.is_integer(plain.type):  # Dates and times are numbers of days or microseconds.
        plain = plain.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    whole: Numbers = _plain(plain.fill_null(0)).view(np.uint64)
    return whole


def _plain(values: Any) -> Any:
    return np.asarray(values.to_numpy()).astype(np.int64)


def _without_signs(numbers: Any) -> Any:
    """Floats in which 0.0 has no sign, and NaN one form."""
    numbers = numbers + 0.0
    numbers[np.isnan(numbers)] = np.nan
    return numbers


def _fixed(values: Any, width: int, seed: np.uint64) -> Numbers:
    start = values.offset * width
    data = np.frombuffer(values.buffers()[1], np.uint8)[start : start + len(values) * width]
    return _texts(np.arange(len(values) + 1, dtype=np.int64) * width, data, seed)


def _texts(ends: Any, data: Any, seed: np.uint64) -> Numbers:
    """Numbers of texts that lie one behind the other: each word of one counts by its place, and so does its length."""
    padded = np.zeros(ends[-1] - ends[0] + _WORD, np.uint8)
    padded[: -_WORD or None] = data[ends[0] : ends[-1]]
    lengths = np.diff(ends)
    words = (lengths + _WORD - 1) // _WORD
    last = np.cumsum(words)
    place = np.arange(last[-1] if len(last) else 0, dtype=np.int64) - np.repeat(last - words, words)
    begins = np.repeat(ends[:-1] - ends[0], words) + place * _WORD
    overlapping: Numbers = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded, strides=(1,))
    found = overlapping[begins]
    rest = np.repeat(lengths, words) - place * _WORD
    short = rest < _WORD
    found[short] &= (np.uint64(1) << (np.uint64(_WORD) * rest[short].astype(np.uint64))) - np.uint64(1)
    places = _mixed(np.arange(1, (int(words.max()) if len(words) else 0) + 1, dtype=np.uint64) * _ODD + seed)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(found + places[place]), dtype=np.uint64)])
    totals: Numbers = sums[last] - sums[last - words]
    result: Numbers = _mixed(totals) + lengths.astype(np.uint64) * _ODD
    return result
