"""The Open protocol, message by message."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cramjam
import lz4.frame
import pytest

from applier.changefeed.event import Bootstrap, Event, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.table import Column, ColumnType, TableName
from applier.changefeed.types import TypeRules
from applier.decode.open.cells import unescape
from applier.decode.open.decoder import OpenDecoder
from applier.decode.options import DecoderOptions
from applier.decode.values.convert import to_array
from applier.errors import DecodeError, IncompleteRow, ValueRefused

ID = {"t": 3, "h": True, "f": 11, "v": 1}
NAME = {"t": 15, "f": 64, "v": "a"}
ACCOUNT = TableName("bank", "account")


def framed(*parts: bytes) -> bytes:
    """Each part behind its length, as eight bytes, the highest first."""
    return b"".join(struct.pack(">Q", len(part)) + part for part in parts)


def message(*pairs: tuple[dict[str, Any], Any]) -> tuple[bytes, bytes]:
    """Key and value of a message of several events."""
    key = struct.pack(">Q", 1) + framed(*(json.dumps(key).encode() for key, _ in pairs))
    bodies = (body if isinstance(body, bytes) else json.dumps(body).encode() for _, body in pairs)
    return key, framed(*bodies)


def row_key(ts: int = 5, **more: Any) -> dict[str, Any]:
    """The key of a row event."""
    return {"ts": ts, "scm": "bank", "tbl": "account", "t": 1} | more


def decode(*pairs: tuple[dict[str, Any], Any], decoder: OpenDecoder | None = None) -> list[Event]:
    """Events of a message of these events."""
    return list((decoder or OpenDecoder(DecoderOptions())).decode(*message(*pairs)))


def rows(found: Sequence[Event]) -> list[RowChange]:
    """The row changes among events."""
    return [event for event in found if isinstance(event, RowChange)]


def cell(found: Sequence[Event], name: str, decoder: OpenDecoder | None = None) -> Any:
    """One cell of the only row, as the row pass would read it."""
    (bootstrap,) = (event for event in found if isinstance(event, Bootstrap))
    column = bootstrap.version.column(name)
    assert column is not None
    wire = (decoder or OpenDecoder(DecoderOptions())).wire
    array, _ = to_array([(rows(found)[0].after or {})[name]], column, wire, TypeRules(), name)
    return array.to_pylist()[0]


def test_a_message_holds_several_events_of_any_table() -> None:
    """Every event has its own key: another table and another commit ts may share a message."""
    other = {"ts": 4, "scm": "bank", "tbl": "log", "t": 1}
    found = decode((row_key(), {"u": {"id": ID}}), (other, {"d": {"id": ID}}), (row_key(6), {"d": {"id": ID}}))
    assert [(change.name.table, change.commit_ts, change.op) for change in rows(found)] == [
        ("account", 5, Op.UPSERT),
        ("log", 4, Op.DELETE),
        ("account", 6, Op.DELETE),
    ]


def test_an_update_holds_the_old_row() -> None:
    """`u` is the new image, `p` the previous one."""
    found = decode((row_key(), {"u": {"id": ID, "name": NAME}, "p": {"id": ID, "name": NAME | {"v": None}}}))
    (change,) = rows(found)
    assert (change.op, change.before, change.after) == (Op.UPDATE, {"id": 1, "name": None}, {"id": 1, "name": "a"})


@pytest.mark.parametrize("previous", [{}, {"name": NAME | {"v": "b"}}, {"id": ID | {"v": 7}}])
def test_a_column_that_p_lacks_did_not_change(previous: dict[str, Any]) -> None:
    """With only-output-updated-columns the previous image is `p` laid over `u`."""
    (change,) = rows(decode((row_key(), {"u": {"id": ID, "name": NAME}, "p": previous})))
    assert change.before == {"id": 1, "name": "a"} | {name: column["v"] for name, column in previous.items()}


def test_a_nameless_previous_value_is_unknown() -> None:
    """TiCDC loses the name of a column that became NULL: its old value is not taken for NULL."""
    new = {"id": ID, "name": NAME | {"v": None}, "note": NAME}
    (change,) = rows(
        decode((row_key(), {"u": new, "p": {"id": ID | {"v": 2}, "t": 15, "f": 64, "v": "gone", "h": True}}))
    )
    assert change.before == {"id": 2, "note": "a"}


def test_a_nameless_previous_value_of_a_table_without_key_is_refused() -> None:
    """Without a key only the whole old row says which one goes."""
    keyless = {"t": 3, "f": 65, "v": None}
    with pytest.raises(IncompleteRow, match="lost the old value of a column"):
        decode((row_key(), {"u": {"a": keyless, "b": keyless | {"v": 1}}, "p": {"t": 3, "f": 65, "v": 7}}))


def test_a_new_image_alone_may_replace_a_row() -> None:
    """With output-old-value off an UPDATE looks like an INSERT, so a row with a key is one or the other."""
    (change,) = rows(decode((row_key(), {"u": {"id": ID}})))
    assert (change.op, change.before, change.after) == (Op.UPSERT, None, {"id": 1})


def test_a_new_image_alone_is_an_insert_where_there_is_no_key() -> None:
    """A bag has nothing that it could replace."""
    (change,) = rows(decode((row_key(), {"u": {"a": {"t": 3, "f": 65, "v": 1}}})))
    assert (change.op, change.before) == (Op.INSERT, None)


def test_a_delete_may_hold_its_key_only() -> None:
    """With delete-only-output-handle-key-columns the image has the key columns and no others."""
    found = decode((row_key(), {"d": {"id": ID}}))
    (change,) = rows(found)
    assert (change.op, change.before, change.after) == (Op.DELETE, {"id": 1}, None)
    assert isinstance(found[0], Bootstrap)
    assert found[0].version.key == ("id",)


def test_flags_describe_the_columns() -> None:
    """Key, nullability, sign, generation and the kind of string come from the flags."""
    columns = {
        "id": {"t": 8, "h": True, "f": 139, "v": 18446744073709551615},
        "n": {"t": 3, "f": 64, "v": None},
        "g": {"t": 15, "f": 68, "v": "x"},
        "b": {"t": 252, "f": 65, "v": None},
        "t": {"t": 252, "f": 64, "v": None},
        "y": {"t": 13, "f": 193, "v": 1999},
    }
    found = decode((row_key(), {"u": columns}))
    assert isinstance(found[0], Bootstrap)
    version = found[0].version
    assert [column.type for column in version.columns] == [
        ColumnType("bigint", unsigned=True),
        ColumnType("int"),
        ColumnType("varchar"),
        ColumnType("blob"),
        ColumnType("text"),
        ColumnType("year"),
    ]
    assert [column.nullable for column in version.columns] == [False, True, True, True, True, True]
    assert [column.generated for column in version.columns] == [None, None, "stored", None, None, None]
    assert version.key == ("id",)
    assert version.indexes[0].primary
    assert cell(found, "id") == 18446744073709551615


def test_a_unique_handle_key_is_no_primary_key() -> None:
    """`h` marks the handle key, which is a unique index where there is no primary key."""
    found = decode((row_key(), {"u": {"a": {"t": 3, "h": True, "f": 19, "v": 1}, "v": {"t": 3, "f": 65, "v": 2}}}))
    assert isinstance(found[0], Bootstrap)
    assert (found[0].version.handle_key, found[0].version.indexes) == (("a",), ())


def test_other_flags_make_another_version() -> None:
    """A column that became unsigned has the same name and type code."""
    first = rows(decode((row_key(), {"u": {"id": ID, "n": {"t": 3, "f": 64, "v": 1}}})))
    second = rows(decode((row_key(), {"u": {"id": ID, "n": {"t": 3, "f": 192, "v": 1}}})))
    assert first[0].version != second[0].version


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ({"t": 15, "f": 64, "v": "aa\\x00"}, "aa\\x00"),
        ({"t": 254, "f": 64, "v": "é"}, "é"),
        ({"t": 252, "f": 64, "v": "YWE="}, "aa"),
        ({"t": 252, "f": 65, "v": "YWE="}, b"aa"),
        ({"t": 249, "f": 65, "v": "/w=="}, b"\xff"),
        ({"t": 15, "f": 65, "v": "\\x89PNG\\r\\n\\x1a\\n"}, b"\x89PNG\r\n\x1a\n"),
        ({"t": 254, "f": 65, "v": "\\x00é\\xff"}, b"\x00\xc3\xa9\xff"),
        ({"t": 4, "f": 64, "v": 1e-7}, struct.unpack("<f", struct.pack("<f", 1e-7))[0]),
        ({"t": 5, "f": 64, "v": 2}, 2.0),
        ({"t": 5, "f": 64, "v": 5e-324}, 5e-324),
        ({"t": 5, "f": 64, "v": 123456789012345680000}, 123456789012345680000.0),
        ({"t": 16, "f": 193, "v": 18446744073709551615}, 18446744073709551615),
        ({"t": 225, "f": 65, "v": "[1,2.5]"}, [1.0, 2.5]),
        ({"t": 245, "f": 65, "v": '{"a": 1}'}, '{"a": 1}'),
        ({"t": 13, "f": 193, "v": 1901}, 1901),
        ({"t": 3, "f": 64, "v": None}, None),
    ],
)
def test_values_are_read_by_code_and_flags(column: dict[str, Any], value: Any) -> None:
    """Text is plain, bytes are escaped or in base64, numbers are exact."""
    assert cell(decode((row_key(), {"u": {"id": ID, "c": column}})), "c") == value


def test_negative_zero_keeps_its_sign() -> None:
    """Go writes -0.0 as `-0`; in text the same letters stay what they are."""
    body = (
        b'{"u":{"id":{"t":3,"h":true,"f":11,"v":1},"c":{"t":5,"f":65,"v":-0},"s":{"t":15,"f":64,"v":"{\\"v\\":-0}"}}}'
    )
    found = decode((row_key(), body))
    assert struct.pack("<d", cell(found, "c")) == struct.pack("<d", -0.0)
    assert cell(found, "s") == '{"v":-0}'


def test_a_timestamp_is_in_the_zone_of_the_server() -> None:
    """The wire has no zone: the changefeed's is configured."""
    decoder = OpenDecoder(DecoderOptions(timezone="Asia/Shanghai"))
    found = decode((row_key(), {"u": {"id": ID, "c": {"t": 7, "f": 65, "v": "2020-02-20 10:20:20"}}}), decoder=decoder)
    assert cell(found, "c", decoder).isoformat() == "2020-02-20T02:20:20+00:00"


