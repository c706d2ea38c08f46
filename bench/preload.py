"""Rows in Parquet in, the same table in several lakes out: what a contender finds before the first event.

  python -m bench.preload --rows DIR --lake DIR:3 [--lake DIR:2]

The number behind a lake's folder is the format version of its table. Every file of rows becomes one data file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.lake import Lake
from bench.say import say
from bench.session import session
from bench.spark_rows import TABLE_COLUMNS
from bench.topic.schema import DATABASE, table_name

_FILE_BY_FILE = {"spark.sql.files.maxPartitionBytes": "256m", "spark.sql.files.openCostInBytes": "256m"}
"""Spark reads each file as one partition, whatever its size."""


def main() -> None:
    """Fill the lakes."""
    parser = argparse.ArgumentParser(prog="bench.preload")
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--lake", action="append", required=True)
    arguments = parser.parse_args()
    places = [lake.rpartition(":") for lake in arguments.lake]
    settings = dict(_FILE_BY_FILE)
    for folder, _, _ in places:
        Path(folder).mkdir(parents=True, exist_ok=True)
        settings |= Lake(Path(folder)).spark_settings
    spark = session("preload", Lake(Path(places[0][0])), settings)
    say("started")
    rows = spark.read.parquet(str(arguments.rows))
    for folder, _, version in places:
        fill(spark, Lake(Path(folder)).name, version, rows)
        Lake(Path(folder)).loaded.touch()
    say("done")
    spark.stop()


def fill(spark: SparkSession, catalog: str, version: str, rows: DataFrame) -> None:
    """Make the table of one lake and append the rows."""
    table = f"{catalog}.{DATABASE}.{table_name(0, 1)}"
    create(spark, table, {"format-version": version, "write.distribution-mode": "none"})
    rows.writeTo(table).append()


def create(spark: SparkSession, table: str, properties: dict[str, str]) -> None:
    """Make an empty table whose key is known to Iceberg."""
    listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rpartition('.')[0]}")
    spark.sql(f"CREATE TABLE {table} ({TABLE_COLUMNS}) USING iceberg TBLPROPERTIES ({listed})")
    spark.sql(f"ALTER TABLE {table} SET IDENTIFIER FIELDS id")


if __name__ == "__main__":
    main()
