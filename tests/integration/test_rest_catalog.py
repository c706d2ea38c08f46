"""A REST catalog with a log-in, over HTTP and over HTTPS of a private authority, asked by both of its clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchNamespaceError
from pyspark.sql import SparkSession

from applier.commands.catalog_reader import open_lake
from applier.config.settings import CatalogSection
from applier.errors import OutsideRefused, TableMismatch, TransientError
from applier.runtime.storage_keys import KEYS as KEPT
from applier.sink.format.storage import RemoteStorage
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.java import JavaError
from applier.sink.iceberg.table import storage_for
from bench.storage import BUCKET, KEYS, slow_s3
from tests.few import few
from tests.integration.catalogs import in_spark, namespaces
from tests.integration.faulty_storage import faulty
from tests.services import certificates
from tests.services.certificates import Authority, context
from tests.services.rest_catalog import RestCatalog, rest_catalog
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.catalog]

Lake = dict[str, str]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalog]:
    """A catalog over HTTP, whose tables are on this machine."""
    with rest_catalog(tmp_path, {"warehouse": f"file://{tmp_path}/tables"}) as running:
        yield running


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """One that this JVM does not trust."""
    return certificates.authority("private", tmp_path_factory.mktemp("authority"))


@pytest.fixture
def secured(authority: Authority, tmp_path: Path) -> Iterator[RestCatalog]:
    """A catalog over HTTPS."""
    (tmp_path / "secured").mkdir()
    shown, tables = context(authority.issue("server")), {"warehouse": f"file://{tmp_path}/tables"}
    with rest_catalog(tmp_path / "secured", tables, shown) as running:
        yield running


def test_a_changefeed_lives_in_a_rest_catalog(spark: SparkSession, server: RestCatalog, tmp_path: Path) -> None:
    """Rows, a new column, a rename and maintenance by the client of Java; `status` and `check` by that of Python."""
    lake = server.login
    world = World(spark, {"name": in_spark(spark, lake), **lake}, tmp_path / "feed", "feed")
    world.settings = {"source": {"messages_per_step": 4}, "maintenance": {"small_files": 2, "snapshots": 2}}
    world.create("a")
    for key in range(4):
        world.put("a", key)
        world.resolve()
    world.put("a", 1, op="UPDATE")
    world.ddl("ALTER TABLE a ADD COLUMN w INT")
    world.resolve()
    world.ddl("RENAME TABLE a TO b")
    world.put("b", 4, w="7")
    world.resolve()

    world.run()

    found = spark.sql(f"SELECT id, w FROM {world.lake['name']}.feed__shop.b ORDER BY id").collect()
    assert [(row.id, row.w) for row in found] == [(0, None), (1, None), (2, None), (3, None), (4, 7)]
    assert world.table("b").state == "in step"
    assert "It answers: 2 namespaces." in world.obey(f"applier check -c {world.path}")
    assert server.asked["POST rename"] == 1


_WRONG: dict[str, tuple[Callable[[RestCatalog, RestCatalog], Lake], str, str]] = {
    "secret": (lambda one, _: {**one.login, "credential": "applier:wrong"}, "Not authorized", "log-in is refused"),
    "token": (lambda one, _: {"type": "rest", "uri": one.address, "token": "old"}, "Not authorized", "log-in is"),
    "no log-in": (lambda one, _: {"type": "rest", "uri": one.address}, "Not authorized", "log-in is refused"),
    "path": (
        lambda one, _: {**one.login, "uri": f"{one.address}/lake"},
        "there is no /lake/v1/config.*check what the configuration names",
        "knows no catalog there",
    ),
    "OAuth2 path": (
        lambda one, _: {**one.login, "oauth2-server-uri": f"{one.address}/tokens"},
        "no OAuth2 server, at that address",
        "knows no catalog there",
    ),
    "https to HTTP": (
        lambda one, _: {**one.login, "uri": one.address.replace("http:", "https:")},
        "check http, https",
        "does not speak TLS.* http and https",
    ),
    "authority": (lambda _, two: two.login, "which authority the client trusts", "REQUESTS_CA_BUNDLE"),
    "authority of OAuth2": (
        lambda one, two: {**one.login, "oauth2-server-uri": f"{two.address}/v1/oauth/tokens"},
        "which authority the client trusts",
        "REQUESTS_CA_BUNDLE",
    ),
}
"""Settings that are wrong, and what each client says of them at once."""


@pytest.mark.parametrize("what", few(_WRONG))
def test_a_wrong_setting_ends_at_once(
    spark: SparkSession, server: RestCatalog, secured: RestCatalog, what: str
) -> None:
    """The run ends with exit 3, as it does for what Python finds in `status` and `check`."""
    lake, java, python = _WRONG[what][0](server, secured), *_WRONG[what][1:]
    with pytest.raises(OutsideRefused, match=java):
        Catalog(spark, in_spark(spark, lake))
    with pytest.raises(TransientError, match=python):
        namespaces(lake)


@pytest.mark.parametrize("address", few(["down", "out of order"], 0))
def test_an_oauth2_server_that_is_down_is_an_outage(spark: SparkSession, server: RestCatalog, address: str) -> None:
    """It may come back, so the call is made again."""
    lake = server.login
    if address == "down":
        lake["oauth2-server-uri"] = "http://127.0.0.1:1/v1/oauth/tokens"
    else:
        server.out["/v1/oauth"] = 503
    name = in_spark(spark, lake)
    with pytest.raises(JavaError):
        Catalog(spark, name)
    with pytest.raises(TransientError, match="connection is refused|out of order"):
        namespaces(lake)

    if address == "out of order":
        server.out.clear()

        assert Catalog(spark, name).namespaces() == []
        assert namespaces(lake) == 0


def test_a_token_that_is_refused_before_its_time_is_replaced(
    spark: SparkSession, server: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call that meets it fails as in an outage, the next one logs in; another table of that name stays another."""
    monkeypatch.setattr(KEPT, "is_token_renewed", True)
    catalog = Catalog(spark, in_spark(spark, server.login))
    columns = pa.schema([pa.field("id", pa.int64())])
    table, other = (catalog.create(("shop", name), columns) for name in ("a", "b"))

    server.tokens.clear()
    with pytest.raises(JavaError, match="Not authorized"):
        table.refresh()
    table.refresh()

    assert not table.is_stale
    assert catalog.namespaces() == [("shop",)]

    server.tokens.clear()
    with pytest.raises(JavaError, match="Not authorized"):
        other.refresh()
    catalog.drop(("shop", "b"))
    catalog.create(("shop", "b"), columns)
    with pytest.raises(TableMismatch, match="was replaced by another one"):
        other.refresh()


