from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_two_tasks_may_write_the_first_files_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """Both find the folder made before they create a file: Iceberg fails the one that would make it second."""
    java = spark.sparkContext._jvm
    assert java is not None
    files = java.applier.LocalFileIO()
    folder = tmp_path / "parcel" / "data"

    first, second = (files.newOutputFile(f"file:{folder}/{name}.parquet") for name in ("one", "two"))

    assert folder.is_dir()
    for output in (first, second):
        output.create().close()
    assert sorted(file.name for file in folder.iterdir()) == ["one.parquet", "two.parquet"]
