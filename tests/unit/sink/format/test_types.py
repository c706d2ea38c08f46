from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema

from applier.changefeed.table import ColumnType
from applier.changefeed.types import arrow_type as upstream_type
from applier.errors import TableMismatch
from applier.sink.format.types import Field, TableSchema, arrow_type, default_of, iceberg_type, schema_json

UPSTREAM = ["tinyint", "bigint", "float", "double", "date", "datetime", "timestamp", "time", "json", "blob", "vector"]


@pytest.mark.parametrize("name", UPSTREAM)
def test_every_upstream_type_survives_the_way_to_iceberg_and_back(name: str) -> None:
    """The Arrow type that a decoder builds is the one that the table's columns are read with."""
    kind = upstream_type(ColumnType(name))

    assert arrow_type(iceberg_type(kind)) == kind


@pytest.mark.parametrize(
    ("arrow", "iceberg"),
    [
        (pa.decimal128(20, 0), "decimal(20, 0)"),
        (pa.binary(16), "fixed[16]"),
        (pa.timestamp("ns", tz="UTC"), "timestamptz_ns"),
    ],
)
def test_other_types_have_their_name(arrow: pa.DataType, iceberg: str) -> None:
    """Types beyond the mapping table, as found in tables of others, are known too."""
    assert iceberg_type(arrow) == iceberg


def test_schema_is_read_by_pyiceberg_and_comes_back() -> None:
    """Names, nullability, comments, key and nested types survive the JSON, which another implementation understands."""
    columns: list[Any] = [
        pa.field("a.b", pa.int64()),
        pa.field("s", pa.struct([pa.field("x", pa.int32(), nullable=False)]), nullable=False),
        pa.field("l", pa.list_(pa.float32()), metadata={b"doc": b"a vector"}),
    ]
    text = schema_json(pa.schema(columns), ["a.b"])

    theirs = Schema.model_validate_json(text)
    ours = TableSchema.parse(text)

    assert [field.name for field in theirs.fields] == ["a.b", "s", "l"]
    assert theirs.identifier_field_names() == {"a.b"}
    assert theirs.find_field("l").doc == "a vector"
    assert len({field["id"] for field in json.loads(text)["fields"]} | set(theirs._lazy_id_to_field)) == 5
    assert (ours.identifier, ours.fields[0].required, ours.fields[1].required) == (("a.b",), True, True)
    assert ours.arrow.field("l").type.value_type == pa.float32()


def test_maps_of_other_writers_are_read() -> None:
    """A table of somebody else may have maps; they become Arrow maps."""
    kind = {"type": "map", "key-id": 1, "key": "string", "value-id": 2, "value": "int", "value-required": False}

    assert pa.types.is_map(arrow_type(kind))


@pytest.mark.parametrize("kind", ["variant", "geometry(srid:4326)"])
def test_type_that_cannot_be_written_is_refused(kind: str) -> None:
    """A column that this writer cannot fill stops the table."""
    with pytest.raises(TableMismatch, match="cannot be written"):
        arrow_type(kind)
    with pytest.raises(TableMismatch, match="Iceberg has no type"):
        iceberg_type(pa.uint64())


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.int64(), 5, "5"),
        (pa.decimal128(9, 2), "1.50", "1.50"),
        (pa.date32(), "2020-02-29", "2020-02-29"),
        (pa.timestamp("us", tz="UTC"), "2020-01-01T00:00:00.000001+00:00", "2020-01-01 00:00:00.000001+00:00"),
        (pa.binary(), "0AFF", "b'\\n\\xff'"),
        (pa.list_(pa.int32()), [1, 2], "[1, 2]"),
        (pa.string(), None, "None"),
    ],
)
def test_defaults_are_read_from_single_value_json(kind: pa.DataType, value: Any, text: str) -> None:
    """An initial default has the value that Iceberg's JSON says."""
    assert str(default_of(Field(1, "c", iceberg_type(kind), kind, False, value)).as_py()) == text
