"""The Debezium decoders on messages of builds that were not recorded, and on bytes that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from applier.changefeed.event import Bootstrap, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.table import Column, ColumnType, Index, TableName, TableVersion
from applier.changefeed.types import OPEN, UINT64, TypeRules, column_arrow_type
from applier.decode.debezium.ddl import Described
from applier.decode.debezium.json_decoder import DebeziumDecoder
from applier.decode.debezium.rows import OWN, UNKNOWN_VERSION, ConnectField
from applier.decode.options import DecoderOptions
from applier.errors import DecodeError, IncompleteRow

TS = 470606910877335552
NAME = TableName("shop", "t")


def source(**more: Any) -> dict[str, Any]:
    """Member `source` as far as it is read."""
    return {"db": "shop", "table": "t", "commit_ts": TS, "version": "2.4.0.Final", **more}


def field(name: str, kind: str, /, **more: Any) -> dict[str, Any]:
    """A declared field."""
    return {"type": kind, "optional": True, "field": name, **more}


def value(payload: dict[str, Any], *fields: dict[str, Any]) -> bytes:
    """A message; without fields it has no schema."""
    rows = [{"type": "struct", "field": name, "fields": list(fields)} for name in ("before", "after")]
    schema = {"schema": {"type": "struct", "fields": rows, "name": "default.shop.t.Envelope"}} if fields else {}
    return json.dumps({"payload": {"source": source(), **payload}, **schema}, separators=(",", ":")).encode()


KEY = b'{"payload":{"id":1},"schema":{"type":"struct"}}'
ID = field("id", "int64", optional=False, tidb_type="bigint")


def decoded(*fields: dict[str, Any], **after: Any) -> tuple[TableVersion, RowChange]:
    """Version and row of an insert."""
    events = DebeziumDecoder(DecoderOptions()).decode(KEY, value({"op": "c", "before": None, "after": after}, *fields))
    bootstrap, row = events
    assert isinstance(bootstrap, Bootstrap)
    assert isinstance(row, RowChange)
    return bootstrap.version, row


@pytest.mark.parametrize(
    ("declared", "wire", "kind", "held"),
    [
        (field("c", "int16", tidb_type="tinyint unsigned"), 255, ColumnType("tinyint", unsigned=True), 255),
        (field("c", "int64", tidb_type="bigint unsigned"), -1, ColumnType("bigint", unsigned=True), -1),
        (field("c", "double", tidb_type="decimal"), 1.5, ColumnType("double"), 1.5),
        (field("c", "double", tidb_type="float"), 1.5, ColumnType("float"), 1.5),
        (field("c", "boolean", tidb_type="bit"), True, ColumnType("bit", length=1), True),
        (
            field("c", "bytes", name="io.debezium.data.Bits", parameters={"length": "10"}, tidb_type="bit"),
            "VQE=",
            ColumnType("bit", length=10),
            341,
        ),
        (field("c", "string", tidb_type="varbinary"), "Zm9v", ColumnType("varbinary"), "Zm9v"),
        (
            field("c", "string", name="io.debezium.data.Enum", parameters={"allowed": r"a\,b,c"}),
            "c",
            ColumnType("enum", elements=("a,b", "c")),
            "c",
        ),
        (
            field("c", "int64", name="io.debezium.time.Timestamp"),
            1709208000123,
            ColumnType("datetime"),
            1709208000123000,
        ),
        (
            field("c", "int64", name="io.debezium.time.MicroTimestamp"),
            1709208000123456,
            ColumnType("datetime"),
            1709208000123456,
        ),
        (field("c", "int64", name="io.debezium.time.MicroTime"), -45296123456, ColumnType("time"), -45296123456),
        (field("c", "int32", name="io.debezium.time.Date"), 17532, ColumnType("date"), 17532),
        (
            field("c", "string", name="io.debezium.time.ZonedTimestamp"),
            "2024-02-29T12:00:00Z",
            ColumnType("timestamp"),
            "2024-02-29T12:00:00Z",
        ),
        (field("c", "int32", name="io.debezium.time.Year"), 1901, ColumnType("year"), 1901),
        (field("c", "int64"), 5, ColumnType("int64"), 5),
        (field("c", "string"), "x", ColumnType("string"), "x"),
        (field("c", "int32", name="io.debezium.time.Date"), None, ColumnType("date"), None),
    ],
)
def test_a_declared_field_gives_type_and_value(
    declared: dict[str, Any], wire: Any, kind: ColumnType, held: Any
) -> None:
    """Units, bit order and TiDB's type come from the declaration; without TiDB's, Connect's type must do."""
    version, row = decoded(ID, declared, id=1, c=wire)

    assert version.columns == (Column("id", ColumnType("bigint"), nullable=False), Column("c", kind))
    assert row == RowChange(NAME, version.version, TS, Op.INSERT, None, {"id": 1, "c": held})
    assert version.key == ("id",)


