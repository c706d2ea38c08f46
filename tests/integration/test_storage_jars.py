"""Warehouses on Google Cloud and Azure without the jars that reach them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from applier.errors import OutsideRefused
from applier.sink.iceberg.catalog import Catalog
from tests.integration.catalogs import in_spark

pytestmark = [pytest.mark.spark, pytest.mark.catalog]


@pytest.mark.parametrize(
    ("place", "files"),
    [("gs://b/lake", "gcp.gcs.GCSFileIO"), ("abfss://c@a.dfs.core.windows.net/lake", "azure.adlsv2.ADLSFileIO")],
)
def test_a_storage_without_its_jar_names_it(spark: SparkSession, tmp_path: Path, place: str, files: str) -> None:
    """At once: no wait brings a jar."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": place}

    with pytest.raises(OutsideRefused, match="iceberg-gcp-bundle for gs://, iceberg-azure-bundle for abfss://"):
        Catalog(spark, in_spark(spark, {**lake, "io-impl": f"org.apache.iceberg.{files}"}))


def test_a_scheme_without_its_files_names_them(spark: SparkSession, tmp_path: Path) -> None:
    """The warehouse alone does not choose them."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": "gs://b/lake"}
    catalog = Catalog(spark, in_spark(spark, lake))

    with pytest.raises(OutsideRefused, match="gs:// GCSFileIO"):
        catalog.create(("shop", "a"), pa.schema([pa.field("id", pa.int64())]))
