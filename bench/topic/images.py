"""Keys and versions in, the row images that belong to them out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.topic import pieces
from bench.topic.events import START_MS, Ints, Workload
from bench.topic.pieces import Piece
from bench.topic.schema import STATUSES

Words = npt.NDArray[np.uint64]


def images(workload: Workload, key: Ints, version: Ints) -> pa.Table:
    """Rows of keys as the events `version` wrote them.

    Args:
        workload: Seeds the values.
        key: Keys over all tables.
        version: Event numbers, PRELOADED for the rows from before.

    Returns:
        One row per key, columns as in `schema.ARROW`, but `status` as a dictionary: its codes are TiDB's, less one.
    """
    fixed = _scramble(key.astype(np.uint64) * np.uint64(2) + np.uint64(workload.seed))
    drawn = _scramble(fixed ^ _scramble((version + 2).astype(np.uint64)))
    note = _below(drawn >> np.uint64(3), 10**12)
    seconds = workload.start_ms // 1000 + np.maximum(version, 0) // workload.rate
    columns = {
        "id": pa.array(key // workload.tables),
        "customer_id": pa.array(_below(fixed, 10_000_000)),
        "product_id": pa.array(_below(drawn, 50_000).astype(np.int32)),
        "quantity": pa.array(_below(drawn >> np.uint64(17), 100).astype(np.int32)),
        "price": _decimal(_below(drawn >> np.uint64(24), 99_999_999)),
        "status": pa.DictionaryArray.from_arrays(_below(drawn >> np.uint64(40), 5).astype(np.int8), STATUSES),
        "flag": pa.array(_below(drawn >> np.uint64(50), 2).astype(np.int32)),
        "email": _join("user", pa.array(_below(fixed >> np.uint64(20), 10**9)), "@example.com"),
        "note": _join("order note ", pa.array(note, mask=note % 5 == 0), ' with "quotes" & ünïcode'),
        "created_at": pa.array((START_MS - _below(fixed >> np.uint64(8), 86_400_000)) * 1000).cast(pa.timestamp("us")),
        "updated_at": pa.array(seconds * 1_000_000).cast(pa.timestamp("us", "UTC")),
    }
    return pa.table(columns)


def _scramble(words: Words) -> Words:
    """Spread 64-bit words evenly over all 64-bit words (the finaliser of MurmurHash3)."""
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return words ^ (words >> np.uint64(33))


def partition_of(key: Ints, partitions: int) -> Ints:
    """Partition of a key, as an `index-value` dispatcher deals them."""
    return _below(_scramble(key.astype(np.uint64) + np.uint64(0x9E3779B9)), partitions)


def _below(words: Words, bound: int) -> Ints:
    return (words % np.uint64(bound)).astype(np.int64)


def _decimal(cents: Ints) -> Piece:
    pairs = np.stack([cents, cents >> 63], axis=1)
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(cents), [None, pa.py_buffer(pairs.tobytes())])


def _join(before: str, number: Piece, after: str) -> Piece:
    return pieces.join(before, pieces.text(number), after)
