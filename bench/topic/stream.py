"""A workload and a protocol in, all messages of the topic out, a thousand events at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bench.topic.canal_json import CanalJson
from bench.topic.debezium import Debezium
from bench.topic.encoder import Encoder, Record, Rows, ddl_ts
from bench.topic.events import DELETE, INSERT, UPDATE, Events, Ints, Workload, commit_ts
from bench.topic.images import images, partition_of
from bench.topic.open_protocol import OpenProtocol
from bench.topic.pieces import Piece
from bench.topic.schema import create_database, create_table, table_name
from bench.topic.simple_avro import SimpleAvro
from bench.topic.simple_json import SimpleJson

PARTITIONS = 4
EVENTS_PER_WATERMARK = 1000
EVENTS_PER_BOOTSTRAP = 10_000
_CHUNK_BLOCKS = 20

ENCODERS: dict[str, Callable[[], Encoder]] = {
    "simple-json": SimpleJson,
    "simple-avro": SimpleAvro,
    "canal-json": CanalJson,
    "open": OpenProtocol,
    "debezium": Debezium,
}
"""Protocols that need no registry; `avro.Avro` needs the ids of its schemas."""

Block = list[list[dict[str, Any]]]
"""Per partition, messages in order, as `confluent_kafka.Producer.produce_batch` takes them."""


def stream(workload: Workload, events: Events, encoder: Encoder) -> Iterator[Block]:
    """All messages: DDL, then rows, watermarks to every partition and bootstraps between them."""
    yield _opening(workload, encoder)
    yield from continued(workload, events, encoder)


def continued(workload: Workload, events: Events, encoder: Encoder) -> Iterator[Block]:
    """The messages of later events, for a topic that has its tables."""
    chunk = _CHUNK_BLOCKS * block_size(workload)
    for start in range(0, len(events), chunk):
        yield from _blocks(workload, events[start : start + chunk], encoder)


def block_size(workload: Workload) -> int:
    """Events up to a watermark: those of a second, as TiCDC sends one a second, and a thousand at the most."""
    return min(EVENTS_PER_WATERMARK, workload.rate)


def _opening(workload: Workload, encoder: Encoder) -> Block:
    """The DDL that makes the tables, and a watermark above it."""
    block = _empty()
    _send(block, encoder.ddl(create_database(), None, workload.tables, ddl_ts(-1)))
    for table in range(workload.tables):
        sql = create_table(table_name(table, workload.tables))
        _send(block, encoder.ddl(sql, table, workload.tables, ddl_ts(table)))
    _send(block, encoder.watermark(ddl_ts(workload.tables)))
    return block


def _blocks(workload: Workload, events: Events, encoder: Encoder) -> Iterator[Block]:
    keys, values = _encode(workload, events, encoder)
    partition = partition_of(events.key, PARTITIONS).tolist()
    stamps = commit_ts(workload, events.number).tolist()
    size = block_size(workload)
    for start in range(0, len(events), size):
        block = _empty()
        if start % EVENTS_PER_BOOTSTRAP == 0:
            _bootstrap(block, workload, encoder)
        end = min(start + size, len(events))
        for row in range(start, end):
            block[partition[row]].append({"key": keys[row], "value": values[row]})
        _send(block, encoder.watermark(stamps[end - 1]))
        yield block


def _bootstrap(block: Block, workload: Workload, encoder: Encoder) -> None:
    for table in range(workload.tables):
        record = encoder.bootstrap(table, workload.tables)
        if record is not None:
            _send(block, record)


def _encode(workload: Workload, events: Events, encoder: Encoder) -> tuple[list[Any], list[Any]]:
    """Keys and values of rows: each kind is encoded on its own, then put back into its place."""
    places: list[Ints] = []
    keys: list[Piece] = []
    values: list[Piece] = []
    for op in (INSERT, UPDATE, DELETE):
        place = np.flatnonzero(events.op == op)
        if len(place) == 0:
            continue
        key, value = encoder.rows(op, _rows(workload, events[place]))
        places.append(place)
        keys.append(pa.repeat(b"", len(place)) if key is None else key)
        values.append(value)
    back = pa.array(np.argsort(np.concatenate(places)).tolist(), pa.int64())
    return pa.concat_arrays(keys).take(back).to_pylist(), pa.concat_arrays(values).take(back).to_pylist()


def _rows(workload: Workload, events: Events) -> Rows:
    op = events.op[0]
    return Rows(
        table=events.key % workload.tables,
        tables=workload.tables,
        commit_ts=commit_ts(workload, events.number),
        before=None if op == INSERT else images(workload, events.key, events.before),
        after=None if op == DELETE else images(workload, events.key, events.number),
    )


def _empty() -> Block:
    return [[] for _ in range(PARTITIONS)]


def _send(block: Block, record: Record) -> None:
    for messages in block if record.everywhere else block[:1]:
        messages.append({"key": record.key, "value": record.value})