def test_decimals_have_the_scale_of_their_text() -> None:
    """Precision and scale are not on the wire, but the text has all digits of its scale."""
    found = decode((row_key(), {"u": {"id": ID, "c": {"t": 246, "f": 65, "v": "12.3000"}}}))
    assert isinstance(found[0], Bootstrap)
    column = found[0].version.column("c")
    assert column is not None
    assert column.type == ColumnType("decimal", scale=4)
    assert str(cell(found, "c")) == "12.3000"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", b""),
        ("plain 'quoted' é", "plain 'quoted' é".encode()),
        (r"\a\b\f\n\r\t\v\\\"", b"\x07\x08\x0c\x0a\x0d\x09\x0b\x5c\x22"),
        (r"\x80\u0080", b"\x80\xc2\x80"),
        (r"\u200b\ufeff", b"\xe2\x80\x8b\xef\xbb\xbf"),
        (r"\U0010ffff", b"\xf4\x8f\xbf\xbf"),
        (r"\\x41", rb"\x41"),
        (r"\\\x41", b"\\A"),
    ],
)
def test_escapes_are_those_of_a_go_string(text: str, expected: bytes) -> None:
    """Every escape that strconv.Quote writes gives back its bytes."""
    assert unescape(text) == expected


@pytest.mark.parametrize(
    "text", ["\\", r"\q", r"\x4", r"\xzz", r"\u12", r"\ud800", r"\Uffffffff", r"\U00110000", "\\\n"]
)
def test_broken_escapes_are_refused(text: str) -> None:
    """What strconv.Quote does not write is no escape, and the error names the column and not the value."""
    with pytest.raises(DecodeError, match="A value of bank.account.c is not encoded") as caught:
        decode((row_key(), {"u": {"id": ID, "c": {"t": 15, "f": 65, "v": f"secret{text}"}}}))
    assert "secret" not in str(caught.value)


