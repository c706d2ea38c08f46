"""Names that break whoever quotes by hand: from the messages of each protocol into Iceberg, and back by SQL."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from applier.config import settings
from applier.pipeline.build import assembled
from tests.fake_registry import fake_registry
from tests.few import few
from tests.handmade import (
    ADDED,
    COLUMNS,
    DATABASE,
    DEFAULT,
    KEY,
    LATER,
    RENAMED,
    TABLE,
    TS,
    Avro,
    Canal,
    Change,
    Debezium,
    Message,
    Open,
    Row,
    Simple,
    Wire,
    quoted,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def _row(number: int, version: int, columns: Sequence[str] = COLUMNS) -> Row:
    return {KEY: number, **{name: f"{name} of {number} in {version}" for name in columns}}


def messages(wire: Wire) -> Iterator[Message]:
    """The life of a table: created, filled, changed, widened and renamed."""
    here, there = f"{quoted(DATABASE)}.{quoted(TABLE)}", f"{quoted(DATABASE)}.{quoted(RENAMED)}"
    texts = ", ".join(f"{quoted(name)} VARCHAR(50)" for name in COLUMNS)
    create = f"CREATE TABLE {quoted(TABLE)} ({quoted(KEY)} INT NOT NULL PRIMARY KEY, {texts})"
    literal = DEFAULT.replace("'", "''")
    add = f"ALTER TABLE {quoted(TABLE)} ADD COLUMN {quoted(ADDED)} VARCHAR(50) DEFAULT '{literal}'"
    yield wire.ddl(f"CREATE DATABASE {quoted(DATABASE)}", TS + 1, "QUERY", "", ())
    yield wire.ddl(create, TS + 2, "CREATE", TABLE, COLUMNS)
    for number in (1, 2, 3):
        yield wire.row(Change(TABLE, COLUMNS, None, _row(number, 0)), TS + 3)
    yield wire.row(Change(TABLE, COLUMNS, _row(1, 0), _row(1, 1)), TS + 4)
    yield wire.row(Change(TABLE, COLUMNS, _row(2, 0), None), TS + 4)
    yield wire.ddl(add, TS + 5, "ALTER", TABLE, LATER)
    yield wire.row(Change(TABLE, LATER, None, _row(4, 0, LATER)), TS + 6)
    yield wire.watermark(TS + 6)
    yield wire.ddl(f"RENAME TABLE {here} TO {there}", TS + 7, "RENAME", RENAMED, LATER)
    yield wire.row(Change(RENAMED, LATER, {**_row(3, 0), ADDED: DEFAULT}, _row(3, 1, LATER)), TS + 8)
    yield wire.watermark(TS + 9)


WIRES: Mapping[str, Wire] = {"simple": Simple(), "open": Open(), "canal-json": Canal(), "debezium": Debezium()}


@contextmanager
def _wire(protocol: str) -> Iterator[tuple[Wire, dict[str, Any]]]:
    """What writes the messages of a protocol, and what the configuration says of it beside its name."""
    if protocol != "avro":
        yield WIRES[protocol], {}
        return
    with fake_registry() as registry:
        yield Avro(registry), {"registry": {"url": registry.url}}


def _archive(folder: Path, records: Iterator[Message]) -> Path:
    path = folder / "feed.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for offset, (key, value) in enumerate(records):
            record = {"topic": "hostile", "partition": 0, "offset": offset, "value": b64encode(value).decode()}
            file.write(json.dumps(record | {"key": None if key is None else b64encode(key).decode()}) + "\n")
    return path


@pytest.fixture
def properties(warehouse: Path) -> Mapping[str, str]:
    """Properties of the catalog of the run."""
    return {"type": "jdbc", "uri": f"jdbc:sqlite:{warehouse}/catalog.db", "warehouse": f"{warehouse}/tables"}


@pytest.mark.parametrize("protocol", few(["simple", "avro", "open", "canal-json", "debezium"], 2))
def test_names_that_break_quoting_come_through_whole(
    protocol: str, spark: SparkSession, properties: Mapping[str, str], tmp_path: Path
) -> None:
    """Database, table and columns keep their names to the letter, and rows are told apart by all of them."""
    prefix = protocol.replace("-", "_")
    with _wire(protocol) as (wire, options):
        raw = {
            "changefeed": {"name": f"hostile-{protocol}", "protocol": protocol},
            "source": {"archive": str(_archive(tmp_path, messages(wire)))},
            "catalog": {"name": "lake", **properties},
            "tables": {"route": f"{prefix} {{database}}.{{table}}"},
            **options,
        }
        with assembled(settings.parse(raw)) as pipeline:
            while (step := pipeline.step()).moved or not step.complete:
                assert step.error is None
            assert pipeline.state.resolved_ts == TS + 9

    namespace = quoted(f"{prefix} {DATABASE}")
    names = ", ".join(quoted(name) for name in (KEY, *LATER))
    query = f"SELECT {names} FROM lake.{namespace}.{quoted(RENAMED)} WHERE {quoted(ADDED)} IS NOT NULL"
    found = {row[KEY]: row.asDict() for row in spark.sql(query).collect()}
    assert found == {
        1: {**_row(1, 1), ADDED: DEFAULT},
        3: _row(3, 1, LATER),
        4: _row(4, 0, LATER),
    }
    assert [row["tableName"] for row in spark.sql(f"SHOW TABLES IN lake.{namespace}").collect()] == [RENAMED]
