"""The Simple decoder on single messages, written out as TiCDC's documentation and recordings show them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cramjam
import lz4.frame
import msgspec
import pytest

from applier.changefeed.event import Bootstrap, Event, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.table import Column, ColumnType, Index, TableName
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.decode.values.dates import ZonedText
from applier.errors import DecodeError, IncompleteRow

TS = 447984124732375041
WATERMARK = b'{"version":1,"type":"WATERMARK","commitTs":447984124732375041,"buildTs":1708923816911}'
AVRO_WATERMARK = bytes.fromhex("16000002828080bb83ccc7b70c9eafe0bcbc63")
AVRO_DROP = bytes.fromhex("160404020e226372656174652064617461626173652064828080bb83ccc7b70c9eafe0bcbc630000")
COLUMNS = (
    '[{"name":"id","dataType":{"mysqlType":"bigint","charset":"binary","collate":"binary","length":20,"unsigned":true},'
    '"nullable":false,"default":null},'
    '{"name":"y","dataType":{"mysqlType":"year","charset":"binary","collate":"binary","length":4,"unsigned":true,'
    '"zerofill":true},"nullable":true,"default":null},'
    '{"name":"p","dataType":{"mysqlType":"decimal","charset":"binary","collate":"binary","length":10},"nullable":true,'
    '"default":"1"},'
    '{"name":"b","dataType":{"mysqlType":"bit","charset":"binary","collate":"binary","length":10,"unsigned":true},'
    '"nullable":true,"default":682},'
    '{"name":"e","dataType":{"mysqlType":"enum","charset":"utf8mb4","collate":"utf8mb4_bin","length":1,'
    '"elements":["a","b"]},"nullable":true,"default":"b"},'
    '{"name":"at","dataType":{"mysqlType":"timestamp","charset":"binary","collate":"binary","length":23,"decimal":3},'
    '"nullable":true,"default":"CURRENT_TIMESTAMP"},'
    '{"name":"_V$_k_0","dataType":{"mysqlType":"bigint","charset":"binary","collate":"binary","length":20},'
    '"nullable":true,"default":null}]'
)
INDEXES = (
    '[{"name":"k","unique":true,"primary":false,"nullable":true,"columns":["_V$_k_0"]},'
    '{"name":"u","unique":true,"primary":false,"nullable":true,"columns":["y"]},'
    '{"name":"primary","unique":true,"primary":true,"nullable":false,"columns":["id"]}]'
)
SCHEMA = f'{{"schema":"shop","table":"t","tableID":112,"version":71,"columns":{COLUMNS},"indexes":{INDEXES}}}'


def decode(value: bytes | str, **options: Any) -> Event:
    """The only event of a message."""
    data = value.encode() if isinstance(value, str) else value
    (event,) = build("simple", DecoderOptions(**options)).decode(b"", data)
    return event


def row(kind: str, body: str) -> str:
    """A row message."""
    return (
        f'{{"version":1,"database":"shop","table":"t","tableID":114,"type":"{kind}","commitTs":{TS},'
        f'"buildTs":1708923815660,"schemaVersion":71,{body}}}'
    )


def test_a_watermark_is_a_resolved_ts() -> None:
    """JSON and Avro say the same, and all 64 bits are kept."""
    assert decode(WATERMARK) == decode(AVRO_WATERMARK) == Resolved(TS)


def test_rows_keep_text_null_and_zoned_timestamps() -> None:
    """A row's values stay as they came, so nothing is lost before its schema is known."""
    stamp = '{"location":"Asia/Shanghai","value":"2024-03-11 08:51:01.461"}'
    event = decode(row("INSERT", f'"data":{{"id":"18446744073709551615","y":null,"at":{stamp}}}'))
    image = {"id": "18446744073709551615", "y": None, "at": ZonedText("Asia/Shanghai", "2024-03-11 08:51:01.461")}
    assert event == RowChange(TableName("shop", "t"), 71, TS, Op.INSERT, None, image)


def test_an_update_has_both_images_and_a_delete_the_old_one() -> None:
    """The images go to `before` and `after` as the message type says, also when a key changes."""
    update = decode(row("UPDATE", '"data":{"id":"2"},"old":{"id":"1"}'))
    delete = decode(row("DELETE", '"old":{"id":"2"}'))
    assert update == RowChange(TableName("shop", "t"), 71, TS, Op.UPDATE, {"id": "1"}, {"id": "2"})
    assert delete == RowChange(TableName("shop", "t"), 71, TS, Op.DELETE, {"id": "2"}, None)


@pytest.mark.parametrize("kind", ["CREATE", "RENAME", "CINDEX", "DINDEX", "ERASE", "TRUNCATE", "ALTER", "QUERY"])
def test_every_kind_of_ddl_is_a_schema_change(kind: str) -> None:
    """The type word decides nothing: the statement and the schema do."""
    text = f'{{"version":1,"type":"{kind}","sql":"ALTER …","commitTs":{TS},"buildTs":1,"tableSchema":{SCHEMA}}}'
    event = decode(text)
    assert isinstance(event, SchemaChange)
    assert (event.commit_ts, event.sql, event.database, event.before) == (TS, "ALTER …", "shop", None)
    assert event.after is not None
    assert event.after.name == TableName("shop", "t")


