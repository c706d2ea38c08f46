"""Finds what a batch of a keyless table adds and removes: the table is a bag of rows."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.sink.write.parquet import Positions

_ID = "\0id"
_INDEX = "\0index"


def canonical(rows: pa.Table) -> pa.Table:
    """The same rows in columns that a hash join compares as a bag does.

    NULL equals NULL (each column gets a flag and a filler), floats are compared by their bits, so that a row is only
    equal to itself, and lists by the text of their values.
    """
    columns: dict[str, Any] = {}
    for index, column in enumerate(rows.columns):
        values = _hashable(column)
        if values.null_count:
            columns[f"n{index}"] = pc.is_null(values).cast(pa.int8())
            values = values.fill_null(_filler(values.type))
        else:
            columns[f"n{index}"] = pa.array(np.zeros(len(values), np.int8))
        columns[f"c{index}"] = values
    return pa.table(columns)


def net(inserts: pa.Table, deletes: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Cancel out rows in the table's columns that a batch both adds and removes, and return what is left of both.

    Rows are equal if they are in the columns of `deletes`. Which of equal ones goes is all the same to a bag.
    """
    if not inserts.num_rows or not deletes.num_rows:
        return inserts, deletes
    ids = _identities(pa.concat_tables([canonical(inserts.select(deletes.column_names)), canonical(deletes)]))
    added, removed = ids[: inserts.num_rows], ids[inserts.num_rows :]
    counts = int(ids.max()) + 1
    both = np.minimum(np.bincount(added, minlength=counts), np.bincount(removed, minlength=counts))
    keep_added = _rank(added) >= both[added]
    keep_removed = _rank(removed) >= both[removed]
    return inserts.filter(pa.array(keep_added)), deletes.filter(pa.array(keep_removed))


def choose(deletes: pa.Table, rows: pa.Table, living: Mapping[str, Positions]) -> tuple[dict[str, Positions], int]:
    """Pick one row for each delete; equal deletes are repeated.

    The rows are those that live and equal one of the deletes, in the order of `living`, which says where they are.

    Returns:
        Positions of the picked rows by path, and the number of deletes for which there was no row.
    """
    ids = _identities(pa.concat_tables([canonical(deletes), canonical(rows)]))
    wanted, found = ids[: deletes.num_rows], ids[deletes.num_rows :]
    counts = np.bincount(wanted, minlength=int(ids.max()) + 1)
    picked = _rank(found) < counts[found]
    result: dict[str, Positions] = {}
    start = 0
    for path, positions in living.items():
        chosen = positions[picked[start : start + len(positions)]]
        start += len(positions)
        if len(chosen):
            result[path] = chosen
    return result, deletes.num_rows - int(picked.sum())


def _identities(rows: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """One number per row, the same for equal rows; rows are canonical."""
    names = rows.column_names
    distinct = rows.group_by(names, use_threads=False).aggregate([])
    distinct = distinct.append_column(_ID, pa.array(np.arange(distinct.num_rows)))
    indexed = rows.append_column(_INDEX, pa.array(np.arange(rows.num_rows)))
    pairs = indexed.join(distinct, names, join_type="inner", use_threads=False)
    result = np.empty(rows.num_rows, np.int64)
    result[pairs[_INDEX].to_numpy()] = pairs[_ID].to_numpy()
    return result


def _rank(ids: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """For each element the number of equal ones before it."""
    order = np.argsort(ids, kind="stable")
    sorted_ids = ids[order]
    firsts = np.searchsorted(sorted_ids, sorted_ids, "left")
    result = np.empty(len(ids), np.int64)
    result[order] = np.arange(len(ids)) - firsts
    return result


def _hashable(column: Any) -> Any:
    kind = column.type
    if pa.types.is_floating(kind):
        bits = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)
    if pa.types.is_nested(kind):
        return pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())
    return column.cast(pa.int8()) if pa.types.is_null(kind) else column


def _filler(kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return ""
    if pa.types.is_binary(kind):
        return b""
    if pa.types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    zero: Any = Decimal(0) if pa.types.is_decimal(kind) else False if pa.types.is_boolean(kind) else 0
    return pa.scalar(zero, kind)
