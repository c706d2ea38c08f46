"""A control table: rows are appended, fenced, and the newest are read without the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

import pyarrow as pa

from applier.errors import TableMismatch, TransientError
from applier.runtime.logs import logger
from applier.sink.commit.committer import Committer
from applier.sink.commit.stamp import Stamp
from applier.sink.control.tables import ControlTable
from applier.sink.format.storage import read_each
from applier.sink.iceberg.catalog import Catalog, Identifier, JavaError
from applier.sink.iceberg.commit import Change
from applier.sink.iceberg.maintenance import data_files, expire
from applier.sink.iceberg.table import Table, storage_for
from applier.sink.write.file_index import read_index
from applier.sink.write.file_writer import FileWriter, conform
from applier.sink.write.parquet import ParquetSource

FOLD_FILES = 100
"""Data files from which on an append writes one file in place of all: a plan has to open a manifest for each."""

KEEP_ROWS = 10_000
"""Rows that a fold keeps where the table is a journal: a week of steps at one a minute."""

KEEP_MINUTES = 10
"""Age at which a fold drops snapshots. Readers of control tables are short, and metadata grows with each snapshot."""

FORMAT_VERSION = 2
"""Control tables hold nothing that needs format 3, so readers of any age may have them."""

FIRST = "applier.first"
"""Property of a table that was made with its changefeed; one that takes the place of a lost one has it not."""

NEWEST = "applier.newest-file"
"""Property: the data file of the newest append."""


class AppendOnlyTable:
    """An Iceberg table that is only ever appended to; one thread at a time.

    A fold keeps the rows with the highest values of the column `ControlTable.order`, or all rows if that is "".
    What a journal of steps has appended since its last fold stays in memory: all tables wait for a fold, and storage
    elsewhere takes its time for each file.

    Raises:
        TableMismatch: The table has other columns.
    """

    def __init__(self, table: Table, kind: ControlTable) -> None:
        kind.check(table, table.schema)
        self.table = table
        # It is written beside the steps, and a heartbeat must not wait for the clock.
        table.is_in_cuts = False
        self._order = kind.order
        self._own: dict[str, pa.Table] = {}

    @staticmethod
    def open(
        catalog: Catalog, namespace: tuple[str, ...], kind: ControlTable, *, is_first: bool = False
    ) -> AppendOnlyTable:
        """The ledger of that name, which is created if it is missing; it says so if it is the first of its changefeed.

        Raises:
            TableMismatch: There is a table of that name with other columns.
            TransientError: The catalog does not answer.
        """
        identifier = (*namespace, kind.name)
        found = catalog.load(identifier) or _create(catalog, identifier, kind.columns, is_first=is_first)
        return AppendOnlyTable(found, kind)

    @property
    def is_lost(self) -> bool:
        """Whether the table was made anew in place of one that was lost, and nothing is in it yet."""
        return self.table.snapshot_id is None and self.table.setting(FIRST) is None

    @property
    def size(self) -> int:
        """Its rows, as of the last refresh or append."""
        figures = self.table.figures
        return 0 if figures is None else figures.rows

    def append(self, rows: pa.Table, stamp: Stamp, check: Callable[[Table], None] = lambda table: None) -> int:
        """Append rows in one commit, and return the id of its snapshot.

        `check` gets the table as it is before each attempt, and raises to give up.

        Raises:
            CheckpointConflict: A later epoch has written.
            TransientError: Catalog or storage did not answer.
        """
        self.table.refresh()
        check(self.table)
        committer = Committer(self.table, stamp.changefeed, stamp.epoch)
        committer.open(traced=False)
        is_fold = data_files(self.table) >= FOLD_FILES
        for attempt in committer.attempts(stamp):
            with attempt:
                check(self.table)
                committer.send(self._change(rows, stamp, is_fold=is_fold))
        if is_fold:
            self._own.clear()
            self._expire()
        return committer.made

    def newest(self) -> pa.Table:
        """Rows of the newest append; more where it was a fold, all where maintenance has removed its file."""
        path = self.table.setting(NEWEST)
        if self.table.snapshot_id is None:
            return self._empty()
        if path is not None:
            try:
                return self._read({path: None})
            except TransientError:
                self.table.refresh()
        return self.rows()

    def rows(self, without: Collection[str] = ()) -> pa.Table:
        """All rows, in no order, without some columns."""
        head = self.table.snapshot_id
        files = read_index(str(self.table), head, (), self.table.scan).files
        if any(indexed.file.deletes for indexed in files.values()):
            what = f"Rows of control table {self.table} were deleted by position"
            raise TableMismatch(what, "Run rewrite_data_files with delete-file-threshold 1 on it once.")
        if not files:
            return self._empty().drop_columns(list(without))
        return self._read({path: indexed.file.size for path, indexed in files.items()}, without)

    def _change(self, rows: pa.Table, stamp: Stamp, *, is_fold: bool) -> Change:
        writer = FileWriter(self.table.file_layout, storage_for(self.table))
        conformed = conform(str(self.table), rows, self.table.schema)
        (file,) = writer.stage(conformed, ())
        kept = writer.stage(self._kept(), ()) if is_fold else []
        if self._order:
            self._own[file.path] = conformed
        properties = stamp.entries() | {NEWEST: file.path}
        return Change(rows=[*kept, file], summary=stamp.entries(), properties=properties, replace=is_fold)

    def _kept(self) -> pa.Table:
        rows = self.rows()
        return rows.sort_by([(self._order, "descending")]).slice(0, KEEP_ROWS) if self._order else rows

    def _read(self, sizes: Mapping[str, int | None], without: Collection[str] = ()) -> pa.Table:
        storage = storage_for(self.table)
        fields = [field for field in self.table.schema.fields if field.name not in without]
        kept = pa.schema([column for column in self.table.schema.arrow if column.name not in without])

        def read(path: str) -> pa.Table:
            if (own := self._own.get(path)) is not None:
                return own.select(kept.names)
            with ParquetSource(storage, path, sizes[path]) as source:
                return pa.concat_tables([source.read(group, fields) for group in range(len(source.group_rows))])

        # Columns of files allow NULL whatever the table says.
        return pa.concat_tables([rows.cast(kept) for rows in read_each(storage, read, list(sizes))])

    def _expire(self) -> None:
        try:
            expire(self.table, int((time.time() - KEEP_MINUTES * 60) * 1000), keep=2)
        except JavaError as error:
            # The rows are committed, and the next fold expires what this one left.
            logger().warning("snapshots not expired", table=str(self.table), because=error.what)

    def _empty(self) -> pa.Table:
        return self.table.schema.arrow.empty_table()


def _create(catalog: Catalog, identifier: Identifier, columns: pa.Schema, *, is_first: bool) -> Table:
    properties = {
        **({FIRST: "true"} if is_first else {}),
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "20",
        "comment": "State of applier. Reading is welcome; writing stops the changefeed.",
    }
    try:
        return catalog.create(identifier, columns, properties=properties, format_version=FORMAT_VERSION)
    except JavaError as error:
        found = catalog.load(identifier) if error.kind == "AlreadyExistsException" else None
        if found is None:
            raise
        return found