def test_a_ddl_of_a_database_has_no_table() -> None:
    """Its database is in the statement alone."""
    change = SchemaChange(TS, "create database d", "")
    assert decode(AVRO_DROP) == change
    assert decode(f'{{"version":1,"type":"QUERY","sql":"create database d","commitTs":{TS},"buildTs":1}}') == change


def test_a_previous_schema_is_kept() -> None:
    """EXCHANGE PARTITION names its other table there."""
    other = SCHEMA.replace('"table":"t"', '"table":"other"')
    text = f'{{"version":1,"type":"ALTER","sql":"x","commitTs":1,"tableSchema":{SCHEMA},"preTableSchema":{other}}}'
    event = decode(text)
    assert isinstance(event, SchemaChange)
    assert event.before is not None
    assert event.before.name.table == "other"


def test_a_bootstrap_gives_types_defaults_and_keys() -> None:
    """Types come without display noise, bit defaults as digits, and hidden columns are left out."""
    event = decode(f'{{"version":1,"type":"BOOTSTRAP","commitTs":0,"buildTs":1,"tableSchema":{SCHEMA}}}')
    assert isinstance(event, Bootstrap)
    version = event.version
    assert version.columns == (
        Column("id", ColumnType("bigint", unsigned=True, length=20), nullable=False),
        Column("y", ColumnType("year", length=4)),
        Column("p", ColumnType("decimal", length=10, scale=0), default="1"),
        Column("b", ColumnType("bit", length=10), default="682"),
        Column("e", ColumnType("enum", length=1, elements=("a", "b")), default="b"),
        Column("at", ColumnType("timestamp", length=23, scale=3), default="CURRENT_TIMESTAMP"),
    )
    assert version.indexes == (Index("u", ("y",), unique=True), Index("primary", ("id",), unique=True, primary=True))
    assert (version.key, version.version, version.table_id) == (("id",), 71, 112)


def test_a_view_is_no_table() -> None:
    """CREATE VIEW has a schema whose columns have no type; it is a change without a table."""
    column = (
        '{"name":"a","dataType":{"mysqlType":"unspecified","charset":"","collate":""},"nullable":true,"default":null}'
    )
    schema = f'{{"schema":"shop","table":"v","tableID":1,"version":2,"columns":[{column}],"indexes":[]}}'
    event = decode(f'{{"version":1,"type":"QUERY","sql":"CREATE VIEW v","commitTs":9,"tableSchema":{schema}}}')
    assert event == SchemaChange(9, "CREATE VIEW v", "shop")


def test_handle_key_only_rows_are_incomplete() -> None:
    """Key columns alone must not be written over a row; the error names table, option and way out."""
    for kind in ("INSERT", "UPDATE"):
        with pytest.raises(IncompleteRow) as caught:
            decode(row(kind, '"handleKeyOnly":true,"data":{"id":"7"}'))
        assert str(caught.value) == (
            "A row of shop.t holds key columns only, because large-message-handle-option is "
            "handle-key-only. Hint: Set large-message-handle-option to claim-check in the changefeed and "
            "changefeed.claim_check here, or raise max-message-bytes, so that messages hold whole rows. "
            "Or name the TiDB in upstream.url, from which such rows are read."
        )


def test_a_handle_key_only_delete_is_whole() -> None:
    """The key is all that a delete needs."""
    event = decode(row("DELETE", '"handleKeyOnly":true,"old":{"id":"7"}'))
    assert isinstance(event, RowChange)
    assert event.before == {"id": "7"}


@pytest.mark.parametrize("body", ['"old":{"id":"1"}', '"data":null'])
def test_a_row_without_its_image_is_incomplete(body: str) -> None:
    """An insert or update without `data` names a row that is not there."""
    with pytest.raises(IncompleteRow, match="The UPDATE of a row of shop.t holds no row"):
        decode(row("UPDATE", body))


def test_a_claim_check_comes_before_handle_key_only(tmp_path: Path) -> None:
    """Such a message holds the key columns as well, and is marked so; the file has the row."""
    (tmp_path / "u.json").write_text(row("INSERT", '"data":{"id":"1","name":"long"}'))
    stub = row("INSERT", '"claimCheckLocation":"s3://b/u.json","handleKeyOnly":true,"data":{"id":"1"}')
    event = decode(stub, claim_check=str(tmp_path))
    assert isinstance(event, RowChange)
    assert event.after == {"id": "1", "name": "long"}


def test_a_claim_check_without_a_storage_is_incomplete() -> None:
    """The way out is the setting."""
    with pytest.raises(
        IncompleteRow, match="shop.t lies in the claim-check storage.* Hint: Set changefeed.claim_check"
    ):
        decode(row("INSERT", '"claimCheckLocation":"s3://b/u.json","handleKeyOnly":true,"data":{"id":"1"}'))


