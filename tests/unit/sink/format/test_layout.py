"""Layouts against the columns of a table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from applier.config.table_layout import PartitionField, TableLayout, partition_fields, sort_fields
from applier.errors import TableMismatch
from applier.sink.format.layout import fitted, partition_name, takes

TAGS: Any = pa.list_(pa.string())
COLUMNS = pa.schema({"Id": pa.int64(), "id2": pa.float64(), "tags": TAGS, "d": pa.date32()})

KINDS: list[tuple[IcebergType, pa.DataType]] = [
    (IntegerType(), pa.int32()),
    (LongType(), pa.int64()),
    (StringType(), pa.string()),
    (BinaryType(), pa.binary()),
    (BooleanType(), pa.bool_()),
    (DecimalType(9, 2), pa.decimal128(9, 2)),
    (DateType(), pa.date32()),
    (TimestampType(), pa.timestamp("us")),
    (TimestamptzType(), pa.timestamp("us", tz="UTC")),
]


@pytest.mark.parametrize("transform", ["identity", "year", "month", "day", "hour", "bucket[4]", "truncate[4]"])
def test_a_transform_takes_the_types_that_iceberg_lets_it_take(transform: str) -> None:
    """Of all types that a column of TiDB can have here."""
    wanted = {str(theirs): parse_transform(transform).can_transform(theirs) for theirs, _ in KINDS}
    if transform.startswith("truncate"):
        wanted["decimal(9, 2)"] = False  # A result of more digits than the column has could not be written.
    assert {str(theirs): takes(transform, ours) for theirs, ours in KINDS} == wanted


def test_columns_are_found_without_regard_to_case() -> None:
    """As TiDB finds them; the table's own letters count."""
    found = fitted("t", TableLayout(partition_fields(["bucket(2, ID)", "d"]), sort_fields(["iD desc"])), COLUMNS)
    assert (found.partition, found.sort) == (partition_fields(["bucket(2, Id)", "d"]), sort_fields(["Id desc"]))


@pytest.mark.parametrize(
    ("by", "order", "what"),
    [
        ("day(x)", "Id", "Table t cannot be partitioned by day(x): it has no column x"),
        ("id2", "Id", "cannot be partitioned by id2: column id2 is double, and identity takes whole numbers"),
        ("tags", "Id", "cannot be partitioned by tags: column tags is a list"),
        ("hour(d)", "Id", "column d is date, and hour takes timestamp"),
        ("d", "tags", "cannot be sorted by tags: column tags is a list"),
        ("d", "y desc", "cannot be sorted by y desc: it has no column y"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(by: str, order: str, what: str) -> None:
    """With the key of the configuration to correct."""
    with pytest.raises(TableMismatch) as raised:
        fitted("t", TableLayout(partition_fields([by]), sort_fields([order]), pattern="shop.*"), COLUMNS)
    assert what in raised.value.what
    key = "sort_by" if "sorted" in what else "partition_by"
    assert raised.value.hint == (
        f'Correct {key} in [tables."shop.*"], where columns are {", ".join(COLUMNS.names)}; '
        "`applier reload -c FILE` lets a running `applier run` read it."
    )
    assert f"{raised.value.what}. Hint: Correct" in str(raised.value)


def test_partition_fields_have_names_of_their_own() -> None:
    """Those that Iceberg gives, unless a column or another field has it."""
    assert partition_name(PartitionField("id", "bucket[16]"), ["id"]) == "id_bucket_16"
    assert partition_name(PartitionField("v", "truncate[2]"), []) == "v_trunc_2"
    assert partition_name(PartitionField("d", "day"), ["d", "d_day"]) == "d_day_"
    assert partition_name(PartitionField("d"), ["d"]) == "d"
