"""The changes of one table in, one fenced and stamped Iceberg commit out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from applier.changefeed.change_batch import ChangeBatch, KeylessBatch
from applier.changefeed.completeness import NOT_FOUND, Completeness
from applier.changefeed.table import TableName
from applier.errors import TableIncomplete, TableMismatch
from applier.runtime import failpoints
from applier.sink.commit.committer import Committer
from applier.sink.commit.stamp import Stamp
from applier.sink.format.files import DataFile
from applier.sink.format.types import Field
from applier.sink.iceberg.commit import Change
from applier.sink.iceberg.snapshot import MAIN
from applier.sink.iceberg.table import Table
from applier.sink.write import keyless
from applier.sink.write.deletes import Deletes, alive, stage_position_deletes, stage_vectors
from applier.sink.write.engine import ArrowEngine, Engine, EngineName, Limits
from applier.sink.write.file_index import FileIndex, plan
from applier.sink.write.keyed import carry, sought_keys
from applier.sink.write.locate import locate
from applier.sink.write.parquet import Positions
from applier.sink.write.rows import check_columns, conform

Predicate = Callable[[pa.Table], "pa.BooleanArray | pa.ChunkedArray[pa.BooleanScalar]"]
"""Living rows with some columns -> one boolean a row: is it to be deleted?"""

Staged = Callable[[], list[DataFile]]
"""Writes rows to data files that the commit will add."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What one commit did.

    Attributes:
        snapshot_id: The snapshot.
        rows_upserted: Rows added.
        rows_deleted: Living rows that it removed, the replaced versions of updated rows included.
        seconds: Wall seconds of each part: `plan`, `locate`, `rows`, `deletes`, `commit`; repeated parts add up.
        not_found: Rows that the batch updates or deletes and that the table does not hold. 0 where the table is not
            exact.
    """

    snapshot_id: int
    rows_upserted: int
    rows_deleted: int
    seconds: dict[str, float]
    not_found: int = 0


@dataclass(slots=True)
class _Work:
    """One commit on its way: what has been staged, for the head it was planned on.

    Attributes:
        base: Head that the newest attempt was planned on.
        rows: Data files that are staged; good for later attempts too, while the columns stay.
        schema_id: Schema that they were written with.
        upserted: Rows in them.
        deletes: Delete files of the newest attempt.
        deleted: Living rows that they remove.
        seconds: See `Applied`.
        not_found: See `Applied`.
    """

    base: int | None = None
    rows: list[DataFile] | None = None
    schema_id: int | None = None
    upserted: int = 0
    deletes: Deletes = field(default_factory=Deletes)
    deleted: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    not_found: int = 0

    def needs_rows(self, schema_id: int) -> bool:
        """Whether rows must be staged, now that the table has this schema."""
        return self.rows is None or self.schema_id != schema_id

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time spent inside to a part."""
        start = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start


