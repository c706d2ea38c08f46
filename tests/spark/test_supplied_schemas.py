"""Tables that were loaded before, whose rows lack facts of their columns: a supplied CREATE TABLE has them."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from applier.commands.plan.command import plan
from applier.config import settings as config
from applier.config.settings import Config
from applier.errors import ConfigError, TableIncomplete, TableMismatch
from applier.pipeline.build import assembled
from applier.sink.iceberg.catalog import Catalog
from tests.fake_registry import Answer, FakeRegistry, fake_registry
from tests.few import few
from tests.spark.feeds import read

pytestmark = pytest.mark.spark

START = 470_606_913_410_433_024
DECLARED = """/*!40014 SET FOREIGN_KEY_CHECKS=0*/;
/*!40101 SET NAMES binary*/;
CREATE TABLE `parcel` (
  `id` bigint NOT NULL,
  `price` decimal(10,2) DEFAULT NULL,
  `stage` enum('packed','sent, late','lost') DEFAULT NULL,
  `marks` set('frail','cold','gift') DEFAULT NULL,
  `doors` bit(6) DEFAULT NULL,
  `pieces` int unsigned DEFAULT NULL,
  `twice` bigint GENERATED ALWAYS AS (`pieces` * 2) VIRTUAL,
  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
"""
COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "price": pa.decimal128(10, 2),
    "stage": pa.string(),
    "marks": pa.string(),
    "doors": pa.int64(),
    "pieces": pa.int64(),
}
Message = tuple[bytes | None, bytes]
Encode = Callable[[dict[str, Any], int], Message]
KINDS = {"id": "bigint", "price": "decimal", "stage": "enum", "marks": "set", "doors": "bit", "pieces": "int unsigned"}
SQL_TYPES = {"id": -5, "price": 3, "stage": 4, "marks": -7, "doors": -7, "pieces": 4}
CODES = {
    "id": (8, 11),
    "price": (246, 65),
    "stage": (247, 64),
    "marks": (248, 64),
    "doors": (16, 65),
    "pieces": (3, 193),
}
CODES |= {"seal": (15, 64)}


def canal_row(row: dict[str, Any], ts: int) -> Message:
    """Plain Canal-JSON: numbers as text, members by number."""
    texts = {name: None if value is None else str(value) for name, value in row.items()}
    kinds = {name: KINDS.get(name, "varchar") for name in row}
    codes = {name: SQL_TYPES.get(name, 12) for name in row}
    body = {"type": "INSERT", "pkNames": ["id"], "mysqlType": kinds, "sqlType": codes, "data": [texts]}
    return canal({"table": "parcel", **body, "_tidb": {"commitTs": ts}}, ts)


def canal(message: dict[str, Any], ts: int) -> Message:
    """Any message of Canal-JSON."""
    base = {"id": 0, "database": "depot", "table": "", "pkNames": None, "isDdl": False, "es": ts >> 18, "ts": ts >> 18}
    nothing = {"sql": "", "sqlType": None, "mysqlType": None, "data": None, "old": None}
    return None, json.dumps(base | nothing | message).encode()


def canal_watermark(ts: int) -> Message:
    """A resolved ts."""
    return canal({"type": "TIDB_WATERMARK", "_tidb": {"watermarkTs": ts}}, ts)


def canal_ddl(sql: str, ts: int) -> Message:
    """A DDL."""
    return canal({"table": "parcel", "isDdl": True, "type": "QUERY", "sql": sql, "_tidb": {"commitTs": ts}}, ts)


def open_message(key: dict[str, Any], body: bytes) -> Message:
    """A key and a value, each behind its length."""
    name = json.dumps(key).encode()
    return struct.pack(">QQ", 1, len(name)) + name, struct.pack(">Q", len(body)) + body


def open_row(row: dict[str, Any], ts: int) -> Message:
    """Open: types by code, members by number."""
    image = {
        name: {"t": CODES[name][0], "f": CODES[name][1], "v": value} | ({"h": True} if name == "id" else {})
        for name, value in row.items()
    }
    return open_message({"ts": ts, "scm": "depot", "tbl": "parcel", "t": 1}, json.dumps({"u": image}).encode())


def open_watermark(ts: int) -> Message:
    """A resolved ts."""
    return open_message({"ts": ts, "t": 3}, b"")


def debezium_keyed_row(row: dict[str, Any], ts: int) -> Message:
    """The same of a later TiCDC, with a Kafka key."""
    key = {"type": "struct", "name": "default.depot.parcel.Key", "optional": False}
    key |= {"fields": [{"field": "id", "type": "int64", "optional": False}]}
    return json.dumps({"payload": {"id": row["id"]}, "schema": key}).encode(), debezium_row(row, ts)[1]


def debezium_row(row: dict[str, Any], ts: int) -> Message:
    """Debezium of TiCDC v8.0 to v8.4 without the extension: no Kafka key, and decimals as doubles."""
    kinds: dict[str, dict[str, Any]] = {
        "id": {"type": "int64", "optional": False},
        "price": {"type": "double", "optional": True},
        "stage": {"type": "string", "optional": True, "name": "io.debezium.data.Enum", "version": 1},
        "marks": {"type": "string", "optional": True, "name": "io.debezium.data.EnumSet", "version": 1},
        "doors": {"type": "bytes", "optional": True, "name": "io.debezium.data.Bits", "version": 1},
        "pieces": {"type": "int64", "optional": True},
    }
    fields = [{**kind, "field": name} for name, kind in kinds.items()]
    image = {"type": "struct", "optional": True, "name": "default.depot.parcel.Value", "fields": fields}
    source = {"version": "2.4.0.Final", "connector": "TiCDC", "name": "default", "ts_ms": ts >> 18, "snapshot": "false"}
    source |= {"db": "depot", "table": "parcel", "server_id": 0, "commit_ts": ts, "cluster_id": "default"}
    payload = {"source": source, "ts_ms": 1, "transaction": None, "op": "c", "before": None, "after": row}
    both = [{**image, "field": "before"}, {**image, "field": "after"}]
    name = "default.depot.parcel.Envelope"
    schema = {"type": "struct", "optional": False, "name": name, "version": 1, "fields": both}
    return None, json.dumps({"payload": payload, "schema": schema}).encode()


class AvroRows:
    """Avro with watermarks and `avro-decimal-handling-mode = "string"`, which shows no digits.

    Args:
        registry: Learns the schemas.
    """

    def __init__(self, registry: FakeRegistry) -> None:
        kinds = {
            "id": ("long", {"tidb_type": "BIGINT"}),
            "price": ("string", {"tidb_type": "DECIMAL"}),
            "stage": ("string", {"tidb_type": "ENUM", "allowed": "packed,sent\\, late,lost"}),
            "marks": ("string", {"tidb_type": "SET", "allowed": "frail,cold,gift"}),
            "doors": ("bytes", {"tidb_type": "BIT", "length": "6"}),
            "pieces": ("long", {"tidb_type": "INT UNSIGNED"}),
        }
        types: dict[str, Any] = {
            name: {"type": kind, "connect.parameters": more} for name, (kind, more) in kinds.items()
        }
        key = {"name": "id", "type": types["id"]}
        others = [{"name": name, "type": ["null", kind], "default": None} for name, kind in types.items()][1:]
        extension: list[dict[str, Any]] = [{"name": "_tidb_op", "type": "string", "default": ""}]
        extension += [
            {"name": f"_tidb_commit_{name}", "type": "long", "default": 0} for name in ("ts", "physical_time")
        ]
        record = {"type": "record", "name": "parcel", "namespace": "default.depot"}
        self._schemas = [{**record, "fields": [key]}, {**record, "fields": [key, *others, *extension]}]
        for number, schema in enumerate(self._schemas, 1):
            registry.on(f"/schemas/ids/{number}", Answer(200, {"schema": json.dumps(schema)}))

    def row(self, row: dict[str, Any], ts: int) -> Message:
        """A row."""
        extension = {"_tidb_op": "c", "_tidb_commit_ts": ts, "_tidb_commit_physical_time": ts >> 18}
        return self._framed(1, {"id": row["id"]}), self._framed(2, row | extension)

    def watermark(self, ts: int) -> Message:
        """A resolved ts."""
        return None, b"\x02" + struct.pack(">Q", ts)

    def _framed(self, number: int, values: dict[str, Any]) -> bytes:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(self._schemas[number - 1]), values)
        return b"\0" + struct.pack(">I", number) + body.getvalue()


@dataclass
class Depot:
    """A changefeed with one table that was loaded before, and a folder with its CREATE TABLE."""

    spark: SparkSession
    lake: dict[str, str]
    folder: Path
    name: str
    protocol: str = "canal-json"
    messages: list[Message] = field(default_factory=list)
    changefeed: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, list[str]] = field(default_factory=dict)
    has_schemas: bool = True
    registry: str = ""

    @property
    def identifier(self) -> tuple[str, ...]:
        """The Iceberg table."""
        return (f"{self.name}__depot", "parcel")

    def declare(self, text: str = DECLARED, file: str = "depot.parcel-schema.sql") -> None:
        """Write a schema file."""
        (self.folder / "schemas").mkdir(parents=True, exist_ok=True)
        (self.folder / "schemas" / file).write_text(text)

    def load(self) -> None:
        """The table with one row, loaded by other means."""
        fields = [pa.field(name, kind, nullable=name != "id") for name, kind in COLUMNS.items()]
        Catalog(self.spark, "lake").create(self.identifier, pa.schema(fields), key=["id"], sort=["id"])
        values = "(1, 10.50, 'packed', 'cold', 3, 7), (2, 0.01, NULL, '', 0, 1)"
        self.spark.sql(f"INSERT INTO lake.{'.'.join(self.identifier)} VALUES {values}")

    @property
    def config(self) -> Config:
        """The configuration, with the topic as it is now."""
        feed = self.folder / "feed"
        feed.mkdir(parents=True, exist_ok=True)
        lines = [
            {
                "topic": "depot",
                "partition": 0,
                "offset": offset,
                "timestamp": START >> 18,
                "key": None if key is None else base64.b64encode(key).decode(),
                "value": base64.b64encode(value).decode(),
            }
            for offset, (key, value) in enumerate(self.messages)
        ]
        (feed / "feed.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        raw: dict[str, Any] = {
            "changefeed": {"name": self.name, "protocol": self.protocol, "start": "midstream", **self.changefeed},
            "source": {"archive": str(feed)},
            "catalog": {"name": "lake", **self.lake},
            "tables": {"route": f"{self.name}__{{database}}.{{table}}", "incomplete": "refuse", "keys": self.keys},
        }
        raw |= {"registry": {"url": self.registry}} if self.registry else {}
        return config.parse(raw | ({"upstream": {"schemas": str(self.folder / "schemas")}} if self.has_schemas else {}))

    def run(self) -> None:
        """Apply all that is there."""
        with assembled(self.config, take_over=True) as pipeline:
            while (step := pipeline.step()).moved:
                pass
            if step.error is not None:
                raise step.error

    def rows(self) -> list[dict[str, Any]]:
        """Rows as Spark reads them."""
        return sorted(read(self.spark, self.identifier).to_pylist(), key=lambda row: row["id"])


@pytest.fixture
def depot(spark: SparkSession, warehouse: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Depot:
    """A changefeed."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{warehouse}/catalog.db", "warehouse": f"{warehouse}/tables"}
    return Depot(spark, lake, tmp_path, re.sub(r"\W+", "_", request.node.name)[-50:].strip("_"))


