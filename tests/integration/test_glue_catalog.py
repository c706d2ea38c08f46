"""AWS Glue as the catalog, asked by both clients: a changefeed lives in it, and an old owner is kept out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from applier.config.settings import CatalogSection
from applier.errors import OutsideRefused, TableMismatch, TransientError
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.commit import Change, CommitFailure, commit
from applier.sink.iceberg.java import JavaError
from tests.few import few
from tests.integration.catalogs import in_spark, namespaces
from tests.services.glue import GlueServer, glue_server
from tests.services.s3 import ACCESS_KEY, SECRET_KEY, ObjectStore
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.catalog, pytest.mark.s3]

_COLUMNS = pa.schema([pa.field("id", pa.int64())])


@pytest.fixture(autouse=True)
def _keys(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keys in the environment, as a machine of AWS has them; the JVM began without."""
    keys = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    java: Any = spark._jvm
    given = {"aws.accessKeyId": ACCESS_KEY, "aws.secretAccessKey": SECRET_KEY, "aws.disableEc2Metadata": "true"}
    for name, value in given.items():
        java.java.lang.System.setProperty(name, value)
    yield
    for name in given:
        java.java.lang.System.clearProperty(name)


@pytest.fixture
def server(s3: ObjectStore) -> Iterator[GlueServer]:
    """A Glue with files in the same moto."""
    s3.create_bucket("glue")
    with glue_server(s3, "s3://glue/lake") as running:
        yield running


def _in_spark(spark: SparkSession, server: GlueServer) -> str:
    return in_spark(spark, CatalogSection.model_validate({"name": "lake", **server.lake}).properties)


def test_a_changefeed_lives_in_glue(spark: SparkSession, server: GlueServer, tmp_path: Path) -> None:
    """Rows, a new column and a rename by the client of Java; `status`, `check` and a reader by that of Python."""
    world = World(spark, {"name": _in_spark(spark, server), **server.lake}, tmp_path / "feed", "feed")
    world.settings = {"source": {"messages_per_step": 4}}
    world.create("a")
    world.put("a", 1, 2)
    world.resolve()
    world.put("a", 1, op="UPDATE")
    world.ddl("ALTER TABLE a ADD COLUMN w INT")
    world.resolve()
    world.ddl("RENAME TABLE a TO b")
    world.put("b", 3, w="7")
    world.resolve()

    world.run()

    lake = load_catalog("lake", **server.lake)
    found = lake.load_table("feed__shop.b").scan(selected_fields=("id", "w")).to_arrow().to_pylist()
    assert sorted((row["id"], row["w"]) for row in found) == [(1, None), (2, None), (3, 7)]
    assert world.table("b").state == "in step"
    assert "It answers: 2 namespaces." in world.obey(f"applier check -c {world.path}")


def test_a_commit_on_an_old_version_is_refused(spark: SparkSession, server: GlueServer) -> None:
    """The fence between two owners: of two that planned on one head, the second one changes nothing.

    The first one commits after the second has asked Glue for the newest version, so that only Glue can refuse.
    """
    catalog = Catalog(spark, _in_spark(spark, server))
    catalog.create(("shop", "fence"), _COLUMNS)
    old, new = catalog.load(("shop", "fence")), catalog.load(("shop", "fence"))
    assert old is not None
    assert new is not None

    def overtake() -> None:
        commit(new, Change(summary={"owner": "new"}), None, lambda: None)

    server.before["UpdateTable"] = overtake

    asked = server.asked["UpdateTable"]
    with pytest.raises(CommitFailure, match="head is [0-9]+, not null"):
        commit(old, Change(summary={"owner": "old"}), None, lambda: None)

    assert server.asked["UpdateTable"] == asked + 2
    lake = load_catalog("lake", **server.lake)
    kept = lake.load_table("shop.fence").metadata.snapshots
    assert [one.summary.additional_properties["owner"] for one in kept if one.summary] == ["new"]


