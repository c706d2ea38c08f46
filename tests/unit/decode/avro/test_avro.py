"""The Avro decoder on messages of builds that were not recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from applier.changefeed.event import Bootstrap, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.table import UNKNOWN_DEFAULT, Column, ColumnType, Index, TableName, TableVersion
from applier.config.registry import RegistrySection
from applier.decode.avro.decoder import AvroDecoder, build, row_version
from applier.decode.avro.namesakes import sanitised
from applier.decode.avro.schema import members
from applier.decode.options import DecoderOptions
from applier.errors import DecodeError, IncompleteRow, RegistryReplaced
from tests.unit.decode.avro_messages import EXTENSION, ID, TS, Schemas, column, record


def extension(op: str = "c") -> dict[str, Any]:
    """Values of the extension fields."""
    return {"_tidb_op": op, "_tidb_commit_ts": TS, "_tidb_commit_physical_time": TS >> 18}


def only_row(events: Any) -> RowChange:
    """The row change among events."""
    (row,) = [event for event in events if isinstance(event, RowChange)]
    return row


def version_of(events: Any) -> TableVersion:
    """The table version among events."""
    (bootstrap,) = [event for event in events if isinstance(event, Bootstrap)]
    return bootstrap.version


def test_control_messages() -> None:
    """Byte 1 is a DDL in JSON, 2 a resolved ts, 3 a delete of the key's row at a commit ts."""
    schemas = Schemas(key=record(ID))
    decode = AvroDecoder(schemas).decode
    ddl = json.dumps({"query": "DROP TABLE t", "type": 4, "schema": "shop", "table": "t", "commitTs": TS}).encode()

    assert decode(None, b"\x01" + ddl) == (SchemaChange(TS, "DROP TABLE t", "shop", table="t"),)
    assert decode(None, b"\x02" + TS.to_bytes(8, "big")) == (Resolved(TS),)
    events = decode(schemas.message("key", id=7), b"\x03" + TS.to_bytes(8, "big"))
    number = row_version(1, 0)
    version = TableVersion(
        TableName("shop", "t"),
        number,
        (Column("id", ColumnType("bigint"), nullable=False),),
        handle_key=("id",),
        keys_only=True,
    )
    assert events == (Bootstrap(version), RowChange(version.name, number, TS, Op.DELETE, {"id": 7}, None))


def test_a_null_value_is_a_delete() -> None:
    """Without watermarks a delete is a tombstone: it has no commit ts, and it is never an empty message."""
    schemas = Schemas(key=record(ID))

    row = only_row(AvroDecoder(schemas).decode(schemas.message("key", id=7), None))

    assert (row.op, row.commit_ts, row.before) == (Op.DELETE, 0, {"id": 7})


@pytest.mark.parametrize("key", [None, b""])
@pytest.mark.parametrize("value", [None, b"\x03" + bytes(8)])
def test_a_delete_without_a_key_names_no_row(key: bytes | None, value: bytes | None) -> None:
    """Neither a null nor an empty key can say which row went."""
    with pytest.raises(IncompleteRow, match="names no row"):
        AvroDecoder(Schemas()).decode(key, value)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (column("c", "INT", "int"), ColumnType("int")),
        (column("c", "INT UNSIGNED", "int"), ColumnType("mediumint", unsigned=True)),
        (column("c", "INT UNSIGNED", "long"), ColumnType("int", unsigned=True)),
        (column("c", "BIGINT UNSIGNED", "string"), ColumnType("bigint", unsigned=True)),
        (column("c", "FLOAT", "float"), ColumnType("float")),
        (column("c", "FLOAT", "double"), ColumnType("float")),
        (column("c", "BIT", "bytes", length="10"), ColumnType("bit", length=10)),
        (column("c", "ENUM", "string", allowed=r"a\,b,c'd"), ColumnType("enum", elements=("a,b", "c'd"))),
        (column("c", "SET", "string", allowed="x"), ColumnType("set", elements=("x",))),
        (
            column("c", "DECIMAL", "bytes", logicalType="decimal", precision=10, scale=2),
            ColumnType("decimal", length=10, scale=2),
        ),
        (
            column("c", "DECIMAL", "bytes", logicalType="decimal", precision=10),
            ColumnType("decimal", length=10, scale=0),
        ),
        (column("c", "YEAR", "int"), ColumnType("year")),
        (column("c", "TiDBVECTORFloat32", "string"), ColumnType("vector")),
    ],
)
def test_a_type_is_read_from_tidb_type_and_avro_type(field: dict[str, Any], expected: ColumnType) -> None:
    """`INT UNSIGNED` in an Avro int is at most a MEDIUMINT; FLOAT was a double before v7.0."""
    schemas = Schemas(key=record(ID), value=record(ID, field))
    values = {"int": 1, "long": 1, "string": "1", "bytes": b"\1", "float": 1.0, "double": 1.0}

    version = version_of(
        AvroDecoder(schemas).decode(
            schemas.message("key", id=1), schemas.message("value", id=1, c=values[field["type"]["type"]])
        )
    )

    default = UNKNOWN_DEFAULT if expected.name == "decimal" else None
    assert version.columns[1] == Column("c", expected, nullable=False, default=default)
    assert version.key == ("id",)


