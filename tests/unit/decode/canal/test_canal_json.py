"""Canal-JSON, message by message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import cramjam
import lz4.frame
import pytest

from applier.changefeed.event import Bootstrap, Event, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.table import Column, ColumnType, TableName
from applier.changefeed.types import TypeRules
from applier.decode.canal.decoder import CanalJsonDecoder
from applier.decode.options import DecoderOptions
from applier.decode.values.convert import to_array
from applier.errors import DecodeError, IncompleteRow

TYPES = {"id": "bigint", "name": "varchar", "bal": "decimal"}
ROW = {"id": "1", "name": "a", "bal": "1.50"}
ACCOUNT = TableName("bank", "account")


def message(**members: Any) -> bytes:
    """An INSERT of one row, but for the members given."""
    whole = {
        "id": 0,
        "database": "bank",
        "table": "account",
        "pkNames": ["id"],
        "isDdl": False,
        "type": "INSERT",
        "es": 1707103832263,
        "ts": 1707103833001,
        "sql": "",
        "sqlType": {"id": -5, "name": 12, "bal": 3},
        "mysqlType": TYPES,
        "data": [ROW],
        "old": None,
        "_tidb": {"commitTs": 447507027004751877},
    }
    return json.dumps({name: value for name, value in (whole | members).items() if value is not ...}).encode()


def decode(value: bytes, decoder: CanalJsonDecoder | None = None) -> Sequence[Event]:
    """Events of one message, with an empty key as TiCDC sends it."""
    return (decoder or CanalJsonDecoder(DecoderOptions())).decode(b"", value)


def rows(found: Sequence[Event]) -> list[RowChange]:
    """The row changes among events."""
    return [event for event in found if isinstance(event, RowChange)]


def test_an_insert_brings_the_description_of_its_table_and_the_row() -> None:
    """The first row comes behind a Bootstrap with columns in the order of `data`; a ts above 2^53 stays exact."""
    shuffled = {name: TYPES[name] for name in ("bal", "id", "name")}
    bootstrap, change = decode(message(mysqlType=shuffled))
    assert isinstance(bootstrap, Bootstrap)
    version = bootstrap.version
    assert [column.name for column in version.columns] == ["id", "name", "bal"]
    assert version.key == ("id",)
    assert change == RowChange(ACCOUNT, version.version, 447507027004751877, Op.INSERT, None, ROW)


def test_the_order_of_types_makes_no_other_version() -> None:
    """`mysqlType` is a map in random order: the same description in another order is the same version."""
    decoder = CanalJsonDecoder(DecoderOptions())
    first = decode(message(), decoder)
    second = decode(message(mysqlType=dict(reversed(TYPES.items()))), decoder)
    assert [type(event) for event in second] == [RowChange]
    assert rows(first)[0].version == rows(second)[0].version


def test_a_column_that_moved_makes_another_version() -> None:
    """Equal numbers mean equal columns, their order included."""
    moved = {name: ROW[name] for name in ("name", "id", "bal")}
    assert rows(decode(message()))[0].version != rows(decode(message(data=[moved])))[0].version


def test_tables_with_equal_columns_have_a_bootstrap_each() -> None:
    """A description is one of a table, not of every table that looks like it."""
    decoder = CanalJsonDecoder(DecoderOptions())
    decode(message(), decoder)
    found = decode(message(table="other"), decoder)
    assert isinstance(found[0], Bootstrap)
    assert found[0].version.name == TableName("bank", "other")


def test_a_known_version_needs_no_bootstrap() -> None:
    """What was learnt from a checkpoint is not sent again."""
    bootstrap, _ = decode(message())
    assert isinstance(bootstrap, Bootstrap)
    decoder = CanalJsonDecoder(DecoderOptions())
    decoder.learn(bootstrap.version)
    assert len(decode(message(), decoder)) == 1


def test_decimals_have_the_scale_of_their_text() -> None:
    """The wire has no scale but the text; a NULL tells none and fits what was seen before."""
    decoder = CanalJsonDecoder(DecoderOptions())
    versions = []
    for text in (None, "1.50", None, "-1", "0.0001", "2.25"):
        found = decode(message(data=[ROW | {"bal": text}]), decoder)
        versions.append(rows(found)[0].version)
        for event in found:
            if isinstance(event, Bootstrap) and text is not None:
                column = event.version.column("bal")
                assert column is not None
                assert column.type == ColumnType("decimal", scale=len(text.partition(".")[2]))
    assert versions[1] == versions[5]
    assert versions[2] in versions[:2]
    assert len(set(versions)) == 4


def test_an_update_holds_the_old_row() -> None:
    """`old` holds all columns by default."""
    old = ROW | {"name": None}
    (change,) = rows(decode(message(type="UPDATE", old=[old])))
    assert (change.op, change.before, change.after) == (Op.UPDATE, old, ROW)


@pytest.mark.parametrize(
    ("old", "before"),
    [
        ({"name": "b"}, ROW | {"name": "b"}),
        ({"name": None}, ROW | {"name": None}),
        ({"id": "7"}, ROW | {"id": "7"}),
        ({}, ROW),
    ],
)
def test_a_column_that_old_lacks_did_not_change(old: dict[str, Any], before: dict[str, Any]) -> None:
    """With only-output-updated-columns the old row is `old` laid over `data`; only what is null in `old` was NULL."""
    (change,) = rows(decode(message(type="UPDATE", old=[old])))
    assert change.before == before


@pytest.mark.parametrize("old", [None, [], [None]])
def test_an_update_without_old_row_is_refused(old: Any) -> None:
    """It may have moved the row to another key, and nothing would remove the one under the old key."""
    with pytest.raises(IncompleteRow, match=r"The UPDATE of rows of bank\.account holds no old row"):
        decode(message(type="UPDATE", old=old))


@pytest.mark.parametrize("old", [None, [ROW], [None]])
def test_the_row_of_a_delete_is_in_data(old: Any) -> None:
    """Before TiCDC 5.4 a DELETE had its row in `old`, too."""
    (change,) = rows(decode(message(type="DELETE", old=old)))
    assert (change.op, change.before, change.after) == (Op.DELETE, ROW, None)


@pytest.mark.parametrize("old", [None, [None], []])
def test_an_insert_has_no_old_row(old: Any) -> None:
    """Before TiCDC 5.4 an INSERT had a list with null in `old`."""
    (change,) = rows(decode(message(old=old)))
    assert (change.before, change.after) == (None, ROW)


def test_a_delete_may_hold_its_key_only() -> None:
    """With delete-only-output-handle-key-columns the other columns are absent, from the description, too."""
    found = decode(message(type="DELETE", data=[{"id": "1"}], mysqlType={"id": "bigint"}))
    assert isinstance(found[0], Bootstrap)
    assert [column.name for column in found[0].version.columns] == ["id"]
    assert rows(found)[0].before == {"id": "1"}


def test_without_the_extension_there_is_no_commit_ts() -> None:
    """`es` is too coarse to stand for a commit ts, so rows and DDL have 0."""
    assert rows(decode(message(_tidb=...)))[0].commit_ts == 0
    (change,) = decode(message(_tidb=..., isDdl=True, type="ALTER", sql="ALTER TABLE `account` ADD COLUMN `x` INT"))
    assert isinstance(change, SchemaChange)
    assert change.commit_ts == 0


def test_a_watermark_is_a_resolved_ts() -> None:
    """A TIDB_WATERMARK message says that all rows up to it were sent."""
    empty = dict.fromkeys(("pkNames", "sqlType", "mysqlType", "data", "old"))
    value = message(**empty, database="", table="", type="TIDB_WATERMARK", _tidb={"watermarkTs": 447507027004751877})
    assert decode(value) == (Resolved(447507027004751877),)


@pytest.mark.parametrize("kind", ["CREATE", "RENAME", "CINDEX", "DINDEX", "ALTER", "ERASE", "TRUNCATE", "QUERY"])
def test_a_statement_is_a_schema_change(kind: str) -> None:
    """DDL is told by `isDdl`; its type is one of Canal's words, which say less than the statement."""
    empty = dict.fromkeys(("pkNames", "sqlType", "mysqlType", "data", "old"))
    value = message(
        **empty, isDdl=True, type=kind, sql="RENAME TABLE `bank`.`a` TO `bank`.`account`", _tidb={"commitTs": 9}
    )
    assert decode(value) == (SchemaChange(9, "RENAME TABLE `bank`.`a` TO `bank`.`account`", "bank", table="account"),)


