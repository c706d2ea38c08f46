"""Stages a folder of recorded Kafka records as one Parquet data set with the columns of messages."""

from __future__ import annotations

import gzip
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from applier.changefeed.message import (
    MESSAGE_ORDER,
    MESSAGE_SCHEMA,
    Messages,
    PartitionMessages,
    TopicPartition,
    by_place,
)
from applier.changefeed.window import OffsetRange, Window
from applier.errors import OutsideRefused, SourceLost, reason_of

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
_BATCH_ROWS = 50_000
_PLACES = ["topic", "partition", "offset"]


class _Record(msgspec.Struct, gc=False):
    """One line of an archive; msgspec reads base64 text into bytes."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None = None
    key: bytes | None = None
    value: bytes | None = None


class Archive:
    """Messages of a folder with *.jsonl, *.jsonl.gz or *.parquet, or of one such file.

    JSON lines are staged once as Parquet, sorted, so that a step reads the row groups of its window and no more. The
    caller removes the folder for that copy.

    Raises:
        SourceLost: There is no such folder, it holds no archive, or a line is not a record; every method, if a file is
            gone, or damaged.
    """

    def __init__(self, folder: Path, staging: Path) -> None:
        files = files_of(folder)
        self.files = [str(file) for file in files if file.suffix == ".parquet"]
        if lines := [file for file in files if file.suffix != ".parquet"]:
            self.files.append(str(_stage(lines, staging / "messages.parquet")))
        self._folder = folder
        with _read(folder):
            self._data = ds.dataset(self.files, format="parquet")

    def _table(self, columns: Sequence[str], where: pc.Expression | None = None) -> pa.Table:
        try:
            with _read(self._folder):
                return self._data.to_table(columns=list(columns), filter=where)
        except SourceLost:
            for file in map(Path, self.files):
                with _read(file), pq.ParquetFile(file) as parquet:
                    deque(parquet.iter_batches(), maxlen=0)  # The file that cannot be read is named.
            raise

    def bounds(self, where: pc.Expression | None = None) -> dict[TopicPartition, OffsetRange]:
        """See `Source`; of some messages alone where an expression says which."""
        rows = self._table(_PLACES, where).group_by(_PLACES[:2])
        return {
            TopicPartition(row["topic"], row["partition"]): OffsetRange(row["offset_min"], row["offset_max"] + 1)
            for row in rows.aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
        }

    def resolved(self, read: Mapping[TopicPartition, int], applied: int) -> None:
        """See `Source`; messages show it."""

    def offsets_at(self, milliseconds: int) -> dict[TopicPartition, int]:
        """See `Source`."""
        moment = pa.scalar(milliseconds * 1000, pa.timestamp("us", tz="UTC"))
        late = pc.field("timestamp").is_null() | (pc.field("timestamp") >= moment)
        ends = {place: span.end for place, span in self.bounds().items()}
        return ends | {place: span.start for place, span in self.bounds(late).items()}

    def collect(self, window: Window) -> Messages:
        """See `Source`."""
        return _messages(self._table(MESSAGE_SCHEMA.names, _inside(window)))

    read = collect

    def chunks(self, window: Window) -> Iterator[Messages]:
        """See `Source`; a partition at a time."""
        return (self.collect(part) for part in partitions(window))


def partitions(window: Window) -> list[Window]:
    """A window for each partition.

    Files and row groups cut partitions anywhere. Two tasks would each count a part of a run of keyless rows, and a file
    read too early would make rows look as if they had been sent again: rows would be lost.
    """
    return [Window({place: span}) for place, span in sorted(window.ranges.items())]


def in_windows(files: Sequence[str], windows: Iterable[Window]) -> Iterator[PartitionMessages]:
    """The messages of some windows, which a task of Spark reads from the files of an archive.

    Raises:
        SourceLost: A file is gone, or damaged.
    """
    with _read(Path(files[0]).parent):
        data = ds.dataset(files, format="parquet")
        for window in windows:
            yield from _messages(data.to_table(columns=MESSAGE_SCHEMA.names, filter=_inside(window))).items()


def _messages(found: pa.Table) -> Messages:
    return dict(by_place(found.cast(MESSAGE_SCHEMA).sort_by(MESSAGE_ORDER)))


def _inside(window: Window) -> pc.Expression:
    parts = (
        (pc.field("topic") == place.topic)
        & (pc.field("partition") == place.partition)
        & (pc.field("offset") >= span.start)
        & (pc.field("offset") < span.end)
        for place, span in window.ranges.items()
    )
    return reduce(or_, parts, pc.field("offset") < 0)


def files_of(folder: Path) -> list[Path]:
    """The files of an archive, sorted. Raises SourceLost if there are none."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise SourceLost(
            f"The archive {folder} does not exist.", "give source.archive the folder of the recorded messages."
        )
    files = sorted(file for file in folder.iterdir() if file.name.endswith(SUFFIXES))
    if not files:
        hint = "it needs files that end in .jsonl, .jsonl.gz or .parquet."
        raise SourceLost(f"The archive {folder} holds no recorded messages.", hint)
    return files


def _stage(files: list[Path], target: Path) -> Path:
    batches = [batch for file in files for batch in _batches(file)]
    table = pa.Table.from_batches(batches, schema=MESSAGE_SCHEMA)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.sort_by(MESSAGE_ORDER), target, compression="zstd", row_group_size=_BATCH_ROWS)
    except OSError as error:
        hint = "applier keeps temporary files there; set TMPDIR to a folder with rights and space."
        raise OutsideRefused(f"Cannot write {target}: {reason_of(error)}.", hint) from error
    return target


@contextmanager
def _read(file: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        # Arrow gives no error of the system for what it cannot decode.
        is_damaged = isinstance(error, EOFError) or (isinstance(error, OSError) and error.errno is None)
        reason = "it is damaged" if is_damaged else reason_of(error)
        hint = "replace the file, or take it out of source.archive if its messages are not needed."
        raise SourceLost(f"Cannot read {file} of the archive: {reason}.", hint) from error


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    decoder = msgspec.json.Decoder(_Record)
    rows: list[_Record] = []
    opener: Any = gzip.open if file.name.endswith(".gz") else open
    with _read(file), opener(file, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                rows.append(decoder.decode(line))
            except msgspec.MsgspecError as error:
                hint = (
                    "a line is one Kafka record as JSON: topic, partition, offset, timestamp, key and value in base64."
                )
                raise SourceLost(f"Line {number} of {file.name} is not a recorded message: {error}.", hint) from error
            if len(rows) == _BATCH_ROWS:
                yield _batch(rows)
                rows = []
    yield _batch(rows)


def _batch(rows: list[_Record]) -> pa.RecordBatch:
    columns: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in MESSAGE_SCHEMA.names}
    times = pa.array(columns["timestamp"], pa.timestamp("ms", tz="UTC"))
    return pa.RecordBatch.from_pydict(columns | {"timestamp": times}, schema=MESSAGE_SCHEMA)
