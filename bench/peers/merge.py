"""Structured Streaming with foreachBatch and MERGE INTO, as the documentation of Spark and Iceberg shows it.

python -m bench.peers.merge --lake DIR --bootstrap HOST:PORT --topic TOPIC [--mode copy-on-write] [--messages N]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - what the whole world calls it

from bench.lake import Lake
from bench.preload import create
from bench.say import say
from bench.session import session
from bench.spark_rows import rows
from bench.topic.schema import COLUMNS, DATABASE, table_name

_MERGE = """
MERGE INTO {table} t USING changes s ON t.id = s.id
WHEN MATCHED AND s.op = 'DELETE' THEN DELETE
WHEN MATCHED THEN UPDATE SET {assignments}
WHEN NOT MATCHED AND s.op <> 'DELETE' THEN INSERT ({names}) VALUES ({values})
"""


def main() -> None:
    """Apply a topic up to its present end."""
    parser = argparse.ArgumentParser(prog="bench.peers.merge")
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages per batch")
    parser.add_argument("--mode", choices=["merge-on-read", "copy-on-write"], default="merge-on-read")
    arguments = parser.parse_args()
    lake = Lake(arguments.lake)
    # Twice the heap of applier: one batch lies in memory as decoded rows.
    spark = session("merge", lake, {"spark.driver.memory": "4g"})
    table = f"{lake.name}.{DATABASE}.{table_name(0, 1)}"
    say("started")
    prepare(spark, table, arguments.mode)
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.messages)
        .load()
    )
    writer = source.writeStream.foreachBatch(lambda batch, number: apply(batch, table, number))
    checkpoint = str(arguments.lake / "checkpoint")
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


def prepare(spark: SparkSession, table: str, mode: str) -> None:
    """Make the table, or give the one that is there the way in which MERGE shall write."""
    properties = {f"write.{command}.mode": mode for command in ("merge", "update", "delete")}
    if spark.catalog.tableExists(table):
        listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({listed})")
    else:
        create(spark, table, {"format-version": "3" if mode == "merge-on-read" else "2"} | properties)


def apply(batch: DataFrame, table: str, number: int) -> None:
    """Apply the last change of each key."""
    newest = Window.partitionBy("id").orderBy(F.desc("commit_ts"), F.desc("offset"))
    ranked = rows(batch, "canal-json").withColumn("rank", F.row_number().over(newest))
    changes = ranked.where("rank = 1").persist()
    changes.createOrReplaceTempView("changes")
    names = [column.name for column in COLUMNS]
    batch.sparkSession.sql(
        _MERGE.format(
            table=table,
            assignments=", ".join(f"{name} = s.{name}" for name in names),
            names=", ".join(names),
            values=", ".join(f"s.{name}" for name in names),
        )
    )
    changes.unpersist()
    say("step", step=number)


if __name__ == "__main__":
    main()