OFFICIAL = {
    "data": [
        {"id": "1", "name": "x", "price": "9.90", "kind": "2", "img": "\u0000ÿ"},
        {"id": "2", "name": None, "price": "10.00", "kind": "1", "img": None},
    ],
    "database": "shop",
    "es": 1589373560000,
    "gtid": "",
    "id": 9,
    "isDdl": False,
    "mysqlType": {
        "id": "bigint(20) unsigned",
        "name": "varchar(255)",
        "price": "decimal(10,2)",
        "kind": "enum('a','b')",
        "img": "varbinary(20)",
    },
    "old": [{"name": "w"}, {"name": "y", "price": "11.00"}],
    "pkNames": ["id"],
    "sql": "",
    "sqlType": {"id": -5, "name": 12, "price": 3, "kind": 4, "img": 2004},
    "table": "goods",
    "ts": 1589373560798,
    "type": "UPDATE",
}
"""A message of official Canal: several rows, full types, members that TiCDC does not have."""


def test_official_canal_puts_several_rows_in_one_message() -> None:
    """Each row of `data` is a change, with the row of `old` at its place."""
    found = decode(json.dumps(OFFICIAL).encode())
    first, second = rows(found)
    assert len(found) == 3
    assert first.before == OFFICIAL["data"][0] | {"name": "w"}  # type: ignore[index]
    assert second.before == OFFICIAL["data"][1] | {"name": "y", "price": "11.00"}  # type: ignore[index]
    assert [change.commit_ts for change in (first, second)] == [0, 0]


