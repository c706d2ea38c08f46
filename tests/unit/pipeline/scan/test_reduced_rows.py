"""Rows that messages of three protocols hold by their key alone are read as of the commit ts of their last change."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.message import MESSAGE_SCHEMA, by_place
from applier.changefeed.table import Column, ColumnType, Index, TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.config.login import Login
from applier.consume.window_size import NO_LIMIT, WindowTooLargeError
from applier.decode.options import DecoderOptions
from applier.errors import OutsideRefused
from applier.order.feed_order import OffsetOrder
from applier.order.merge import merge_keyed
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.reduced_rows import ReducedRows
from applier.pipeline.scan.task_result import TaskResult
from applier.pipeline.scan.task_versions import DdlMarks
from tests.past import Past

NAME = TableName("shop", "t")
KEY = (Index("PRIMARY", ("id",), unique=True, primary=True),)
COLUMNS = (Column("id", ColumnType("int"), nullable=False), Column("v", ColumnType("varchar")))
TABLE = TableVersion(NAME, 5, COLUMNS, KEY)
LOGIN = Login("tidb", 4000, "reader", "")
_CHANGES: list[tuple[str, int, int | None, int]] = [
    ("INSERT", 10, None, 1),
    ("UPDATE", 20, 1, 1),
    ("UPDATE", 30, 2, 3),
    ("DELETE", 40, 4, 4),
]
"""Kind, commit ts, and the key before and after."""


def simple(kind: str, ts: int, old: int | None, new: int) -> tuple[bytes | None, bytes]:
    """A message of the Simple protocol."""
    message: dict[str, Any] = {"version": 1, "database": "shop", "table": "t", "tableID": 7, "type": kind}
    message |= {"commitTs": ts, "buildTs": 1, "schemaVersion": 5, "handleKeyOnly": True}
    message |= {} if kind == "DELETE" else {"data": {"id": str(new)}}
    message |= {} if old is None else {"old": {"id": str(old)}}
    return None, json.dumps(message).encode()


def canal(kind: str, ts: int, old: int | None, new: int) -> tuple[bytes | None, bytes]:
    """A message of Canal-JSON."""
    message = {"id": 0, "database": "shop", "table": "t", "pkNames": ["id"], "isDdl": False, "type": kind, "es": 1}
    message |= {"ts": 1, "sql": "", "sqlType": {"id": 4}, "mysqlType": {"id": "int"}, "data": [{"id": str(new)}]}
    message |= {"old": [{"id": str(old)}] if kind == "UPDATE" else None}
    return None, json.dumps(message | {"_tidb": {"commitTs": ts, "onlyHandleKey": True}}).encode()


def open_protocol(kind: str, ts: int, old: int | None, new: int) -> tuple[bytes | None, bytes]:
    """A message of the Open protocol."""
    key = json.dumps({"ts": ts, "scm": "shop", "tbl": "t", "t": 1, "ohk": True}).encode()
    images = {"d": new} if kind == "DELETE" else {"u": new} if old is None else {"u": new, "p": old}
    cells = {name: {"id": {"t": 3, "h": True, "f": 11, "v": value}} for name, value in images.items()}
    value = json.dumps(cells).encode()
    return struct.pack(">QQ", 1, len(key)) + key, struct.pack(">Q", len(value)) + value


WIRES = {"simple": simple, "canal-json": canal, "open": open_protocol}


def past(create: str = "CREATE TABLE `t` (`id` int NOT NULL, `v` varchar(20), PRIMARY KEY (`id`))") -> Past:
    """A TiDB with the rows."""
    held = [("1", 10, "a"), ("1", 20, "b"), ("1", 50, "later"), ("3", 30, "c"), ("3", 31, "later")]
    found = Past(creates={"shop.t": create})
    for key, ts, value in held:
        found.rows.setdefault("shop.t", {}).setdefault(key, {})[ts] = {"id": key.encode(), "v": value.encode()}
    return found


def scanned(
    protocol: str,
    changes: Sequence[tuple[str, int, int | None, int]] = _CHANGES,
    known: TableVersion = TABLE,
    **job: Any,
) -> TaskResult:
    """What a row pass finds in messages of these changes."""
    messages = [WIRES[protocol](*change) for change in changes]
    rows = [
        {"topic": "t", "partition": 0, "offset": offset, "timestamp": None, "key": key, "value": value}
        for offset, (key, value) in enumerate(messages)
    ]
    options = DecoderOptions(asks_upstream=True)
    task = DecodeTask(protocol, options, TypeRules(), ("*.*",), (known,), upto=100, **job)
    return task(by_place(pa.Table.from_pylist(rows, MESSAGE_SCHEMA)))


def filled(found: TaskResult, upstream: Past, protocol: str = "simple", most_bytes: int = NO_LIMIT) -> None:
    """Read the rows."""
    ReducedRows(LOGIN, TypeRules(), protocol, upstream.opened).fill(found, DdlMarks(), most_bytes)


@pytest.mark.parametrize("order", [{}, {"order": OffsetOrder()}], ids=["resolved", "offset"])
@pytest.mark.parametrize("protocol", WIRES)
def test_the_last_change_of_a_key_is_read_as_of_its_commit_ts(protocol: str, order: dict[str, Any]) -> None:
    """A row that moved leaves its old key; deletes need no value; the rows count as those of a whole message."""
    upstream = past()
    found = scanned(protocol, **order)
    filled(found, upstream, protocol)

    assert not found.bad
    parts = [part for parts in found.parts.values() for part in parts]
    assert not any(part.is_reduced for part in parts)
    merged = merge_keyed([part.here for part in parts], ["id"], exact=True)
    assert merged.upserts.sort_by("id").to_pylist() == [{"id": 1, "v": "b"}, {"id": 3, "v": "c"}]
    assert merged.deletes.sort_by("id")["id"].to_pylist() == [2, 4]
    assert upstream.moments == [20, 30]
    shown = {tuple(column.name for column in part.version.columns) for part in parts if part.shows_columns}
    assert shown == {("id", "v")}


@pytest.mark.parametrize("protocol", ["canal-json", "open"])
def test_a_key_alone_shows_no_columns(protocol: str) -> None:
    """What a reduced row describes must not pass for its table, and no whole row of that key either."""
    found = scanned(protocol)
    reduced = [version for version in found.versions.values() if version.keys_only]
    assert [[column.name for column in version.columns] for version in reduced] == [["id"]]


def test_a_table_without_a_key_has_no_such_rows() -> None:
    """Nothing would find them."""
    found = scanned("simple", _CHANGES[:1], TableVersion(NAME, 5, COLUMNS))
    assert [str(item.error.what).partition(": ")[2] for item in found.bad] == [
        "A row of shop.t holds key columns only, because large-message-handle-option is handle-key-only."
    ]


def test_a_row_without_a_commit_ts_is_refused() -> None:
    """There is no moment to read it as of."""
    key, value = canal("INSERT", 10, None, 1)
    message = json.loads(value)
    del message["_tidb"]["commitTs"]
    row = {"topic": "t", "partition": 0, "offset": 0, "timestamp": None, "key": key}
    rows = [{**row, "value": json.dumps(message).encode()}]
    options = DecoderOptions(asks_upstream=True, by_offset=True)
    task = DecodeTask("canal-json", options, TypeRules(), ("*.*",), (), 1 << 62, OffsetOrder())
    found = task(by_place(pa.Table.from_pylist(rows, MESSAGE_SCHEMA)))
    assert "holds key columns only" in found.bad[0].error.what


def test_a_row_that_is_not_there_is_refused_alone() -> None:
    """Beside others of its commit ts."""
    changes = [("INSERT", 30, None, number) for number in (1, 77, 3)]
    found = scanned("simple", changes)
    filled(found, past())
    assert [(item.offset, item.tables, item.error.commit_ts) for item in found.bad] == [(1, (NAME,), 30)]
    assert found.bad[0].error.mend == "Name the TiDB of the changefeed in upstream.url."
    (parts,) = found.parts.values()
    assert [part.here["id"].to_pylist() for part in parts] == [[1, 3]]


def test_another_key_there_is_refused() -> None:
    """It is another cluster, or a key that `tables.keys` names."""
    found = scanned("canal-json", _CHANGES[:1])
    filled(found, past("CREATE TABLE `t` (`id` int, `v` varchar(20) NOT NULL, PRIMARY KEY (`v`))"), "canal-json")
    assert "TiDB was asked: The key of table shop.t is v there, and not id." in found.bad[0].error.what


def test_a_log_in_that_is_refused_is_the_reason_of_each_row() -> None:
    """Its hint is that of the log-in."""

    def opened(_: Login) -> Any:
        raise OutsideRefused("TiDB tidb:4000 cannot be read: it refuses user or password.", "Check the user.")

    found = scanned("simple", _CHANGES[:2])
    ReducedRows(LOGIN, TypeRules(), "simple", opened).fill(found, DdlMarks(), NO_LIMIT)
    (bad,) = found.bad
    assert bad.error.what.endswith("TiDB was asked: TiDB tidb:4000 cannot be read: it refuses user or password.")
    assert bad.error.mend == "Check the user."


def test_more_bytes_than_a_window_may_have_are_not_kept() -> None:
    """A shorter window is read; its messages count with the rows that belong to them."""
    found = scanned("simple")
    with pytest.raises(WindowTooLargeError) as caught:
        filled(found, past(), most_bytes=10)
    assert caught.value.messages == len(_CHANGES)
    assert caught.value.size > found.measures["bytes"]


def test_the_bytes_of_rows_count_for_the_next_window() -> None:
    """It is planned for what its messages stand for."""
    found = scanned("simple")
    before = found.measures["bytes"]
    filled(found, past())
    assert found.measures["bytes"] > before


def test_keys_stay_with_the_result_of_their_task() -> None:
    """The driver alone has a log-in."""
    found = scanned("simple", _CHANGES[:3])
    assert found.apart(0, {}, 8) == []
    assert [part.here.num_rows for parts in found.parts.values() for part in parts if part.is_reduced] == [3]


def test_no_session_is_opened_without_such_rows() -> None:
    """A feed of whole rows needs no TiDB."""

    def opened(_: Login) -> Any:
        raise AssertionError

    found = scanned("simple", [])
    ReducedRows(LOGIN, TypeRules(), "simple", opened).fill(found, DdlMarks(), NO_LIMIT)
    assert not found.bad
