"""What this machine allows at best: Spark reading a topic and nothing else, or also decoding and appending it, keyless.

  python -m bench.limits read|append --bootstrap HOST:PORT --folder DIR --topic TOPIC [--protocol P] [--passes 2]

The first pass is a cold one, as a job's is; later ones show the same with everything compiled.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what the whole world calls it

from bench.lake import Lake
from bench.say import say
from bench.session import session
from bench.spark_rows import rows


def main() -> None:
    """Run one limit on some topics."""
    parser = argparse.ArgumentParser(prog="bench.limits")
    parser.add_argument("limit", choices=["read", "append"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--topic", action="append", required=True)
    parser.add_argument("--protocol", default="simple-json")
    parser.add_argument("--passes", type=int, default=2)
    arguments = parser.parse_args()
    spark = session(f"limit {arguments.limit}", Lake(arguments.folder))
    say("started")
    for topic in arguments.topic:
        raw = messages(spark, arguments.bootstrap, topic)
        for number in range(1, arguments.passes + 1):
            start = time.monotonic()
            if arguments.limit == "read":
                raw.agg(F.count("*"), F.sum(F.length("value"))).collect()
            else:
                append(raw, arguments.protocol, arguments.folder / f"{topic}-{number}")
            say("pass", topic=topic, number=number, seconds=time.monotonic() - start)
    spark.stop()


def messages(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """The whole topic."""
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return source.load()


def append(raw: DataFrame, protocol: str, target: Path) -> None:
    """Decode every row with Spark's from_json and casts, and append it to Parquet, as if there were no keys."""
    decoded = rows(raw, protocol).drop("offset", "op", "commit_ts")
    # Iceberg's codec; Spark's own default is another.
    decoded.write.option("compression", "zstd").mode("append").parquet(str(target))


if __name__ == "__main__":
    main()
