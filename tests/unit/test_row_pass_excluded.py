"""Rows that a message does not hold, of tables that nobody asked for: they stop nothing."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest

from applier.changefeed.message import MESSAGE_SCHEMA
from applier.changefeed.types import TypeRules
from applier.decode.options import DecoderOptions
from applier.findings import Findings, collect
from applier.rowpass import RowPass

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


def _found(protocol: str, message: tuple[bytes | None, bytes], include: tuple[str, ...]) -> Findings:
    job = RowPass(protocol, DecoderOptions(), TypeRules(), include, (), applied=0, applied_of={}, upto=(1 << 63) - 1)
    row = {"topic": "t", "partition": 0, "offset": 7, "key": message[0], "value": message[1]}
    return collect(pa.Table.from_batches(job([pa.RecordBatch.from_pylist([row], MESSAGE_SCHEMA)])))


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
    assert without.counts["excluded"] == 1


def test_a_message_that_holds_other_rows_is_never_passed_over() -> None:
    """Open puts several rows into one message: one that cannot be read would take the others with it."""
    found = _found("open", _open("big", "small"), ("*.*", "!shop.big"))

    assert len(found.bad) == 1