def test_what_is_declared_but_not_held_is_not_replicated() -> None:
    """Virtual generated columns are declared, by some builds twice, and never held: the version is without them."""
    virtual = field("v", "int32", tidb_type="int")

    version, row = decoded(ID, virtual, field("c", "int32"), virtual, id=1, c=2)

    assert [column.name for column in version.columns] == ["id", "c"]
    assert row.after == {"id": 1, "c": 2}


def test_a_version_is_its_content() -> None:
    """Equal declarations have one number, another type or key another; own numbers are told from commit ts."""
    same = [decoded(ID, field("c", "int32"), id=1, c=number)[0].version for number in (1, 2)]
    other = decoded(ID, field("c", "int64"), id=1, c=1)[0].version
    keyless = DebeziumDecoder(DecoderOptions()).decode(
        b'{"payload":{}}', value({"op": "c", "after": {"id": 1, "c": 1}}, ID, field("c", "int32"))
    )

    assert isinstance(keyless[0], Bootstrap)
    assert len({*same, other, keyless[0].version.version}) == 3
    assert all(number & OWN for number in (*same, other))
    assert keyless[0].version.key == ()


UPDATE = {"op": "u", "before": {"id": 1}, "after": {"id": 2}}


@pytest.mark.parametrize("key", [b"", None])
@pytest.mark.parametrize("fields", [(ID,), ()], ids=["schema", "no schema"])
def test_a_row_without_a_kafka_key_is_refused(key: bytes | None, fields: tuple[dict[str, Any], ...]) -> None:
    """TiCDC v8.0 to v8.4 writes none, also for tables with a primary key: an unknown key is not an empty one."""
    decoder = DebeziumDecoder(DecoderOptions())
    if not fields:
        assert decoder.decode(key, value(UPDATE))[0].version == UNKNOWN_VERSION  # type: ignore[union-attr]
        return
    with pytest.raises(IncompleteRow, match=r"A row of table shop\.t has no Kafka key") as refusal:
        decoder.decode(key, value(UPDATE, *fields))

    assert 'Set "shop.t" = ["COLUMN"] under [tables.keys]' in refusal.value.hint
    assert refusal.value.tables[0] == NAME


@pytest.mark.parametrize("columns", [("id",), ()])
def test_the_configuration_names_the_key_of_rows_without_a_kafka_key(columns: tuple[str, ...]) -> None:
    """With a key, a row that is sent again counts once; a table without any has an empty list."""
    decoder = DebeziumDecoder(DecoderOptions(keys={"shop.t": columns, "shop.other": ("x",)}))

    row = decoder.decode(b"", value(UPDATE, ID))

    assert isinstance(row[0], Bootstrap)
    assert row[0].version.key == columns


def test_a_configured_key_that_a_row_lacks_is_refused() -> None:
    """A misspelt column names no row."""
    decoder = DebeziumDecoder(DecoderOptions(keys={"shop.t": ("ID",)}))

    with pytest.raises(IncompleteRow, match=r"A row of table shop\.t has no column ID, which its configured key names"):
        decoder.decode(None, value(UPDATE, ID))


def test_a_ddl_shows_the_key_of_rows_without_a_kafka_key() -> None:
    """What it described holds for the rows behind it."""
    decoder = DebeziumDecoder(DecoderOptions())
    decoder.learn(described(TS - 10, ("id", ColumnType("bigint"))))

    row = decoder.decode(b"", value(UPDATE, ID))

    assert isinstance(row[0], Bootstrap)
    assert row[0].version.key == ("id",)


def test_a_raw_change_keeps_its_old_key() -> None:
    """With `output-raw-change-event` one update holds both keys; the Kafka key has the new one alone."""
    events = DebeziumDecoder(DecoderOptions()).decode(
        KEY, value({"op": "u", "before": {"id": 7}, "after": {"id": 1}}, ID)
    )

    assert isinstance(events[1], RowChange)
    assert (events[1].before, events[1].after) == ({"id": 7}, {"id": 1})


def test_a_watermark_and_a_ddl() -> None:
    """Op `m` is a resolved ts; a payload with `ddl` is a DDL, which has no op at all."""
    decode = DebeziumDecoder(DecoderOptions()).decode

    assert decode(b"{}", value({"op": "m", "source": source(db="", table="")})) == (Resolved(TS),)
    change = {"databaseName": "shop", "ddl": "DROP DATABASE shop", "tableChanges": [], "source": source(table="")}
    assert decode(b"{}", value(change)) == (SchemaChange(TS, "DROP DATABASE shop", "shop"),)
    assert decode(b"x", None) == ()