_REFUSED = {
    "AccessDeniedException": (OutsideRefused, "check the log-in and the rights", "the log-in is refused"),
    "InvalidSignatureException": (OutsideRefused, "check the log-in and the rights", "the log-in is refused"),
    "ExpiredTokenException": (JavaError, "ExpiredTokenException", "the log-in is refused"),
    "UnrecognizedClientException": (JavaError, "UnrecognizedClientException", "the log-in is refused"),
    "ThrottlingException": (JavaError, "ThrottlingException", "ThrottlingException"),
}
"""Per code of an error: what it is to a run, and what both clients say."""


@pytest.mark.parametrize("code", few(_REFUSED, 1))
def test_a_refusal_ends_at_once_and_an_outage_does_not(spark: SparkSession, server: GlueServer, code: str) -> None:
    """Missing rights stay missing; keys of the environment are renewed, and a Glue that is overloaded recovers."""
    kind, java, python = _REFUSED[code]
    catalog = Catalog(spark, _in_spark(spark, server))
    server.refused[""] = code

    with pytest.raises(kind, match=java):
        catalog.load(("shop", "a"))
    with pytest.raises(TransientError, match=python):
        namespaces(server.lake)
    server.refused.clear()

    assert catalog.load(("shop", "a")) is None


def test_names_that_glue_does_not_take_are_refused(spark: SparkSession, server: GlueServer) -> None:
    """Those of tables and of databases: asking again would give the same answer."""
    catalog = Catalog(spark, _in_spark(spark, server))
    for name in (("shop", "Orders"), ("Shop", "orders"), ("lake", "shop", "orders")):
        assert catalog.load(name) is None
        with pytest.raises(TableMismatch, match=r"Change the route"):
            catalog.create(name, _COLUMNS)


def test_a_region_that_is_not_set_is_named(
    spark: SparkSession, server: GlueServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By both clients, at once."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    server.lake = {key: value for key, value in server.lake.items() if key != "client.region"}

    with pytest.raises(OutsideRefused, match='as "client.region" under'):
        Catalog(spark, _in_spark(spark, server))
    with pytest.raises(TransientError, match='no region of AWS is set.*"client.region"'):
        namespaces(server.lake)


def test_a_rename_that_is_cut_off_is_ended_by_the_next_run(
    spark: SparkSession, server: GlueServer, tmp_path: Path
) -> None:
    """Glue has no request for it: the new name is made, then the old one dropped, whose files are those of the new."""
    world = World(spark, {"name": _in_spark(spark, server), **server.lake}, tmp_path / "feed", "cut")
    world.settings = {"source": {"messages_per_step": 3}}
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.ddl("RENAME TABLE a TO b")
    world.put("b", 2)
    world.resolve()
    server.refused["DeleteTable"] = "AccessDeniedException"
    with pytest.raises(OutsideRefused, match=r"Cannot rename table cut__shop\.a to cut__shop\.b: .* the rights"):
        world.run()
    server.refused.clear()

    world.run()

    assert world.table("b").state == "in step"
    lake = load_catalog("lake", **server.lake)
    assert lake.list_tables("cut__shop") == [("cut__shop", "b")]
    assert len(lake.load_table("cut__shop.b").scan().to_arrow()) == 2


def test_a_table_that_a_cut_off_rename_left_two_names_is_renamed_again(spark: SparkSession, server: GlueServer) -> None:
    """Its files stay; a name that another table has is refused."""
    catalog = Catalog(spark, _in_spark(spark, server))
    uuid = catalog.create(("cut", "a"), _COLUMNS).uuid
    catalog.create(("cut", "other"), _COLUMNS)
    server.refused["DeleteTable"] = "AccessDeniedException"
    with pytest.raises(OutsideRefused):
        catalog.rename(("cut", "a"), ("cut", "b"))
    server.refused.clear()

    with pytest.raises(JavaError, match="other"):
        catalog.rename(("cut", "a"), ("cut", "other"))
    catalog.rename(("cut", "a"), ("cut", "b"))

    assert sorted(catalog.list(("cut",))) == [("cut", "b"), ("cut", "other")]
    left = catalog.load(("cut", "b"))
    assert left is not None
    assert left.uuid == uuid
