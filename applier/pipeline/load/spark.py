"""Writes files of an export to data files of a table, as one Spark job: a task a part, no row passes the JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from applier.changefeed.change_batch import Provenance
from applier.decode.dump.export import File
from applier.decode.dump.part_reader import PartReader
from applier.decode.tidb.range_reader import RangeReader
from applier.decode.tidb.table_ranges import TableRange
from applier.errors import OutsideRefused, ValueRefused
from applier.pipeline.load.generated import Generated
from applier.pipeline.load.key_order import KeyRange
from applier.runtime.tasks.spark import map_in_tasks, reported
from applier.sink.format.renaming import Renaming
from applier.sink.format.types import Chunks, repeated
from applier.sink.iceberg.files import DataFile, JavaStorage
from applier.sink.iceberg.table import Table, storage_for
from applier.sink.tidb_partitions.expression import Inexact
from applier.sink.write.file_writer import FileWriter, conform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PART_BYTES = 128 << 20
"""Bytes of a file that one task reads: where ends of lines end rows, the parts of a file are read side by side."""

_HELD_BYTES = 2 * PART_BYTES
"""Bytes of rows in memory that a task sorts and writes at once: those of a part, and some of a file in one part."""


Reader: TypeAlias = "PartReader | RangeReader"

Part: TypeAlias = "File | TableRange"


class Staged(NamedTuple):
    """What a job, or a task of it, has written.

    Attributes:
        zero_dates: Zero dates that became NULL.
        ranges: The keys of each file of the export, or of each part of it.
    """

    files: list[DataFile]
    zero_dates: int
    ranges: Sequence[KeyRange]


@dataclass(frozen=True, slots=True)
class LoadTask:
    """Writes a file of an export, a part of one, or a range of a TiDB, in any process."""

    reader: Reader
    generated: Generated
    writer: FileWriter
    tso: int

    def __call__(self, file: Any) -> Staged:
        """What it has written.

        Raises:
            ValueRefused, TransientError: As `stage_files`.
        """
        try:
            return self._staged(file)
        except Inexact as error:
            raise ValueRefused(f"File {file.name} lacks a stored generated column, and {error}.") from None

    def _staged(self, file: Any) -> Staged:
        layout, name, key = self.writer.layout, self.reader.version.name, self.reader.version.key
        admitting = self.reader.rules.shape_of(name).filter
        files, found, keys = list[DataFile](), 0, KeyRange()
        held, size = list[pa.Table](), 0
        for rows, zero_dates in self.reader.read(file):
            found += zero_dates
            if keys.is_rising and key:
                keys = keys.then(rows.select(list(key)))
            rows = self.generated.added(rows)  # noqa: PLW2901 - what is loaded of them
            rows = rows if admitting is None else admitting.of(str(name), rows)  # noqa: PLW2901 - the same
            made = Provenance(str(name), *self._loaded(rows.num_rows))
            held.append(conform(layout.table, rows, layout.schema, made))
            size += held[-1].nbytes
            if size >= _HELD_BYTES:
                files += self.writer.stage(pa.concat_tables(held), key)
                held, size = [], 0
        if held:
            files += self.writer.stage(pa.concat_tables(held), key)
        return Staged(files, found, [keys])

    def _loaded(self, count: int) -> tuple[Chunks, Chunks]:
        """Commit ts and kinds of rows that a load brings: no row has changed after its TSO."""
        return repeated(pa.scalar(self.tso, pa.int64()), count), repeated(pa.scalar(None, pa.int8()), count)


def stage_files(
    session: SparkSession, table: Table, reader: Reader, generated: Generated, files: Sequence[Any], tso: int
) -> Staged:
    """Write the rows of some files, which are as of a TSO, to data files that a commit can add, sorted by key.

    Raises:
        ValueRefused: A file cannot be read, or a value does not fit.
        OutsideRefused: Python does not reach the storage of the table, or may not write there.
        TransientError: Spark or the storage failed for a reason that may pass.
    """
    storage = storage_for(table)
    if isinstance(storage, JavaStorage):
        what = f"Table {table} cannot be loaded: Python does not reach its files at {table.location}."
        hint = "Install the package that PyIceberg needs for them, set its properties under [catalog], and load again."
        raise OutsideRefused(what, hint)
    read = [part for file in files for part in reader.parts(file, PART_BYTES)]
    task = LoadTask(reader, generated, FileWriter(table.file_layout, storage), tso)
    outcomes = map_in_tasks(session, f"load rows of table {table}", task, read)
    return Staged(
        [file for outcome in outcomes for file in outcome.files],
        sum(outcome.zero_dates for outcome in outcomes),
        [keys for outcome in outcomes for keys in outcome.ranges],
    )


def has_twice(session: SparkSession, catalog: str, table: Table, key: Sequence[str]) -> bool:
    """Whether two rows of a table have one key, in a job of Spark over hashes of the keys; () is no key."""
    if not key:
        return False
    name, named = ".".join(quoted(part) for part in (catalog, *table.identifier)), Renaming.of(table.schema)
    with reported(f"look for keys of table {table} that come twice"):
        keys = session.table(name).select(*(quoted(named(column)) for column in key))
        if _twice(keys.select(F.xxhash64(*keys.columns).alias("hash"))).isEmpty():
            return False
        return not _twice(keys).isEmpty()


def _twice(frame: DataFrame) -> DataFrame:
    numbered = frame.toDF(*map(str, range(len(frame.columns))))  # A column of the key may be named `count`.
    return numbered.groupBy(*map(quoted, numbered.columns)).count().where("count > 1").limit(1)


def quoted(name: str) -> str:
    """A name as Spark's SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"
