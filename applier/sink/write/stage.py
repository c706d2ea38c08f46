"""The changes of one batch as data files and delete files: from values alone, so in any process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.change_batch import ChangeBatch, KeylessBatch
from applier.sink.format.file_layout import FileLayout
from applier.sink.format.storage import Storage
from applier.sink.format.types import Field, TableSchema
from applier.sink.iceberg.files import DataFile
from applier.sink.write import keyless
from applier.sink.write.deletes import Deletes, alive, stage_position_deletes, stage_vectors
from applier.sink.write.file_index import FileIndex
from applier.sink.write.file_writer import FileWriter
from applier.sink.write.lookup import comparable, positions_of, positions_where, read_located
from applier.sink.write.parquet import Positions
from applier.sink.write.rows import conform, conform_keys

_HERE = "\0here"
_THERE = "\0there"
"""Names of columns that carry row numbers; no TiDB column can be named so."""


class StagedBatch(NamedTuple):
    """What became of a batch; nothing of it is committed.

    Attributes:
        rows: The data files; None where those of an earlier attempt stay good.
        upserted: Rows in them.
        deletes: The delete files.
        deleted: Living rows that they remove.
        missing: Rows that it updates or deletes and that the table does not hold, at least; 0 where it is not exact.
        seconds: See `Applied`.
    """

    rows: list[DataFile] | None
    upserted: int
    deletes: Deletes
    deleted: int
    missing: int
    seconds: dict[str, float]


def stage_keyed(
    batch: ChangeBatch,
    layout: FileLayout,
    index: FileIndex,
    storage: Storage,
    *,
    exact: bool,
    needs_rows: bool,
) -> StagedBatch:
    """Look the keys of a batch up, and write its rows and what removes the old ones.

    Args:
        batch: The batch.
        layout: How the files of the table are written.
        index: Files that may hold the keys; its columns are the key.
        storage: Where the files are.
        exact: Whether keys that are new upstream are new to the table.
        needs_rows: Whether rows are written even if they are those of the batch.

    Raises:
        TableMismatch, ValueRefused, TransientError: As `TableWriter.apply`.
    """
    name, schema, key, seconds = layout.table, layout.schema, index.columns, dict[str, float]()
    keys = _sought_keys(name, batch, key, exact=exact)
    with timed(seconds, "locate"):
        living = alive(positions_of(index.candidates(keys), keys, key, storage), index.files, storage)
    # Every other key that is sought had a row at the stamped resolved ts.
    found = sum(map(len, living.values()))
    missing = max(0, keys.num_rows - found - batch.may_be_new) if exact else 0
    upserts = _carry(batch.upserts, schema, key, index, living, storage)
    rows = None
    if needs_rows or upserts is not batch.upserts:
        with timed(seconds, "rows"):
            rows = FileWriter(layout, storage).stage(conform(name, upserts, schema), batch.deletes.column_names)
    deletes = _deletes(living, layout, index, storage, seconds)
    return StagedBatch(rows, upserts.num_rows, deletes, found, missing, seconds)


def stage_keyless(
    batch: KeylessBatch,
    layout: FileLayout,
    index: FileIndex,
    storage: Storage,
    *,
    exact: bool,
    needs_rows: bool,
) -> StagedBatch:
    """Find rows that are equal to those that a batch deletes, and write those that it inserts; see `stage_keyed`."""
    name, schema, seconds = layout.table, layout.schema, dict[str, float]()
    inserts, deletes = keyless.net(conform(name, batch.inserts, schema), conform(name, batch.deletes, schema))
    rows = None
    if needs_rows:
        with timed(seconds, "rows"):
            rows = FileWriter(layout, storage).stage(inserts, ())
    with timed(seconds, "locate"):
        hits = positions_of(index.candidates(deletes), deletes, schema.fields, storage, form=keyless.canonical)
        living, missing = alive(hits, index.files, storage), deletes.num_rows
        if living:
            images = read_located(storage, index.files, living, schema.fields)
            living, missing = keyless.choose(deletes, images, living)
    removed, found = _deletes(living, layout, index, storage, seconds), sum(map(len, living.values()))
    return StagedBatch(rows, inserts.num_rows, removed, found, missing if exact else 0, seconds)


def stage_where(
    predicate: Callable[[pa.Table], Any], layout: FileLayout, index: FileIndex, storage: Storage
) -> StagedBatch:
    """Remove the living rows that a predicate names by the columns of the index."""
    seconds = dict[str, float]()
    with timed(seconds, "locate"):
        living = positions_where(index, index.columns, predicate, storage)
    deletes = _deletes(living, layout, index, storage, seconds)
    return StagedBatch(None, 0, deletes, sum(map(len, living.values())), 0, seconds)


@contextmanager
def timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    """Add the time spent inside to a part."""
    start = time.perf_counter()
    yield
    seconds[part] = seconds.get(part, 0.0) + time.perf_counter() - start


def _deletes(
    living: dict[str, Positions], layout: FileLayout, index: FileIndex, storage: Storage, seconds: dict[str, float]
) -> Deletes:
    stage = stage_vectors if layout.format_version >= 3 else stage_position_deletes
    with timed(seconds, "deletes"):
        return stage(living, index.files, storage, layout.place)


def _sought_keys(name: str, batch: ChangeBatch, fields: tuple[Field, ...], *, exact: bool) -> pa.Table:
    """Keys whose rows may be in the table: those to delete, and those to upsert unless they are known to be new.

    The keys of a batch are new as `batch.fresh` says if the table is `exact`: it holds exactly the rows of the stamped
    resolved ts.
    """
    deletes = conform_keys(name, batch.deletes, fields)
    upserts = conform_keys(name, batch.upserts, fields)
    if exact:
        upserts = upserts.filter(pc.invert(batch.fresh))
    return pa.concat_tables([deletes, upserts])


def _carry(
    upserts: pa.Table,
    schema: TableSchema,
    key: tuple[Field, ...],
    index: FileIndex,
    living: dict[str, Positions],
    storage: Storage,
) -> pa.Table:
    """Add the columns that the images do not hold, with the values of the rows that they replace.

    An absent column is not NULL: the change does not mention it, so the old value stays.
    `living` are positions of the living rows of the batch's keys, in files of the index.
    """
    missing = [field for field in schema.fields if field.name not in upserts.column_names]
    if not missing or not living:
        return upserts
    old = read_located(storage, index.files, living, [*key, *missing])
    names = [field.name for field in key]
    here = comparable(conform_keys("", upserts, key)).append_column(_HERE, pa.array(np.arange(upserts.num_rows)))
    there = comparable(old.select(names)).append_column(_THERE, pa.array(np.arange(old.num_rows)))
    pairs = here.join(there, names, join_type="inner", use_threads=False)
    places = np.full(upserts.num_rows, -1)
    places[pairs[_HERE].to_numpy()] = pairs[_THERE].to_numpy()
    source = pa.array(places, mask=places < 0)
    for column in missing:
        upserts = upserts.append_column(column.name, old[column.name].take(source))
    return upserts