def described(commit_ts: int, *columns: tuple[str, ColumnType], key: tuple[str, ...] = ("id",)) -> TableVersion:
    """A version as a DDL at a commit ts left it."""
    index = (Index("PRIMARY", key, unique=True, primary=True),) if key else ()
    return TableVersion(NAME, commit_ts, tuple(Column(name, kind) for name, kind in columns), index)


def test_rows_without_schema_are_read_as_of_their_commit_ts() -> None:
    """DATETIME(3) counts milliseconds and DATETIME(6) microseconds: the DDL before a row decides, later ones do not."""
    decoder = DebeziumDecoder(DecoderOptions())
    identity = ("id", ColumnType("bigint"))
    decoder.learn(described(TS + 10, identity, ("d", ColumnType("datetime", scale=6))))
    decoder.learn(described(TS, identity, ("d", ColumnType("datetime", scale=3))))
    found = [
        decoder.decode(KEY, value({"op": "c", "after": {"id": 1, "d": 1000}, "source": source(commit_ts=ts)}))[0]
        for ts in (TS, TS + 1, TS + 10, TS + 11)
    ]

    rows = [(row.version, row.after and row.after["d"]) for row in found if isinstance(row, RowChange)]
    assert rows == [(UNKNOWN_VERSION, 1000), (TS, 1_000_000), (TS, 1_000_000), (TS + 10, 1000)]


def test_a_row_with_a_column_that_no_ddl_described_waits() -> None:
    """A description that does not know a column of the row is too old for it."""
    decoder = DebeziumDecoder(DecoderOptions())
    decoder.learn(described(TS - 1, ("id", ColumnType("bigint"))))

    (row,) = decoder.decode(KEY, value({"op": "d", "before": {"id": 1, "new": 2}, "after": None}))

    assert row == RowChange(NAME, UNKNOWN_VERSION, TS, Op.DELETE, {"id": 1, "new": 2}, None)


def test_the_kafka_key_counts_where_a_description_has_another() -> None:
    """A version of its own carries the key that TiCDC uses."""
    decoder = DebeziumDecoder(DecoderOptions())
    decoder.learn(described(TS - 1, ("id", ColumnType("bigint")), key=()))

    events = decoder.decode(KEY, value({"op": "c", "after": {"id": 1}}))

    assert isinstance(events[0], Bootstrap)
    assert events[0].version.key == ("id",)


def test_descriptions_come_in_any_order_and_more_than_once() -> None:
    """The version in force is the last one below the commit ts, whatever order they were learnt in."""
    known, versions = Described(), [described(TS + n, ("id", ColumnType("int"))) for n in (3, 1, 2, 1)]
    for version in versions:
        known.learn(version)
    known.learn(described(OWN | 5, ("id", ColumnType("int"))))

    found = [known.in_force(NAME, TS + n) for n in (0, 1, 2, 3, 4)]

    assert [version and version.version for version in found] == [None, None, TS + 1, TS + 2, TS + 3]


@pytest.mark.parametrize(
    ("message", "error", "what"),
    [
        (b"", DecodeError, "neither plain nor compressed"),
        (b"{", DecodeError, "not a Debezium message"),
        (b"[]", DecodeError, "neither plain nor compressed"),
        (b"{}", DecodeError, "missing required field `payload`"),
        (b'{"payload":{}}', DecodeError, "missing required field `source`"),
        (value({"op": "r", "after": {"id": 1}}, ID), DecodeError, "Its op is 'r'"),
        (value({"after": {"id": 1}}, ID), DecodeError, "Its op is None"),
        (value({"op": "c", "after": None}, ID), IncompleteRow, "new image is missing"),
        (value({"op": "d", "before": None}, ID), IncompleteRow, "old image is missing"),
        (value({"op": "d"}, ID), IncompleteRow, "old image is missing"),
        (value({"op": "c", "after": {"id": 1, "x": 2}}, ID), DecodeError, "does not declare column x of table shop.t"),
        (value({"op": "c", "after": {"id": 1}, "source": source(commit_ts=-1)}, ID), DecodeError, "commit_ts"),
        (value({"op": "c", "after": {"id": 1}, "source": source(commit_ts=1.5)}, ID), DecodeError, "commit_ts"),
        (value({"op": "c", "after": {"c": 1}}, field("c", "array")), DecodeError, "column 'c' has the type 'array'"),
        (
            value({"op": "c", "after": {"c": "x"}}, field("c", "int64", name="io.debezium.time.Timestamp")),
            DecodeError,
            "column c does not hold",
        ),
        (
            value({"op": "c", "after": {"c": "!"}}, field("c", "bytes", name="io.debezium.data.Bits")),
            DecodeError,
            "column c does not hold",
        ),
        (
            b'{"payload":{"source":{"db":"a","table":"b","commit_ts":1},"op":"c","after":{"c":1}},"schema":{"fields":1}}',
            DecodeError,
            "none of Kafka Connect",
        ),
        (
            b'{"payload":{"source":{"db":"a","table":"b","commit_ts":1},"op":"c","after":{"c":1}},"schema":{"type":"x"}}',
            DecodeError,
            "declares neither before nor after",
        ),
        (b'{"payload":{"source":{"db":"\xff"', DecodeError, "not a Debezium message"),
    ],
)
def test_bytes_that_are_no_message_are_refused(message: bytes, error: type[DecodeError], what: str) -> None:
    """Each kind of broken message has its own sentence, and nothing foreign is raised."""
    with pytest.raises(error, match=what):
        DebeziumDecoder(DecoderOptions()).decode(KEY, message)


