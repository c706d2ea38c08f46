"""Rows that a message does not hold, of tables that nobody asked for: they stop nothing."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.message import MESSAGE_SCHEMA, by_place
from applier.changefeed.types import TypeRules
from applier.decode.avro.decoder import AvroDecoder
from applier.decode.options import DecoderOptions
from applier.pipeline.scan import decode_task
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.task_result import TaskResult
from tests.unit.decode.avro_messages import EXTENSION, ID, Schemas, record

TS = 470606913410433024


def _open(*tables: str) -> tuple[bytes, bytes]:
    """An Open message of rows that hold their key alone, one for each table."""
    keys = [f'{{"ts":{TS},"scm":"shop","tbl":"{table}","t":1,"ohk":true}}'.encode() for table in tables]
    values = [b'{"u":{"id":{"t":3,"h":true,"f":11,"v":1}}}'] * len(tables)
    framed = [b"".join(struct.pack(">Q", len(part)) + part for part in parts) for parts in (keys, values)]
    return struct.pack(">Q", 1) + framed[0], framed[1]


_SIMPLE = (
    b'{"version":1,"database":"shop","table":"big","type":"INSERT","commitTs":470606913410433024,"schemaVersion":1,'
    b'"handleKeyOnly":true,"data":{"id":"1"}}'
)
_CANAL = (
    b'{"database":"shop","table":"big","type":"INSERT","pkNames":["id"],"mysqlType":{"id":"int"},"data":[{"id":"1"}],'
    b'"_tidb":{"commitTs":470606913410433024,"onlyHandleKey":true}}'
)
_DEBEZIUM = (
    b'{"payload":{"source":{"db":"shop","table":"big","commit_ts":470606913410433024},"op":"u","before":{"id":1}}}'
)


def _found(protocol: str, message: tuple[bytes | None, bytes | None], include: tuple[str, ...]) -> TaskResult:
    job = DecodeTask(protocol, DecoderOptions(), TypeRules(), include, (), upto=(1 << 63) - 1)
    row = {"topic": "t", "partition": 0, "offset": 7, "key": message[0], "value": message[1]}
    return job(by_place(pa.Table.from_pylist([row], MESSAGE_SCHEMA)))


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ("simple", (None, _SIMPLE)),
        ("open", _open("big")),
        ("canal-json", (None, _CANAL)),
        ("debezium", (None, _DEBEZIUM)),
    ],
)
def test_a_row_of_a_table_that_is_left_out_stops_nothing(protocol: str, message: tuple[bytes | None, bytes]) -> None:
    """It is counted as excluded; the same row of a table that is asked for is refused by name."""
    (bad,) = _found(protocol, message, ("*.*",)).bad
    without = _found(protocol, message, ("*.*", "!shop.big"))

    assert type(bad.error).__name__ == "IncompleteRow"
    assert without.bad == []
    assert without.counts["left_out"] == 1


def test_a_message_that_holds_other_rows_is_never_passed_over() -> None:
    """Open puts several rows into one message: one that cannot be read would take the others with it."""
    found = _found("open", _open("big", "small"), ("*.*", "!shop.big"))

    assert len(found.bad) == 1


def _avro(monkeypatch: pytest.MonkeyPatch, *values: str) -> Schemas:
    """Schemas of the tables `shop.big` and `shop.small`, some of which the subject of the topic holds."""
    schemas = Schemas(
        key=record(ID, name="big"),
        big=record(ID, *EXTENSION, name="big"),
        small=record(ID, *EXTENSION, name="small"),
    )
    schemas.subjects["t-value"] = list(values)
    monkeypatch.setattr(
        decode_task, "decoder_of_thread", lambda protocol, options: AvroDecoder(schemas, subjects=schemas)
    )
    return schemas


_BAD: dict[str, Any] = {
    "a delete without a key": (b"", b"\x03" + TS.to_bytes(8, "big")),
    "a tombstone without a key": (None, None),
    "a row cut short": (None, b"\0\0\0\0\x02"),
    "no message of TiCDC": (None, b"{}"),
}


@pytest.mark.parametrize("message", list(_BAD))
def test_a_bad_avro_message_of_a_table_that_is_left_out_stops_nothing(
    message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subject of its topic shows the only table that it can be of."""
    _avro(monkeypatch, "big")

    assert len(_found("avro", _BAD[message], ("*.*",)).bad) == 1
    without = _found("avro", _BAD[message], ("*.*", "!shop.big"))
    assert without.bad == []
    assert without.counts["left_out"] == 1


@pytest.mark.parametrize("values", [(), ("big", "small")], ids=["unknown", "shared"])
def test_a_bad_avro_message_that_may_be_of_a_replicated_table_is_refused(
    values: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry knows no subject of the topic, or one that a replicated table shares."""
    schemas = _avro(monkeypatch, *values)
    if not values:
        schemas.subjects.clear()

    assert len(_found("avro", (b"", None), ("*.*", "!shop.big")).bad) == 1


@pytest.mark.parametrize("value", [b"\x01{", b"\x02" + b"\xff" * 8, b"\0\0\0\0\x09x"])
def test_what_may_concern_other_tables_is_refused_in_any_topic(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A DDL, a watermark, and a row of a schema that the registry does not know yet."""
    _avro(monkeypatch, "big")

    assert len(_found("avro", (None, value), ("*.*", "!shop.big")).bad) == 1
