"""The versions of applier, and of what decides how it behaves."""

from __future__ import annotations

import platform
import re
from importlib.metadata import version
from typing import NamedTuple

from applier.runtime.jvm import jars

_ICEBERG = re.compile(r"iceberg-spark-runtime-.*-([\d.]+)\.jar")


class Versions(NamedTuple):
    """The versions of applier, Python, Spark and Iceberg's Spark runtime."""

    applier: str
    python: str
    spark: str
    iceberg: str


def versions() -> Versions:
    """Those of this process; that of Iceberg is the one that is pinned."""
    iceberg = next(match[1] for name in jars.names("spark") if (match := _ICEBERG.fullmatch(name)))
    return Versions(version("applier"), platform.python_version(), version("pyspark"), iceberg)
