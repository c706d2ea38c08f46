"""The versions of applier, and of what decides how it behaves."""

from __future__ import annotations

import platform
import re
from importlib.metadata import version

from applier.runtime.jvm import jars

_ICEBERG = re.compile(r"iceberg-spark-runtime-.*-([\d.]+)\.jar")


def versions() -> tuple[str, str, str, str]:
    """Those of applier, Python, Spark and Iceberg's Spark runtime; the last is the one that is pinned."""
    iceberg = next(match[1] for name in jars.names("spark") if (match := _ICEBERG.fullmatch(name)))
    return version("applier"), platform.python_version(), version("pyspark"), iceberg