def test_a_statement_is_a_schema_change() -> None:
    """DDL comes alone, with the database that its unqualified names belong to."""
    key = {"ts": 7, "scm": "bank", "tbl": "account", "t": 2}
    assert decode((key, {"q": "TRUNCATE TABLE `account`", "t": 11})) == [
        SchemaChange(7, "TRUNCATE TABLE `account`", "bank", table="account")
    ]
    assert decode(({"ts": 7, "t": 2}, {"q": "DROP DATABASE `bank`", "t": 2})) == [
        SchemaChange(7, "DROP DATABASE `bank`", "")
    ]


def test_a_resolved_ts_has_an_empty_value() -> None:
    """Its value is eight zero bytes: a length of nothing."""
    key, value = message(({"ts": 447507027004751877, "t": 3}, b""))
    assert value == bytes(8)
    assert OpenDecoder(DecoderOptions()).decode(key, value) == [Resolved(447507027004751877)]


@pytest.mark.parametrize("compress", [lz4.frame.compress, lambda body: bytes(cramjam.snappy.compress_raw(body))])
def test_values_are_compressed_one_by_one(compress: Any) -> None:
    """Compression is inside the length frames; keys and resolved events are never compressed."""
    body = compress(json.dumps({"u": {"id": ID, "name": NAME | {"v": "a" * 300}}}).encode())
    found = decode((row_key(), body), (row_key(6), {"d": {"id": ID}}))
    assert (rows(found)[0].after or {})["name"] == "a" * 300
    assert rows(found)[1].commit_ts == 6


