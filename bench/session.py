"""The Spark session of everything here that is not applier: the same Spark, cores and memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from applier.runtime.jvm import jars
from applier.runtime.jvm.spark_session import build_session
from bench.lake import SPARK, Lake

_PEERS = Path(__file__).parent / "peers"
"""The lock of what peers need."""


def session(name: str, lake: Lake, extra: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark with a lake."""
    source = ",".join(map(str, jars.fetch("spark", _PEERS)))
    ours = {"spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "4", "spark.jars": source}
    return build_session(f"bench {name}", SPARK | ours | dict(extra or {}), lake.name, lake.properties)
