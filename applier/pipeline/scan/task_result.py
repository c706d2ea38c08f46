"""What a row pass found: as rows that travel from Spark's tasks to the driver, and as one object there."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from applier import errors
from applier.changefeed.event import SchemaChange
from applier.changefeed.message import Position, TopicPartition
from applier.changefeed.table import TableName, TableVersion
from applier.consume.window_size import WindowTooLargeError
from applier.order.barrier import Barrier

FINDING_DDL = (
    "kind string, database string, `table` string, version bigint, segment int, "
    "topic string, `partition` int, offset bigint, ts bigint, count bigint, payload binary"
)
"""`RESULT_SCHEMA` as Spark reads it."""

RESULT_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("database", pa.string()),
        ("table", pa.string()),
        ("version", pa.int64()),
        ("segment", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("ts", pa.int64()),
        ("count", pa.int64()),
        ("payload", pa.binary()),
    ]  # type: ignore[arg-type]  # the stubs know no list of fields of several types
)
"""What tasks hand back: one row per finding; `kind` says which, and columns that it has no use for are null."""


@dataclass(frozen=True, slots=True)
class Part:
    """Reduced rows of one table version and segment, from one task.

    Attributes:
        version: The version they are written in, with the types that count.
        rows: Columns of `KEYED_SCHEMA` or `KEYLESS_SCHEMA`, and `c.<column>` for the table's own.
        topic: Topic that they were read from.
    """

    version: TableVersion
    rows: pa.Table
    topic: str = ""

    @property
    def first_ts(self) -> int | None:
        """Lowest commit ts of its rows; None if it has none."""
        column = "m.first_ts" if "m.first_ts" in self.rows.column_names else "m.ts"
        found: int | None = pc.min(self.rows[column]).as_py()
        return found


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows whose table version is not known yet; nothing at or above `commit_ts` may be applied."""

    name: TableName
    version: int
    commit_ts: int
    rows: int
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class BadMessage:
    """A message that cannot be decoded, or whose row does not fit its table.

    Attributes:
        partition: Its partition.
        offset: Its offset.
        error: Why.
        tables: Tables that its rows may be of; () where nothing shows them.
    """

    partition: TopicPartition
    offset: int
    error: errors.DecodeError
    tables: tuple[TableName, ...] = ()


@dataclass(slots=True)
class TaskResult:
    """What one row pass found, over all its tasks.

    Attributes:
        parts: Reduced rows by table and segment.
        barriers: DDL messages, copies and those above the watermark included.
        versions: Table versions that messages brought.
        topics: The topic of each table, as its rows and BOOTSTRAP messages show it.
        read: Messages per partition.
        resolved: Highest resolved ts per partition.
        held: Lowest offset per partition that is not applied at the watermark and must be read again.
        waiting: Rows without a known version.
        bad: Messages that could not be used.
        counts: `messages`, their `bytes`, `rows` (to apply), `replayed`, `left` (above the watermark), `excluded`,
            `zero_dates`.
    """

    parts: dict[tuple[TableName, int], list[Part]] = field(default_factory=dict)
    barriers: list[Barrier] = field(default_factory=list)
    versions: dict[tuple[TableName, int], TableVersion] = field(default_factory=dict)
    topics: dict[TableName, str] = field(default_factory=dict)
    read: dict[TopicPartition, int] = field(default_factory=dict)
    resolved: dict[TopicPartition, int] = field(default_factory=dict)
    held: dict[TopicPartition, int] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    bad: list[BadMessage] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def lowest(self) -> dict[TableName, int]:
        """The lowest commit ts of the rows of each table."""
        found: dict[TableName, int] = {}
        for (name, _), parts in self.parts.items():
            for part in parts:
                if (at := part.first_ts) is not None:
                    found[name] = min(at, found.get(name, at))
        return found

    def add(self, row: Mapping[str, Any]) -> None:
        """Take one row of `RESULT_SCHEMA`.

        Raises:
            TransientError: The task that found it could not go on; the pass must be run again.
            WindowTooLargeError: The task met more bytes than a step may read.
        """
        place = TopicPartition(row["topic"], row["partition"])
        name = TableName(row["database"], row["table"])
        match row["kind"]:
            case "rows":
                version, rows = _split(row["payload"])
                self.parts.setdefault((name, row["segment"]), []).append(Part(version, rows, place.topic))
                self.topics[name] = place.topic
            case "version":
                self._add_version(name, row)
            case "ddl":
                self.barriers.append(_barrier(row))
            case "resolved":
                self.resolved[place] = max(row["ts"], self.resolved.get(place, 0))
            case "held":
                self.held[place] = min(row["offset"], self.held.get(place, row["offset"]))
            case "waiting":
                self.waiting.append(Waiting(name, row["version"], row["ts"], row["count"], place))
            case "bad":
                error = cast("errors.DecodeError", _error(row["payload"]))
                self.bad.append(BadMessage(place, row["offset"], error, _tables(row["payload"])))
            case "transient" | "too_large" as kind:
                raise _error(row["payload"]) if kind == "transient" else WindowTooLargeError(row["ts"], row["count"])
            case "count":
                self._add_count(place, row)
            case unknown:
                msg = f"no finding is of kind {unknown!r}"
                raise ValueError(msg)

    def _add_count(self, place: TopicPartition, row: Mapping[str, Any]) -> None:
        self.counts[row["table"]] = self.counts.get(row["table"], 0) + row["count"]
        if row["table"] == "messages":
            self.read[place] = self.read.get(place, 0) + row["count"]

    def _add_version(self, name: TableName, row: Mapping[str, Any]) -> None:
        self.versions[name, row["version"]] = TableVersion.from_json(bytes(row["payload"]).decode())
        # A RENAME carries the table under its new name, but goes to the topic of the old one.
        if row["count"]:
            self.topics[name] = row["topic"]