def test_official_canal_tells_full_types() -> None:
    """Precision and members come with the row, so its values need no DDL."""
    found = decode(json.dumps(OFFICIAL).encode())
    assert isinstance(found[0], Bootstrap)
    version, decoder = found[0].version, CanalJsonDecoder(DecoderOptions())
    cells = {}
    for column in version.columns:
        values = [(change.after or {})[column.name] for change in rows(found)]
        array, _ = to_array(values, column, decoder.wire, TypeRules(), column.name)
        cells[column.name] = [str(value) if column.name == "price" else value for value in array.to_pylist()]
    assert cells["kind"] == ["b", "a"]
    assert cells["img"] == [b"\x00\xff", None]
    assert cells["price"] == ["9.90", "10.00"]


def test_statement_binlogs_hold_no_rows() -> None:
    """Official Canal sends the text of a statement where binlog_format is not ROW: it is refused, not skipped."""
    value = json.dumps(OFFICIAL | {"data": None, "old": None, "sql": "update goods set name = 'x'"}).encode()
    with pytest.raises(IncompleteRow, match="Set binlog_format to ROW"):
        decode(value)


@pytest.mark.parametrize("kind", ["GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT"])
def test_marks_of_official_canal_say_nothing(kind: str) -> None:
    """Messages about transactions and about Canal itself change no row."""
    assert decode(json.dumps({"type": kind, "isDdl": False, "database": None, "table": None}).encode()) == ()


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_lz4_is_undone(compression: Any) -> None:
    """lz4 frames are known by their magic number."""
    decoder = CanalJsonDecoder(DecoderOptions(compression=compression))
    assert rows(decode(lz4.frame.compress(message()), decoder))[0].after == ROW


@pytest.mark.parametrize("compression", [None, "snappy"])
def test_snappy_is_undone(compression: Any) -> None:
    """Raw snappy blocks are known by nothing but that they fit."""
    decoder = CanalJsonDecoder(DecoderOptions(compression=compression))
    assert rows(decode(bytes(cramjam.snappy.compress_raw(message())), decoder))[0].after == ROW


@pytest.mark.parametrize("kind", ["INSERT", "UPDATE"])
def test_a_row_reduced_to_its_key_is_refused(kind: str) -> None:
    """With handle-key-only a large row is in the database, not in the message."""
    value = message(
        type=kind, data=[{"id": "1"}], mysqlType={"id": "bigint"}, _tidb={"commitTs": 1, "onlyHandleKey": True}
    )
    with pytest.raises(IncompleteRow, match="A row of bank.account holds key columns only"):
        decode(value)


def test_a_delete_reduced_to_a_unique_key_names_it() -> None:
    """Without a primary key `pkNames` is empty, but a reduced row holds the columns of its handle key and no others."""
    value = message(
        type="DELETE",
        pkNames=[],
        data=[{"name": "a"}],
        mysqlType={"name": "varchar"},
        _tidb={"commitTs": 1, "onlyHandleKey": True},
    )
    found = decode(value)
    assert isinstance(found[0], Bootstrap)
    assert found[0].version.key == ("name",)


