"""Object storage that refuses or leaves a request: a step that is repeated loses no row, and shows no file in vain."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyarrow.fs import FileSelector, S3FileSystem
from pyspark.sql import SparkSession

from applier.commands.follower import Follower
from applier.errors import OutsideRefused, TransientError
from applier.pipeline import maintenance
from applier.pipeline.step import Pipeline
from applier.runtime import failpoints
from applier.runtime.jvm.spark_session import _catalog_settings
from applier.runtime.threads import Asking
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.commit import Change, _described
from applier.sink.iceberg.java import Java
from bench.storage import BUCKET, KEYS, slow_s3
from tests.integration.faulty_storage import FaultyStorage, faulty
from tests.spark.world import START, World

pytestmark = [pytest.mark.spark, pytest.mark.s3]

_FEW_RETRIES = {"s3.retry.num-retries": "1", "s3.retry.min-wait-ms": "1", "s3.retry.max-wait-ms": "5"}

_REFERS = {
    "all_files": "file_path",
    "all_manifests": "path",
    "snapshots": "manifest_list",
    "metadata_log_entries": "file",
}
"""Metadata tables of Iceberg, with their columns of locations."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server of S3."""
    with slow_s3() as address:
        yield address


@pytest.fixture
def storage(endpoint: str) -> Iterator[FaultyStorage]:
    """What stands before it."""
    with faulty(endpoint) as proxy:
        yield proxy


@pytest.fixture
def world(spark: SparkSession, storage: FaultyStorage, tmp_path: Path, request: pytest.FixtureRequest) -> World:
    """A changefeed whose tables are on that storage."""
    name = re.sub(r"\W+", "_", request.node.name)[-50:].strip("_")
    catalog = f"far_{uuid.uuid4().hex[:8]}"
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"s3://{BUCKET}/{name}"}
    lake |= {"s3.endpoint": storage.address, **KEYS, **_FEW_RETRIES}
    for key, value in _catalog_settings(catalog, lake).items():
        spark.conf.set(key, value)
    return World(spark, {"name": catalog, **lake}, tmp_path / "feed", name)