SENT = {"id": 1, "price": "12345678.90", "stage": 2, "marks": 5, "doors": 33, "pieces": 4294967295}
NEW = {"id": 3, "price": "-0.05", "stage": 3, "marks": 0, "doors": None, "pieces": None}
EXPECTED = [
    {"id": 1, "price": Decimal("12345678.90"), "stage": "sent, late", "marks": "frail,gift", "doors": 33}
    | {"pieces": 4294967295},
    {"id": 2, "price": Decimal("0.01"), "stage": None, "marks": "", "doors": 0, "pieces": 1},
    {"id": 3, "price": Decimal("-0.05"), "stage": "lost", "marks": "", "doors": None, "pieces": None},
]


@pytest.mark.parametrize(
    ("protocol", "row", "watermark"),
    [("canal-json", canal_row, canal_watermark), ("open", open_row, open_watermark)],
)
def test_a_loaded_table_is_adopted_with_the_types_of_its_supplied_schema(
    depot: Depot, protocol: str, row: Encode, watermark: Callable[[int], Message]
) -> None:
    """DECIMAL keeps its digits, members get their names, and a restart goes on from the checkpoint alone."""
    depot.protocol = protocol
    depot.load()
    depot.declare()
    depot.messages = [row(SENT, START + 1), watermark(START + 2)]
    depot.run()
    # The checkpoint has the columns: what the folder says later is not asked any more.
    depot.declare(DECLARED.replace("'packed',", ""))
    depot.messages += [row(NEW, START + 3), watermark(START + 4)]

    depot.run()

    assert depot.rows() == EXPECTED


