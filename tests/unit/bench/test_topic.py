"""The benchmark's topics say what its expected tables hold, in every protocol."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from applier.changefeed.event import Op, Resolved, RowChange
from applier.changefeed.table import Column, ColumnType
from applier.changefeed.types import TypeRules
from applier.decode.avro import decoder as avro_decoder
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions
from applier.decode.protocols import MAKERS, build
from applier.decode.registry.client import RegistrySchema
from applier.decode.values.convert import to_array
from bench.topic import schema
from bench.topic.avro import Avro, key_schema, value_schema
from bench.topic.encoder import Encoder
from bench.topic.events import PRELOADED, Workload, commit_ts, plan
from bench.topic.expected import plain, write_expected
from bench.topic.images import images
from bench.topic.stream import ENCODERS, PARTITIONS, stream

pytestmark = pytest.mark.slow

PROTOCOLS = {
    "simple-json": "simple", "simple-avro": "simple", "canal-json": "canal-json", "open": "open",
    "debezium": "debezium", "avro": "avro",
}  # fmt: skip
SHAPES = [
    Workload(3000),
    Workload(3000, tables=7, seed=2),
    Workload(2500, "uniform", preloaded=400),
    Workload(2500, "hot", seed=3),
    Workload(1500, "recent", preloaded=5000),
]


class Schemas:
    """The registry of a generated Avro topic: value schemas have odd ids, key schemas even ones."""

    def __init__(self, tables: int) -> None:
        self._tables = tables

    def schema(self, schema_id: int) -> RegistrySchema:
        """The schema of an id."""
        make = value_schema if schema_id % 2 else key_schema
        return RegistrySchema(make(schema_id // 2, self._tables))


def encoder(protocol: str, tables: int) -> Encoder:
    """The encoder of a protocol."""
    if protocol == "avro":
        return Avro(range(0, 2 * tables, 2), range(1, 2 * tables, 2))
    return ENCODERS[protocol]()


def decoder(protocol: str, tables: int) -> Decoder:
    """The decoder of applier for it."""
    if protocol == "avro":
        return avro_decoder.AvroDecoder(Schemas(tables), "UTC")
    return build(PROTOCOLS[protocol], DecoderOptions())


@pytest.mark.parametrize("workload", SHAPES, ids=lambda workload: f"{workload.shape}-{workload.tables}")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_decoded_topic_leads_to_expected_rows(protocol: str, workload: Workload, tmp_path: Path) -> None:
    """Applying a topic's rows in commit order to the preloaded rows leaves exactly the expected tables."""
    if PROTOCOLS[protocol] not in MAKERS:
        pytest.skip("there is no decoder for this protocol yet")
    events = plan(workload)
    reader = decoder(protocol, workload.tables)
    changes = [
        event
        for block in stream(workload, events, encoder(protocol, workload.tables))
        for messages in block
        for message in messages
        for event in reader.decode(message["key"], message["value"])
        if isinstance(event, RowChange)
    ]
    assert len(changes) == workload.events
    rows = _preloaded(workload)
    written = set()
    for change in sorted(changes, key=lambda change: change.commit_ts):
        image = change.before if change.op is Op.DELETE else change.after
        assert image is not None
        place = (change.name.table, int(image["id"]))
        # Open's inserts may be updates whose old values are turned off, and its decoder says so.
        assert (place in rows) == (change.op not in (Op.INSERT, Op.UPSERT))
        rows[place] = dict(image)
        written.add(place)
        if change.op is Op.DELETE:
            del rows[place]
    for number, path in enumerate(write_expected(workload, events, tmp_path)):
        name = schema.table_name(number, workload.tables)
        mine = sorted(place for place in rows if place[0] == name)
        wire = _typed([rows[place] for place in mine if place in written], reader)
        kept = pa.Table.from_pylist([rows[place] for place in mine if place not in written], schema.ARROW)
        assert pa.concat_tables([wire, kept]).sort_by("id").equals(pq.read_table(path))


@pytest.mark.parametrize("protocol", [*ENCODERS, "avro"])
def test_every_row_lies_between_its_watermarks(protocol: str) -> None:
    """In each partition, rows above a watermark come after it and rows at or below it come before it."""
    if PROTOCOLS[protocol] not in MAKERS:
        pytest.skip("there is no decoder for this protocol yet")
    workload = Workload(3500)
    reader = decoder(protocol, 1)
    resolved = [0] * PARTITIONS
    for block in stream(workload, plan(workload), encoder(protocol, 1)):
        for partition, messages in enumerate(block):
            for message in messages:
                for event in reader.decode(message["key"], message["value"]):
                    if isinstance(event, RowChange):
                        assert event.commit_ts > resolved[partition]
                    elif isinstance(event, Resolved):
                        assert event.resolved_ts >= resolved[partition]
                        resolved[partition] = event.resolved_ts
    assert resolved == [int(commit_ts(workload, plan(workload).number)[-1])] * PARTITIONS


@pytest.mark.parametrize("workload", SHAPES, ids=lambda workload: workload.shape)
def test_workload_is_a_function_of_its_seed(workload: Workload) -> None:
    """The same workload gives the same bytes twice, and another seed gives others."""

    def first_rows(seed: int) -> str:
        other = Workload(workload.events, workload.shape, workload.preloaded, workload.tables, seed)
        blocks = stream(other, plan(other), ENCODERS["simple-json"]())
        return json.dumps(
            [[str(message) for message in messages] for _, messages in zip(range(2), blocks, strict=False)]
        )

    assert first_rows(7) == first_rows(7)
    assert first_rows(7) != first_rows(8)


@pytest.mark.parametrize("tables", [1, 3])
def test_avro_topic_reads_with_another_library(tables: int) -> None:
    """Another Avro library reads every row of an Avro topic with the registered schema, to its last byte."""
    workload = Workload(1000, tables=tables)
    schemas = [fastavro.parse_schema(json.loads(value_schema(number, tables))) for number in range(tables)]
    for block in stream(workload, plan(workload), encoder("avro", tables)):
        for message in (message for messages in block for message in messages if message["value"][:1] == b"\x00"):
            body = io.BytesIO(message["value"])
            schema_id = int.from_bytes(body.read(5)[1:], "big")
            row: Any = fastavro.schemaless_reader(body, schemas[schema_id // 2], None)
            assert body.read() == b""
            assert row["status"] in schema.STATUSES


def _preloaded(workload: Workload) -> dict[tuple[str, int], dict[str, Any]]:
    keys = np.arange(workload.preloaded)
    kept = plain(images(workload, keys, np.full(len(keys), PRELOADED)))
    names = [schema.table_name(key % workload.tables, workload.tables) for key in keys.tolist()]
    return {(name, row["id"]): row for name, row in zip(names, kept.to_pylist(), strict=True)}


def _typed(rows: list[dict[str, Any]], reader: Decoder) -> pa.Table:
    """Wire values as Arrow, with the column types of the CREATE TABLE."""
    arrays = []
    for column in schema.COLUMNS:
        kind = ColumnType(column.type, length=column.length, scale=column.scale, elements=schema.STATUSES)
        values = [row[column.name] for row in rows]
        arrays.append(to_array(values, Column(column.name, kind), reader.wire, TypeRules(), column.name)[0])
    return pa.Table.from_arrays(arrays, schema=schema.ARROW)
