"""A table as readers see it and as a branch has it in, how they differ out; costs what differs, not the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from applier.backfill.report import Difference
from applier.sink.deletes import load_deleted
from applier.sink.engine import ArrowEngine
from applier.sink.iceberg_table import Table
from applier.sink.parquet import Positions
from applier.sink.plan import Plan, plan
from applier.sink.types import Field

_KEYS_SHOWN = 10
_PLACE, _OTHER = "\0place", "\0other"


def compare(main: Table, branch: Table, key: Sequence[str]) -> Difference:
    """How a branch differs from what readers see.

    Args:
        main: The table.
        branch: The same, of the branch.
        key: Columns that tell rows apart; () to compare whole rows.

    Raises:
        TransientError: Storage or catalog did not answer.
    """
    seen, built = _planned(main), _planned(branch)
    gone = _rows(main, seen, _without(seen, built))
    new = _rows(branch, built, _without(built, seen))
    columns = [name for name in gone.column_names if name in new.column_names]
    counts = str(main), _count(seen), _count(built)
    if not key:
        return _whole(counts, gone, new)
    here, there = _places(gone, key), _places(new, key)
    pairs = here.join(there.rename_columns([*key, _OTHER]), list(key), join_type="inner", use_threads=False)
    left, right = pairs[_PLACE], pairs[_OTHER]
    changed = _changed(gone.select(columns).take(left), new.select(columns).take(right))
    only_gone = _others(gone.num_rows, left)
    only_new = _others(new.num_rows, right)
    keys = [
        *(("+", row) for row in new.select(list(key)).take(only_new[:_KEYS_SHOWN]).to_pylist()),
        *(("-", row) for row in gone.select(list(key)).take(only_gone[:_KEYS_SHOWN]).to_pylist()),
        *(("~", row) for row in new.select(list(key)).take(right.filter(changed)[:_KEYS_SHOWN]).to_pylist()),
    ]
    shown = tuple(sign + ",".join(map(str, row.values())) for sign, row in keys)
    return Difference(*counts, len(only_gone), len(only_new), int(pc.sum(changed).as_py() or 0), shown[:_KEYS_SHOWN])


def _planned(table: Table) -> Plan:
    found = plan(str(table), table.snapshot_id, (), table.scan)
    load_deleted(list(found.files.values()), ArrowEngine(table).storage)
    return found


def _count(found: Plan) -> int:
    return sum(planned.file.records - len(planned.deleted or ()) for planned in found.files.values())


def _without(these: Plan, those: Plan) -> dict[str, Positions]:
    """Positions of living rows that the other does not have; files that both have in the same state are passed over."""
    found = {}
    for path, planned in these.files.items():
        other = those.files.get(path)
        if other is not None and (planned.deleted or BitMap64()) == (other.deleted or BitMap64()):
            continue
        living = BitMap64(range(planned.file.records)) - (planned.deleted or BitMap64())
        if other is not None:
            living &= other.deleted or BitMap64()
        if living:
            found[path] = np.asarray(living.to_array()).astype(np.int64)
    return found


def _rows(table: Table, found: Plan, positions: dict[str, Positions]) -> pa.Table:
    fields: list[Field] = list(table.schema.fields)
    if not positions:
        return table.schema.arrow.empty_table()
    return ArrowEngine(table).read(found.files, positions, fields).combine_chunks()


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


def _whole(counts: tuple[str, int, int], gone: pa.Table, new: pa.Table) -> Difference:
    """Rows that nothing but their values tells apart."""
    here, there = (Counter(repr(row) for row in rows.to_pylist()) for rows in (gone, new))
    return Difference(*counts, (here - there).total(), (there - here).total(), 0)
