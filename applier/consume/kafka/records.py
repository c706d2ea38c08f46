"""Copies the records of Kafka's Java consumer into one Arrow table, without a call from Python for each record.

py4j has no lambdas, but Java makes an interface of any method handle: so the JVM itself writes one file for each column
of many records, which Python reads as the columns that they are.
"""

from __future__ import annotations

import os
import tempfile
from functools import reduce
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from applier.changefeed.message import MESSAGE_SCHEMA, UNREADABLE, TopicPartition

_NUMBERS = {"offset": "Long", "timestamp": "Long", "serializedKeySize": "Integer", "serializedValueSize": "Integer"}
_WRITES = {"Long": "writeLong", "Integer": "writeInt"}
_BYTES = ("key", "value")

_ARROW_BYTES = 2**31 - 1
"""Bytes of one array: Arrow's places in it have 31 bits."""

_RECORD = "org.apache.kafka.clients.consumer.ConsumerRecord"


class ColumnWriters:
    """Java's writers of the columns and their files, made once.

    A writer takes a dozen calls to make, and files that come and go take a third of the time of reading.

    Attributes:
        buffers: By column: what was written since it was reset, a `ByteArrayOutputStream`.
        files: By column: where the buffers go.
        writer: Writes all columns of one record; a `java.util.function.Consumer`.
    """

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self.buffers = {name: jvm.java.io.ByteArrayOutputStream() for name in (*_NUMBERS, *_BYTES)}
        self.files = {name: _File(jvm) for name in self.buffers}
        columns = [*(self._number(name, kind) for name, kind in _NUMBERS.items()), *map(self._bytes, _BYTES)]
        invoke = jvm.java.lang.invoke
        writes_all = reduce(invoke.MethodHandles.foldArguments, columns)
        kind = self._class("java.util.function.Consumer")
        self.writer = invoke.MethodHandleProxies.asInterfaceInstance(kind, writes_all)

    def close(self) -> None:
        """Let the files go."""
        for file in self.files.values():
            file.close()

    def _number(self, name: str, kind: str) -> Any:
        """Writes a number of a record."""
        java = self._jvm.java
        number, void = getattr(java.lang, kind).TYPE, java.lang.Void.TYPE
        write = self._handle("java.io.DataOutputStream", _WRITES[kind], void, number)
        stream = java.io.DataOutputStream(self.buffers[name])
        read = self._handle(_RECORD, name, number)
        return java.lang.invoke.MethodHandles.filterReturnValue(read, write.bindTo(stream))

    def _bytes(self, name: str) -> Any:
        """Writes the bytes of a record that has them, out of the buffer in which they came."""
        java, buffer = self._jvm.java, self._class("java.nio.ByteBuffer")
        handles, types = java.lang.invoke.MethodHandles, java.lang.invoke.MethodType
        void, truth = java.lang.Void.TYPE, java.lang.Boolean.TYPE
        some_buffer, anything = types.methodType(void, buffer), self._class("java.lang.Object")
        is_there = handles.publicLookup().findStatic(
            self._class("java.util.Objects"), "nonNull", types.methodType(truth, anything)
        )
        asks = is_there.asType(types.methodType(truth, buffer))
        guarded = handles.guardWithTest(asks, self._write(name, some_buffer), handles.empty(some_buffer))
        read = self._handle(_RECORD, name, anything)
        return handles.filterReturnValue(read.asType(types.methodType(buffer, self._class(_RECORD))), guarded)

    def _write(self, name: str, some_buffer: Any) -> Any:
        """Writes a `ByteBuffer`, which Kafka gives as a slice of its own of what was fetched: it begins at place 0."""
        java = self._jvm.java
        handles, number, array = java.lang.invoke.MethodHandles, java.lang.Integer.TYPE, self._class("[B")
        stream = self.buffers[name]
        write = self._handle("java.io.OutputStream", "write", java.lang.Void.TYPE, array, number, number).bindTo(stream)
        for place, (part, gives) in enumerate((("array", array), ("arrayOffset", number), ("limit", number))):
            write = handles.collectArguments(write, place, self._handle("java.nio.ByteBuffer", part, gives))
        # All three are asked of the one buffer.
        return handles.permuteArguments(write, some_buffer, java.lang.reflect.Array.newInstance(number, 3))

    def _handle(self, owner: str, method: str, gives: Any, *takes: Any) -> Any:
        invoke = self._jvm.java.lang.invoke
        return invoke.MethodHandles.publicLookup().findVirtual(
            self._class(owner), method, invoke.MethodType.methodType(gives, self._jvm.java.util.List.of(*takes))
        )

    def _class(self, name: str) -> Any:
        # Kafka's classes may be known to the loader of Spark's jars alone.
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return self._jvm.java.lang.Class.forName(name, True, loader)