class TableWriter:
    """Writes one Iceberg table under one changefeed. Different tables may be written by different threads at once.

    Every method that writes makes exactly one snapshot, which holds all of the change and the stamp, or none. It may
    be called again with the same arguments after an error; it is not noticed here that a batch was applied before,
    which is told by comparing its resolved ts with `known`.

    Args:
        table: The table, loaded for this writer alone.
        changefeed: The changefeed it belongs to.
        epoch: Epoch of this applier.
        engine: `arrow`, `spark`, or `auto`: Spark above the limits and where Python does not reach the storage.
        spark: The Spark engine; None leaves everything to Arrow.
        limits: What `auto` goes by; the measured ones when absent.

    Raises:
        TableMismatch: The table belongs to another changefeed.
        CheckpointConflict: A newer applier holds it.
    """

    def __init__(
        self,
        table: Table,
        changefeed: str,
        epoch: int,
        engine: EngineName = "auto",
        spark: Engine | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.table = table
        self._committer = Committer(table, changefeed, epoch)
        self._committer.open()
        self._committer.trace()
        self._arrow = ArrowEngine(table)
        self._spark = spark
        self._engine = engine
        self._limits = limits or Limits()
        self._plan: FileIndex | None = None

    @property
    def known(self) -> Stamp | None:
        """Stamp of the table when this writer last looked or wrote."""
        return self._committer.known

    @property
    def head(self) -> int | None:
        """Snapshot that this writer last saw at the head, or wrote."""
        return self._committer.head

    @property
    def plan(self) -> FileIndex | None:
        """Files of that head; None while they are not known."""
        return self._plan if self._plan is not None and self._plan.snapshot_id == self.head else None

    @property
    def own_stamp(self) -> Stamp | None:
        """The table's progress under this applier's epoch; None for a table that nobody has stamped.

        It lacks the extra entries: the commit of a DDL is found by them.
        """
        known, ours = self.known, self._committer
        return None if known is None else Stamp(ours.changefeed, ours.epoch, known.resolved_ts)

    @property
    def rolled_back(self) -> TableMismatch | None:
        """Why the table must not be written on: somebody set it to an older snapshot; None if nobody did."""
        return self._committer.rolled_back

    def look(self) -> None:
        """Read the table again, and notice if somebody else has changed its rows.

        Raises:
            CheckpointConflict: A newer applier holds it.
            TransientError: The catalog does not answer.
        """
        self.table.refresh()
        self._committer.look()

    def reload(self) -> None:
        """Read the table again, after something else (a schema change, maintenance) has written it on purpose."""
        self.table.refresh()
        self._committer.open()

    def apply(
        self, batch: ChangeBatch | KeylessBatch, stamp: Stamp, *, exact: bool, whole: TableName | None = None
    ) -> Applied:
        """Apply a batch.

        Args:
            batch: The changes.
            stamp: What the commit says about itself; its resolved ts covers all rows of the batch.
            exact: Whether the table holds exactly the rows of the resolved ts it is stamped with, so that
                `batch.fresh` may be trusted. False in the first steps after a load or a start in the middle.
            whole: The upstream table, if an exact table must hold every row that the batch updates or deletes.

        Raises:
            TableIncomplete: The table counts as whole, and lacks a row that the batch updates or deletes.
            TableMismatch: The table does not fit the batch, or belongs to somebody else.
            ValueRefused: A value does not fit its column.
            CheckpointConflict: Another applier wrote the table.
            TransientError: Storage or catalog did not answer.
        """
        match batch:
            case ChangeBatch():
                return self._commit(stamp, lambda work, head: self._keyed(work, head, batch, whole, exact=exact))
            case KeylessBatch():
                return self._commit(stamp, lambda work, head: self._keyless(work, head, batch, whole, exact=exact))

    def stamp(self, stamp: Stamp, unset: Sequence[str] = ()) -> Applied:
        """Make a commit that changes no row and only says how far the table is; `unset` are properties to remove."""
        return self._commit(stamp, lambda work, head: None, unset)

    def truncate(self, stamp: Stamp) -> Applied:
        """Remove every row."""
        self._plan = None
        done = self._committer.commit(stamp, lambda _: self._change(stamp, truncate=True))
        return Applied(done, 0, 0, {})

    def delete_where(self, columns: Sequence[str], predicate: Predicate, stamp: Stamp) -> Applied:
        """Remove the rows that a predicate names.

        Args:
            columns: Columns that the predicate needs.
            predicate: Called with some rows at a time.
            stamp: What the commit says about itself.
        """
        return self._commit(stamp, lambda work, head: self._where(work, head, columns, predicate))

    def exchange_where(self, columns: Sequence[str], predicate: Predicate, rows: Staged, stamp: Stamp) -> Applied:
        """Remove the rows that a predicate names, and add others.

        Args:
            columns: Columns that the predicate needs.
            predicate: As in `delete_where`.
            rows: Stages the other rows.
            stamp: What the commit says about itself.
        """

        def stage(work: _Work, head: int | None) -> None:
            if work.needs_rows(self.table.schema.id):
                with work.timed("rows"):
                    work.rows = rows()
                work.upserted, work.schema_id = sum(file.records for file in work.rows), self.table.schema.id
            self._where(work, head, columns, predicate)

        return self._commit(stamp, stage)

    def _commit(self, stamp: Stamp, stage: Callable[[_Work, int | None], None], unset: Sequence[str] = ()) -> Applied:
        work = _Work()
        start = time.perf_counter()

        def prepare(head: int | None) -> Change:
            work.base, work.deletes, work.deleted = head, Deletes(), 0
            stage(work, head)
            failpoints.reach("data-files-staged")
            return replace(self._change(stamp, work), unset=unset)

        snapshot_id = self._committer.commit(stamp, prepare)
        self._advance(work, snapshot_id)
        work.seconds["commit"] = time.perf_counter() - start - sum(work.seconds.values())
        return Applied(snapshot_id, work.upserted, work.deleted, work.seconds, work.not_found)

    def _advance(self, work: _Work, snapshot_id: int) -> None:
        if self._plan is not None and self._plan.snapshot_id == work.base:
            self._plan.advance(snapshot_id, work.rows or (), work.deletes.state)
        else:
            self._plan = None

    def _planned(self, work: _Work, head: int | None, columns: Sequence[Field]) -> FileIndex:
        """The plan of the head. The one in memory is good for it exactly if it is of that snapshot: the fence lets
        nobody slip in between our commits without being noticed.
        """
        with work.timed("plan"):
            kept = self._plan
            if kept is None or kept.snapshot_id != head or kept.columns != tuple(columns):
                kept = self._plan = plan(str(self.table), head, columns, self.table.scan)
        return kept

    def _keyed(
        self, work: _Work, head: int | None, batch: ChangeBatch, whole: TableName | None, *, exact: bool
    ) -> None:
        name, schema = str(self.table), self.table.schema
        check_columns(name, batch.upserts.schema, schema)
        key = self._key(batch.deletes.column_names)
        planned = self._planned(work, head, key)
        # Rows that somebody else added may have a key that is new upstream.
        exact = exact and self._committer.trusts_new_keys
        keys = sought_keys(name, batch, key, exact=exact)
        engine = self._chosen(batch.upserts.num_rows, planned, keys)
        with work.timed("locate"):
            living = alive(engine.locate(planned, keys), planned.files, self._arrow.storage)
        if exact:
            # Every key that is sought had a row at the stamped resolved ts.
            self._note_missing(work, keys.num_rows - sum(len(rows) for rows in living.values()), whole)
        upserts = carry(batch.upserts, schema, key, planned, living, self._arrow)
        if work.needs_rows(schema.id) or upserts is not batch.upserts:
            self._stage(work, engine, conform(name, upserts, schema), batch.deletes.column_names)
        self._delete(work, planned, living)

    def _keyless(
        self, work: _Work, head: int | None, batch: KeylessBatch, whole: TableName | None, *, exact: bool
    ) -> None:
        name, schema = str(self.table), self.table.schema
        inserts, deletes = keyless.net(conform(name, batch.inserts, schema), conform(name, batch.deletes, schema))
        planned = self._planned(work, head, [field for field in schema.fields if not pa.types.is_nested(field.arrow)])
        if work.needs_rows(schema.id):
            self._stage(work, self._chosen(inserts.num_rows), inserts, ())
        with work.timed("locate"):
            chosen, missing = self._located_in_bag(planned, deletes)
        if exact:
            self._note_missing(work, missing, whole)
        self._delete(work, planned, chosen)

    def _located_in_bag(self, planned: FileIndex, deletes: pa.Table) -> tuple[dict[str, Positions], int]:
        fields = self.table.schema.fields
        storage = self._arrow.storage
        candidates = planned.candidates(deletes)
        hits = locate(candidates, deletes, fields, storage, form=keyless.canonical)
        living = alive(hits, planned.files, storage)
        if not living:
            return {}, deletes.num_rows
        return keyless.choose(deletes, self._arrow.read(planned.files, living, fields), living)

    def _note_missing(self, work: _Work, rows: int, whole: TableName | None) -> None:
        work.not_found = max(0, rows)
        if whole is not None and work.not_found:
            what = f"Table {self.table} does not hold {work.not_found} rows that the feed updates or deletes."
            hint = (
                f"{Completeness('incomplete', reason=NOT_FOUND).way_out(whole)} "
                'Set tables.incomplete = "allow" to go on meanwhile: the table is marked as incomplete.'
            )
            raise TableIncomplete(what, hint)

    def _where(self, work: _Work, head: int | None, columns: Sequence[str], predicate: Predicate) -> None:
        fields = self._key(columns)
        planned = self._planned(work, head, fields)
        with work.timed("locate"):
            living = self._arrow.where(planned, fields, predicate)
        self._delete(work, planned, living)

    def _stage(self, work: _Work, engine: Engine, rows: pa.Table, key: Sequence[str]) -> None:
        with work.timed("rows"):
            work.rows, work.upserted = engine.stage(rows, key), rows.num_rows
        work.schema_id = self.table.schema.id

    def _delete(self, work: _Work, planned: FileIndex, living: dict[str, Positions]) -> None:
        stage = stage_vectors if self.table.format_version >= 3 else stage_position_deletes
        with work.timed("deletes"):
            work.deletes = stage(living, planned.files, self._arrow.storage, self.table.data_location)
        work.deleted = sum(len(positions) for positions in living.values())

    def _key(self, names: Sequence[str]) -> tuple[Field, ...]:
        fields = {field.name: field for field in self.table.schema.fields}
        missing = [name for name in names if name not in fields]
        if missing:
            what = f"Table {self.table} has no key column {', '.join(missing)}"
            raise TableMismatch(what, "Drop the table and backfill it.")
        return tuple(fields[name] for name in names)

    def _chosen(self, rows: int, planned: FileIndex | None = None, keys: pa.Table | None = None) -> Engine:
        if self._spark is None or self._engine == "arrow":
            return self._arrow
        if self._engine == "spark" or not self._arrow.reaches_storage or rows >= self._limits.rows:
            return self._spark
        if planned is not None and keys is not None and planned.rows >= self._limits.candidate_rows:
            candidates = sum(candidate.file.records for candidate in planned.candidates(keys))
            if candidates >= self._limits.candidate_rows:
                return self._spark
        return self._arrow

    def _change(self, stamp: Stamp, work: _Work | None = None, *, truncate: bool = False) -> Change:
        staged = work or _Work()
        return Change(
            rows=staged.rows or (),
            deletes=staged.deletes.files,
            replaced=staged.deletes.replaced,
            touched=list(staged.deletes.state),
            truncate=truncate,
            summary=stamp.summary(),
            properties=stamp.entries() if self.table.branch == MAIN else {},
            schema_id=staged.schema_id,
        )
