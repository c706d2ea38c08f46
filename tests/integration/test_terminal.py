"""What the JVM says reaches the terminal as lines."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pyspark.sql import SparkSession

from applier.runtime.jvm import spark_session

pytestmark = pytest.mark.spark


def test_the_jvm_logs_a_line_an_event(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first line of the message and of its exception, without a trace, whatever the message holds."""
    lines: list[str] = []
    monkeypatch.setattr(spark_session, "_log", lines.append)
    java = spark.sparkContext._jvm
    assert java is not None
    writer: Any = java.org.apache.logging.log4j.LogManager.getLogger("org.example.Writer")
    writer.error("cannot write\nat line two", java.java.lang.IllegalStateException("disk\nfull"))
    writer.warn("plain", java.java.lang.IllegalStateException("disk\nfull"))
    writer.warn("done")
    while "WARN Writer: done" not in lines:
        time.sleep(0.01)

    assert [line for line in lines if "Writer" in line or "at" in line.split()[:1]] == [
        "ERROR Writer: cannot write",
        "WARN Writer: plain java.lang.IllegalStateException: disk",
        "WARN Writer: done",
    ]
