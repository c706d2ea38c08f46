"""What is asked of object storage: each request takes its time and costs money."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from applier.runtime.jvm.spark_session import _catalog_settings
from applier.sink.control import append_table
from applier.sink.control.control import Control
from applier.sink.control.tables import CHECKPOINTS
from applier.sink.iceberg.maintenance import data_files
from applier.sink.iceberg.orphans import unreferenced
from bench.storage import BUCKET, KEYS, client, counts, slow_s3
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


def _files(endpoint: str, pattern: str) -> set[str]:
    """Addresses of the files in which a pattern is found."""
    pages = client(endpoint).get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    names = [f"s3://{BUCKET}/{item['Key']}" for page in pages for item in page.get("Contents", ())]
    return {name for name in names if re.search(pattern, name)}


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
    # Commits brought the manifests together: a few are written again.
    assert sum(compaction.values()) <= 2 * files + 8


def test_a_fold_of_the_checkpoints_reads_no_file_of_this_process(
    world: World, asked: Callable[[], Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tables wait for it. A second one reads what the first has written, and the checkpoint goes on."""
    monkeypatch.setattr(append_table, "FOLD_FILES", 5)
    world.settings["source"] = {"messages_per_step": 2}
    world.create("a")
    world.resolve()
    for key in range(9):
        world.put("a", key)
        world.resolve()
    folds = []
    with world.applier() as pipeline:
        control = pipeline.state.control
        assert isinstance(control, Control)
        ledger = control.tables[CHECKPOINTS]
        table = ledger.table
        asked()
        files = 0
        while pipeline.step().moved:
            requests = asked()
            if data_files(table) < files:
                folds.append({kind: number for kind, number in requests.items() if "PUT" not in kind})
            files = data_files(table)
        steps = ledger.rows(["checkpoint"]).to_pylist()
        last = pipeline.state.checkpoint.step
    # The rows that were there, and those of the append.
    assert folds == [{}, {"control HEAD": 2, "control GET": 2}]
    assert sorted(row["step"] for row in steps) == list(range(last + 1))


def test_a_commit_writes_no_manifest_that_it_merges(
    world: World, endpoint: str, asked: Callable[[], Counter[str]]
) -> None:
    """With updates all over a table: what a snapshot lists is there, and nothing else, and old metadata goes."""
    world.settings["source"] = {"messages_per_step": 3}
    properties = {"write.metadata.previous-versions-max": "2"}
    world.settings["tables"] = {"properties": properties}
    world.create("a")
    world.resolve()
    for key in range(4):
        world.put("a", 2 * key)
        world.put("a", 2 * key + 1)
        world.resolve()
    for key in range(4):
        world.put("a", 2 * key, op="UPDATE")
        world.put("a", 2 * (3 - key) + 1, op="UPDATE")
        world.resolve()
    asked()
    with world.applier() as pipeline:
        while pipeline.step().moved:
            pass
        done = asked()
        target = pipeline.targets.catalog.load((f"{world.name}__shop", "a"))
    # The search for orphans takes metadata that it does not know for that of a copy.
    assert target is not None
    assert unreferenced(target, target.location) == []
    table = f"far.{world.name}__shop.a"
    commits = world.spark.sql(f"SELECT count(*) FROM {table}.snapshots").collect()[0][0]
    listed = {row.path for row in world.spark.sql(f"SELECT path FROM {table}.all_manifests").collect()}
    assert _files(endpoint, f"/{world.name}__shop/.*-m[0-9]+[.]avro$") == listed
    # Of rows, of deletes, or of both.
    assert done["manifests PUT"] <= 2.5 * commits
    assert done["other POST"] <= 1


def test_a_commit_fails_if_a_file_failed_that_other_metadata_sent_ahead(spark: SparkSession, tmp_path: Path) -> None:
    """An expiry beside the steps writes metadata into the folder of a commit, whose manifests go out before it."""
    java: Any = spark.sparkContext._jvm
    files = java.applier.CachingFileIO()
    files.setConf(spark._jsc.hadoopConfiguration())
    files.initialize({"applier.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"})
    (tmp_path / "taken").write_text("no folder")
    folder, name = f"{tmp_path}/taken/metadata", "5da1cd6a-5f7f-4f8d-bea7-26d62c15fb47"

    def write(location: str) -> None:
        stream = files.newOutputFile(location).create()
        stream.write(bytearray(b"rows"))
        stream.close()

    java.applier.CachingFileIO.begin(folder)
    write(f"{folder}/{name}-m0.avro")
    with pytest.raises(Py4JJavaError, match=f"{name}-m0|taken"):
        write(f"{folder}/00001-{name}.metadata.json")
    with pytest.raises(Py4JJavaError, match="taken"):
        java.applier.CachingFileIO.end(folder, None, files)


def test_a_table_that_has_the_place_of_a_former_one_keeps_its_metadata(spark: SparkSession, tmp_path: Path) -> None:
    """Where versions are numbers, a table that is made again has files of the names that the former one let go."""
    settings = {"type": "hadoop", "warehouse": str(tmp_path), "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}
    for key, value in _catalog_settings("numbered", settings).items():
        spark.conf.set(key, value)
    table, cut = "numbered.shop.a", {"delete-after-commit.enabled": "true", "previous-versions-max": "1"}
    properties = ", ".join(f"'write.metadata.{key}' = '{value}'" for key, value in cut.items())
    for last in (6, 2):
        spark.sql(f"DROP TABLE IF EXISTS {table} PURGE")
        spark.sql(f"CREATE TABLE {table} (id BIGINT) USING iceberg TBLPROPERTIES ({properties})")
        for number in range(last):
            spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('number' = '{number}')")
    java: Any = spark.sparkContext._jvm
    java.applier.CachingFileIO.deleteOld()
    assert (tmp_path / "shop/a/metadata/v3.metadata.json").exists()
    assert spark.sql(f"SHOW TBLPROPERTIES {table} ('number')").collect()[0].value == "1"
