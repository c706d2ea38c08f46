"""Stages a folder of recorded Kafka records as one Parquet data set with the columns of messages."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from applier.changefeed.message import MESSAGE_ORDER, MESSAGE_SCHEMA, TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.errors import SourceLost

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
_BATCH_ROWS = 50_000


class _Record(msgspec.Struct, gc=False):
    """One line of an archive; msgspec reads base64 text into bytes."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None = None
    key: bytes | None = None
    value: bytes | None = None


class Archive:
    """Messages of a folder, by topic, partition and offset.

    JSON lines are staged once as Parquet, sorted, so that a step reads the row groups of its window and no more.

    Args:
        folder: Folder with *.jsonl, *.jsonl.gz or *.parquet; a single file is taken as well.
        staging: Empty folder for the staged copy; the caller removes it.

    Raises:
        SourceLost: There is no such folder, it holds no archive, or a line is not a record.
    """

    def __init__(self, folder: Path, staging: Path) -> None:
        files = _files(folder)
        parquet = [str(file) for file in files if file.suffix == ".parquet"]
        lines = [file for file in files if file.suffix != ".parquet"]
        if lines:
            parquet.append(str(_stage(lines, staging / "messages.parquet")))
        self.files = parquet
        self._data = ds.dataset(parquet, format="parquet")

    def bounds(self) -> dict[TopicPartition, OffsetRange]:
        """First offset and end offset (exclusive) of every partition."""
        spans: dict[TopicPartition, OffsetRange] = {}
        grouped = (
            self._data.to_table(columns=["topic", "partition", "offset"])
            .group_by(["topic", "partition"])
            .aggregate([("offset", "min"), ("offset", "max")])
        )
        for row in grouped.to_pylist():
            place = TopicPartition(row["topic"], row["partition"])
            spans[place] = OffsetRange(row["offset_min"], row["offset_max"] + 1)
        return spans

    def offsets_at(self, milliseconds: int) -> dict[TopicPartition, int]:
        """The first offset of each partition whose record is of that Unix time or later, or of no known time."""
        found = {place: span.end for place, span in self.bounds().items()}
        moment = pa.scalar(milliseconds * 1000, pa.timestamp("us", tz="UTC"))
        late = self._data.to_table(
            columns=["topic", "partition", "offset"],
            filter=pc.field("timestamp").is_null() | (pc.field("timestamp") >= moment),
        )
        for row in late.group_by(["topic", "partition"]).aggregate([("offset", "min")]).to_pylist():
            found[TopicPartition(row["topic"], row["partition"])] = row["offset_min"]
        return found

    def collect(self, window: Window) -> pa.Table:
        """The messages of a window: `MESSAGE_SCHEMA`, by topic, partition and offset; one offset counts once."""
        if not window.ranges:
            return MESSAGE_SCHEMA.empty_table()
        found = self._data.to_table(columns=MESSAGE_SCHEMA.names, filter=_expression(window)).cast(MESSAGE_SCHEMA)
        return found.sort_by(MESSAGE_ORDER)


def _files(folder: Path) -> list[Path]:
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


def _expression(window: Window) -> pc.Expression:
    parts = [
        (pc.field("topic") == place.topic)
        & (pc.field("partition") == place.partition)
        & (pc.field("offset") >= span.start)
        & (pc.field("offset") < span.end)
        for place, span in window.ranges.items()
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole | part
    return whole


def _stage(files: list[Path], target: Path) -> Path:
    batches = [batch for file in files for batch in _batches(file)]
    table = pa.Table.from_batches(batches, schema=MESSAGE_SCHEMA)
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.sort_by(MESSAGE_ORDER), target, compression="zstd", row_group_size=_BATCH_ROWS)
    return target


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    decoder = msgspec.json.Decoder(_Record)
    rows: list[_Record] = []
    opener: Any = gzip.open if file.name.endswith(".gz") else open
    with opener(file, "rb") as lines:
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
    columns: list[pa.Array[Any]] = [
        pa.array([row.topic for row in rows], pa.string()),
        pa.array([row.partition for row in rows], pa.int32()),
        pa.array([row.offset for row in rows], pa.int64()),
        pa.array(
            [None if row.timestamp is None else row.timestamp * 1000 for row in rows], pa.timestamp("us", tz="UTC")
        ),
        pa.array([row.key for row in rows], pa.binary()),
        pa.array([row.value for row in rows], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MESSAGE_SCHEMA)
