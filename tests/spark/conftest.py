"""The Iceberg catalog of the run, as the sink sees it, and names in it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from applier.sink.iceberg import Catalog


@pytest.fixture(scope="session")
def lake(spark: SparkSession) -> Catalog:
    """The catalog, as the sink sees it."""
    return Catalog(spark, "lake")


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
