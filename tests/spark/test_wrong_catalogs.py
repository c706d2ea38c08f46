"""Keys of `[catalog]` that Iceberg refuses end a command at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from applier.errors import OutsideRefused
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.java import JavaError
from tests.integration.catalogs import in_spark

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("lake", "said"),
    [
        ({"io-impl": "org.x.No"}, "Missing org.x.No"),
        ({"clients": "many"}, 'For input string: "many"'),
        ({"type": "rest", "uri": "not a uri"}, "Illegal character in path at index 3: not a uri"),
        ({"warehouse": ""}, "warehousePath must not be null or empty"),
    ],
)
def test_a_key_that_iceberg_refuses_is_no_outage(
    spark: SparkSession, tmp_path: Path, lake: dict[str, str], said: str
) -> None:
    """The sentence holds what Iceberg says of it."""
    whole = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c.db", "warehouse": str(tmp_path)} | lake
    name = in_spark(spark, whole)

    with pytest.raises(OutsideRefused) as refused:
        Catalog(spark, name)

    assert refused.value.what.startswith(f"Catalog {name} cannot be opened: ")
    assert said in refused.value.what


def test_a_host_that_does_not_resolve_may_come_back(spark: SparkSession) -> None:
    """Hadoop raises it as an argument that is wrong."""
    name = in_spark(spark, {"type": "hadoop", "warehouse": "hdfs://nowhere.invalid/x"})

    with pytest.raises(JavaError, match=r"nowhere\.invalid"):
        Catalog(spark, name)
