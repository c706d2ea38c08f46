"""Compares a table with a copy of it; the cost follows what differs, not the size of the table."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from applier.commands.backfill.report import Difference
from applier.sink.format.types import Field
from applier.sink.iceberg.table import Table, storage_for
from applier.sink.write.deletes import load_deleted
from applier.sink.write.file_index import FileIndex, read_index
from applier.sink.write.lookup import read_located
from applier.sink.write.parquet import Positions

MOST_ROWS = 1_000_000
"""Differing rows that are held at a time, of main and branch together; more are read again for each such lot."""

_KEYS_SHOWN = 10
_PLACE, _OTHER = "\0place", "\0other"


def compare(name: str, main: Table | None, branch: Table | None, key: Sequence[str]) -> Difference:
    """How the copy of a table differs from what readers see; counted exactly, however much differs.

    A table that is not there holds no rows. The columns of the key distinguish rows; () compares whole rows.

    Raises:
        TransientError: Storage or catalog did not answer.
    """
    if main is None or branch is None:
        gone_rows, new_rows = (0 if table is None else _count(_planned(table)) for table in (main, branch))
        return Difference(name, gone_rows, new_rows, only_main=gone_rows, only_branch=new_rows, changed=0)
    seen, built = _planned(main), _planned(branch)
    gone, new = _without(seen, built), _without(built, seen)
    rows = sum(len(positions) for positions in [*gone.values(), *new.values()])
    lots = max(1, math.ceil(rows / MOST_ROWS))
    found = []
    for number in range(lots):
        lot = _Lot(key, number, lots)
        here, there = _rows(main, seen, gone, lot), _rows(branch, built, new, lot)
        found.append(_differing(here, there, key) if key else _whole(here, there))
    only_main, only_branch, changed = (sum(each) for each in zip(*(counts for counts, _ in found), strict=True))
    keys = tuple(shown for _, lot in found for shown in lot)[:_KEYS_SHOWN]
    return Difference(name, _count(seen), _count(built), only_main, only_branch, changed, keys)


class _Lot(NamedTuple):
    """Rows whose keys, or whole values, have one remainder: equal ones are in one lot, whichever table they are of."""

    key: Sequence[str]
    number: int
    of: int

    def take(self, rows: pa.Table) -> pa.Table:
        if self.of == 1:
            return rows
        values = rows.select(list(self.key)) if self.key else rows
        sums = [zlib.crc32(repr(tuple(row.values())).encode()) for row in values.to_pylist()]
        return rows.filter(pa.array(np.asarray(sums, np.int64) % self.of == self.number))


_Counted: TypeAlias = tuple[tuple[int, int, int], Sequence[str]]
"""How some rows of a table differ: rows only here, only there, and changed ones, and some of their keys."""


def _differing(gone: pa.Table, new: pa.Table, key: Sequence[str]) -> _Counted:
    """Rows that a key distinguishes."""
    columns = [name for name in gone.column_names if name in new.column_names]
    here, there = _places(gone, key), _places(new, key)
    pairs = here.join(there.rename_columns([*key, _OTHER]), list(key), join_type="inner", use_threads=False)
    left, right = pairs[_PLACE], pairs[_OTHER]
    changed = _changed(gone.select(columns).take(left), new.select(columns).take(right))
    only_gone, only_new = _others(gone.num_rows, left), _others(new.num_rows, right)
    keys = [
        *(("+", row) for row in new.select(list(key)).take(only_new[:_KEYS_SHOWN]).to_pylist()),
        *(("-", row) for row in gone.select(list(key)).take(only_gone[:_KEYS_SHOWN]).to_pylist()),
        *(("~", row) for row in new.select(list(key)).take(right.filter(changed)[:_KEYS_SHOWN]).to_pylist()),
    ]
    shown = [sign + ",".join(map(str, row.values())) for sign, row in keys[:_KEYS_SHOWN]]
    return (len(only_gone), len(only_new), int(pc.sum(changed).as_py() or 0)), shown


def _planned(table: Table) -> FileIndex:
    found = read_index(str(table), table.snapshot_id, (), table.scan)
    load_deleted(list(found.files.values()), storage_for(table))
    return found


def _count(found: FileIndex) -> int:
    return sum(indexed.file.records - len(indexed.deleted or ()) for indexed in found.files.values())


def _without(these: FileIndex, those: FileIndex) -> dict[str, Positions]:
    """Positions of living rows that the other does not have; files that both have in the same state are passed over."""
    found = {}
    for path, indexed in these.files.items():
        other = those.files.get(path)
        if other is not None and (indexed.deleted or BitMap64()) == (other.deleted or BitMap64()):
            continue
        living = BitMap64(range(indexed.file.records)) - (indexed.deleted or BitMap64())
        if other is not None:
            living &= other.deleted or BitMap64()
        if living:
            found[path] = np.asarray(living.to_array()).astype(np.int64)
    return found


def _rows(table: Table, found: FileIndex, positions: dict[str, Positions], lot: _Lot) -> pa.Table:
    deleted_at = table.schema.deleted_at
    fields: list[Field] = [*table.schema.upstream, *([] if deleted_at is None else [deleted_at])]
    if not positions:
        return table.schema.arrow.empty_table().select([field.name for field in fields])
    # One file at a time where there are several lots: little of each is of this one.
    parts = [positions] if lot.of == 1 else [{path: places} for path, places in positions.items()]
    read = (read_located(storage_for(table), found.files, part, fields) for part in parts)
    return pa.concat_tables(map(lot.take, read)).combine_chunks()


def _places(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    return rows.select(list(key)).append_column(_PLACE, pa.array(np.arange(rows.num_rows)))


def _others(rows: int, taken: Any) -> Any:
    rest = np.ones(rows, bool)
    rest[taken.to_numpy()] = False
    return pa.array(np.flatnonzero(rest))


def _changed(here: pa.Table, there: pa.Table) -> Any:
    """One boolean for each pair of rows: do they differ?"""
    differ = np.zeros(here.num_rows, bool)
    for name in here.column_names:
        left, right = here[name], there[name]
        if pa.types.is_nested(left.type):
            differ |= np.array([a != b for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)], bool)
            continue
        equal: Any = pc.equal(left, right)
        same: Any = pc.fill_null(equal, pa.scalar(False))
        both: Any = pc.and_(pc.is_null(left), pc.is_null(right))
        differ |= ~(same.to_numpy().astype(bool) | both.to_numpy().astype(bool))
    return pa.array(differ)


def _whole(gone: pa.Table, new: pa.Table) -> _Counted:
    """Rows that nothing but their values distinguishes."""
    here, there = (Counter(repr(row) for row in rows.to_pylist()) for rows in (gone, new))
    return ((here - there).total(), (there - here).total(), 0), ()
