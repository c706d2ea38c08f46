"""A row that cannot be read has the fate of any row: not due, left out, in its table already, or refused by name."""

from __future__ import annotations

import base64
import json
import pickle
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.message import MESSAGE_SCHEMA, TopicPartition, by_place
from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.decode.avro.decoder import AvroDecoder
from applier.decode.debezium.avro_decoder import DebeziumAvroDecoder
from applier.decode.decoder import ClaimReader, Decoder
from applier.decode.large_messages import ClaimCheck
from applier.decode.options import DecoderOptions
from applier.decode.protocols import decoder_of_thread
from applier.errors import IncompleteRow
from applier.order.feed_order import ResolvedOrder
from applier.pipeline.scan import decode_task
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.task_result import TaskResult
from tests.unit.decode.avro_messages import EXTENSION, ID, Schemas, column, record

TS = 470606913410433024
PLACE, OFFSET = TopicPartition("t", 0), 7
BIG, SMALL = TableName("shop", "big"), TableName("shop", "small")
END = (1 << 63) - 1
Message = tuple[bytes | None, bytes | None]
Event = tuple[str, Mapping[str, Any], Mapping[str, Any]]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _open(*events: Event, ts: int = TS) -> Message:
    """An Open message: for each row its table, more members of its key, and its value."""
    keys = [_json({"ts": ts, "scm": "shop", "tbl": table, "t": 1, **more}) for table, more, _ in events]
    framed = [
        b"".join(struct.pack(">Q", len(part)) + part for part in parts)
        for parts in (keys, [_json(value) for _, _, value in events])
    ]
    return struct.pack(">Q", 1) + framed[0], framed[1]


def _cells(number: int, **more: Any) -> dict[str, Any]:
    return {"id": {"t": 8, "h": True, "f": 11, "v": number}, **more}


def _simple(kind: str, **members: Any) -> Message:
    row = {"version": 1, "database": "shop", "table": "big", "type": kind, "commitTs": TS, "schemaVersion": 1}
    return None, _json(row | members)


def _canal(kind: str, data: Any, extension: Mapping[str, Any] | None = None, **members: Any) -> Message:
    types = dict.fromkeys(data[0], "bigint")
    row = {"database": "shop", "table": "big", "type": kind, "pkNames": ["id"], "mysqlType": types, "data": data}
    return None, _json(row | members | {"_tidb": {"commitTs": TS, **(extension or {})}})


def _debezium(op: str, schema: Mapping[str, Any] | None = None, **members: Any) -> Message:
    source = {"db": "shop", "table": "big", "commit_ts": TS}
    return None, _json({"payload": {"source": source, "op": op, **members}} | ({"schema": schema} if schema else {}))


_CHECKSUM: list[dict[str, Any]] = [
    {"name": "_tidb_row_level_checksum", "type": "string", "default": ""},
    {"name": "_tidb_corrupted", "type": "boolean", "default": False},
    {"name": "_tidb_checksum_version", "type": "int", "default": 0},
]
_AVRO = Schemas(key=record(ID, name="big"), big=record(ID, *EXTENSION, *_CHECKSUM, name="big"))


def _avro(ts: int = TS, **values: Any) -> Message:
    row = {"id": 1, "_tidb_op": "c", "_tidb_commit_ts": ts, "_tidb_commit_physical_time": 1, "_tidb_corrupted": False}
    row |= {"_tidb_row_level_checksum": "", "_tidb_checksum_version": 0}
    return _AVRO.message("key", id=1), _AVRO.message("big", **row | values)


_ROWS = {"type": "record", "name": "Value", "fields": [{**column("id", "", "long"), "name": "id"}]}
_ENVELOPE = record(
    {"name": "before", "type": ["null", _ROWS], "default": None},
    {"name": "after", "type": ["null", "Value"], "default": None},
    {"name": "op", "type": "string"},
    {
        "name": "source",
        "type": record(
            {"name": "db", "type": "string"}, {"name": "table", "type": "string"}, {"name": "commit_ts", "type": "long"}
        )
        | {"name": "Source"},
    },
    name="Envelope",
)
_DEBEZIUM_AVRO = Schemas(envelope=_ENVELOPE)


def _debezium_avro(op: str, after: Any) -> Message:
    source = {"db": "shop", "table": "big", "commit_ts": TS}
    return None, _DEBEZIUM_AVRO.message("envelope", before=None, after=after, op=op, source=source)


