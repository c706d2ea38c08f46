from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from applier.errors import TableMismatch
from applier.sink.format.partition_spec import SpecField, parse_spec, split, transform
from applier.sink.format.types import TableSchema, schema_json

EPOCH = datetime(1970, 1, 1)
MOMENTS = [datetime(1969, 12, 31, 23, 59, 59, 999999), EPOCH, datetime(2024, 2, 29, 1, 30)]
ZONED = [moment.replace(tzinfo=UTC) for moment in MOMENTS]
DAYS = [date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29)]
WIDE = [
    Decimal("1234567890123456789012345678.9012345678"),
    Decimal("-1234567890123456789012345678.9012345678"),
    Decimal("9999999999999999999999999999.9999999999"),
    Decimal("0E-10"),
    None,
]


def micros(moment: datetime) -> int:
    """Microseconds since 1970, which PyIceberg's transforms take."""
    span = moment.replace(tzinfo=None) - EPOCH
    return (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds


CASES: list[Any] = [
    ("bucket[16]", IntegerType(), pa.int32(), [-1, 0, 34, None]),
    ("bucket[16]", LongType(), pa.int64(), [-(2**63), 34, 2**62]),
    ("bucket[7]", StringType(), pa.string(), ["", "iceberg", "ünï😀"]),
    ("bucket[7]", BinaryType(), pa.binary(), [b"", b"\x00\x01\x02\x03"]),
    ("bucket[5]", DecimalType(20, 2), pa.decimal128(20, 2), [Decimal("14.20"), Decimal("-1.28"), Decimal("0.00")]),
    *(
        (name, DecimalType(38, 10), pa.decimal128(38, 10), WIDE)
        for name in ("bucket[16]", "truncate[1000]", "identity")
    ),
    ("truncate[10]", IntegerType(), pa.int32(), [-1, 1, 19]),
    ("truncate[10]", LongType(), pa.int64(), [-11, 2**40]),
    ("truncate[2]", StringType(), pa.string(), ["a", "😀üx"]),
    ("truncate[3]", BinaryType(), pa.binary(), [b"abcdef", b""]),
    ("truncate[50]", DecimalType(9, 2), pa.decimal128(9, 2), [Decimal("10.65"), Decimal("-0.01")]),
    ("identity", StringType(), pa.string(), ["x", None]),
    *((unit, DateType(), pa.date32(), DAYS) for unit in ("year", "month", "day", "bucket[4]")),
    *((unit, TimestampType(), pa.timestamp("us"), MOMENTS) for unit in ("year", "month", "day", "hour", "bucket[4]")),
    *((unit, TimestamptzType(), pa.timestamp("us", tz="UTC"), ZONED) for unit in ("month", "hour", "bucket[4]")),
]


@pytest.mark.parametrize(("name", "theirs", "kind", "values"), CASES, ids=str)
def test_transforms_are_icebergs(name: str, theirs: IcebergType, kind: pa.DataType, values: list[Any]) -> None:
    """A row goes to the partition to which every other writer of Iceberg would send it."""
    spec = name.rstrip("]").split("[")
    field = SpecField("c", spec[0], int(spec[1]) if len(spec) > 1 else 0)

    found = transform(pa.chunked_array([pa.array(values, kind)]), field).to_pylist()

    expected = parse_transform(name).transform(theirs)
    wanted = [None if value is None else expected(_internal(value)) for value in values]
    assert [_internal(value) for value in found] == wanted


def test_a_partition_value_with_too_many_digits_is_refused() -> None:
    """A negative decimal may be cut down to one digit more than its column has, which no manifest can hold."""
    with pytest.raises(TableMismatch) as caught:
        transform(pa.chunked_array([pa.array([Decimal(-9999)], pa.decimal128(4, 0))]), SpecField("c", "truncate", 10))

    assert str(caught.value) == (
        "A value of column c has too many digits for its partition by truncate[10]. "
        "Hint: Replace that partition field by one of another transform, such as bucket."
    )


def test_rows_are_split_by_all_fields_and_keep_their_order() -> None:
    """Each group has one value of every partition field, as Iceberg's JSON; NULL is a value of its own."""
    rows = pa.table({"day": pa.array([DAYS[0], DAYS[1], DAYS[0], None]), "n": [1, 1, 1, 1], "id": [1, 2, 3, 4]})
    spec = [SpecField("day", "identity"), SpecField("n", "void"), SpecField("n", "bucket", 4)]

    groups = {str(values[0]): (values[1], group["id"].to_pylist()) for values, group in split(rows, spec)}

    assert groups == {"1969-12-31": (None, [1, 3]), "1970-01-01": (None, [2]), "None": (None, [4])}


def test_values_are_written_as_icebergs_json() -> None:
    """Partition values of all kinds take the form of the specification's single-value JSON."""
    rows = pa.table(
        {
            "d": pa.array([Decimal("1.50")]),
            "b": pa.array([b"\x0a"]),
            "t": pa.array([MOMENTS[1]], pa.timestamp("us")),
            "z": pa.array([ZONED[1]], pa.timestamp("us", tz="UTC")),
        }
    )

    [(values, _)] = split(rows, [SpecField(name, "identity") for name in rows.column_names])

    assert values == ["1.50", "0A", "1970-01-01T00:00:00.000000", "1970-01-01T00:00:00.000000+00:00"]


def test_unknown_transform_is_refused() -> None:
    """A partition field that cannot be computed stops the table instead of misplacing its rows."""
    schema = TableSchema.parse(schema_json(pa.schema({"a": pa.int32()})))

    with pytest.raises(TableMismatch, match="Table t is partitioned by zorder of a"):
        parse_spec("t", {"fields": [{"transform": "zorder", "source-id": 1}]}, schema)
    with pytest.raises(TableMismatch, match="a nested column"):
        parse_spec("t", {"fields": [{"transform": "identity", "source-id": 9}]}, schema)


def _internal(value: Any) -> Any:
    if isinstance(value, datetime):
        return micros(value)
    return value.toordinal() - EPOCH.toordinal() if isinstance(value, date) else value