def test_a_gateway_without_an_oauth2_server_ends_at_once(spark: SparkSession, server: RestCatalog) -> None:
    """Its answer is a page, where an OAuth2 server knows errors of its own."""
    server.out["/v1/oauth"] = 404

    with pytest.raises(OutsideRefused, match="no OAuth2 server, at that address"):
        Catalog(spark, in_spark(spark, server.login))


def test_a_gateway_whose_catalog_starts_again_is_an_outage(spark: SparkSession, server: RestCatalog) -> None:
    """Its answer shows no table to be gone: a table of that name would be made anew, or set aside as dropped."""
    catalog = Catalog(spark, in_spark(spark, server.login))
    table = catalog.create(("shop", "a"), pa.schema([pa.field("id", pa.int64())]))
    questions = (lambda: catalog.load(table.identifier), table.refresh, lambda: catalog.list(("shop",)))

    server.out["/v1/namespaces"] = 404

    for ask in questions:
        with pytest.raises(JavaError, match="does not answer|404"):
            ask()

    server.out.clear()
    for ask in questions:
        ask()
    assert catalog.load(("shop", "b")) is None


def test_a_gateway_whose_catalog_is_back_within_a_question_hides_no_table(
    spark: SparkSession, server: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its catalog answers the look at itself that follows the 404, so the question is put once more."""
    catalog = Catalog(spark, in_spark(spark, server.login))
    table = catalog.create(("shop", "a"), pa.schema([pa.field("id", pa.int64())]))
    listed = server.catalog.list_namespaces

    def back(*parents: Any) -> Any:
        server.out.clear()
        return listed(*parents)

    def away() -> Catalog:
        server.out["/v1/namespaces/shop/tables"] = 404
        return catalog

    monkeypatch.setattr(server.catalog, "list_namespaces", back)

    assert away().load(table.identifier) is not None
    assert away().list(("shop",)) == [table.identifier]
    away()
    table.refresh()
    assert away().drop(table.identifier)
    assert not server.catalog.table_exists(table.identifier)


def test_a_table_whose_namespace_is_dropped_with_it_is_gone(
    spark: SparkSession, server: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some catalogs name the namespace as what is missing: it is no outage, which would last for as long as the run."""
    catalog = Catalog(spark, in_spark(spark, server.login))
    table = catalog.create(("shop", "a"), pa.schema([pa.field("id", pa.int64())]))

    def gone(*_: Any) -> Any:
        raise NoSuchNamespaceError("Namespace does not exist: shop")

    monkeypatch.setattr(server.catalog, "load_table", gone)

    with pytest.raises(TableMismatch, match="was dropped"):
        table.refresh()
    assert catalog.load(table.identifier) is None


@pytest.mark.s3
@pytest.mark.parametrize("place", few(["storage-credentials", "config"]))
def test_both_clients_use_the_keys_that_the_catalog_gives(spark: SparkSession, tmp_path: Path, place: str) -> None:
    """The configuration has none, and the storage knows no others: nothing is asked without keys."""
    with slow_s3() as endpoint, faulty(endpoint) as storage:
        storage.refused[""] = "403"
        storage.refused[KEYS["s3.access-key-id"]] = "403"
        secret = {key: KEYS[key] for key in ("s3.access-key-id", "s3.secret-access-key")}
        behind = {"warehouse": f"s3://{BUCKET}/rest", "s3.endpoint": endpoint, "s3.region": "us-east-1", **secret}
        with rest_catalog(tmp_path, behind) as server:
            server.vends_in = place
            server.vend = lambda: {**secret, "s3.access-key-id": "GIVEN", "s3.session-token": "of the table"}
            lake = {**server.login, "s3.endpoint": storage.address, "client.region": "us-east-1"}
            lake |= {"io-impl": KEYS["io-impl"], "s3.path-style-access": "true"}
            lake |= {"header.X-Iceberg-Access-Delegation": "vended-credentials"}
            catalog = Catalog(spark, in_spark(spark, lake))

            table = catalog.create(("shop", "a"), pa.schema([pa.field("id", pa.int64())]))

            assert isinstance(storage_for(table), RemoteStorage)
            with open_lake(CatalogSection(name="lake", **lake)) as opened:
                assert opened.rows(("shop", "a"), ("id",)) == []
