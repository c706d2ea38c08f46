"""What is asked of object storage: each request takes its time and costs money."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from applier.runtime.jvm.spark_session import _catalog_settings
from bench.storage import BUCKET, KEYS, counts, slow_s3
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.s3]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server that counts."""
    with slow_s3() as address:
        yield address


@pytest.fixture
def world(spark: SparkSession, endpoint: str, tmp_path: Path, request: pytest.FixtureRequest) -> World:
    """A changefeed whose tables are on that server."""
    name = re.sub(r"\W+", "_", request.node.name)[-50:].strip("_")
    lake = {"name": "far", "type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db"}
    lake |= {"warehouse": f"s3://{BUCKET}/{name}", "s3.endpoint": endpoint, **KEYS}
    for key, value in _catalog_settings("far", {key: value for key, value in lake.items() if key != "name"}).items():
        spark.conf.set(key, value)
    return World(spark, lake, tmp_path / "feed", name)


@pytest.fixture
def asked(endpoint: str) -> Callable[[], Counter[str]]:
    """What was asked since the last call."""
    before: list[Counter[str]] = [Counter()]

    def since() -> Counter[str]:
        now = counts(endpoint)
        before.append(now)
        return now - before[-2]

    return since


def test_a_commit_asks_for_nothing_that_is_known(world: World, asked: Callable[[], Counter[str]]) -> None:
    """A file of rows, one of deletes and one for each part of the metadata; what was written is not read again."""
    world.settings["source"] = {"messages_per_step": 2}
    world.create("a")
    world.resolve()
    for key in (1, 2):
        world.put("a", key)
        world.resolve()
    world.put("a", 1, op="UPDATE")
    world.resolve()
    with world.applier() as pipeline:
        for _ in range(3):
            assert pipeline.step().moved
        asked()
        assert pipeline.step().moved

        step = asked()

        assert not pipeline.step().moved
        idle = asked()
    rows = world.spark.sql(f"SELECT id, v FROM far.{world.name}__shop.a ORDER BY id").collect()
    assert [row.id for row in rows] == [1, 2]
    assert {kind: step[kind] for kind in step if "PUT" not in kind} == {}
    assert step == {
        "data PUT": 2,
        "manifests PUT": 2,
        "lists PUT": 1,
        "metadata.json PUT": 1,
        "control PUT": 4,
    }
    assert idle == {}


def test_a_compaction_reads_each_small_file_once(world: World, asked: Callable[[], Counter[str]]) -> None:
    """The metadata is known, as this process wrote it."""
    files = 12
    world.settings |= {"source": {"messages_per_step": 2}, "maintenance": {"small_files": files, "tasks": ["compact"]}}
    world.create("a")
    world.resolve()
    for key in range(files):
        world.put("a", key)
        world.resolve()
    with world.applier() as pipeline:
        for _ in range(files):
            assert pipeline.step().moved
        asked()
        assert pipeline.step().moved
        asked()
        # The first step begins it, the next one commits it, and looks whether more is to be done.
        for _ in range(2):
            pipeline.step()
            for unit in pipeline.maintenance._units:
                unit.work.join()

        compaction = asked()
    assert {kind: number for kind, number in compaction.items() if kind.startswith("data")} == {
        "data HEAD": files,
        "data GET": files,
        "data PUT": 1,
    }
    # Each file was in a manifest of its own, which is written again without it.
    assert sum(compaction.values()) <= 3 * files + 4
