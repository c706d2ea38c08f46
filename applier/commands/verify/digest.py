"""What one side of a comparison holds: for each chunk of keys, how many rows, and a sum of their hashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from applier.commands.verify.row_hash import Numbers, RowHash

ROWS = 256
"""Rows that a chunk is to have, as long as there are no more than `_MOST` chunks."""

_LEAST, _MOST = 6, 14
"""Powers of two: numbers of chunks."""

ROW, KEY, TIMES = "\0row", "\0key", "\0times"
"""Columns of `Found`; no TiDB column can be named so."""


class Chunks(NamedTuple):
    """How keys are divided into chunks, by the first bits of the hash of the key: a power of two."""

    hashing: RowHash
    bits: int

    @staticmethod
    def of(key: Sequence[int], rows: int, seed: int) -> Chunks:
        """Those for about so many rows."""
        bits = max(1, rows // ROWS).bit_length()
        return Chunks(RowHash(tuple(key), seed), min(_MOST, max(_LEAST, bits)))

    def numbered(self, keys: Numbers) -> Any:
        """The chunk of each hash of a key."""
        return (keys >> np.uint64(64 - self.bits)).astype(np.int64)


@dataclass(slots=True)
class Digest:
    """Rows of each chunk, and the sum of their hashes modulo 2^64: rows in any order, and one that comes twice counts
    twice. `size` are bytes in memory of all.
    """

    bits: int
    counts: Any = field(init=False)
    sums: Any = field(init=False)
    size: int = 0

    def __post_init__(self) -> None:
        self.counts, self.sums = np.zeros(1 << self.bits, np.int64), np.zeros(1 << self.bits, np.uint64)

    @property
    def rows(self) -> int:
        """Rows of all chunks."""
        return int(self.counts.sum())

    def take(self, rows: pa.Table, chunks: Chunks) -> None:
        """Count rows in."""
        row, key = chunks.hashing.of(rows)
        numbers = chunks.numbered(key)
        self.counts += np.bincount(numbers, minlength=1 << self.bits)
        np.add.at(self.sums, numbers, row)
        self.size += rows.nbytes

    def add(self, other: Digest) -> None:
        """Count in what another one has."""
        self.counts += other.counts
        self.sums += other.sums
        self.size += other.size

    def differing(self, other: Digest) -> Any:
        """The chunks that are not the same on the other side."""
        return np.flatnonzero((self.counts != other.counts) | (self.sums != other.sums))


def found(tables: Iterable[pa.Table], chunks: Chunks, wanted: Any) -> pa.Table | None:
    """The rows of some chunks with the hashes of each, and how many times it comes; None without any.

    A row that comes several times in a table is kept once, so that a table of one row a billion times fits.
    """
    kept = [part for rows in tables for part in _kept(rows, chunks, wanted)]
    return pa.concat_tables(kept) if kept else None


def _kept(rows: pa.Table, chunks: Chunks, wanted: Any) -> Iterable[pa.Table]:
    row, key = chunks.hashing.of(rows)
    at = np.flatnonzero(np.isin(chunks.numbered(key), wanted))
    if not len(at):
        return
    _, first, times = np.unique(row[at], return_index=True, return_counts=True)
    at = at[first]
    hashes = {ROW: row[at], KEY: key[at], TIMES: times.astype(np.int64)}
    part = rows.take(at)
    for name, numbers in hashes.items():
        part = part.append_column(name, pa.array(numbers))
    yield part