_GONE = "s3://bucket/gone.json"
BAD: dict[str, tuple[str, Message]] = {
    "simple handle key": ("simple", _simple("INSERT", handleKeyOnly=True, data={"id": "1"})),
    "simple corrupted": ("simple", _simple("INSERT", data={"id": "1"}, checksum={"corrupted": True})),
    "simple without old row": ("simple", _simple("UPDATE", data={"id": "1"})),
    "simple without version": ("simple", _simple("INSERT", data={"id": "1"}, schemaVersion=0)),
    "simple gone": ("simple", _simple("INSERT", data={"id": "1"}, claimCheckLocation=_GONE)),
    "simple odd file": ("simple", _simple("INSERT", data={"id": "1"}, claimCheckLocation="s3://bucket/..")),
    "open no object": ("open", _open(("big", {}, {"u": {"id": 1}}))),
    "open not base64": ("open", _open(("big", {}, {"u": _cells(1, b={"t": 252, "f": 65, "v": "?"})}))),
    "open no row": ("open", _open(("big", {}, {}))),
    "open decimal": ("open", _open(("big", {}, {"u": _cells(1, d={"t": 246, "f": 65, "v": "1." + "1" * 31})}))),
    "open gone": ("open", _open(("big", {"ccl": _GONE}, {"u": _cells(1)}))),
    "canal handle key": ("canal-json", _canal("INSERT", [{"id": "1"}], {"onlyHandleKey": True})),
    "canal types": ("canal-json", _canal("INSERT", [{"id": "1"}], mysqlType={})),
    "canal lengths": ("canal-json", _canal("UPDATE", [{"id": "1"}, {"id": "2"}], old=[{}])),
    "canal gone": ("canal-json", _canal("INSERT", [{"id": "1"}], {"claimCheckLocation": _GONE})),
    "debezium op": ("debezium", _debezium("x", after={"id": 1})),
    "debezium image": ("debezium", _debezium("c", after=None)),
    "debezium no key": ("debezium", _debezium("c", {"fields": []}, after={"id": 1})),
    "avro checksum": ("avro", _avro(_tidb_row_level_checksum="12x")),
    "avro corrupted": ("avro", _avro(_tidb_corrupted=True)),
    "avro other checksum": ("avro", _avro(_tidb_row_level_checksum="12")),
    "avro op": ("avro", _avro(_tidb_op="x")),
    "debezium-avro op": ("debezium-avro", _debezium_avro("x", {"id": 1})),
    "debezium-avro image": ("debezium-avro", _debezium_avro("c", None)),
    "debezium-avro type": ("debezium-avro", _debezium_avro("c", {"id": 1})),
}


@pytest.fixture(autouse=True)
def _registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the protocols of a registry read their schemas from memory."""
    made: dict[str, Callable[[], Decoder]] = {
        "avro": lambda: AvroDecoder(_AVRO, subjects=_AVRO),
        "debezium-avro": lambda: DebeziumAvroDecoder(_DEBEZIUM_AVRO),
    }
    monkeypatch.setattr(
        decode_task,
        "decoder_of_thread",
        lambda protocol, options: made[protocol]() if protocol in made else decoder_of_thread(protocol, options),
    )


def _found(protocol: str, *messages: Message, storage: str = "/nowhere", **more: Any) -> TaskResult:
    job = DecodeTask(protocol, DecoderOptions(claim_check=storage), TypeRules(), ("*.*",), (), upto=END)
    rows = [
        {**PLACE._asdict(), "offset": OFFSET + number, "key": key, "value": value}
        for number, (key, value) in enumerate(messages)
    ]
    return replace(job, **more)(by_place(pa.Table.from_pylist(rows, MESSAGE_SCHEMA)))


def _applied(ts: int) -> dict[str, Any]:
    return {"order": ResolvedOrder(applied=TS - 9, applied_of={BIG: ts})}


@pytest.mark.parametrize("case", list(BAD))
def test_a_bad_row_names_its_table_and_its_commit_ts(case: str) -> None:
    """Also once its place stands in front, and in another process."""
    protocol, message = BAD[case]
    (bad,) = _found(protocol, message).bad

    for error in (bad.error, pickle.loads(pickle.dumps(bad.error))):  # noqa: S301 - its own bytes
        assert error.tables == (BIG,)
        assert error.commit_ts == TS
        assert str(error).startswith(f"Cannot decode {protocol} message at t/0:7: ")
    assert bad.tables == (BIG,)


@pytest.mark.parametrize("case", list(BAD))
def test_a_bad_row_has_the_fate_of_its_table_s_rows(case: str) -> None:
    """Above the watermark it is read again; of a table that is left out, or has the row, it stops nothing."""
    protocol, message = BAD[case]

    later = _found(protocol, message, upto=TS - 1)
    left_out = _found(protocol, message, include=("*.*", "!shop.big"))
    again = _found(protocol, message, **_applied(TS))
    due = _found(protocol, message, **_applied(TS - 1))

    assert [later.bad, left_out.bad, again.bad] == [[], [], []]
    assert (later.counts["held"], later.held) == (1, {PLACE: OFFSET})
    assert (left_out.counts["left_out"], left_out.held) == (1, {})
    assert (again.counts["had"], again.held) == (1, {})
    assert len(due.bad) == 1


def test_the_other_rows_of_a_message_are_taken() -> None:
    """Open puts rows of several tables into one message: each has a fate of its own."""
    small: Event = ("small", {}, {"u": _cells(1)})
    several: list[Event] = [("big", {"ohk": True}, {"u": _cells(1)}), ("big", {}, {"u": {"id": 1}})]
    for bad in several:
        for events in ([bad, small], [small, bad], [bad, small, bad]):
            message = _open(*events)
            both, one = _found("open", message), _found("open", message, include=("*.*", "!shop.big"))
            aside = _found("open", message, skip={PLACE: {OFFSET: frozenset({BIG})}})

            assert [item.tables for item in both.bad] == [(BIG,)]
            assert [name for name, _ in both.parts] == [name for name, _ in one.parts] == [SMALL]
            assert one.bad == aside.bad == []
            assert [name for name, _ in aside.parts] == [SMALL]
            assert one.counts["left_out"] == len(events) - 1


def test_a_message_that_no_table_is_known_of_is_set_aside_whole() -> None:
    """A row of it may be of any table."""
    assert _found("open", _open(("small", {}, {"u": _cells(1)})), skip={PLACE: {OFFSET: frozenset()}}).parts == {}


STUBS: dict[str, tuple[str, Message]] = {
    protocol: (protocol, message)
    for protocol, message in (
        ("simple", _simple("INSERT", data={"id": "1"}, handleKeyOnly=True, claimCheckLocation=_GONE)),
        ("open", _open(("big", {"ccl": _GONE}, {"u": _cells(1)}))),
        ("canal-json", _canal("INSERT", [{"id": "1"}], {"claimCheckLocation": _GONE})),
    )
}


@pytest.mark.parametrize("protocol", list(STUBS))
def test_no_file_is_read_for_a_row_that_is_not_due(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage may be gone by then, or away."""
    read = list[str]()
    monkeypatch.setattr(ClaimCheck, "fetch", lambda _, location: read.append(location))
    _, message = STUBS[protocol]

    for more in ({"upto": TS - 1}, {"upto": -1}, {"include": ("*.*", "!shop.big")}, _applied(TS)):
        assert _found(protocol, message, **more).bad == []
    assert read == []


