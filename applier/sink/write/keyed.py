"""Turns a batch of a table with a key into the change of one commit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.change_batch import ChangeBatch
from applier.sink.format.types import Field, TableSchema
from applier.sink.write.engine import ArrowEngine
from applier.sink.write.file_index import FileIndex
from applier.sink.write.locate import comparable
from applier.sink.write.parquet import Positions
from applier.sink.write.rows import conform_keys

_HERE = "\0here"
_THERE = "\0there"


def sought_keys(name: str, batch: ChangeBatch, fields: tuple[Field, ...], *, exact: bool) -> pa.Table:
    """Keys whose rows may be in the table: those to delete, and those to upsert unless they are known to be new.

    Args:
        name: The table's name, for errors.
        batch: The batch.
        fields: Key columns of the table.
        exact: Whether `batch.fresh` may be trusted: the table holds exactly the rows of the stamped resolved ts.
    """
    deletes = conform_keys(name, batch.deletes, fields)
    upserts = conform_keys(name, batch.upserts, fields)
    if exact:
        upserts = upserts.filter(pc.invert(batch.fresh))
    return pa.concat_tables([deletes, upserts])


def carry(
    upserts: pa.Table,
    schema: TableSchema,
    key: tuple[Field, ...],
    plan: FileIndex,
    living: dict[str, Positions],
    engine: ArrowEngine,
) -> pa.Table:
    """Add the columns that the images do not hold, with the values of the rows that they replace.

    An absent column is not NULL: nothing was said about it, so the old value stays.

    Args:
        upserts: New images in the types of the batch.
        schema: Columns of the table.
        key: Its key columns.
        plan: The plan that `living` is of.
        living: Positions of the living rows of the batch's keys.
        engine: Reads the old rows.
    """
    missing = [field for field in schema.fields if field.name not in upserts.column_names]
    if not missing or not living:
        return upserts
    old = engine.read(plan.files, living, [*key, *missing])
    names = [field.name for field in key]
    here = comparable(conform_keys("", upserts, key)).append_column(_HERE, pa.array(np.arange(upserts.num_rows)))
    there = comparable(old.select(names)).append_column(_THERE, pa.array(np.arange(old.num_rows)))
    pairs = here.join(there, names, join_type="inner", use_threads=False)
    index = np.full(upserts.num_rows, -1)
    index[pairs[_HERE].to_numpy()] = pairs[_THERE].to_numpy()
    source = pa.array(index, mask=index < 0)
    for field in missing:
        upserts = upserts.append_column(field.name, old[field.name].take(source))
    return upserts