def test_a_broken_key_is_refused() -> None:
    """A key that cannot be read would make a table without a key."""
    with pytest.raises(DecodeError, match="Its key is not"):
        DebeziumDecoder(DecoderOptions()).decode(b'{"payload":[]}', value({"op": "c", "after": {"id": 1}}, ID))


def test_text_that_looks_like_a_schema_is_text() -> None:
    """A column that holds `,"schema":{` does not end the payload: inside a JSON string its quotes are escaped."""
    text = 'x,"schema":{"type":"struct"}}'

    version, row = decoded(ID, field("c", "string", tidb_type="text"), id=1, c=text)

    assert row.after == {"id": 1, "c": text}
    assert len(version.columns) == 2


def test_the_options_choose_the_compression() -> None:
    """With compression `none`, bytes that are no JSON are not taken for compressed ones."""
    with pytest.raises(DecodeError, match=r"changefeed\.compression is none"):
        DebeziumDecoder(DecoderOptions(compression="none")).decode(KEY, b"\x04\x22\x4d\x18")


def test_a_type_without_a_semantic_name_is_as_wide_as_connect_says() -> None:
    """Every Connect type that TiCDC uses has a column type, or leaves it open; another is an error with the column."""
    kinds = {
        connect: ConnectField("c", connect).column.type.name for connect in ("int16", "int32", "float", "double", *OPEN)
    }

    told = {"int16": "smallint", "int32": "int", "float": "float", "double": "double"}
    assert kinds == told | {name: name for name in OPEN}
    with pytest.raises(ValueError, match="column 'c' has the type 'map'"):
        ConnectField("c", "map").column  # noqa: B018 - the property raises


def test_a_datetime_of_unknown_precision_is_refused_without_a_schema() -> None:
    """Only the digits of the column show whether a number counts milliseconds or microseconds."""
    decoder = DebeziumDecoder(DecoderOptions())
    decoder.learn(described(TS, ("id", ColumnType("bigint")), ("d", ColumnType("datetime"))))
    message = value({"op": "c", "after": {"id": 1, "d": 1000}, "source": source(commit_ts=TS + 1)})

    with pytest.raises(DecodeError, match="Its column d does not hold what the schema declares"):
        decoder.decode(KEY, message)


@pytest.mark.parametrize("member", ["databaseName", "tableChanges"])
def test_a_ddl_that_lacks_a_member_is_refused(member: str) -> None:
    """TiCDC always writes both: without them nothing shows which database or table the statement means."""
    change = {"databaseName": "shop", "ddl": "DROP DATABASE shop", "tableChanges": [], "source": source(table="")}
    del change[member]

    with pytest.raises(DecodeError, match="Its DDL lacks databaseName or tableChanges"):
        DebeziumDecoder(DecoderOptions()).decode(b"{}", value(change))


def test_bits_without_a_length_are_as_many_as_there_can_be() -> None:
    """One bit is a boolean; bytes that do not show how many bits they hold are no single bit."""
    bits = {"type": "bytes", "optional": True, "name": "io.debezium.data.Bits", "field": "b"}
    events = DebeziumDecoder(DecoderOptions()).decode(
        KEY, value({"op": "c", "after": {"id": 1, "b": "//8="}}, ID, bits)
    )

    assert isinstance(events[0], Bootstrap)
    assert events[0].version.columns[1].type == ColumnType("bit", length=None)
    assert column_arrow_type(TableName("shop", "t"), events[0].version.columns[1], TypeRules()) == UINT64