@pytest.mark.parametrize("protocol", list(STUBS))
def test_a_decoder_wants_no_row_outside_a_task(protocol: str) -> None:
    """It serves later searches for watermarks, which need no row, and must not keep what a task has found alive."""
    _found(protocol, STUBS[protocol][1])
    decoder = decoder_of_thread(protocol, DecoderOptions(claim_check="/nowhere"))

    with pytest.raises(IncompleteRow, match="nothing asks for it"):
        decoder.decode(*STUBS[protocol][1])
    assert isinstance(decoder, ClaimReader)
    wants = decoder.large.wants
    _found(protocol, STUBS[protocol][1])
    assert decoder.large.wants is wants


def _claimed(protocol: str, op: str, number: int, old: int | None = None, **more: Any) -> Message:
    """A row, or what stands for it; `old` is the key of the old row, and `more` are members of what stands for it."""
    full = {} if more else {"v": number}
    if protocol == "open":
        images = {
            "d" if op == "DELETE" else "u": _cells(number, **{k: {"t": 8, "f": 0, "v": v} for k, v in full.items()})
        }
        if old is not None:
            images["p"] = _cells(old)
        return _open(("big", {"ccl": more["location"]} if more else {}, images))
    row, before = {k: str(v) for k, v in {"id": number, **full}.items()}, {"id": str(old)}
    if protocol == "canal-json":
        extension = {"claimCheckLocation": more["location"]} if more else {}
        return _canal(op, [row], extension, **({} if old is None else {"old": [before]}))
    images = {"old": row} if op == "DELETE" else {"data": row} | ({} if old is None else {"old": before})
    return _simple(op, **images, **({"claimCheckLocation": more["location"], "handleKeyOnly": True} if more else {}))


@pytest.mark.parametrize("protocol", list(STUBS))
@pytest.mark.parametrize(("op", "old"), [("INSERT", None), ("UPDATE", 1), ("DELETE", None)])
def test_a_claim_check_file_holds_the_row_of_the_key(protocol: str, op: str, old: int | None, tmp_path: Path) -> None:
    """A file of another row with the same table, kind and commit ts is refused by name."""
    key, value = _claimed(protocol, op, 1, old)
    wrapped = {
        "key": None if key is None else base64.b64encode(key).decode(),
        "value": base64.b64encode(value or b"").decode(),
    }
    (tmp_path / "x.json").write_bytes(_json(wrapped))
    right = _claimed(protocol, op, 1, old, location="s3://b/x.json")
    wrong = [_claimed(protocol, op, 9, old, location="s3://b/x.json")]
    if old is not None:
        wrong.append(_claimed(protocol, op, 1, 9, location="s3://b/x.json"))

    assert _found(protocol, right, storage=str(tmp_path)).bad == []
    for message in wrong:
        (bad,) = _found(protocol, message, storage=str(tmp_path)).bad
        assert "The claim-check file x.json does not hold the row of shop.big that names it." in str(bad.error)
        assert bad.tables == (BIG,)
