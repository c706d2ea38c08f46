from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from applier.changefeed.change_batch import KeylessBatch
from applier.errors import TableIncomplete
from applier.sink.commit.stamp import Stamp
from applier.sink.iceberg.catalog import Catalog, PartitionField
from applier.sink.write.table_writer import TableWriter
from tests.spark.feeds import read
from tests.spark.writes import apply

pytestmark = pytest.mark.spark

KINDS: dict[str, pa.DataType] = {
    "n": pa.int32(),
    "f": pa.float32(),
    "d": pa.float64(),
    "m": pa.decimal128(6, 2),
    "s": pa.string(),
    "b": pa.binary(),
    "t": pa.timestamp("us", tz="UTC"),
    "v": pa.list_(pa.float32()),
}
COLUMNS = pa.schema(KINDS)


@pytest.mark.parametrize(
    ("version", "partition"), [(3, ()), (2, ()), (3, (PartitionField("n"),))], ids=["v3", "v2", "by-value"]
)
def test_each_delete_removes_exactly_one_equal_row(
    spark: SparkSession, lake: Catalog, fresh_name: Callable[[], tuple[str, str]], version: int, partition: Any
) -> None:
    """A table without a key holds the same bag of rows as a plain counter, NULLs, -0.0 and repeats included."""
    name = fresh_name()
    lake.create(name, COLUMNS, format_version=version, partition=partition)
    table = lake.load(name)
    assert table is not None
    writer = TableWriter(table, "shop", 1)
    choices = random.Random(version)
    bag: Counter[str] = Counter()
    rows: dict[str, dict[str, Any]] = {}

    for step in range(1, 7):
        inserts = [_row(choices) for _ in range(choices.randint(0, 40))]
        rows.update((_text(row), row) for row in inserts)
        bag.update(map(_text, inserts))
        deletes = choices.sample(list(bag.elements()), min(choices.randint(0, 25), bag.total()))
        bag.subtract(deletes)
        batch = KeylessBatch(_table(inserts), _table([rows[key] for key in deletes]))
        apply(writer, batch, Stamp("shop", 1, step), exact=True)

    assert Counter(map(_text, read(spark, name).to_pylist())) == +bag


def test_missing_row_is_a_mismatch_only_where_the_table_is_exact(
    lake: Catalog, fresh_name: Callable[[], tuple[str, str]]
) -> None:
    """A delete without a row stops an exact table, and is nothing to do after a start in the middle."""
    name = fresh_name()
    lake.create(name, COLUMNS)
    table = lake.load(name)
    assert table is not None
    writer = TableWriter(table, "shop", 1)
    row = _row(random.Random(1))
    batch = KeylessBatch(_table([]), _table([row, row]))

    with pytest.raises(TableIncomplete, match="does not hold 2 rows that the feed updates or deletes"):
        apply(writer, batch, Stamp("shop", 1, 1), exact=True, is_complete=True)

    assert apply(writer, batch, Stamp("shop", 1, 1), exact=False).deletes.state == {}


def test_a_column_of_another_writer_does_not_distinguish_rows(
    spark: SparkSession, lake: Catalog, fresh_name: Callable[[], tuple[str, str]]
) -> None:
    """Of rows that are equal upstream a delete removes one, whatever others have filled in."""
    name = fresh_name()
    lake.create(name, COLUMNS)
    table = lake.load(name)
    assert table is not None
    row, other = _row(random.Random(1)), _row(random.Random(2))
    apply(
        TableWriter(table, "shop", 1),
        KeylessBatch(_table([row, row, other]), _table([])),
        Stamp("shop", 1, 1),
        exact=True,
    )
    spark.sql(f"ALTER TABLE lake.{'.'.join(name)} ADD COLUMN note string")
    spark.sql(f"UPDATE lake.{'.'.join(name)} SET note = uuid()")
    table = lake.load(name)
    assert table is not None

    applied = apply(
        TableWriter(table, "shop", 1), KeylessBatch(_table([]), _table([row])), Stamp("shop", 1, 2), exact=True
    )

    assert applied.not_found == 0
    left = read(spark, name).drop_columns(["note"]).to_pylist()
    assert Counter(map(_text, left)) == Counter(map(_text, [row, other]))


def _text(row: dict[str, Any]) -> str:
    return repr({**row, "t": row["t"] and row["t"].timestamp()})


def _row(choices: random.Random) -> dict[str, Any]:
    return {
        "n": choices.choice([None, 1]),
        "f": choices.choice([None, 0.0, -0.0]),
        "d": choices.choice([None, 1.5]),
        "m": choices.choice([None, Decimal("1.50")]),
        "s": choices.choice([None, "", "x"]),
        "b": choices.choice([None, b""]),
        "t": choices.choice([None, datetime(2020, 1, 1, tzinfo=UTC)]),
        "v": choices.choice([None, [], [1.5, None]]),
    }


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=COLUMNS)
