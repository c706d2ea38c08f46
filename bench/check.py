"""Final tables in, verdicts out: every column of every row against the expected Parquet, read by Spark.

  python -m bench.check JOBS.json

A job is {"expected": folder, "tables": number, "lakes": [folder, ...], "reads": number}. A sum of 64-bit hashes per
column says which one differs, one over whole rows that they belong together. With `reads`, full reads of each table are
timed, and of a copy that is compact.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bench.lake import Lake
from bench.meter import tree_cpu
from bench.say import say
from bench.session import session
from bench.topic.schema import COLUMNS, DATABASE, table_name

_NAMES = [column.name for column in COLUMNS]

_AT_ONCE = 50
"""Tables in one query: the time to plan it grows with their square."""


@dataclass(frozen=True, slots=True)
class Job:
    """Tables that must all be equal.

    Attributes:
        expected: Folder of the expected Parquet, one file per table.
        tables: How many.
        lakes: Folders of the lakes that have them.
        reads: How often to time a full read of the first.
    """

    expected: str
    tables: int
    lakes: list[str]
    reads: int = 0

    @property
    def names(self) -> list[str]:
        """Names of the tables."""
        return [table_name(number, self.tables) for number in range(self.tables)]


def main() -> None:
    """Say one verdict for each lake."""
    jobs = [Job(**job) for job in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))]
    lakes = [Lake(Path(folder)) for job in jobs for folder in job.lakes]
    settings = {key: value for lake in lakes for key, value in lake.spark_settings.items()}
    copy = Lake(Path(sys.argv[1]).with_name("compact"))
    spark = session("check", copy, settings)
    for job in jobs:
        check(spark, job)
        if job.reads:
            time_reads(spark, job, copy.name)
    spark.stop()


def check(spark: SparkSession, job: Job) -> None:
    """Compare the tables of each lake, up to the first fifty in which something is wrong."""
    for number, name in enumerate(job.names):
        spark.read.parquet(f"{job.expected}/{number}.parquet").createOrReplaceTempView(name)
    verdicts: dict[str, list[str]] = {Path(folder).name: [] for folder in job.lakes}
    for first in range(0, job.tables, _AT_ONCE):
        names = job.names[first : first + _AT_ONCE]
        expected = _united(spark, {name: name for name in names})
        wanted = _sums(expected)
        for lake, wrong in verdicts.items():
            wrong.extend([] if wrong else _verdict(spark, lake, names, expected, wanted))
    for lake, wrong in verdicts.items():
        say("verdict", lake=lake, wrong=wrong)


def _verdict(
    spark: SparkSession, lake: str, names: Sequence[str], expected: DataFrame, wanted: dict[str, int]
) -> list[str]:
    try:
        return _differences(spark, lake, names, expected, wanted)
    except PySparkException as error:
        # A table that cannot be read is a wrong table, and no reason not to look at the others.
        return [f"cannot be read: {str(error).splitlines()[0]}"]


def time_reads(spark: SparkSession, job: Job, copy: str) -> None:
    """Time reads of every column of the first table, in turns, beside a copy of it written in one go."""
    name = job.names[0]
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {copy}.{DATABASE}")
    rows = spark.table(name).repartitionByRange(20, "id").sortWithinPartitions("id")
    rows.writeTo(f"{copy}.{DATABASE}.{name}").using("iceberg").createOrReplace()
    for number in range(job.reads + 1):
        for lake in [copy, *(Path(folder).name for folder in job.lakes)]:
            start, used = time.monotonic(), tree_cpu(os.getpid())
            _sums(_united(spark, {name: f"{lake}.{DATABASE}.{name}"}))
            cpu = tree_cpu(os.getpid()) - used
            # The first round compiles.
            if number:
                say("read", lake=lake, seconds=time.monotonic() - start, cpu=cpu)


def _differences(
    spark: SparkSession, lake: str, names: Sequence[str], expected: DataFrame, wanted: dict[str, int]
) -> list[str]:
    """What is wrong with the tables of a lake, in words."""
    found = _united(spark, {name: f"{lake}.{DATABASE}.{name}" for name in names})
    types, right = dict(found.dtypes), dict(expected.dtypes)
    wrong = [
        f"{column} is {types.get(column)}, not {right[column]}"
        for column in right
        if types.get(column) != right[column]
    ]
    if wrong:
        return wrong
    sums = _sums(found)
    if sums["rows"] != wanted["rows"]:
        return [f"{sums['rows']} rows, not {wanted['rows']}"]
    columns = [f"column {column} differs" for column in [*_NAMES, "table"] if sums[column] != wanted[column]]
    return columns or ([] if sums == wanted else ["values are in wrong rows"])


def _united(spark: SparkSession, relations: dict[str, str]) -> DataFrame:
    """All tables as one relation, with their names in a column."""
    parts = [spark.table(relation).selectExpr(f"'{name}' AS `table`", *_NAMES) for name, relation in relations.items()]
    return functools.reduce(DataFrame.unionAll, parts)


def _sums(relation: DataFrame) -> dict[str, int]:
    """Number of rows, and order-free sums of hashes, of each column and of whole rows."""
    columns = [*_NAMES, "table"]
    exact = "coalesce(sum(cast(xxhash64({}) AS decimal(38,0))), 0) AS `{}`".format
    hashed = [exact(f"`{column}`, isnull(`{column}`)", column) for column in columns]
    whole = exact(", ".join(f"`{column}`, isnull(`{column}`)" for column in columns), "whole rows")
    row = relation.selectExpr("count(*) AS rows", *hashed, whole).collect()[0]
    return {name: int(value) for name, value in row.asDict().items()}


if __name__ == "__main__":
    main()