def test_a_claim_check_of_another_row_is_refused(tmp_path: Path) -> None:
    """A storage of another changefeed must not give rows."""
    (tmp_path / "u.json").write_text(row("INSERT", '"data":{"id":"1"}').replace('"t"', '"other"'))
    stub = row("INSERT", '"claimCheckLocation":"s3://b/u.json","handleKeyOnly":true,"data":{"id":"1"}')
    with pytest.raises(DecodeError, match="u.json does not hold the row of shop.t"):
        decode(stub, claim_check=str(tmp_path))


@pytest.mark.parametrize("plain", [WATERMARK, AVRO_WATERMARK])
@pytest.mark.parametrize("word", [None, "lz4", "snappy"])
def test_compression_is_told_from_the_bytes_or_by_the_option(plain: bytes, word: Any) -> None:
    """Plain messages pass under any setting, compressed ones where it fits or is left open."""
    packed = {"lz4": lz4.frame.compress(plain), "snappy": bytes(cramjam.snappy.compress_raw(plain))}
    for value in (plain, *packed.values()) if word is None else (plain, packed[word]):
        assert decode(value, compression=word) == Resolved(TS)


def test_a_snappy_block_that_begins_as_json_is_not_taken_for_json() -> None:
    """123 bytes of text make a block whose first byte is a brace."""
    text = WATERMARK[:-1] + b"," + b" " * (123 - len(WATERMARK) - 1 - 8) + b'"x":"yz"' + b"}"
    block = bytes(cramjam.snappy.compress_raw(text))
    assert (len(text), block[:1]) == (123, b"{")
    assert decode(block) == Resolved(TS)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (WATERMARK.replace(b'"version":1', b'"version":2'), "version 2 of the Simple protocol"),
        (b"\x16\x00\x00\x04" + AVRO_WATERMARK[4:], "version 2 of the Simple protocol"),
        (WATERMARK.replace(b"WATERMARK", b"SOMETHING"), "a type that the Simple protocol does not have"),
        (b'{"id":0,"database":"d","table":"t","type":"INSERT","data":[{"a":"1"}]}', "not of the Simple protocol"),
        (AVRO_WATERMARK + b"\x00", "not Avro of the Simple protocol"),
        (AVRO_WATERMARK[:-1], "not Avro of the Simple protocol"),
        (b'{"version":1,"type":"BOOTSTRAP","commitTs":0}', "holds no table"),
        (b'{"version":1,"type":"INSERT","commitTs":1,"data":{"a":"1"}}', "does not name its table"),
        (row("INSERT", '"data":{"id":"1"}').encode().replace(b'"id"', b'"\xff"'), "not UTF-8"),
        (b"\x00\x00\x00\x00\x05rest", "neither plain nor compressed by lz4 or snappy"),
    ],
)
def test_what_is_not_of_the_protocol_is_named(value: bytes, message: str) -> None:
    """Other versions, protocols and encodings are told by a sentence."""
    with pytest.raises(DecodeError, match=message):
        decode(value)


def test_none_forbids_compression() -> None:
    """With `compression = none` a compressed message is a mistake to be told of."""
    with pytest.raises(DecodeError, match="changefeed.compression is none"):
        decode(lz4.frame.compress(WATERMARK), compression="none")


def test_options_travel_to_executors() -> None:
    """They are plain values, and what they hold of the registry is not printed."""
    options = DecoderOptions("UTC", "lz4", "s3://bucket", {"password": "secret"}, nameless_zone="Asia/Tokyo")
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 - our own bytes
    assert "secret" not in repr(options)
    decoder = build("simple", options)
    assert (decoder.wire.zone, decoder.wire.members, decoder.wire.binary) == ("Asia/Tokyo", "index", "base64")


def test_rows_can_be_compared_and_hashed_by_their_timestamps() -> None:
    """A TIMESTAMP may be part of a key."""
    stamps = {
        ZonedText("UTC", "2020-01-01 00:00:00"),
        msgspec.convert({"location": "UTC", "value": "2020-01-01 00:00:00"}, ZonedText),
    }
    assert len(stamps) == 1


@pytest.mark.parametrize(("decimal", "scale"), [("", 0), (',"decimal":-1', 0), (',"decimal":3', 3)])
def test_digits_that_a_statement_leaves_out_are_none(decimal: str, scale: int) -> None:
    """TiCDC leaves them out behind a CREATE TABLE, and writes -1 in a BOOTSTRAP."""
    column = f'{{"name":"c","dataType":{{"mysqlType":"time","length":10{decimal}}},"nullable":true,"default":null}}'
    schema = f'{{"schema":"shop","table":"t","tableID":1,"version":2,"columns":[{column}],"indexes":[]}}'
    event = decode(f'{{"version":1,"type":"BOOTSTRAP","commitTs":0,"tableSchema":{schema}}}')
    assert isinstance(event, Bootstrap)
    assert event.version.columns[0].type.scale == scale
