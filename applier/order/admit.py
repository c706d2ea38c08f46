"""Keeps of the changes of a table those that its row filter admits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from applier.changefeed.change_batch import ChangeBatch, Changes, KeylessBatch, Provenance
from applier.changefeed.row_filter import RowFilter

pc: Any = pyarrow.compute


def admitted(changes: Changes, admitting: RowFilter, table: str, *, exact: bool = True) -> Changes:
    """The changes of a table, of this upstream name, that has the admitted rows alone.

    A row that is not admitted is deleted by its key: it may have been until now. `exact` is as in `merge_keyed`: a row
    that is new upstream is in the table only where that is not so.

    Raises:
        ValueRefused: Rows lack a column that the filter looks at.
    """
    match changes:
        case ChangeBatch():
            return _keyed(changes, admitting, table, exact=exact)
        case KeylessBatch():
            return _keyless(changes, admitting, table)


def _keyed(batch: ChangeBatch, admitting: RowFilter, table: str, *, exact: bool) -> ChangeBatch:
    deletes, upserts, fresh = batch.deletes, batch.upserts, batch.fresh
    if not upserts.num_rows:
        # Whether the former row was admitted is not known, so it may be missing.
        return replace(batch, may_be_new=deletes.num_rows)
    is_in = admitting.admits(table, upserts)
    out = pc.invert(is_in)
    left = upserts.filter(pc.and_(out, pc.invert(fresh)) if exact else out).select(deletes.column_names)
    deletes = pa.concat_tables([deletes, left])
    fresh = fresh.filter(is_in)
    changed = int(np.count_nonzero(~np.asarray(fresh)))
    made = _of(batch.made, is_in)
    return ChangeBatch(upserts.filter(is_in), fresh, deletes, deletes.num_rows + changed, made)


def _keyless(batch: KeylessBatch, admitting: RowFilter, table: str) -> KeylessBatch:
    """Equal rows are admitted or not alike: what takes a row away meets the one that was added."""
    inserts, deletes, made = batch.inserts, batch.deletes, batch.made
    if inserts.num_rows:
        is_in = admitting.admits(table, inserts)
        inserts, made = inserts.filter(is_in), _of(made, is_in)
    deletes = admitting.of(table, deletes) if deletes.num_rows else deletes
    return KeylessBatch(inserts, deletes, made)


def _of(made: Provenance | None, chosen: pa.BooleanArray) -> Provenance | None:
    return None if made is None else made.filter(chosen)
