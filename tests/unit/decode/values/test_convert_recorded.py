"""Values of recorded Simple messages against the tables that SQL showed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from applier.changefeed.event import Bootstrap, Image, Op, RowChange, SchemaChange
from applier.changefeed.table import Column, TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.decode.options import DecoderOptions
from applier.decode.simple.decoder import SimpleDecoder
from applier.decode.values.convert import to_array
from tests import recordings

VARIANTS = [
    ("types", "simple-json"),
    ("types", "simple-avro"),
    ("types", "simple-json-checksum-shanghai"),
    ("types", "simple-json-raw-change"),
    ("pk", "simple-json"),
    ("pk", "simple-avro"),
    ("pk", "simple-json-checksum-shanghai"),
    ("pk", "simple-json-raw-change"),
]
ALTERED = {TableName("keys", "k_nulluk")}
"""Gets a column while rows lie in it, which is not a matter of values."""
WIRE = SimpleDecoder(DecoderOptions()).wire

Rows = dict[TableName, list[Image]]
Versions = dict[TableName, TableVersion]


@pytest.mark.parametrize(("scenario", "variant"), VARIANTS)
def test_every_recorded_cell_becomes_what_sql_shows(scenario: str, variant: str) -> None:
    """At each watermark the arrays made of the recorded rows hold the cells that SQL shows, and zeros are counted."""
    changes, versions = _events(scenario, variant)
    left_out = recordings.manifest(scenario)["variants"][variant]["tables_excluded_because_the_encoder_refuses_them"]
    compared = 0
    for snapshot in recordings.expected(scenario):
        tables = _replay(changes, versions, snapshot["resolved_ts"])
        for name, table in snapshot["tables"].items():
            version = versions.get(TableName(*name.split(".", 1)))
            if version is not None and version.name not in ALTERED:
                compared += _compare(table, version, tables.get(version.name, []))
            else:
                assert not table["primary_key"] or name in left_out
    assert compared > 500


def _events(scenario: str, variant: str) -> tuple[list[RowChange], Versions]:
    decoder = SimpleDecoder(DecoderOptions())
    changes: list[RowChange] = []
    versions: Versions = {}
    for record in recordings.records(scenario, variant):
        for event in decoder.decode(record["key"], record["value"]):
            if isinstance(event, RowChange):
                if event.name not in ALTERED:
                    changes.append(event)
            elif isinstance(event, Bootstrap | SchemaChange):
                version = event.version if isinstance(event, Bootstrap) else event.after
                if version is not None:
                    versions[version.name] = version
    changes.sort(key=lambda change: (change.commit_ts, change.op is not Op.DELETE))
    return changes, versions


def _replay(changes: list[RowChange], versions: Versions, resolved_ts: int) -> Rows:
    """The rows at a watermark, by plain list surgery: take old images out, then put new ones in."""
    rows: Rows = {}
    group: list[RowChange] = []
    for change in [change for change in changes if change.commit_ts <= resolved_ts]:
        if group and group[0].commit_ts != change.commit_ts:
            _transact(group, versions, rows)
            group = []
        group.append(change)
    _transact(group, versions, rows)
    return rows


def _transact(group: list[RowChange], versions: Versions, rows: Rows) -> None:
    for change in group:
        table = rows.setdefault(change.name, [])
        if change.before is not None:
            key = versions[change.name].key or tuple(change.before)
            found = [row for row in table if all(row[name] == change.before[name] for name in key)]
            table.remove(found[0])
    for change in group:
        if change.after is not None:
            rows.setdefault(change.name, []).append(change.after)


def _compare(table: dict[str, Any], version: TableVersion, rows: list[Image]) -> int:
    shown = [index for index, column in enumerate(table["columns"]) if column.get("generated") != "virtual"]
    columns = [version.column(table["columns"][index]["name"]) for index in shown]
    assert all(columns)
    cells = [list(_cells(column, version, rows)) for column in columns if column is not None]
    actual = sorted(zip(*cells, strict=True), key=repr) if rows else []
    wanted = [
        [_wanted(row[index], column) for index, column in zip(shown, columns, strict=True)] for row in table["rows"]
    ]
    assert actual == sorted(map(tuple, wanted), key=repr)
    return len(shown) * len(rows)


def _cells(column: Column, version: TableVersion, rows: list[Image]) -> Iterator[Any]:
    values = [row[column.name] for row in rows]
    array, zeros = to_array(values, column, WIRE, TypeRules(), f"{version.name}.{column.name}")
    assert zeros == array.null_count - values.count(None)
    return map(_plain, array.to_pylist())


def _plain(value: Any) -> Any:
    """A Python value as something that compares and sorts: floats by their bits, moments by their text."""
    match value:
        case float():
            return struct.pack("<d", value)
        case datetime():
            return value.replace(tzinfo=None).isoformat(" ", "microseconds")
        case list():
            return [_plain(item) for item in value]
    return None if value is None else str(value)


def _wanted(cell: Any, column: Column | None) -> Any:
    assert column is not None
    if cell is None:
        return None
    if isinstance(cell, dict):
        return str(bytes.fromhex(cell["hex"]))
    match column.type.name:
        case "float":
            return _single(cell)
        case "double":
            return struct.pack("<d", float(cell))
        case "decimal" if column.type.length and column.type.length <= 38:
            return str(Decimal(cell))
        case "date" | "datetime" | "timestamp" if cell.startswith("0000") or "-00" in cell:
            return None
        case "datetime" | "timestamp":
            return f"{cell}{'' if '.' in cell else '.'}".ljust(26, "0")
        case "vector":
            return [_single(number) for number in cell[1:-1].split(",") if number]
    return cell


def _single(text: str) -> bytes:
    return struct.pack("<d", struct.unpack("<f", struct.pack("<f", float(text)))[0])