def test_null_may_come_first_or_last_in_a_union() -> None:
    """A column with a default has its type first, so the branch number alone does not tell NULL."""
    schemas = Schemas(
        key=record(ID),
        value=record(
            ID, column("a", "INT", "int", null="first", default=None), column("b", "INT", "int", null="last", default=7)
        ),
    )
    decode = AvroDecoder(schemas).decode
    key = schemas.message("key", id=1)

    events = decode(key, schemas.message("value", id=1, a=None, b=None))

    assert only_row(events).after == {"id": 1, "a": None, "b": None}
    assert [(c.nullable, c.default) for c in version_of(events).columns] == [(False, None), (True, None), (True, "7")]
    assert only_row(decode(key, schemas.message("value", id=1, a=0, b=3))).after == {"id": 1, "a": 0, "b": 3}


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("BLOB", "YWI=", "ab"),
        ("BIT", "BQ==", "5"),
        ("BLOB", "/w==", UNKNOWN_DEFAULT),
        ("BLOB", "no base64", UNKNOWN_DEFAULT),
    ],
)
def test_a_default_of_bytes_is_base64(kind: str, default: str, expected: str | None) -> None:
    """Bytes defaults are base64 text, not Avro's own convention; one that is no text is not known."""
    field = column("c", kind, "bytes", default=default, **({"length": "4"} if kind == "BIT" else {}))
    schemas = Schemas(key=record(ID), value=record(ID, field))

    version = version_of(
        AvroDecoder(schemas).decode(schemas.message("key", id=1), schemas.message("value", id=1, c=b"x"))
    )

    assert version.columns[1].default == expected


@pytest.mark.parametrize(("default", "expected"), [(0, UNKNOWN_DEFAULT), (24, "24")])
def test_the_year_0_as_a_default_is_not_known(default: int, expected: str) -> None:
    """DEFAULT 0 is the year 2000, and a NOT NULL column without a default, the year 0000, has the same schema."""
    schemas = Schemas(key=record(ID), value=record(ID, column("y", "YEAR", "int", default=default)))

    version = version_of(AvroDecoder(schemas).decode(schemas.message("key", id=1), schemas.message("value", id=1, y=1)))

    assert version.columns[1].default == expected


def test_each_row_is_read_with_its_own_schema() -> None:
    """`7b` is 1.23 under decimal(10,2) and 0.0123 under decimal(10,4): the id decides, message by message."""
    scales = [column("c", "DECIMAL", "bytes", logicalType="decimal", precision=10, scale=scale) for scale in (2, 4)]
    schemas = Schemas(key=record(ID), old=record(ID, scales[0]), new=record(ID, scales[1]))
    decode = AvroDecoder(schemas).decode
    key, body = schemas.message("key", id=1), bytes([2, 2, 0x7B])

    found = [only_row(decode(key, b"\0" + number.to_bytes(4, "big") + body)).after for number in (2, 3, 2)]

    assert [str(image["c"]) for image in found if image] == ["1.23", "0.0123", "1.23"]


def test_text_decimals_show_their_scale_and_null_fits_any() -> None:
    """With `avro-decimal-handling-mode=string` the digits of a row tell its scale; another scale is another version."""
    schemas = Schemas(key=record(ID), value=record(ID, column("c", "DECIMAL", "string", null="first", default=None)))
    decode = AvroDecoder(schemas).decode
    key = schemas.message("key", id=1)

    found = [
        decode(key, schemas.message("value", id=1, c=text)) for text in ("1.20", None, "-3.00", "1.2000", "5", None)
    ]

    versions = [only_row(events).version for events in found]
    assert versions[0] == versions[1] == versions[2] == versions[5]
    assert len(set(versions)) == 3
    scales = [version_of(events).columns[1].type.scale for events in found if len(events) == 2]
    assert scales == [2, 4, 0]


def test_a_decimal_of_too_many_digits_is_refused() -> None:
    """TiDB has at most 30 digits after the point."""
    schemas = Schemas(key=record(ID), value=record(ID, column("c", "DECIMAL", "string")))

    with pytest.raises(DecodeError, match="at most 30 digits"):
        AvroDecoder(schemas).decode(schemas.message("key", id=1), schemas.message("value", id=1, c="0." + "1" * 31))


