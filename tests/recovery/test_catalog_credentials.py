"""Keys and tokens of a REST catalog that expire in a run: new ones go on without a restart, an only token ends it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from applier.runtime.jvm import java_home
from bench.storage import BUCKET, KEYS, slow_s3
from tests.integration.faulty_storage import FaultyStorage, faulty
from tests.recovery.bad_days import BadDays
from tests.services.certificates import STORE_PASSWORD, Authority, authority, context
from tests.services.kafka import Broker
from tests.services.rest_catalog import RestCatalog, VendedKeys, rest_catalog

pytestmark = [pytest.mark.s3, pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.fixture
def storage() -> Iterator[FaultyStorage]:
    """What stands before a server of S3, and takes no keys but those that a catalog gives."""
    with slow_s3() as endpoint, faulty(endpoint) as proxy:
        proxy.refused |= {"": "403", KEYS["s3.access-key-id"]: "403"}
        yield proxy


@pytest.fixture
def private(tmp_path: Path) -> Authority:
    """One that neither Java nor Python trusts."""
    return authority("private", tmp_path)


@pytest.fixture
def server(storage: FaultyStorage, private: Authority, tmp_path: Path) -> Iterator[RestCatalog]:
    """A catalog over HTTPS that gives keys."""
    own = {key: value for key, value in KEYS.items() if key.startswith("s3.")}
    behind = {"warehouse": f"s3://{BUCKET}/rest", "s3.endpoint": f"http://{storage.behind}", **own}
    with rest_catalog(tmp_path, behind | {"s3.region": "us-east-1"}, context(private.issue("server"))) as running:
        yield running


@pytest.fixture
def days(
    storage: FaultyStorage,
    server: RestCatalog,
    private: Authority,
    kafka: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> BadDays:
    """A changefeed in that catalog, as docs/security.md has it for a private authority."""
    found = BadDays(int(time.time()), storage, kafka, tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(private.file))
    options = f"-Djavax.net.ssl.trustStore={_trust_store(private)} -Djavax.net.ssl.trustStorePassword={STORE_PASSWORD}"
    own = {key: KEYS[key] for key in ("io-impl", "s3.path-style-access", "client.region")}
    own |= {"header.X-Iceberg-Access-Delegation": "vended-credentials", "s3.endpoint": storage.address}
    found.config["catalog"] = {"name": "lake", **server.login, **own}
    found.config["spark"] = {
        "spark.master": "local[1]",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": options,
    }
    return found


def test_keys_that_a_catalog_gives_expire_and_its_token_is_revoked(
    days: BadDays, server: RestCatalog, storage: FaultyStorage
) -> None:
    """Nothing is known of the life of the first keys, and the others are said to live for long."""
    keys = server.vend = VendedKeys(storage.refused)
    days.start()
    days.go_on(20)
    days.catch_up()

    for answer, seconds in (("expired", None), ("unknown key", 3600), ("expired", 3600)):
        keys.seconds = seconds
        keys.expire(answer)
        days.go_on(20)
        days.catch_up()
    logins = server.asked["POST tokens"]
    server.tokens.clear()
    days.go_on(20)
    days.catch_up()

    assert server.asked["POST tokens"] > logins
    assert days.problems() == []
    ended = days.applier.end()
    assert ended.code == 0, ended.everything[-3000:]
    assert [event["catalog"] for event in ended.events if event["event"] == "logged in again"] == ["lake"]


def test_keys_are_renewed_before_they_expire(days: BadDays, server: RestCatalog, storage: FaultyStorage) -> None:
    """Keys with no time left are renewed for each commit, and no step fails of them."""
    keys = server.vend = VendedKeys(storage.refused, seconds=0)
    days.start()
    days.go_on(20)
    days.catch_up()
    loaded = server.asked["GET namespaces"]

    keys.seconds = 3600
    days.go_on(20)
    days.catch_up()

    assert server.asked["GET namespaces"] > loaded
    ended = days.applier.end()
    assert ended.code == 0, ended.everything[-3000:]
    assert not [event for event in ended.events if event["event"] == "waiting for an outside system"]


def test_a_token_that_nothing_renews_ends_the_run(days: BadDays, server: RestCatalog, storage: FaultyStorage) -> None:
    """Another token is for a person to write."""
    server.vend = VendedKeys(storage.refused)
    lake = days.config["catalog"]
    lake["token"] = server.new_token()
    del lake["credential"], lake["oauth2-server-uri"]
    days.start()
    days.go_on(20)
    days.catch_up()

    server.tokens.clear()
    days.go_on(20)
    ended = days.applier.wait()

    assert ended.code == 3
    assert "write a new token to [catalog]" in ended.said, ended.said
    assert not [event for event in ended.events if event["event"] == "waiting for an outside system"]


def _trust_store(private: Authority) -> Path:
    """As docs/security.md makes one."""
    store = private.folder / "truststore.p12"
    tool = java_home.find() / "bin" / "keytool"
    made = ["-importcert", "-noprompt", "-alias", "lake", "-file", str(private.file), "-keystore", str(store)]
    subprocess.run([str(tool), *made, "-storepass", STORE_PASSWORD], check=True, capture_output=True)
    return store