def test_a_row_reduced_to_its_key_is_refused() -> None:
    """With handle-key-only a large row is in the database, not in the message; a DELETE needs no more."""
    with pytest.raises(IncompleteRow, match="handle-key-only"):
        decode((row_key(ohk=True), {"u": {"id": ID}}))
    assert rows(decode((row_key(ohk=True), {"d": {"id": ID}})))[0].before == {"id": 1}


def claim(folder: Path, *pairs: tuple[dict[str, Any], Any]) -> None:
    """A claim-check file with these events."""
    key, value = message(*pairs)
    wrapped = {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode()}
    (folder / "x.json").write_text(json.dumps(wrapped))


def test_a_claim_check_stands_for_a_row(tmp_path: Path) -> None:
    """TiCDC writes `ohk` twice in such a key; the file counts, and the reduced value does not."""
    claim(tmp_path, (row_key(), {"u": {"id": ID, "name": NAME}}))
    key = b'{"ts":5,"scm":"bank","tbl":"account","t":1,"ohk":true,"ohk":false,"ccl":"s3://bucket/x.json"}'
    value = framed(json.dumps({"u": {"id": ID}}).encode())
    found = OpenDecoder(DecoderOptions(claim_check=str(tmp_path))).decode(struct.pack(">Q", 1) + framed(key), value)
    assert rows(found)[0].after == {"id": 1, "name": "a"}


@pytest.mark.parametrize(
    "held",
    [
        [(row_key(6), {"u": {"id": ID}})],
        [(row_key(), {"u": {"id": ID}})] * 2,
        [(row_key(ccl="s3://bucket/x.json"), {"u": {"id": ID}})],
    ],
)
def test_a_claim_check_must_hold_the_row_that_names_it(held: list[Any], tmp_path: Path) -> None:
    """Another row, more than one, or another claim check is refused."""
    claim(tmp_path, *held)
    with pytest.raises(DecodeError, match="x.json does not hold the row of bank.account"):
        decode(
            (row_key(ccl="s3://bucket/x.json"), {"u": {"id": ID}}),
            decoder=OpenDecoder(DecoderOptions(claim_check=str(tmp_path))),
        )