def collect(rows: pa.Table) -> TaskResult:
    """Findings of all tasks of one pass, from rows of `RESULT_SCHEMA`."""
    found = TaskResult()
    others = rows.drop_columns("payload").to_pylist()
    for row, payload in zip(others, _payloads(rows["payload"]), strict=True):
        found.add({**row, "payload": payload})
    return found


def finding(
    kind: str, *, name: TableName | None = None, place: TopicPartition | None = None, **more: Any
) -> dict[str, Any]:
    """One row of `RESULT_SCHEMA`."""
    row: dict[str, Any] = {"kind": kind, **more}
    if name is not None:
        row |= {"database": name.database, "table": name.table}
    if place is not None:
        row |= {"topic": place.topic, "partition": place.partition}
    return row


def finding_batch(*rows: Mapping[str, Any]) -> pa.RecordBatch:
    """Rows of `RESULT_SCHEMA`."""
    return pa.RecordBatch.from_pylist(list(rows), schema=RESULT_SCHEMA)


def rows_batch(name: TableName, version: TableVersion, rows: pa.Table, segment: int, topic: str) -> pa.RecordBatch:
    """A batch of one `rows` finding, whose payload is an Arrow IPC stream with the table version in its schema."""
    place = TopicPartition(topic, 0)
    batch = finding_batch(finding("rows", name=name, place=place, segment=segment, count=rows.num_rows))
    rows = rows.replace_schema_metadata({_VERSION: version.to_json().encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    # There may be much of it. As bytes it would be copied twice, and as a view of the buffer pyarrow never lets it go.
    stream = sink.getvalue()
    ends = pa.array([0, stream.size], pa.int32()).buffers()[1]
    payload = pa.Array.from_buffers(pa.binary(), 1, [None, ends, stream])
    return batch.set_column(RESULT_SCHEMA.get_field_index("payload"), "payload", payload)


def ddl_payload(change: SchemaChange, index: int) -> bytes:
    """Payload of a `ddl` finding."""
    return json.dumps(
        {
            "sql": change.sql,
            "database": change.database,
            "after": change.after.to_json() if change.after else None,
            "before": change.before.to_json() if change.before else None,
            "index": index,
        }
    ).encode()


def error_payload(error: errors.ApplierError, tables: Collection[TableName] = ()) -> bytes:
    """Payload of a `bad` or `transient` finding, with the tables that it concerns."""
    named = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
    return json.dumps({"type": named.__name__, "args": error.args, "tables": sorted(tables)}).encode()


_VERSION = b"applier.table-version"

_ALIGNED = 64
"""Bytes that Arrow's columns are aligned to."""


def _payloads(column: pa.ChunkedArray[pa.BinaryScalar]) -> Iterator[pa.Buffer | None]:
    """Each payload where it is, as there may be much of it; or a copy where no column could be read in place."""
    # Spark may be set to give types of other sizes.
    for chunk in filter(len, column.cast(pa.binary()).chunks):
        _, places, data = chunk.buffers()
        bounds = pa.Array.from_buffers(pa.int32(), len(chunk) + 1, [None, places], offset=chunk.offset)
        spans = pairwise(cast("list[int]", bounds.to_pylist()))
        for (start, end), is_there in zip(spans, chunk.is_valid().to_pylist(), strict=True):
            size = end - start
            if not is_there or data is None:
                yield None
            elif (data.address + start) % _ALIGNED == 0:
                yield data.slice(start, size)
            else:
                yield pa.py_buffer(data.slice(start, size).to_pybytes())


def _split(payload: pa.Buffer) -> tuple[TableVersion, pa.Table]:
    with pa.ipc.open_stream(payload) as reader:
        rows = reader.read_all()
    version = TableVersion.from_json(rows.schema.metadata[_VERSION].decode())
    return version, rows.replace_schema_metadata(None)


def _barrier(row: Mapping[str, Any]) -> Barrier:
    payload = json.loads(bytes(row["payload"]))
    change = SchemaChange(
        commit_ts=row["ts"],
        sql=payload["sql"],
        database=payload["database"],
        after=TableVersion.from_json(payload["after"]) if payload["after"] else None,
        before=TableVersion.from_json(payload["before"]) if payload["before"] else None,
    )
    return Barrier(change, row["topic"], Position(row["partition"], row["offset"], payload["index"]))


def _tables(payload: pa.Buffer) -> tuple[TableName, ...]:
    return tuple(TableName(*names) for names in json.loads(bytes(payload))["tables"])


def _error(payload: pa.Buffer) -> errors.ApplierError:
    value = json.loads(bytes(payload))
    kind: type[errors.ApplierError] = getattr(errors, value["type"])
    return kind(*value["args"])