def test_rows_of_debezium_without_a_kafka_key_have_the_key_of_the_supplied_table(depot: Depot) -> None:
    """A row that is sent twice is there once, in the types of the table."""
    depot.protocol, depot.changefeed = "debezium", {"order": "offset"}
    depot.load()
    depot.declare()
    sent = {"id": 1, "price": 12345678.9, "stage": "sent, late", "marks": "frail,gift", "doors": "IQ=="}
    depot.messages = [debezium_row(sent | {"pieces": 4294967295}, START + 1)] * 2
    new = {"id": 3, "price": -0.05, "stage": "lost", "marks": "", "doors": None, "pieces": None}

    depot.run()
    depot.messages.append(debezium_row(new, START + 3))
    depot.run()

    assert depot.rows() == EXPECTED


def test_decimals_of_avro_without_digits_fit_the_supplied_table(depot: Depot) -> None:
    """The text of a decimal is read with the digits of the supplied table."""
    with fake_registry() as registry:
        avro = AvroRows(registry)
        depot.protocol, depot.registry = "avro", registry.url
        depot.load()
        depot.declare()
        sent = {"id": 1, "price": "12345678.90", "stage": "sent, late", "marks": "frail,gift", "doors": b"\x21"}
        new = {"id": 3, "price": "-0.05", "stage": "lost", "marks": "", "doors": None, "pieces": None}
        depot.messages = [avro.row(sent | {"pieces": 4294967295}, START + 1), avro.row(new, START + 2)]
        depot.messages.append(avro.watermark(START + 3))

        depot.run()

    assert depot.rows() == EXPECTED