def test_a_claim_check_without_storage_is_refused() -> None:
    """The row lies elsewhere, and the sentence says which option is missing."""
    with pytest.raises(IncompleteRow, match="Set changefeed.claim_check"):
        decode((row_key(ccl="s3://bucket/x.json"), {"u": {"id": ID}}))


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        (None, bytes(8), "does not begin as one of the Open protocol"),
        (b"", b"", "does not begin as one of the Open protocol"),
        (struct.pack(">Q", 2), bytes(8), "does not begin as one of the Open protocol"),
        (struct.pack(">Q", 1), bytes(8), "does not begin as one of the Open protocol"),
        (struct.pack(">Q", 1) + b"\xff" * 8 + b"{}", bytes(8), "cut short"),
        (struct.pack(">Q", 1) + framed(b'{"ts":1,"t":3}'), b"\x00", "cut short"),
        (struct.pack(">Q", 1) + framed(b'{"ts":1,"t":3}'), bytes(16), "more values than keys"),
        (struct.pack(">Q", 1) + framed(b'{"ts":1,"t":3}') * 2, bytes(8), "cut short"),
        (struct.pack(">Q", 1) + framed(b"[]"), bytes(8), "not of the Open protocol"),
        (struct.pack(">Q", 1) + framed(b'{"ts":1,"t":9}'), bytes(8), "of type 9"),
        (struct.pack(">Q", 1) + framed(b'{"ts":-1,"t":3}'), bytes(8), "not of the Open protocol"),
        (struct.pack(">Q", 1) + framed(b'{"ts":1,"scm":"\xff","t":3}'), bytes(8), "not UTF-8"),
    ],
)
def test_broken_frames_are_refused(key: bytes | None, value: bytes, sentence: str) -> None:
    """Lengths, counts and versions that do not fit are named, before anything is allocated for them."""
    with pytest.raises(DecodeError, match=sentence):
        OpenDecoder(DecoderOptions()).decode(key, value)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"u": {}}, "holds no row"),
        ({"p": {"id": ID}}, "holds no row"),
        ({"u": {"id": ID}, "d": {"id": ID}}, "holds no row"),
        ({"u": {"id": {"t": 3, "f": 11}}}, "not of the Open protocol"),
        ({"u": {"id": {"v": 3, "f": 11}}}, "not of the Open protocol"),
        ({"u": {"id": {"t": 256, "f": 11, "v": 1}}}, "not of the Open protocol"),
        ({"u": {"id": ID, "c": {"t": 252, "f": 64, "v": "Y"}}}, "bank.account.c is not encoded"),
        ({"u": {"id": ID, "c": {"t": 252, "f": 64, "v": 1}}}, "bank.account.c is not encoded"),
        ({"u": {"id": ID, "c": {"t": 15, "f": 65, "v": 1}}}, "bank.account.c is not encoded"),
        ({"u": {"id": ID, "c": {"t": 246, "f": 65, "v": "1." + "0" * 31}}}, "at most 30 digits"),
        ({"u": {"id": ID, "c": {"t": 246, "f": 65, "v": 1}}}, "at most 30 digits"),
    ],
)
def test_broken_rows_are_refused(body: Any, sentence: str) -> None:
    """A row that is not whole, or a value that is not of its form, is named with its table."""
    with pytest.raises(DecodeError, match=sentence):
        decode((row_key(), body))


def test_a_row_without_table_is_refused() -> None:
    """Rows always name their table."""
    with pytest.raises(DecodeError, match="does not name its table"):
        decode(({"ts": 5, "t": 1}, {"u": {"id": ID}}))


@pytest.mark.parametrize("kind", ["varbinary", "binary"])
def test_bytes_whose_flag_is_missing_are_read_as_the_ddl_declares_them(kind: str) -> None:
    """TiCDC of the new architecture (v8.5.4 and later) writes flag 0 for a column added to a partitioned table."""
    decoder = OpenDecoder(DecoderOptions())
    cells = {"id": ID, "vb": {"t": 15, "f": 0, "v": 'a\\xff\\x00\\\\\\"'}}
    change = decode((row_key(), {"u": cells}), decoder=decoder)[-1]
    assert isinstance(change, RowChange)
    assert change.after is not None
    column = Column("vb", ColumnType(kind, length=10))

    array, _ = to_array([change.after["vb"]], column, decoder.wire, TypeRules(), "t.vb")

    assert array.to_pylist() == [b'a\xff\0\\"']


def test_bytes_whose_flag_is_missing_are_refused_where_they_are_not_escaped() -> None:
    """No byte is made up for what the encoder does not write."""
    column = Column("vb", ColumnType("varbinary", length=10))
    with pytest.raises(ValueRefused, match="cannot be read as varbinary"):
        to_array(["a\\q"], column, OpenDecoder(DecoderOptions()).wire, TypeRules(), "t.vb")