@pytest.mark.parametrize(
    ("fields", "letter", "expected"),
    [
        (EXTENSION, "c", Op.INSERT),
        (EXTENSION, "u", Op.UPDATE),
        (EXTENSION, "", Op.UPSERT),
        ([{"name": f["name"], "type": f["type"]} for f in EXTENSION], "c", Op.UPSERT),
    ],
)
def test_an_insert_is_believed_only_where_updates_are_told_apart(fields: list[Any], letter: str, expected: Op) -> None:
    """Before v7.1, known by extension fields without default, `c` may be an update, so the row may be there already."""
    schemas = Schemas(key=record(ID), value=record(ID, *fields))

    row = only_row(
        AvroDecoder(schemas).decode(schemas.message("key", id=1), schemas.message("value", id=1, **extension(letter)))
    )

    assert (row.op, row.commit_ts, row.after) == (expected, TS, {"id": 1})


def test_a_column_may_be_named_like_an_extension_field() -> None:
    """Without the extension, `_tidb_op` is a column if TiCDC declared it with a TiDB type."""
    schemas = Schemas(key=record(ID), value=record(ID, column("_tidb_op", "TEXT", "string")))

    row = only_row(
        AvroDecoder(schemas).decode(schemas.message("key", id=1), schemas.message("value", id=1, _tidb_op="d"))
    )

    assert (row.op, row.after) == (Op.UPSERT, {"id": 1, "_tidb_op": "d"})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a", "a"),
        ("1a", "_1a"),
        ("A.B", "A_B"),
        ("\u540d", "_"),
        ("my-db", "my_db"),
        ("", ""),
        ("_x9", "_x9"),
        ("\u0661", "_"),
    ],
)
def test_names_are_sanitised_as_ticdc_does(name: str, expected: str) -> None:
    """One underscore for each forbidden character, one more before a digit."""
    assert sanitised(name) == expected


@pytest.mark.parametrize(
    ("allowed", "expected"), [("a,b", ("a", "b")), (r"a\,b,c", ("a,b", "c")), ("", ("",)), (",", ("", ""))]
)
def test_members_are_split_at_bare_commas(allowed: str, expected: tuple[str, ...]) -> None:
    r"""A member's own comma is written `\,`."""
    assert members(allowed) == expected


def described(database: str, table: str, *columns: str) -> TableVersion:
    """A version as a DDL describes it: with its primary key."""
    index = Index("PRIMARY", ("id",), unique=True, primary=True)
    return TableVersion(
        TableName(database, table), 1, tuple(Column(name, ColumnType("int")) for name in columns), (index,)
    )


def test_tables_that_share_a_sanitised_name_are_refused() -> None:
    """`my-db.t` and `my.db.t` are one record in Avro: rows that may be of either are never given to one of them."""
    schemas = Schemas(key=record(ID, namespace="default.my_db"), value=record(ID, namespace="default.my_db"))
    decoder = AvroDecoder(schemas)
    decoder.learn(described("my-db", "t", "id"))
    message = schemas.message("key", id=1), schemas.message("value", id=1)

    assert only_row(decoder.decode(*message)).name == TableName("my-db", "t")
    decoder.learn(described("my.db", "t", "id"))
    with pytest.raises(DecodeError, match=r"may stand for each of my-db\.t, my\.db\.t"):
        decoder.decode(*message)


def test_columns_that_shared_a_sanitised_name_are_refused() -> None:
    """A column `a-b` that became `a.b` leaves the schema as it is, so its rows cannot be told apart."""
    schemas = Schemas(key=record(ID), value=record(ID, column("a_b", "INT", "int")))
    decoder = AvroDecoder(schemas)
    decoder.learn(described("shop", "t", "id", "a-b"))
    decoder.learn(described("shop", "t", "id", "a.b"))

    with pytest.raises(DecodeError, match=r"field a_b of shop\.t|Field a_b of shop\.t"):
        decoder.decode(schemas.message("key", id=1), schemas.message("value", id=1, a_b=1))


def test_options_give_registry_and_zone_without_connecting() -> None:
    """The decoder of a worker is built from picklable options; nobody listens at that address."""
    decoder = build(DecoderOptions(timezone="Asia/Shanghai", registry=RegistrySection(url="http://127.0.0.1:1")))

    assert decoder.wire.zone == "Asia/Shanghai"


def test_a_version_is_kept_with_what_its_schema_ids_meant() -> None:
    """Another process reads it, finds another schema under the id, and reads no row by it; an old one is kept again."""
    schemas, rebuilt = Schemas(key=record(ID), value=record(ID)), Schemas(key=record(ID, name="u"), value=record(ID))
    message = schemas.message("key", id=1), schemas.message("value", id=1)
    bootstrap = AvroDecoder(schemas).decode(*message)[0]
    assert isinstance(bootstrap, Bootstrap)
    kept = TableVersion.from_json(bootstrap.version.to_json())
    again, other, former = AvroDecoder(schemas), AvroDecoder(rebuilt), AvroDecoder(schemas)

    again.learn(kept)
    assert [type(event) for event in again.decode(*message)] == [RowChange]
    former.learn(replace(kept, schemas=()))
    assert [type(event) for event in former.decode(*message)] == [Bootstrap, RowChange]
    other.learn(kept)
    with pytest.raises(RegistryReplaced, match="another schema for id 1 "):
        other.decode(*message)
