"""A JDBC catalog in PostgreSQL, asked by both clients: a changefeed lives in it, and each wrong setting is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from applier.errors import OutsideRefused, TransientError
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.java import JavaError
from tests.integration.catalogs import in_spark, namespaces
from tests.services import certificates
from tests.services.certificates import Authority
from tests.services.postgres import Postgres, postgres
from tests.spark.world import World

pytestmark = [pytest.mark.spark, pytest.mark.catalog]

Lake = dict[str, str]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """One without TLS."""
    with postgres() as running:
        yield running


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """One that no machine trusts."""
    return certificates.authority("private", tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[Postgres]:
    """One that takes no connection without TLS."""
    with postgres(authority) as running:
        yield running


@pytest.mark.parametrize("tls", [False, True])
def test_a_changefeed_lives_in_postgresql(
    spark: SparkSession, server: Postgres, secured: Postgres, authority: Authority, tmp_path: Path, tls: bool
) -> None:
    """The driver of Java and the library of Python take the same `uri`, the options of either included."""
    if tls:
        lake = secured.lake(f"?sslmode=verify-full&sslrootcert={authority.file}&loginTimeout=9&prepareThreshold=0")
    else:
        lake = server.lake("?ApplicationName=applier&currentSchema=public")
    with pytest.raises(TransientError, match="no tables of a catalog yet"):
        namespaces(lake)
    lake["warehouse"] = f"{tmp_path}/tables"
    world = World(spark, {"name": in_spark(spark, lake), **lake}, tmp_path / "feed", "feed")
    world.create("a")
    world.put("a", 1, 2)
    world.resolve()

    world.run()

    assert world.table("a").state == "in step"
    assert "It answers: 2 namespaces." in world.obey(f"applier check -c {world.path}")


_WRONG: dict[str, tuple[Callable[[Postgres, Postgres], Lake], str, str]] = {
    "password": (
        lambda one, _: one.lake(**{"jdbc.password": "wrong"}),
        "password authentication failed.*check the log-in",
        "the log-in is refused",
    ),
    "database": (
        lambda one, _: one.lake(uri=f"jdbc:postgresql://127.0.0.1:{one.port}/pond"),
        'database "pond" does not exist',
        "there is no database pond",
    ),
    "no TLS": (lambda _, two: two.lake("?sslmode=disable"), "pg_hba.conf", "sslmode=require, or verify-full"),
    "TLS of a server without": (
        lambda one, _: one.lake("?sslmode=require"),
        "does not support SSL",
        "does not speak TLS there",
    ),
    "authority": (
        lambda _, two: two.lake("?sslmode=verify-full&sslrootcert=/nowhere.pem"),
        "nowhere.pem",
        "sslrootcert in catalog.uri",
    ),
}
"""Settings that are wrong, and what each client says of them at once."""


@pytest.mark.parametrize("what", _WRONG)
def test_a_wrong_setting_ends_at_once(spark: SparkSession, server: Postgres, secured: Postgres, what: str) -> None:
    """The run ends with exit 3, as it does for what Python finds in `status` and `check`."""
    lake, java, python = _WRONG[what][0](server, secured), *_WRONG[what][1:]
    lake["warehouse"] = "/tmp"  # noqa: S108 - nothing is written
    with pytest.raises(OutsideRefused, match=java):
        Catalog(spark, in_spark(spark, lake))
    with pytest.raises(TransientError, match=python):
        namespaces(lake)


def test_a_server_that_is_down_is_an_outage(spark: SparkSession, server: Postgres) -> None:
    """It may come back, so the call is made again."""
    lake = server.lake() | {"warehouse": "/tmp"}  # noqa: S108 - nothing is written
    name = in_spark(spark, lake)
    server.stop()
    try:
        with pytest.raises(JavaError, match="refused"):
            Catalog(spark, name)
        with pytest.raises(TransientError, match="the connection is refused"):
            namespaces(lake)
    finally:
        server.start()
    assert Catalog(spark, name).name == name