class KafkaRecords:
    """Records of several polls, collected in files until they are read; `bytes` is the size of all values.

    The writers are for one reader at a time, whose records before these are forgotten.
    """

    def __init__(self, writers: ColumnWriters) -> None:
        self.bytes = 0
        self._writers = writers
        self._runs: list[tuple[TopicPartition, int]] = []
        self._unreadable: list[tuple[TopicPartition, int]] = []
        for name, buffer in writers.buffers.items():
            buffer.reset()
            writers.files[name].reset()

    def add(self, polled: Any) -> list[TopicPartition]:
        """Take what a poll gave, Java's `ConsumerRecords`; returns the partitions that it is of.

        Raises:
            MemoryError: It is more than one array of Arrow holds. Nothing of it is taken.
        """
        if polled.isEmpty():
            return []
        for buffer in self._writers.buffers.values():
            buffer.reset()  # A poll before it may have failed half way.
        # A poll's records come partition by partition, in this order.
        java_places = list(polled.partitions().toArray())
        places = [TopicPartition(place.topic(), place.partition()) for place in java_places]
        polled.forEach(self._writers.writer)
        if self.bytes + self._writers.buffers["value"].size() > _ARROW_BYTES:
            raise MemoryError
        self._runs += zip(places, [polled.records(place).size() for place in java_places], strict=True)
        self.bytes += self._writers.buffers["value"].size()
        for name, buffer in self._writers.buffers.items():
            self._writers.files[name].take(buffer)
            buffer.reset()
        return places

    def add_unreadable(self, place: TopicPartition, offset: int) -> None:
        """Take the place of a record that does not fit into memory; `UNREADABLE` stands for its value."""
        self._unreadable.append((place, offset))

    def tables(self) -> dict[TopicPartition, pa.Table]:
        """All records, by topic and partition, each in the order of its offsets: `MESSAGE_SCHEMA`."""
        columns: dict[str, pa.Array[Any]] = {
            "offset": pa.array(self._numbers("offset", ">i8")),
            "timestamp": pa.array(self._numbers("timestamp", ">i8"), pa.timestamp("ms", "UTC")),
            "key": self._values("key"),
            "value": self._values("value"),
        }
        ends = np.cumsum([count for _, count in self._runs], dtype=np.int64)
        parts: dict[TopicPartition, list[pa.Table]] = {}
        # Sorting is stable, and the runs of a partition came in the order of its offsets.
        for (place, count), end in sorted(zip(self._runs, ends.tolist(), strict=True), key=lambda run: run[0][0]):
            rows = {name: column.slice(end - count, count) for name, column in columns.items()}
            parts.setdefault(place, []).append(_placed(place, rows, count))
        for place, offset in self._unreadable:
            parts.setdefault(place, []).append(_unreadable(place, offset))
            parts[place].sort(key=lambda messages: cast("int", messages["offset"][0].as_py()))
        return {place: pa.concat_tables(tables) for place, tables in parts.items()}

    def _numbers(self, name: str, kind: str) -> npt.NDArray[np.int64]:
        return np.frombuffer(self._writers.files[name].read(), kind).astype(np.int64)

    def _values(self, name: str) -> pa.Array[Any]:
        sizes = self._numbers(f"serialized{name.capitalize()}Size", ">i4")
        ends = np.zeros(len(sizes) + 1, np.int32)
        np.cumsum(np.maximum(sizes, 0), out=ends[1:])
        is_there, places = pa.array(sizes >= 0).buffers()[1], pa.array(ends).buffers()[1]
        return pa.Array.from_buffers(
            pa.binary(), len(sizes), [is_there, places, pa.py_buffer(self._writers.files[name].read())]
        )


class _File:
    """A file without a name, which Java writes and Python reads: a killed process leaves none behind."""

    def __init__(self, jvm: Any) -> None:
        handle, path = tempfile.mkstemp(prefix="applier-")
        self._file = os.fdopen(handle, "rb", buffering=0)
        self._size = 0
        try:
            self._java = jvm.java.io.FileOutputStream(path)
        finally:
            Path(path).unlink()

    def reset(self) -> None:
        """Begin anew, in the place that the file has."""
        self._size = 0
        self._java.getChannel().position(0)

    def take(self, buffer: Any) -> None:
        """Append what is in a buffer."""
        self._size += buffer.size()
        buffer.writeTo(self._java)

    def read(self) -> bytes:
        """All that was written since the beginning."""
        self._file.seek(0)
        found = self._file.read(self._size)
        if len(found) != self._size:
            msg = f"{len(found)} bytes are left of {self._size} that were written to a temporary file"
            raise OSError(msg)
        return found

    def close(self) -> None:
        """Let the file go."""
        self._file.close()
        self._java.close()


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
