"""The changes of one batch as data files and the positions that they replace: from values alone, so in any process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from applier.changefeed.change_batch import ChangeBatch, Changes, KeylessBatch
from applier.errors import TableMismatch
from applier.sink.format.file_layout import FileLayout
from applier.sink.format.storage import Storage
from applier.sink.format.types import Chunks, Field
from applier.sink.iceberg.files import DataFile
from applier.sink.write import keyless, row_ids
from applier.sink.write.deletes import alive
from applier.sink.write.file_groups import FileRows
from applier.sink.write.file_index import FileIndex
from applier.sink.write.file_writer import FileWriter, check_columns, conform, conform_keys
from applier.sink.write.lookup import comparable, positions_of, read_located
from applier.sink.write.new_keys import NewKeySample
from applier.sink.write.parquet import Positions

_HERE = "\0here"
_THERE = "\0there"
"""Names of columns that carry row numbers; no TiDB column can be named so."""

_NONE = np.empty(0, np.int64)


class StagedBatch(NamedTuple):
    """What became of a batch, or of the part of it that one task has; nothing of it is committed.

    Attributes:
        rows: The data files; None where those of an earlier attempt stay good.
        living: By path of a data file the positions of living rows that go.
        missing: Rows that it updates or deletes and that were not found, less those that the table may lack: below 0
            where some of these were there. 0 where the batch is not exact.
        holds_new: The table holds a key that is new upstream: nothing was staged.
        credit: Where a task elsewhere looked new keys up: what that left of `NewKeySample.credit`.
    """

    rows: list[DataFile] | None
    living: dict[str, BitMap64]
    missing: int
    holds_new: bool = False
    credit: int | None = None

    @classmethod
    def sum(cls, parts: Sequence[StagedBatch]) -> StagedBatch:
        """What became of all parts of a batch; no two have a row in common."""
        living = dict[str, BitMap64]()
        for part in parts:
            for path, positions in part.living.items():
                living[path] = living[path] | positions if path in living else positions
        has_rows = any(part.rows is not None for part in parts)
        return cls(
            [file for part in parts for file in part.rows or ()] if has_rows else None,
            living,
            sum(part.missing for part in parts),
            any(part.holds_new for part in parts),
            next((part.credit for part in parts if part.credit is not None), None),
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """Stages changes of one table, in any process.

    Attributes:
        layout: How the files of the table are written.
        index: Files that may hold the rows that go; its columns are the key, or all that are compared without one.
        storage: Where the files are.
        exact: Whether keys that are new upstream are new to the table.
        needs_rows: Whether rows are written even if they are those of the batch.
        new_keys: Looks some of the keys up that are taken for new.
        threads: Threads that look keys up; 0 means one a processor.
    """

    layout: FileLayout
    index: FileIndex
    storage: Storage
    exact: bool
    needs_rows: bool
    new_keys: NewKeySample | None = None
    threads: int = 0

    def run(self, batch: Changes) -> StagedBatch:
        """Look the rows up that a batch replaces or deletes, and write those that it brings.

        Raises:
            TableMismatch, ValueRefused, TransientError: As `TableWriter.apply`.
        """
        match batch:
            case ChangeBatch():
                return self._keyed(batch)
            case KeylessBatch():
                return self._keyless(batch)

    def _keyed(self, batch: ChangeBatch) -> StagedBatch:
        layout, index, storage = self.layout, self.index, self.storage
        name, schema, key = layout.table, layout.schema, index.columns
        check_columns(name, batch.upserts.schema, schema)
        if batch.is_soft and schema.deleted_at is None:
            # Another writer dropped it: rows that are deleted would look alive.
            what = f"Table {name} keeps deleted rows, and has no column _deleted_at of applier any more."
            raise TableMismatch(what, "Load the table again, with `applier load -c FILE --from DIR --tables TABLE`.")
        if self.exact and not batch.is_soft and self.new_keys is not None and self.new_keys.is_there(index, batch):
            return StagedBatch(None, {}, 0, holds_new=True)
        keys = self._sought_keys(batch)
        living = self._living(keys)
        # Every other key that is sought had a row at the stamped resolved ts.
        missing = keys.num_rows - sum(map(len, living.values())) - batch.may_be_new if self.exact else 0
        if self.exact and batch.is_soft:
            again = self._living(conform_keys(name, batch.upserts.filter(batch.fresh), key))
            if self._deleted(again) < sum(map(len, again.values())):
                return StagedBatch(None, {}, 0, holds_new=True)
            # A row that an update or a delete meets as a deleted one was lost.
            missing += self._deleted(living)
            living = {path: np.union1d(living.get(path, _NONE), again.get(path, _NONE)) for path in {**living, **again}}
        absent = [field for field in schema.upstream if field.name not in batch.upserts.column_names]
        traced = row_ids.LINEAGE[:1] if row_ids.are_kept(layout) else ()
        rows = None
        # What an earlier attempt took over from rows of another head may be theirs no more, also where none is left.
        if self.needs_rows or absent or traced:
            upserts, ids = self._carry(batch.upserts, living, absent, traced)
            new = conform(name, upserts, schema, batch.made)
            new = new if ids is None else row_ids.with_ids(new, ids)
            rows = FileWriter(layout, storage).stage(new, batch.deletes.column_names)
        return StagedBatch(rows, _bitmaps(living), missing)

    def _living(self, keys: pa.Table) -> dict[str, Positions]:
        """Positions of the rows of some keys that the table has now, deleted ones that stay among them."""
        index, storage = self.index, self.storage
        found = positions_of(index.candidates(keys), keys, index.columns, storage, self.threads)
        return alive(found, index.files, storage)

    def _deleted(self, living: dict[str, Positions]) -> int:
        """How many of these rows are deleted ones that stay."""
        field = self.layout.schema.deleted_at
        if field is None or not living:
            return 0
        times = read_located(self.storage, self.index.files, living, [field])[field.name]
        return len(times) - times.null_count

    def _sought_keys(self, batch: ChangeBatch) -> pa.Table:
        """Keys whose rows may be in the table: those to delete, and those to upsert unless they are known to be new.

        `batch.fresh` says which are new if the table is exact: it holds just the rows of the stamped resolved ts.
        """
        name, key = self.layout.table, self.index.columns
        deletes, upserts = conform_keys(name, batch.deletes, key), conform_keys(name, batch.upserts, key)
        return pa.concat_tables([deletes, upserts.filter(pc.invert(batch.fresh)) if self.exact else upserts])

    def _carry(
        self, upserts: pa.Table, living: dict[str, Positions], absent: Sequence[Field], traced: Sequence[Field]
    ) -> tuple[pa.Table, Chunks | None]:
        """Add the `absent` columns, those that the images do not hold, with the values of the rows that they replace.

        An absent column is not NULL: the change does not mention it, so the old value stays.
        `living` are positions of the living rows of the batch's keys, in files of the index.

        Returns:
            The upserts, and the ids of the rows that they replace, NULL for new ones; None without any.
        """
        key, index = self.index.columns, self.index
        if not living or not (absent or traced):
            return upserts, None
        old = read_located(self.storage, index.files, living, [*key, *absent, *traced])
        names = [field.name for field in key]
        here = comparable(conform_keys("", upserts, key)).append_column(_HERE, pa.array(np.arange(upserts.num_rows)))
        there = comparable(old.select(names)).append_column(_THERE, pa.array(np.arange(old.num_rows)))
        pairs = here.join(there, names, join_type="inner", use_threads=False)
        places = np.full(upserts.num_rows, -1)
        places[pairs[_HERE].to_numpy()] = pairs[_THERE].to_numpy()
        source = pa.array(places, mask=places < 0)
        for column in absent:
            upserts = upserts.append_column(column.name, old[column.name].take(source))
        ids = [row_ids.inherited(index.files, living, old[each.name]).take(source) for each in traced]
        return upserts, ids[0] if ids else None

    def _keyless(self, batch: KeylessBatch) -> StagedBatch:
        """Find rows that are equal to those that a batch deletes, and write those that it inserts."""
        layout, index, storage = self.layout, self.index, self.storage
        name, schema = layout.table, layout.schema
        own = [field.name for field in schema.upstream]
        brought = conform(name, batch.inserts, schema, batch.made)
        inserts, deletes = keyless.net(brought, conform(name, batch.deletes, schema).select(own))
        rows = FileWriter(layout, storage).stage(inserts, ()) if self.needs_rows else None
        # What other writers put into columns of their own does not distinguish rows of upstream.
        fields = [field for field in schema.upstream if field.name in batch.deletes.column_names]
        deletes = deletes.select([field.name for field in fields])
        found = index.candidates(deletes)
        hits = positions_of(found, deletes, fields, storage, self.threads, form=keyless.canonical)
        living, missing = alive(hits, index.files, storage), deletes.num_rows
        if living:
            images = read_located(storage, index.files, living, fields)
            living, missing = keyless.choose(deletes, images, living)
        return StagedBatch(rows, _bitmaps(living), missing if self.exact else 0)


def stage_where(
    predicate: Callable[[pa.Table], Any], fields: Sequence[Field], storage: Storage, group: Sequence[FileRows]
) -> StagedBatch:
    """Remove the living rows of a group that a predicate names by some fields. It is not asked about dead ones."""
    living = defaultdict[str, BitMap64](BitMap64)
    for part in group:
        for positions, rows in part.living(storage, fields):
            mask: Any = predicate(rows)
            chosen = positions[np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False), bool)]
            if len(chosen):
                living[part.file.file.path] |= BitMap64(chosen)
    return StagedBatch(None, dict(living), 0)


def _bitmaps(living: dict[str, Positions]) -> dict[str, BitMap64]:
    return {path: BitMap64(positions) for path, positions in living.items()}
