"""The versions of applier, and of what decides how it behaves."""

from __future__ import annotations

import platform
import re
from importlib.metadata import version

from applier.runtime.jvm import jars

_ICEBERG = re.compile(r"iceberg-spark-runtime-.*-([\d.]+)\.jar")


def versions() -> str:
    """One line with the versions of applier, Python, Spark and Iceberg's Spark runtime."""
    iceberg = next(match[1] for name in jars.names("spark") if (match := _ICEBERG.fullmatch(name)))
    return (
        f"applier {version('applier')} (Python {platform.python_version()}, Spark {version('pyspark')}, "
        f"Iceberg {iceberg})"
    )
