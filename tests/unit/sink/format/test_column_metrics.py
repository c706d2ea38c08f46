from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from applier.sink.format.bounds import decode_bound, ordered
from applier.sink.format.column_metrics import cut_lower, cut_upper, encode_bound, metrics
from applier.sink.format.storage import LocalStorage
from applier.sink.format.types import TableSchema, schema_json
from applier.sink.write import file_writer

MOMENT = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "theirs", "value"),
    [
        (pa.bool_(), BooleanType(), False),
        (pa.int32(), IntegerType(), -7),
        (pa.int64(), LongType(), -(2**63)),
        (pa.float32(), FloatType(), -1.5),
        (pa.float64(), DoubleType(), 1e300),
        (pa.string(), StringType(), "ünï😀"),
        (pa.binary(), BinaryType(), b"\x00\xff"),
        (pa.date32(), DateType(), date(1969, 12, 31)),
        (pa.time64("us"), TimeType(), time(23, 59, 59, 5)),
        (pa.timestamp("us"), TimestampType(), MOMENT.replace(tzinfo=None)),
        (pa.timestamp("us", tz="UTC"), TimestamptzType(), MOMENT),
        (pa.decimal128(20, 2), DecimalType(20, 2), Decimal("-1.28")),
        (pa.decimal128(20, 0), DecimalType(20, 0), Decimal(2**64 - 1)),
        (pa.decimal128(29, 29), DecimalType(29, 29), Decimal("-0.12345678901234567890123456789")),
        (pa.decimal128(38, 0), DecimalType(38, 0), Decimal(1 - 10**38)),
        (pa.decimal128(38, 10), DecimalType(38, 10), Decimal("-9999999999999999999999999999.0123456789")),
    ],
    ids=str,
)
def test_bounds_are_encoded_as_by_others(kind: pa.DataType, theirs: PrimitiveType, value: Any) -> None:
    """A bound has the bytes that PyIceberg gives the value, and reads back as the value."""
    assert encode_bound(kind, value) == to_bytes(theirs, value)
    assert decode_bound(kind, encode_bound(kind, value)) == ordered(value, kind)


@given(value=st.one_of(st.text(max_size=8), st.binary(max_size=8)), width=st.integers(1, 4))
def test_cut_bounds_still_hold_the_value(value: str | bytes, width: int) -> None:
    """Cutting makes a lower bound smaller and an upper bound larger, or leaves none."""
    low, high = cut_lower(value, width), cut_upper(value, width)

    assert low <= value
    assert len(low) <= width
    assert high is None or (high >= value and len(high) <= width)


def test_upper_bound_carries_over_and_may_not_exist() -> None:
    """The last character is raised where it can be, else the one before; surrogates are skipped."""
    assert cut_upper("ab\U0010ffffx", 3) == "ac"
    assert cut_upper("a\ud7ffx", 2) == "a\ue000"
    assert cut_upper(b"\x01\xff\x00", 2) == b"\x02"
    assert cut_upper(b"\xff\xff\x00", 2) is None


def test_metrics_cover_all_row_groups_and_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts add up and bounds span the row groups; lists are passed over without shifting the columns behind them."""
    kinds: dict[str, Any] = {"s": pa.string(), "l": pa.list_(pa.float32()), "n": pa.int64(), "none": pa.int32()}
    rows = {"s": ["x" * 20, None] * 50, "l": [[1.0]] * 100, "n": list(range(100)), "none": [None] * 100}

    found, schema = written(tmp_path, monkeypatch, kinds, rows, {})

    ids = {field.name: field.id for field in schema.fields}
    assert found["record-count"] == 100
    assert len(found["split-offsets"]) > 1
    assert column(found, "value-counts") == {ids["s"]: 100, ids["n"]: 100, ids["none"]: 100}
    assert column(found, "null-value-counts") == {ids["s"]: 50, ids["n"]: 0, ids["none"]: 100}
    assert column(found, "lower-bounds") == {ids["s"]: (b"x" * 16).hex().upper(), ids["n"]: "00" * 8}
    assert column(found, "upper-bounds")[ids["s"]] == (b"x" * 15 + b"y").hex().upper()
    assert all(column(found, "column-sizes").values())


def test_bounds_of_a_file_have_all_digits_of_a_decimal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that compares with a bound of 38 digits finds the row."""
    values = [Decimal(f"{number}e-3") for number in (1 - 10**38, 7, 12345678901234567890123456789012345678)]

    found, _ = written(tmp_path, monkeypatch, {"d": pa.decimal128(38, 3)}, {"d": values}, {})

    assert column(found, "lower-bounds") == {1: to_bytes(DecimalType(38, 3), values[0]).hex().upper()}
    assert column(found, "upper-bounds") == {1: to_bytes(DecimalType(38, 3), values[2]).hex().upper()}


def test_table_properties_choose_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modes are taken by column, then by table, then Iceberg's own; the key always has bounds."""
    kinds: dict[str, Any] = {name: pa.string() for name in ("id", "full", "counts", "other")}
    properties = {
        "write.metadata.metrics.default": "none",
        "write.metadata.metrics.column.full": "full",
        "write.metadata.metrics.column.counts": "counts",
    }

    found, _ = written(tmp_path, monkeypatch, kinds, {name: ["a" * 20] for name in kinds}, properties)

    assert list(column(found, "column-sizes")) == [1, 2, 3, 4]
    assert list(column(found, "value-counts")) == [1, 2, 3]
    assert {number: len(bound) // 2 for number, bound in column(found, "lower-bounds").items()} == {1: 16, 2: 20}


def written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kinds: dict[str, Any], rows: Any, properties: dict[str, str]
) -> tuple[Any, TableSchema]:
    """Metrics of a file with several row groups."""
    monkeypatch.setattr(file_writer, "GROUP_BYTES", 1000)
    schema = TableSchema.parse(schema_json(pa.schema(kinds)))
    table = file_writer.conform("t", pa.table(rows, schema=pa.schema(kinds)), schema)
    groups = file_writer.row_groups(table)
    [file] = file_writer.write_files(groups, table.schema, LocalStorage(), lambda name: str(folder / name))
    return metrics(file.footer, schema.fields, ["id"], properties), schema


def column(found: Any, name: str) -> dict[int, Any]:
    """One of the metrics, by field id."""
    return dict(zip(found[name]["keys"], found[name]["values"], strict=True))