def test_without_the_schema_the_refusal_names_it_as_a_way_out(depot: Depot) -> None:
    """Members sent by number are refused, and the hint names the key of the configuration."""
    depot.has_schemas, depot.changefeed = False, {"on_table_error": "stop"}
    depot.load()
    depot.messages = [canal_row(SENT, START + 1), canal_watermark(START + 2)]

    with pytest.raises(Exception, match=r"the members are not known.*set \[upstream\] schemas"):
        depot.run()


def test_ddl_before_the_first_row_change_the_supplied_table(depot: Depot) -> None:
    """A column that the feed adds is part of the table, also if a restart lies between the DDL and the first row."""
    depot.load()
    depot.declare()
    depot.messages = [canal_ddl("ALTER TABLE `parcel` ADD COLUMN `seal` VARCHAR(9)", START + 1)]
    depot.messages += [canal_watermark(START + 2)]
    depot.run()
    depot.messages += [canal_row(SENT | {"seal": "wax"}, START + 3), canal_watermark(START + 4)]

    depot.run()

    assert depot.rows() == [EXPECTED[0] | {"seal": "wax"}, EXPECTED[1] | {"seal": None}]


def test_a_schema_alone_makes_no_table_whole(depot: Depot) -> None:
    """A DDL of a table that was not loaded passes and makes nothing; its first row is refused."""
    depot.declare()
    depot.messages = [canal_ddl("ALTER TABLE `parcel` ADD COLUMN `seal` VARCHAR(9)", START + 1)]
    depot.messages += [canal_watermark(START + 2)]
    depot.run()
    depot.messages += [canal_row(SENT | {"seal": "wax"}, START + 3), canal_watermark(START + 4)]

    with pytest.raises(TableIncomplete, match=r"CREATE TABLE the feed does not hold.*: depot\.parcel\."):
        depot.run()

    assert Catalog(depot.spark, "lake").load(depot.identifier) is None


def test_plan_reads_the_supplied_schemas(depot: Depot) -> None:
    """It decodes members by them, and writes nothing."""
    depot.load()
    depot.declare()
    depot.messages = [canal_row(SENT, START + 1), canal_watermark(START + 2)]

    found = plan(depot.config)

    assert [(table.upstream, table.rows, table.is_new) for table in found.tables] == [("depot.parcel", 1, False)]
    assert found.waits == ""
    assert len(depot.rows()) == 2


@pytest.mark.parametrize(
    ("declared", "why"),
    few(
        [
            (DECLARED.replace("int unsigned", "varchar(9)"), "column pieces is varchar there, and int in rows"),
            (DECLARED.replace("  `doors` bit(6) DEFAULT NULL,\n", ""), "rows have column doors, which it lacks"),
            (DECLARED.replace("  PRIMARY", "  `extra` int,\n  PRIMARY"), "it declares column extra, which rows lack"),
        ]
    ),
)
def test_a_schema_that_is_not_that_of_the_rows_is_refused(depot: Depot, declared: str, why: str) -> None:
    """The refusal names table and column, and nothing is written."""
    depot.load()
    depot.declare(declared)
    depot.messages = [canal_row(SENT, START + 1), canal_watermark(START + 2)]

    with pytest.raises(TableMismatch) as refusal:
        depot.run()

    expected = f"The CREATE TABLE of table depot.parcel under upstream.schemas is not that of its rows: {why}."
    assert refusal.value.what == expected
    assert refusal.value.hint.startswith("Export the schema again as of the start of the changefeed")
    assert len(depot.rows()) == 2


