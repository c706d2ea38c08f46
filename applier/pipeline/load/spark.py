"""Writes files of an export to data files of a table, as one Spark job: a task a part, nothing passes the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from applier.decode.dump.blocks import parts
from applier.decode.dump.export import File
from applier.decode.dump.part_reader import PartReader
from applier.errors import ValueRefused
from applier.pipeline.load.generated import Generated
from applier.pipeline.load.key_order import KeyRange
from applier.sink.format.types import TableSchema
from applier.sink.iceberg.files import DataFile
from applier.sink.iceberg.table import Table
from applier.sink.tidb_partitions.expression import Inexact
from applier.sink.write.rows import conform
from applier.sink.write.spark import quoted, reported, sorted_by, staged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PART_BYTES = 128 << 20
"""Bytes of a file that one task reads: where ends of lines end rows, the parts of a file are read side by side."""

_T = TypeVar("_T")


class Staged(NamedTuple):
    """What a job has written.

    Attributes:
        files: The data files.
        zero_dates: Zero dates that became NULL.
        ranges: The keys of each file of the export, or of each part of it.
    """

    files: list[DataFile]
    zero_dates: int
    ranges: Sequence[KeyRange]


@dataclass(frozen=True, slots=True)
class _Task:
    """Reads the files, or parts of them, whose numbers come, in the columns of the table."""

    reader: PartReader
    generated: Generated
    files: tuple[File, ...]
    table: str
    schema: TableSchema
    refused: Accumulator[list[str]]
    zero_dates: Accumulator[int]
    key: tuple[str, ...]
    ranges: Accumulator[list[KeyRange]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in cast("list[int]", batch.column(0).to_pylist()):
                try:
                    yield from self._read(self.files[number])
                except Inexact as error:
                    self.refused.add(
                        [f"File {self.files[number].name} lacks a stored generated column, and {error}.\n"]
                    )
                except ValueRefused as error:
                    # A task that fails is tried again, and what Spark says of it may hold rows.
                    self.refused.add([f"{error.what}\n{error.hint}"])

    def _read(self, file: File) -> Iterator[pa.RecordBatch]:
        keys = KeyRange()
        for rows, zero_dates in self.reader.read(file):
            self.zero_dates.add(zero_dates)
            if keys.is_rising and self.key:
                keys = keys.then(rows.select(list(self.key)))
            yield from (
                conform(self.table, self.generated.added(rows), self.schema).replace_schema_metadata(None).to_batches()
            )
        self.ranges.add([keys])


class _Lists(AccumulatorParam[list[_T]]):
    def zero(self, value: list[_T]) -> list[_T]:
        return value[:0]

    def addInPlace(self, value1: list[_T], value2: list[_T]) -> list[_T]:  # noqa: N802 - PySpark's name
        return value1 + value2


def stage_files(
    session: SparkSession, catalog: str, table: Table, reader: PartReader, generated: Generated, files: Sequence[File]
) -> Staged:
    """Write the rows of some files to data files that a commit can add, sorted by key.

    Args:
        session: The session.
        catalog: Name of the table's catalog.
        table: The table.
        reader: Reads the files.
        generated: Computes what the files lack.
        files: The files.

    Raises:
        ValueRefused: A file cannot be read, or a value does not fit.
        TransientError: Spark did not come to an end for a reason that may pass.
    """
    name, key = ".".join(quoted(part) for part in (catalog, *table.identifier)), reader.version.key
    context = session.sparkContext
    zero_dates = context.accumulator(0)
    refused: Accumulator[list[str]] = context.accumulator([], _Lists[str]())
    ranges: Accumulator[list[KeyRange]] = context.accumulator([], _Lists[KeyRange]())
    read = tuple(part for file in files for part in parts(file, reader.form, PART_BYTES))
    task = _Task(reader, generated, read, str(table), table.schema, refused, zero_dates, tuple(key), ranges)
    numbers = session.range(0, len(read), 1, len(read))
    with reported(f"load rows of table {table}"):
        frame = numbers.mapInArrow(task, session.table(name).schema)
        if order := sorted_by(table, key):
            frame = frame.sortWithinPartitions(*order)
        written = staged(table, frame)
    if refused.value:
        what, _, hint = min(refused.value).partition("\n")
        raise ValueRefused(what, hint)
    return Staged(written, zero_dates.value, ranges.value)


def has_twice(session: SparkSession, catalog: str, table: Table, key: Sequence[str]) -> bool:
    """Whether two rows of a table have one key, in a job of Spark over hashes of the keys; () is no key."""
    if not key:
        return False
    name = ".".join(quoted(part) for part in (catalog, *table.identifier))
    with reported(f"look for keys of table {table} that come twice"):
        keys = session.table(name).select(*map(quoted, key))
        if _twice(keys.select(F.xxhash64(*keys.columns).alias("hash"))).isEmpty():
            return False
        return not _twice(keys).isEmpty()


def _twice(frame: DataFrame) -> DataFrame:
    numbered = frame.toDF(*map(str, range(len(frame.columns))))  # A column of the key may be named `count`.
    return numbered.groupBy(*map(quoted, numbered.columns)).count().where("count > 1").limit(1)
