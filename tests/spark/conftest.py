"""One Spark session and one Iceberg catalog for the whole folder."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from applier.session import build_session
from applier.sink.iceberg import Catalog

NAME = "lake"


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the catalog's database and of the tables."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def spark(warehouse: Path) -> Iterator[SparkSession]:
    """A local session with a SQLite catalog."""
    settings = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
    catalog = {"type": "jdbc", "uri": f"jdbc:sqlite:{warehouse}/catalog.db", "warehouse": f"{warehouse}/tables"}
    session = build_session("tests", settings, NAME, catalog)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def lake(spark: SparkSession) -> Catalog:
    """The catalog, as the sink sees it."""
    return Catalog(spark, NAME)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let pyspark leave the sockets over which it sends results to the garbage collector."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(
                pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning")
            )
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


_numbers = itertools.count(1)


@pytest.fixture
def fresh_name(request: pytest.FixtureRequest) -> Callable[[], tuple[str, str]]:
    """Gives identifiers that no other test uses."""
    test = re.sub(r"\W+", "_", request.node.name)[:60]
    return lambda: ("test", f"{test}_{next(_numbers)}")