OTHER_KEYS = [
    (DECLARED.replace("PRIMARY KEY (`id`)", "PRIMARY KEY (`id`,`pieces`)"), "id, pieces"),
    (
        DECLARED.replace("`doors` bit(6) DEFAULT", "`doors` bit(6) NOT").replace(
            "PRIMARY KEY (`id`)", "UNIQUE (`doors`)"
        ),
        "doors",
    ),
    (
        DECLARED.replace("PRIMARY KEY", "UNIQUE KEY `u`").replace("`id` bigint NOT NULL", "`id` bigint DEFAULT NULL"),
        "none",
    ),
]


@pytest.mark.parametrize(("declared", "key"), few(OTHER_KEYS))
@pytest.mark.parametrize("protocol", ["canal-json", "open", "avro", "debezium"])
def test_a_schema_with_another_key_than_its_rows_is_refused(
    depot: Depot, protocol: str, declared: str, key: str
) -> None:
    """Two rows could become one by it: both keys are named, and nothing is written."""
    depot.protocol = protocol
    depot.load()
    depot.declare(declared.replace("KEY `u` (`id`) /*T![clustered_index] CLUSTERED */", "KEY `u` (`id`)"))
    with fake_registry() as registry:
        if protocol == "avro":
            avro = AvroRows(registry)
            depot.registry = registry.url
            sent = {"id": 1, "price": "1.00", "stage": "packed", "marks": "frail", "doors": b"\x21", "pieces": 1}
            depot.messages = [avro.row(sent, START + 1), avro.watermark(START + 3)]
        elif protocol == "debezium":
            depot.changefeed = {"order": "offset"}
            sent = {"id": 1, "price": 1.0, "stage": "packed", "marks": "frail", "doors": "IQ==", "pieces": 1}
            depot.messages = [debezium_keyed_row(sent, START + 1)]
        else:
            row, mark = (canal_row, canal_watermark) if protocol == "canal-json" else (open_row, open_watermark)
            depot.messages = [row(SENT, START + 1), mark(START + 2)]
        with pytest.raises(TableMismatch) as refusal:
            depot.run()

    assert refusal.value.what == (
        "The CREATE TABLE of table depot.parcel under upstream.schemas is not that of its rows: "
        f"its key is {key}, and that of its rows is id."
    )
    assert refusal.value.hint.startswith("Export the schema again as of the start of the changefeed")
    assert len(depot.rows()) == 2


@pytest.mark.parametrize("protocol", ["canal-json", "open"])
def test_a_not_null_unique_key_of_the_schema_is_the_key_of_its_rows(depot: Depot, protocol: str) -> None:
    """Open marks it on its rows; Canal-JSON names primary keys alone, so rows without one contradict no key."""
    depot.protocol = protocol
    depot.load()
    declared = DECLARED.replace("PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */", "UNIQUE KEY `u` (`ID`)")
    depot.declare(declared)
    row, mark = (canal_row, canal_watermark) if protocol == "canal-json" else (open_row, open_watermark)
    key, value = row(SENT, START + 1)
    depot.messages = [(key, value.replace(b'"pkNames": ["id"]', b'"pkNames": null')), mark(START + 2)]

    depot.run()

    assert depot.rows() == EXPECTED[:2]


def test_a_configured_key_goes_before_that_of_the_schema(depot: Depot) -> None:
    """Rows of Debezium without a Kafka key have it, and are not refused for it."""
    depot.protocol, depot.changefeed, depot.keys = "debezium", {"order": "offset"}, {"depot.parcel": ["id", "doors"]}
    depot.load()
    depot.declare()
    sent = {"id": 1, "price": 12345678.9, "stage": "sent, late", "marks": "frail,gift", "doors": "IQ=="}
    depot.messages = [debezium_row(sent | {"pieces": 4294967295}, START + 1)]

    depot.run()

    assert EXPECTED[0] in depot.rows()


def test_a_folder_that_is_not_there_ends_the_start(depot: Depot) -> None:
    """The sentence names the folder and how to make it."""
    with pytest.raises(ConfigError, match=r"Cannot read folder .* No such file or directory\. Export the tables with"):
        depot.run()
