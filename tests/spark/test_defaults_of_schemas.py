"""Columns that come in by a newer writer schema: without DDL messages, the schema alone shows the default."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from applier.config import settings as config
from applier.decode.avro.decoder import AvroDecoder
from applier.errors import SchemaChangeRefused
from applier.pipeline.build import assembled
from applier.pipeline.scan import decode_task, scanner
from tests.few import few
from tests.spark.feeds import read
from tests.spark.test_undated import archive
from tests.unit.decode.avro_messages import ID, Schemas, column, record

pytestmark = pytest.mark.spark

ADDED = (
    column("note", "TEXT", "string", null="last", default="x3"),
    column("qty", "INT", "int", default=7),
    column("raw", "BLOB", "bytes", null="last", default="YWIAAA=="),
    column("at", "TIMESTAMP", "string", null="last", default="2024-06-01 12:00:00"),
    column("day", "DATETIME", "string", default="2024-06-01 12:00:00"),
    column("state", "ENUM", "string", allowed="new,paid"),
    column("left", "TEXT", "string", null="first", default=None),
)
"""One column of each way in which TiCDC declares a default, or none."""

_NUMBERS = count()

AMOUNT = column("d", "DECIMAL", "bytes", logicalType="decimal", precision=10, scale=2)
NOW = column("at", "DATETIME", "string", null="last", default="CURRENT_TIMESTAMP")
V = column("v", "BIGINT", "long", null="first", default=None)

SCHEMAS = Schemas(
    key=record(ID),
    old=record(ID, V),
    new=record(ID, V, *ADDED),
    amount=record(ID, V, AMOUNT),
    now=record(ID, V, NOW),
    bare=record(ID),
)
FILLED = {
    "note": "x3",
    "qty": 7,
    "raw": b"ab\0\0",
    "at": datetime(2024, 6, 1, 12, tzinfo=UTC),
    "day": datetime(2024, 6, 1, 12),
    "state": "new",
    "left": None,
}
OTHERS = {"note": "set", "qty": 1, "raw": b"r", "at": "2025-01-01 08:00:00", "day": "2025-01-01 08:00:00"}


@pytest.fixture(autouse=True)
def _scripted_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder asks no registry for its schemas."""
    for module in (decode_task, scanner):
        monkeypatch.setattr(
            module, "decoder_of_thread", lambda protocol, options: AvroDecoder(SCHEMAS, options.timezone)
        )


def row(schema: str, key: int, **values: Any) -> tuple[bytes, bytes]:
    """A row of a schema."""
    return SCHEMAS.message("key", id=key), SCHEMAS.message(schema, id=key, v=key, **values)


def complete(key: int) -> tuple[bytes, bytes]:
    """A row with all columns."""
    return row("new", key, **OTHERS, state="paid", left="l")


def held(spark: SparkSession, name: str) -> dict[int, dict[str, Any]]:
    """Rows by key."""
    rows = read(spark, (f"{name}__shop", "t")).to_pylist()
    return {found["id"]: {name: found.get(name) for name in FILLED} for found in rows}


def applied(
    warehouse: Path,
    folder: Path,
    feeds: list[list[tuple[bytes, bytes]]],
    on_table_error: str = "stop",
    **settings: Any,
) -> str:
    """Apply feeds one after the other, each behind the one before it; the name of the changefeed."""
    name = f"added{next(_NUMBERS)}"
    for end in range(1, len(feeds) + 1):
        raw = {
            "changefeed": {"name": name, "protocol": "avro", "order": "offset", "timezone": "Asia/Shanghai"}
            | {"on_table_error": on_table_error},
            "source": {"archive": str(archive(folder / "feed", [message for part in feeds[:end] for message in part]))},
            "registry": {"url": "http://127.0.0.1:9"},
            "catalog": {
                "name": "lake",
                "type": "jdbc",
                "uri": f"jdbc:sqlite:{warehouse}/catalog.db",
                "warehouse": f"{warehouse}/tables",
            },
            "tables": {"route": f"{name}__{{database}}.{{table}}", **settings},
        }
        with assembled(config.parse(raw)) as pipeline:
            while pipeline.step().moved:
                pass
    return name


@pytest.mark.parametrize("together", few([False, True]), ids=["a step each", "one step"])
def test_rows_from_before_a_column_have_the_default_that_its_schema_declares(
    together: bool, spark: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    """Rows in the table, rows of the step in which the column comes, and rows of an older schema that come later."""
    feeds = [[row("old", 1), row("old", 2)], [row("old", 3), complete(4), row("old", 5)], [row("old", 6)]]
    name = applied(warehouse, tmp_path, [[message for part in feeds for message in part]] if together else feeds)

    found = held(spark, name)
    assert {key: values for key, values in found.items() if key != 4} == dict.fromkeys((1, 2, 3, 5, 6), FILLED)
    assert (found[4]["note"], found[4]["qty"], found[4]["left"]) == ("set", 1, "l")


@pytest.mark.soak
@pytest.mark.parametrize("schema", ["amount", "now"])
@pytest.mark.parametrize("together", [True, False], ids=["one step", "a step each"])
def test_a_default_that_no_schema_shows_is_refused(
    together: bool, schema: str, spark: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    """A precise DECIMAL has no default in any schema, and CURRENT_TIMESTAMP no time: earlier rows are not filled."""
    column_name = {"amount": "d", "now": "at"}[schema]
    values: dict[str, Any] = {column_name: b"\x01" if schema == "amount" else "2025-01-01 08:00:00"}
    feeds = [[row("old", 1)], [row(schema, 2, **values)]]
    feeds = [[message for part in feeds for message in part]] if together else feeds
    with pytest.raises(SchemaChangeRefused) as refusal:
        applied(warehouse, tmp_path, feeds)
    assert f"The value of the new column {column_name} in existing rows is not known" in str(refusal.value)
    assert "tables.unknown_default" in refusal.value.hint

    name = applied(warehouse, tmp_path, feeds, unknown_default="null")
    rows = read(spark, (f"{name}__shop", "t")).to_pylist()
    assert [found["id"] for found in rows if found[column_name] is None] == [1]


@pytest.mark.parametrize("order", few(["the old rows first", "the new rows first"]))
def test_a_table_that_returns_to_a_former_schema_gets_its_column_back(
    order: str, spark: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    """DROP v, then ADD v: the registry gives the old id again. In one step with rows from between, in any order."""
    between = [(SCHEMAS.message("key", id=3), SCHEMAS.message("bare", id=3))]
    mixed = [row("old", 4), *[(SCHEMAS.message("key", id=5), SCHEMAS.message("bare", id=5))]]
    feeds = [[row("old", 1)], between, mixed if order.startswith("the old") else mixed[::-1], [row("old", 6)], between]
    name = applied(warehouse, tmp_path, feeds)

    rows = read(spark, (f"{name}__shop", "t")).to_pylist()
    assert {found["id"]: found["v"] for found in rows} == {1: None, 3: None, 4: 4, 5: None, 6: 6}
