"""Writes files of an export to data files of a table, as one Spark job: a task a part, no row passes the JVM."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from applier.decode.dump.blocks import parts
from applier.decode.dump.export import File
from applier.decode.dump.part_reader import PartReader
from applier.errors import ApplierError, OutsideRefused, TransientError, ValueRefused
from applier.pipeline.load.generated import Generated
from applier.pipeline.load.key_order import KeyRange
from applier.runtime.permanent_errors import SPARK, Cause, chain_of, refusal, told
from applier.sink.iceberg.files import DataFile, JavaStorage, storage_for
from applier.sink.iceberg.table import Table
from applier.sink.tidb_partitions.expression import Inexact
from applier.sink.write.file_writer import FileWriter
from applier.sink.write.rows import conform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PART_BYTES = 128 << 20
"""Bytes of a file that one task reads: where ends of lines end rows, the parts of a file are read side by side."""

_HELD_BYTES = 2 * PART_BYTES
"""Bytes of rows in memory that a task sorts and writes at once: those of a part, and some of a file in one part."""

_OF_SYSTEM = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO)))
"""What the operating system says of storage: it knows nothing of rows."""

_OUTCOME = pa.schema({"outcome": pa.binary()})


class Staged(NamedTuple):
    """What a job, or a task of it, has written.

    Attributes:
        files: The data files.
        zero_dates: Zero dates that became NULL.
        ranges: The keys of each file of the export, or of each part of it.
    """

    files: list[DataFile]
    zero_dates: int
    ranges: Sequence[KeyRange]


@dataclass(frozen=True, slots=True)
class LoadTask:
    """Writes the files, or parts of them, whose numbers come, and gives what became of each."""

    reader: PartReader
    generated: Generated
    files: tuple[File, ...]
    writer: FileWriter

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pickled, a `Staged` or an error for each number."""
        for batch in batches:
            for number in cast("list[int]", batch.column(0).to_pylist()):
                outcome = pickle.dumps(self._outcome(self.files[number]))
                yield pa.RecordBatch.from_pylist([{"outcome": outcome}], _OUTCOME)

    def _outcome(self, file: File) -> Staged | ApplierError:
        # A task that fails is tried again, and what Spark says of it may hold rows.
        try:
            return self._staged(file)
        except Inexact as error:
            return ValueRefused(f"File {file.name} lacks a stored generated column, and {error}.")
        except ApplierError as error:
            return error

    def _staged(self, file: File) -> Staged:
        layout, key = self.writer.layout, self.reader.version.key
        files, found, keys = list[DataFile](), 0, KeyRange()
        held, size = list[pa.Table](), 0
        for rows, zero_dates in self.reader.read(file):
            found += zero_dates
            if keys.is_rising and key:
                keys = keys.then(rows.select(list(key)))
            held.append(conform(layout.table, self.generated.added(rows), layout.schema))
            size += held[-1].nbytes
            if size >= _HELD_BYTES:
                files += self.writer.stage(pa.concat_tables(held), key)
                held, size = [], 0
        if held:
            files += self.writer.stage(pa.concat_tables(held), key)
        return Staged(files, found, [keys])


def stage_files(
    session: SparkSession, table: Table, reader: PartReader, generated: Generated, files: Sequence[File]
) -> Staged:
    """Write the rows of some files to data files that a commit can add, sorted by key.

    Args:
        session: The session.
        table: The table.
        reader: Reads the files.
        generated: Computes what the files lack.
        files: The files.

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
    read = tuple(part for file in files for part in parts(file, reader.form, PART_BYTES))
    task = LoadTask(reader, generated, read, FileWriter(table.file_layout, storage))
    numbers = session.range(0, len(read), 1, len(read))
    with reported(f"load rows of table {table}"):
        told = numbers.mapInArrow(task, "outcome binary").toArrow()
    # Tasks run the code of this process with its rights.
    outcomes = [pickle.loads(outcome) for outcome in cast("list[bytes]", told["outcome"].to_pylist())]  # noqa: S301
    if errors := [outcome for outcome in outcomes if isinstance(outcome, ApplierError)]:
        # What cannot pass comes first.
        raise min(errors, key=lambda error: (not isinstance(error, ValueRefused), str(error)))
    return Staged(
        [file for outcome in outcomes for file in outcome.files],
        sum(outcome.zero_dates for outcome in outcomes),
        [keys for outcome in outcomes for keys in outcome.ranges],
    )


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


def quoted(name: str) -> str:
    """A name as Spark's SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


@contextmanager
def reported(action: str) -> Iterator[None]:
    """Raise what a failed job means, without the rows that its own message may hold."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        # PySpark gives errors of tasks that it does not know as Java does. What a failed job says may hold rows.
        chain = [Cause(cause.kind, cause.code, cause.code) for cause in chain_of(error)]
        lasting = refusal(f"Spark cannot {action}", chain, SPARK)
        told_by_system = [said for said in _OF_SYSTEM if said in str(error)]
        reasons = "; caused by: ".join([told(chain), *told_by_system[:1]])
        raise lasting or TransientError(f"Spark cannot {action}: {reasons}") from error
