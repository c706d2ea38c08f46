"""What one side of a comparison holds: for each chunk of keys, how many rows, and a sum of their hashes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from applier.commands.verify.row_hash import Numbers, RowHash

_BITS = 14
"""2^14 chunks, whatever a table has: one side may have far more rows than the other, and rows of one chunk at least
are compared in memory."""

ROW, KEY, TIMES = "\0row", "\0key", "\0times"
"""Columns of what `found` gives; no TiDB column can be named so."""


@dataclass(slots=True)
class Digest:
    """Rows of each chunk, and the sum of their hashes modulo 2^64: rows in any order, and one that comes twice counts
    twice. `size` are bytes in memory of all.
    """

    counts: Any = field(default_factory=lambda: np.zeros(1 << _BITS, np.int64))
    sums: Any = field(default_factory=lambda: np.zeros(1 << _BITS, np.uint64))
    size: int = 0

    @property
    def rows(self) -> int:
        """Rows of all chunks."""
        return int(self.counts.sum())

    def take(self, rows: pa.Table, hashing: RowHash) -> None:
        """Count rows in."""
        row, key = hashing.of(rows)
        numbers = _chunks(key)
        self.counts += np.bincount(numbers, minlength=1 << _BITS)
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


def _chunks(keys: Numbers) -> Any:
    """The chunk of each hash of a key: its first bits."""
    return (keys >> np.uint64(64 - _BITS)).astype(np.int64)


def found(tables: Iterable[pa.Table], hashing: RowHash, wanted: Any) -> pa.Table | None:
    """The rows of some chunks with the hashes of each, and how many times it comes; None without any.

    A row that comes several times in a table is kept once, so that a table of one row a billion times fits.
    """
    kept = [part for rows in tables for part in _kept(rows, hashing, wanted)]
    return pa.concat_tables(kept) if kept else None


def _kept(rows: pa.Table, hashing: RowHash, wanted: Any) -> Iterable[pa.Table]:
    row, key = hashing.of(rows)
    at = np.flatnonzero(np.isin(_chunks(key), wanted))
    if not len(at):
        return
    _, first, times = np.unique(row[at], return_index=True, return_counts=True)
    at = at[first]
    hashes = {ROW: row[at], KEY: key[at], TIMES: times.astype(np.int64)}
    part = rows.take(at)
    for name, numbers in hashes.items():
        part = part.append_column(name, pa.array(numbers))
    yield part