def test_a_claim_check_without_storage_is_refused() -> None:
    """The row lies elsewhere, and the sentence says which option is missing."""
    value = message(_tidb={"commitTs": 1, "claimCheckLocation": "s3://bucket/x.json"})
    with pytest.raises(IncompleteRow, match="Set changefeed.claim_check"):
        decode(value)


def test_a_claim_check_must_hold_the_row_that_names_it(tmp_path: Any) -> None:
    """A file of another row is refused by its table, kind and commit ts."""
    (tmp_path / "x.json").write_bytes(message(_tidb={"commitTs": 2}))
    decoder = CanalJsonDecoder(DecoderOptions(claim_check=str(tmp_path)))
    value = message(_tidb={"commitTs": 1, "claimCheckLocation": "s3://bucket/x.json"})
    with pytest.raises(DecodeError, match="x.json does not hold the row of bank.account"):
        decode(value, decoder)


def test_a_bare_claim_check_is_read(tmp_path: Any) -> None:
    """With claim-check-raw-value the file holds the message itself, compressed as others are."""
    (tmp_path / "x.json").write_bytes(lz4.frame.compress(message(_tidb={"commitTs": 1})))
    decoder = CanalJsonDecoder(DecoderOptions(claim_check=str(tmp_path)))
    reduced = {"data": [{"id": "1"}], "mysqlType": {"id": "bigint"}}
    value = message(**reduced, _tidb={"commitTs": 1, "claimCheckLocation": "s3://bucket/x.json"})
    assert rows(decode(value, decoder))[0].after == ROW


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"data": []}, "holds no row"),
        ({"data": [{"id": "1"}]}, "do not agree"),
        ({"data": [ROW | {"x": "1"}]}, "do not agree"),
        ({"data": [ROW, {"id": "1"}]}, "different columns"),
        ({"mysqlType": None}, "do not agree"),
        ({"pkNames": ["uid"]}, "lacks key columns"),
        ({"database": ""}, "does not name its table"),
        ({"type": "UPDATE", "old": [ROW, ROW]}, "1 new rows and 2 old ones"),
        ({"type": "MERGE"}, "of a type that Canal-JSON does not have"),
        ({"type": "TIDB_WATERMARK"}, "holds no watermark"),
        ({"isDdl": True}, "holds no statement"),
        ({"data": [ROW | {"id": 1}]}, "not Canal-JSON"),
        ({"data": [ROW | {"bal": "0." + "1" * 31}]}, "at most 30 digits"),
        ({"_tidb": {"commitTs": -1}}, "not Canal-JSON"),
        ({"_tidb": {"commitTs": 2**63}}, "not Canal-JSON"),
        ({"_tidb": {"commitTs": 1.5}}, "not Canal-JSON"),
    ],
)
def test_what_cannot_be_meant_is_refused(members: dict[str, Any], sentence: str) -> None:
    """A message that contradicts itself is named, never guessed at."""
    with pytest.raises(DecodeError, match=sentence):
        decode(message(**members))


@pytest.mark.parametrize("value", [None, b""])
def test_an_empty_message_is_refused(value: bytes | None) -> None:
    """Canal-JSON has no tombstones."""
    with pytest.raises(DecodeError, match="no value"):
        CanalJsonDecoder(DecoderOptions()).decode(None, value)


def test_bytes_that_are_not_utf8_are_refused() -> None:
    """Damaged text is named, not replaced in silence."""
    with pytest.raises(DecodeError, match="not UTF-8"):
        decode(message().replace(b'"a"', b'"\xff"'))


def test_bytes_are_latin1() -> None:
    """VARBINARY 00 FF 80 is written as one character a byte, whatever its UTF-8 would be."""
    decoder = CanalJsonDecoder(DecoderOptions())
    (change,) = rows(
        decode(message(mysqlType={"id": "varbinary"}, data=[{"id": "\x00\xff\x80"}], sqlType=None), decoder)
    )
    array, _ = to_array(
        [(change.after or {})["id"]], Column("id", ColumnType("varbinary")), decoder.wire, TypeRules(), "id"
    )
    assert array.to_pylist() == [b"\x00\xff\x80"]
