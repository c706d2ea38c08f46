"""Defaults and changed values that no message shows, through the whole pipeline into both formats of Iceberg."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from applier.commands.status.command import status
from applier.config import settings
from applier.pipeline.build import assembled
from tests.few import few
from tests.handmade import DATABASE, KEY, TS, Canal, Change, Message, Simple, quoted
from tests.spark.feeds import read

pytestmark = pytest.mark.spark

TABLE = "t"
OLD = {
    "moment": ("DATETIME(6)", "2024-01-01 23:59:59.999999"),
    "none": ("YEAR", "0000"),
    "cost": ("VARCHAR(20)", "2.45"),
    "short": ("INT", "24"),
    "day": ("VARCHAR(20)", "2024-1-1"),
}
"""Columns of the first row, with type and value."""
MODIFIED = {"moment": "DATE", "none": "VARCHAR(9)", "cost": "DECIMAL(9,1)", "short": "YEAR", "day": "DATE"}
ADDED = {
    "of_year": ("YEAR", "24", "24"),
    "fixed": ("CHAR(5)", "'ab  '", "ab  "),
    "real": ("FLOAT(7,2)", "1.25", "1.25"),
    "since": ("DATE", "101", "2000-01-01"),
}
"""Columns with type, default as written, and default as TiDB keeps it."""
_FIRST = date(2024, 1, 1)
HELD = {KEY: 1, "moment": _FIRST, "none": "0", "cost": Decimal("2.5"), "short": 2024, "day": _FIRST} | {
    "of_year": 2024,
    "fixed": "ab",
    "real": 1.25,
    "since": date(2000, 1, 1),
}
"""The row in the end."""


def messages(protocol: str) -> Iterator[Message]:
    """A table with one row, to which columns are added, and whose other columns then get other types."""
    wire: CanalTypes | SimpleTypes = SimpleTypes() if protocol == "simple" else CanalTypes()
    kinds = {KEY: "INT"} | {name: kind for name, (kind, _) in OLD.items()}
    create = ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items())
    yield wire.ddl(f"CREATE DATABASE {quoted(DATABASE)}", TS + 1, "QUERY", "", ())
    yield wire.typed_ddl(f"CREATE TABLE {TABLE} ({create}, PRIMARY KEY ({quoted(KEY)}))", TS + 2, "CREATE", kinds)
    yield wire.typed_row({KEY: 1} | {name: value for name, (_, value) in OLD.items()}, TS + 3, kinds)
    yield wire.watermark(TS + 3)
    kinds |= {name: kind for name, (kind, _, _) in ADDED.items()}
    add = ", ".join(f"ADD COLUMN {name} {kind} DEFAULT {text}" for name, (kind, text, _) in ADDED.items())
    yield wire.typed_ddl(f"ALTER TABLE {TABLE} {add}", TS + 4, "ALTER", kinds)
    yield wire.watermark(TS + 4)
    for ts, (name, kind) in enumerate(MODIFIED.items(), TS + 5):
        kinds[name] = kind
        yield wire.typed_ddl(f"ALTER TABLE {TABLE} MODIFY COLUMN {name} {kind}", ts, "ALTER", kinds)
    yield wire.watermark(TS + 10)


class CanalTypes(Canal):
    """Canal-JSON, whose rows show the types."""

    def typed_ddl(self, sql: str, ts: int, kind: str, _: dict[str, str]) -> Message:
        """A DDL of the table."""
        return self.ddl(sql, ts, kind, TABLE, ())

    def typed_row(self, row: dict[str, Any], ts: int, kinds: dict[str, str]) -> Message:
        """A new row."""
        key, value = self.row(Change(TABLE, list(OLD), None, row), ts)
        types = {name: kind.lower() for name, kind in kinds.items()}
        codes = {"int": 4, "year": 12, "varchar(20)": 12, "datetime(6)": 93}
        more = {"mysqlType": types, "sqlType": {name: codes[kind] for name, kind in types.items()}}
        return key, json.dumps(json.loads(value) | more).encode()


class SimpleTypes(Simple):
    """Simple, whose DDL shows the table after it, with the defaults that TiDB keeps."""

    def typed_ddl(self, sql: str, ts: int, kind: str, kinds: dict[str, str]) -> Message:
        """A DDL of the table."""
        key, value = self.ddl(sql, ts, kind, TABLE, ())
        message = json.loads(value)
        columns = [_described(name, column) for name, column in kinds.items()]
        message["tableSchema"] |= {"version": ts, "columns": columns}
        return key, json.dumps(message).encode()

    def typed_row(self, row: dict[str, Any], ts: int, _: dict[str, str]) -> Message:
        """A new row."""
        return self.row(Change(TABLE, list(OLD), None, row), ts)


def _described(name: str, kind: str) -> dict[str, Any]:
    word, _, numbers = kind.lower().rstrip(")").partition("(")
    length, _, digits = numbers.partition(",")
    if word == "datetime":
        length, digits = "26", length
    size = {"length": int(length)} if length else {}
    size |= {"decimal": int(digits)} if digits and word != "float" else {}  # Simple does not show those.
    default = ADDED[name][2] if name in ADDED else None
    data_type = {"mysqlType": word, "charset": "utf8mb4", "collate": "utf8mb4_bin", **size}
    return {"name": name, "dataType": data_type, "nullable": name != KEY, "default": default}


def archive(folder: Path, feed: Sequence[Message]) -> str:
    """The path of a file with messages."""
    path = folder / "feed.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for offset, message in enumerate(feed):
            key, value = (None if part is None else base64.b64encode(part).decode() for part in message)
            file.write(json.dumps({"topic": "t", "partition": 0, "offset": offset, "key": key, "value": value}) + "\n")
    return str(path)


@pytest.mark.parametrize(("protocol", "format_version"), few([("canal-json", 2), ("simple", 3)]))
def test_rows_hold_what_tidb_stores_for_their_ddl(
    protocol: str,
    format_version: int,
    spark: SparkSession,
    warehouse: Path,
    tmp_path: Path,
    fresh_name: Callable[[], tuple[str, str]],
) -> None:
    """Whether the statement or the message's schema shows the default, and whether format 3 keeps or 2 writes it."""
    name = "_".join(fresh_name())
    raw = {
        "changefeed": {"name": name, "protocol": protocol},
        "source": {"archive": archive(tmp_path, list(messages(protocol)))},
        "catalog": {
            "name": "lake",
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{warehouse}/catalog.db",
            "warehouse": f"{warehouse}/tables",
        },
        "tables": {"route": f"{name}.{{table}}", "format_version": format_version},
    }
    with assembled(settings.parse(raw)) as pipeline:
        while (step := pipeline.step()).moved or not step.complete:
            assert step.error is None
        assert pipeline.state.resolved_ts == TS + 10
    assert [table.state for table in status(settings.parse(raw), now_ms=TS >> 18).tables] == ["in step"]
    assert read(spark, (name, TABLE)).to_pylist() == [HELD]
