"""The Spark session of everything here that is not applier: the same Spark, jars, cores and memory."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from applier.runtime.jvm.spark_session import build_session
from bench.lake import SPARK, Lake


def session(name: str, lake: Lake, extra: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark with a lake."""
    quiet = {"spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "4"}
    return build_session(f"bench {name}", SPARK | quiet | dict(extra or {}), lake.name, lake.properties)
