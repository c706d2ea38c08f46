"""Copies the records of Kafka's Java consumer into Arrow tables, without a call from Python for each record.

Java lays them out in columns (`RecordColumns.java`), which Python reads as the columns that they are: in a file where
this process reads them (`RecordFile.java`), in blocks of bytes where a task does (`TopicReader.java`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from applier.changefeed.message import MESSAGE_SCHEMA, UNREADABLE, PartitionMessages, TopicPartition

_HEAD_BYTES = 400
"""No head is longer: a topic has 249 letters at the most, and the four numbers have ten digits each."""

_ARROW_BYTES = 2**31 - 1
"""Bytes of one array: Arrow's places in it have 31 bits."""


class RecordFile:
    """A file without a name, which Java writes and Python reads: a killed process leaves none behind.

    It is made once, because new files would take a third of the reading time.

    Attributes:
        java: Java's end of it.
    """

    def __init__(self, jvm: Any) -> None:
        handle, path = tempfile.mkstemp(prefix="applier-")
        self._file = os.fdopen(handle, "rb", buffering=0)
        try:
            self.java = jvm.applier.RecordFile(path)
        finally:
            Path(path).unlink()

    def read(self, size: int) -> bytes:
        """So many bytes from the beginning, as they were written since it was reset."""
        self._file.seek(0)
        found = self._file.read(size)
        if len(found) != size:
            msg = f"{len(found)} bytes are left of {size} that were written to a temporary file"
            raise OSError(msg)
        return found

    def close(self) -> None:
        """Let the file go."""
        self._file.close()
        self.java.close()


class _Block(NamedTuple):
    """Records of one partition of one poll, as `RecordColumns.java` lays them out."""

    place: TopicPartition
    records: int
    keys: int
    values: int

    @property
    def size(self) -> int:
        """Bytes of all its columns."""
        return 24 * self.records + self.keys + self.values

    @classmethod
    def headed(cls, words: Sequence[str]) -> _Block:
        """The block that a head describes."""
        topic, *numbers = words
        partition, records, keys, values = map(int, numbers)
        return cls(TopicPartition(topic, partition), records, keys, values)


class KafkaRecords:
    """Records of several polls, collected in a file until they are read; `bytes` is the size of all values.

    The file serves one reader at a time: new records replace its former ones.
    """

    def __init__(self, file: RecordFile) -> None:
        self.bytes = 0
        self._file = file
        self._blocks: list[_Block] = []
        self._unreadable: list[tuple[TopicPartition, int]] = []
        file.java.reset()

    def poll(self, consumer: Any, milliseconds: int) -> dict[TopicPartition, int]:
        """Take what a consumer gives within some time; returns the offset to read next of each partition that it read.

        Raises:
            Py4JJavaError: What Kafka's client raised; an `OutOfMemoryError` also where it is more than one array of
                Arrow holds. Nothing of it is taken then.
        """
        reached = {}
        for line in self._file.java.poll(consumer, milliseconds, _ARROW_BYTES - self.bytes).splitlines():
            *head, position = line.split()
            block = _Block.headed(head)
            self._blocks.append(block)
            self.bytes += block.values
            reached[block.place] = int(position)
        return reached

    def add_unreadable(self, place: TopicPartition, offset: int) -> None:
        """Take the place of a record that does not fit into memory; `UNREADABLE` stands for its value."""
        self._unreadable.append((place, offset))

    def tables(self) -> dict[TopicPartition, pa.Table]:
        """All records, by topic and partition, each in the order of its offsets: `MESSAGE_SCHEMA`."""
        data = memoryview(self._file.read(sum(block.size for block in self._blocks)))
        parts: dict[TopicPartition, list[pa.Table]] = {}
        at = 0
        for block in self._blocks:
            parts.setdefault(block.place, []).append(_table(block, data[at : at + block.size]))
            at += block.size
        for place, offset in self._unreadable:
            parts.setdefault(place, []).append(_unreadable(place, offset))
            parts[place].sort(key=lambda messages: cast("int", messages["offset"][0].as_py()))
        return {place: pa.concat_tables(parts[place]) for place in sorted(parts)}


def block_messages(found: bytes) -> PartitionMessages:
    """What a block of `TopicReader.java` holds: messages of one partition, in place."""
    data = memoryview(found)
    head = bytes(data[:_HEAD_BYTES]).partition(b"\n")[0]
    block = _Block.headed(head.decode().split())
    return block.place, _table(block, data[len(head) + 1 :])


def _table(block: _Block, data: memoryview) -> pa.Table:
    count = block.records
    offsets, times = np.frombuffer(data[: 16 * count], "<i8").reshape(2, count)
    key_sizes, value_sizes = np.frombuffer(data[16 * count : 24 * count], "<i4").reshape(2, count)
    bytes_of_keys, bytes_of_values = data[24 * count : 24 * count + block.keys], data[24 * count + block.keys :]
    rows: dict[str, pa.Array[Any]] = {
        "offset": pa.array(offsets),
        "timestamp": pa.array(times, pa.timestamp("ms", "UTC")),
        "key": _binary(key_sizes, bytes_of_keys),
        "value": _binary(value_sizes, bytes_of_values),
    }
    return _placed(block.place, rows, count)


def _binary(sizes: npt.NDArray[np.int32], data: memoryview) -> pa.Array[Any]:
    ends = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(np.maximum(sizes, 0), out=ends[1:])
    is_there = pa.array(sizes >= 0).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), len(sizes), [is_there, pa.array(ends).buffers()[1], pa.py_buffer(data)])


def _placed(place: TopicPartition, rows: dict[str, pa.Array[Any]], count: int) -> pa.Table:
    topics, partitions = pa.repeat(place.topic, count), pa.array(np.full(count, place.partition, np.int32))
    return pa.table({"topic": topics, "partition": partitions, **rows}).cast(MESSAGE_SCHEMA)


def _unreadable(place: TopicPartition, offset: int) -> pa.Table:
    rows: dict[str, pa.Array[Any]] = {
        "offset": pa.array([offset], pa.int64()),
        "timestamp": pa.nulls(1, pa.timestamp("ms", "UTC")),
        "key": pa.nulls(1, pa.binary()),
        "value": pa.array([UNREADABLE], pa.binary()),
    }
    return _placed(place, rows, 1)
