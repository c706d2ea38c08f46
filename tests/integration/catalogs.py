"""The two clients of a catalog that has an address and log-ins: Java in Spark, and Python."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from applier.commands.catalog_reader import open_lake
from applier.config.settings import CatalogSection
from applier.runtime.jvm.spark_session import _catalog_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def in_spark(spark: SparkSession, lake: Mapping[str, str]) -> str:
    """A name by which Spark knows the catalog of these properties."""
    name = f"catalog_{uuid.uuid4().hex[:8]}"
    for key, value in _catalog_settings(name, lake).items():
        spark.conf.set(key, value)
    return name


def namespaces(lake: Mapping[str, str]) -> int | None:
    """What `status` and `check` ask first, in Python."""
    with open_lake(CatalogSection.model_validate({"name": "lake", **lake})) as opened:
        return opened.namespaces()
