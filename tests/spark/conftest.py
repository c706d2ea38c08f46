"""The Iceberg catalog of the run, as the sink sees it, names in it, and tables that DDL are applied to."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from applier.pipeline.schema_changes import apply_to_rows
from applier.runtime import failpoints
from applier.runtime.places import Places
from applier.runtime.tasks.spark import map_in_tasks
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.java import FileTasks
from applier.sink.write import file_groups
from tests.spark.ddl_applier import Applier, Crash, Start
from tests.spark.upstream_table import Upstream
from tests.spark.world import Make, World


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


@pytest.fixture
def start(spark: SparkSession, lake: Catalog, fresh_name: Callable[[], tuple[str, str]]) -> Start:
    """Starts an applier with a database of its own."""
    return lambda **settings: Applier(spark, lake, fresh_name()[1][-40:].strip("_"), **settings)


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Lets the process die at a point, once."""
    at: list[str] = []

    def reach(point: str) -> None:
        if point in at:
            at.remove(point)
            raise Crash(point)

    monkeypatch.setattr(apply_to_rows, "failpoints", type("Failpoints", (), {"reach": staticmethod(reach)}))
    monkeypatch.setattr(failpoints, "reach", reach)
    yield at.append
    assert at == [], "the point was never reached"


@pytest.fixture
def in_tasks(spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """From its call on, work on files is done in Spark's tasks, however small they are; gives what was done there."""

    def begin() -> list[str]:
        actions = list[str]()

        def done(action: str, work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
            actions.append(action.partition(" table ")[0])
            return map_in_tasks(spark, action, work, parts)

        monkeypatch.setattr(lake.java, "tasks", FileTasks(done, Places(has_tasks=True, file_bytes=-1)))
        monkeypatch.setattr(file_groups, "GROUP_BYTES", 1000)
        return actions

    return begin


@pytest.fixture
def upstream(
    spark: SparkSession, lake: Catalog, warehouse: Path, fresh_name: Callable[[], tuple[str, str]]
) -> Upstream:
    """A table that is yet to be created."""
    reader = SqlCatalog("lake", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}/tables")
    return Upstream(spark, lake, reader, fresh_name())


@pytest.fixture
def make(spark: SparkSession, warehouse: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Make:
    """Makes changefeeds."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{warehouse}/catalog.db", "warehouse": f"{warehouse}/tables"}
    name = re.sub(r"\W+", "_", request.node.name)[-50:].strip("_")
    return lambda **changefeed: World(
        spark, lake, tmp_path / "feed", name, settings={"changefeed": changefeed} if changefeed else {}
    )