@pytest.mark.parametrize(
    ("fault", "has_ddl"),
    [
        ("500", False),
        *(
            pytest.param(fault, has_ddl, marks=pytest.mark.soak)
            for fault in ("403", "500", "503", "cut", "lost")
            for has_ddl in (False, True)
            if has_ddl or fault != "500"
        ),
    ],
)
def test_each_request_of_a_step_may_fail(
    world: World, storage: FaultyStorage, endpoint: str, fault: str, *, has_ddl: bool
) -> None:
    """The first step loses its first request, the next one its second, and so on until one has no more of them."""
    world.settings["source"] = {"messages_per_step": 4 if has_ddl else 3}
    rows: dict[int, str] = {}
    world.create("a")
    world.resolve()
    for key in range(28 if has_ddl else 14):
        if has_ddl:
            world.ddl(f"ALTER TABLE a ADD COLUMN c{key} INT")
        _put(world, rows, key)
        _put(world, rows, max(0, key - 1), "UPDATE")
        world.resolve()
    failed: list[str] = []
    with world.applier() as pipeline:
        assert pipeline.step().moved
        while (request := _step_without(len(failed), pipeline, storage, fault)) is not None:
            failed.append(request)
        while pipeline.step().moved:
            pass
    # Of each kind of file one at least, of the table and of the checkpoint.
    assert len(failed) >= 10
    assert _shown(world, endpoint) == {"a": rows}


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["500", "403", "503", "cut"])
def test_each_request_of_maintenance_may_fail(
    world: World, storage: FaultyStorage, endpoint: str, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Files are merged and snapshots expire before each step, one of whose requests is lost: nothing of it shows."""
    monkeypatch.setattr(maintenance, "REST_SECONDS", 0.0)
    monkeypatch.setattr(maintenance, "OVERDUE", 1.0)
    world.settings |= {"source": {"messages_per_step": 3}, "maintenance": {"small_files": 2, "snapshots": 3}}
    rows: dict[int, str] = {}
    world.create("a")
    world.resolve()
    for key in range(40):
        _put(world, rows, key)
        _put(world, rows, key // 2, "UPDATE")
        world.resolve()
    with world.applier() as pipeline:
        pipeline.maintenance.begin = Asking.run
        for _ in range(4):
            assert pipeline.step().moved
        failed = [_step_without(number, pipeline, storage, fault) for number in range(36)]
        while pipeline.step().moved:
            pass
        rest = pipeline.maintenance
        rest.begin = Asking.start
        rest.finish(pipeline.state.checkpoint, threading.Event())
        rest.tend(pipeline.state.checkpoint)
    assert sum(map(bool, failed)) >= 20
    assert _shown(world, endpoint) == {"a": rows}
    assert not rest.behind


def test_all_that_a_snapshot_lists_is_there_after_a_bad_day(
    world: World, storage: FaultyStorage, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifests wait in memory until a commit has its snapshot, also one that others make Iceberg try again."""
    world.settings["source"] = {"messages_per_step": 3}
    rows: dict[int, str] = {}
    world.create("a")
    world.resolve()
    for key in range(4):
        _put(world, rows, key)
        _put(world, rows, key // 2, "UPDATE")
        world.resolve()
    chance, drawn, table = random.Random(57), dict[str, str](), f"{world.lake['name']}.{world.name}__shop.a"
    reach = failpoints.reach

    def bad_day(_: str, path: str) -> str:
        if not path.endswith(".avro"):
            return ""
        return drawn.setdefault(path, chance.choice(("500", "503", "cut", "lost")) if len(drawn) % 6 == 5 else "")

    def others(point: str) -> None:
        if point == "commit-sent" and chance.random() < 0.4:
            fault, storage.fault = storage.fault, lambda _method, _path: ""
            world.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('others' = '{len(drawn)}')")
            storage.fault = fault
        reach(point)

    with world.applier() as pipeline:
        assert pipeline.step().moved
        monkeypatch.setattr(failpoints, "reach", others)
        storage.fault = bad_day
        while _repeated(pipeline, storage):
            storage.fault = bad_day
        storage.fault = lambda _method, _path: ""
        catalog = pipeline.targets.catalog
        names = [name for where in catalog.namespaces() for name in catalog.list(where)]
        listed = {path for name in names for path in _listed(catalog, name)}
    assert any(drawn.values())
    assert len(listed) > 20
    assert listed <= _files(world, endpoint)
    assert {row.id: row.v for row in world.spark.sql(f"SELECT id, v FROM {table}").collect()} == rows


def test_a_table_is_not_shown_without_its_metadata_while_another_one_writes_to_the_same_folder(
    world: World, storage: FaultyStorage
) -> None:
    """What a commit awaits are its manifests and its list."""
    prepare, tables, head = _in_one_folder(world, storage)
    prepared = prepare(tables[0], None, _described(Change(), None, 0))
    is_busy = threading.Event()

    def decide(method: str, path: str) -> str:
        if method == "GET" and "/snap-" in path:
            is_busy.set()
            return "slow"
        return "500" if path.endswith(".metadata.json") else ""

    storage.fault = decide
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(prepare, tables[1], None, _described(Change(), head, 0))
        assert is_busy.wait(60)
        with pytest.raises(Py4JJavaError, match="Status Code: 500"):
            prepared.commit()
        other.result()


def test_files_of_another_writer_do_not_wait_in_a_folder_that_tables_share(
    world: World, storage: FaultyStorage, endpoint: str
) -> None:
    """What Iceberg commits by itself, or tries again, awaits nothing; and over REST it writes no metadata here."""
    prepare, tables, head = _in_one_folder(world, storage)
    is_busy = threading.Event()

    def decide(method: str, path: str) -> str:
        if method == "GET" and "/snap-" in path:
            is_busy.set()
            return "slow"
        return ""

    storage.fault = decide
    transaction = tables[0].newTransaction()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(prepare, tables[1], None, _described(Change(), head, 0))
        assert is_busy.wait(60)
        transaction.newAppend().commit()
        written = _files(world, endpoint)
        other.result()
    assert transaction.table().currentSnapshot().manifestListLocation() in written


def _in_one_folder(world: World, storage: FaultyStorage) -> tuple[Any, list[Any], int]:
    """What prepares a commit, two tables whose metadata shares a folder, and the head of the second one.

    The list of that head is not in memory.
    """
    spark, database = world.spark, f"{world.lake['name']}.{world.name}"
    spark.sql(f"CREATE NAMESPACE {database}")
    folder, tables = f"s3://{BUCKET}/{world.name}/shared", []
    java = Java(spark)
    for name in ("a", "b"):
        properties = f"TBLPROPERTIES ('write.metadata.path' = '{folder}')"
        spark.sql(f"CREATE TABLE {database}.{name} (id BIGINT) USING iceberg {properties}")
        tables.append(java.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"{database}.{name}"))
    prepare = java.own.PreparedCommit.prepare
    prepare(tables[1], None, _described(Change(), None, 0)).commit()
    head = tables[1].currentSnapshot()
    storage.fault = lambda method, _path: "403" if method == "DELETE" else ""
    with pytest.raises(Py4JJavaError):  # It is there, and not in memory any more.
        tables[1].io().deleteFile(head.manifestListLocation())
    storage.fault = lambda _method, _path: ""
    return prepare, tables, int(head.snapshotId())


def _put(world: World, rows: dict[int, str], key: int, op: str = "INSERT") -> None:
    rows[key] = f"r{world.ts - START}"
    world.put("a", key, op=op)


def _step_without(number: int, pipeline: Pipeline, storage: FaultyStorage, fault: str) -> str | None:
    """Make a step whose request of this number fails whenever it is sent; None where it has fewer."""
    asked: list[str] = []

    def decide(method: str, path: str) -> str:
        request = f"{method} {path}"
        if request not in asked:
            asked.append(request)
        return fault if asked.index(request) == number else ""

    storage.fault = decide
    assert _repeated(pipeline, storage)
    storage.fault = lambda _method, _path: ""
    return asked[number] if number < len(asked) else None


def _repeated(pipeline: Pipeline, storage: FaultyStorage) -> bool:
    """A step, which is repeated without a fault if it fails; whether it moved."""
    follower = Follower(pipeline)
    try:
        return follower.turn().moved
    except (TransientError, OutsideRefused):  # The latter ends a run, which is begun again.
        storage.fault = lambda _method, _path: ""
        return follower.turn().moved


def _listed(catalog: Catalog, identifier: tuple[str, ...]) -> Iterator[str]:
    """Lists of manifests of all snapshots of a table, and the manifests."""
    table = catalog.load(identifier)
    assert table is not None
    for snapshot in table.java.items(table.handle.snapshots()):
        yield snapshot.manifestListLocation()
        for manifest in table.java.items(snapshot.allManifests(table.handle.io())):
            yield manifest.path()


def _shown(world: World, endpoint: str) -> dict[str, dict[int, str]]:
    """The rows of each table of the changefeed, by a catalog that keeps nothing in memory.

    Every file that any table of the catalog refers to is there.
    """
    bare, spark = f"bare_{uuid.uuid4().hex[:8]}", world.spark
    copy = world.folder.parent / f"{bare}.db"
    shutil.copy(world.folder.parent / "catalog.db", copy)
    with sqlite3.connect(copy) as connection:
        connection.execute("UPDATE iceberg_tables SET catalog_name = ?", (bare,))
        tables = connection.execute("SELECT table_namespace, table_name FROM iceberg_tables").fetchall()
    connection.close()
    lake = {**world.lake, "uri": f"jdbc:sqlite:{copy}", "s3.endpoint": endpoint, "cache-enabled": "false"}
    lake |= {"jdbc.schema-version": "V1"}
    spark.conf.set(f"spark.sql.catalog.{bare}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in lake.items():
        spark.conf.set(f"spark.sql.catalog.{bare}.{key}", value)
    there = _files(world, endpoint)
    shown = {}
    for namespace, name in tables:
        table = f"{bare}.`{namespace}`.`{name}`"
        columns = (f"SELECT {column} FROM {table}.{metadata}" for metadata, column in _REFERS.items())
        assert {row[0] for row in spark.sql(" UNION ALL ".join(columns)).collect()} <= there
        if namespace == f"{world.name}__shop":
            found = spark.sql(f"SELECT id, v FROM {table}").collect()
            shown[name] = {row.id: row.v for row in found}
            assert len(shown[name]) == len(found)
    return shown


def _files(world: World, endpoint: str) -> set[str]:
    system = S3FileSystem(
        access_key=KEYS["s3.access-key-id"],
        secret_key=KEYS["s3.secret-access-key"],
        region=KEYS["client.region"],
        endpoint_override=endpoint,
    )
    found = system.get_file_info(FileSelector(f"{BUCKET}/{world.name}", recursive=True))
    return {f"s3://{info.path}" for info in found}
