"""Relative paths of a configuration begin in its folder, whichever the working directory is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from applier.config.settings import Config, load
from applier.errors import ConfigError

HEAD = """
[changefeed]
name = "shop"
protocol = "avro"
{changefeed}
[registry]
url = "http://registry:8081"
{registry}
{source}
[upstream]
{upstream}
[http]
{http}
[catalog]
name = "lake"
{catalog}
[spark]
{spark}
"""
KAFKA = '[source.kafka]\ntopics = ["shop"]\n"kafka.bootstrap.servers" = "broker:9092"\n'
SQLITE = 'type = "jdbc"\nuri = "jdbc:sqlite:{path}"\nwarehouse = "lake/tables"'


def loaded(folder: Path, **sections: str) -> Config:
    """The configuration in `folder/conf` with some lines of its own, read from `folder/elsewhere`."""
    for name in ("conf", "elsewhere"):
        (folder / name).mkdir(exist_ok=True)
    os.chdir(folder / "elsewhere")
    parts = dict.fromkeys(("changefeed", "registry", "upstream", "http", "spark"), "")
    given = parts | {"source": KAFKA, "catalog": SQLITE.format(path="lake/catalog.db")} | sections
    (folder / "conf/applier.toml").write_text(HEAD.format(**given), encoding="utf-8")
    return load("../conf/applier.toml")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the configuration and the working directory, which the test leaves again."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def whole(text: str = "") -> str:
    """A path below the folder of the configuration."""
    return os.path.normpath(f"{Path.cwd()}/../conf/{text}")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("jdbc:sqlite:lake/catalog.db", "jdbc:sqlite:{}lake/catalog.db"),
        ("jdbc:sqlite:./c.db?busy_timeout=9", "jdbc:sqlite:{}c.db?busy_timeout=9"),
        ("jdbc:sqlite:file:c.db?cache=shared", "jdbc:sqlite:file:{}c.db?cache=shared"),
        ("jdbc:sqlite:/var/c.db", "jdbc:sqlite:/var/c.db"),
        ("jdbc:sqlite::memory:", "jdbc:sqlite::memory:"),
        ("jdbc:postgresql://host/lake", "jdbc:postgresql://host/lake"),
    ],
)
def test_the_file_of_a_catalog(given: str, found: str, place: Path) -> None:
    """SQLite's address holds a path; others are left alone."""
    config = loaded(place, catalog=SQLITE.format(path="").replace("jdbc:sqlite:", given))

    assert config.catalog.properties["uri"] == found.format(whole() + "/")
    assert config.catalog.properties["warehouse"] == whole("lake/tables")
    file = config.catalog.sqlite_file
    assert (file is None) == ("memory" in given or "postgresql" in given)
    assert file is None or str(file).startswith("/")


@pytest.mark.parametrize(
    ("kind", "given", "found"),
    [
        ("hadoop", "lake", "{}lake"),
        ("hadoop", "file:lake", "file:{}lake"),
        ("hive", "s3a://bucket/lake", "s3a://bucket/lake"),
        ("hadoop", "hdfs:/lake", "hdfs:/lake"),
        ("rest", "lake", "lake"),
    ],
)
def test_a_warehouse(kind: str, given: str, found: str, place: Path) -> None:
    """A REST catalog may know it by a name, which is no path."""
    config = loaded(place, catalog=f'type = "{kind}"\nuri = "http://host"\nwarehouse = "{given}"')

    assert config.catalog.properties["warehouse"] == found.format(whole() + "/")
    assert config.catalog.properties["uri"] == "http://host"


def test_every_other_path(place: Path) -> None:
    """Archive, exports, claim checks, and the files of TLS."""
    store = '"kafka.ssl.truststore.location" = "tls/trust.jks"\nkafka.ssl.keystore.location = "/etc/key.p12"'
    config = loaded(
        place,
        changefeed='claim_check = "claims"',
        registry='ca = "ca.pem"\nclient_cert = "c.pem"\nclient_key = "k.pem"',
        source=KAFKA + store,
        upstream='dump = "../export"',
        http='certificate = "tls.crt"\nkey = "tls.key"',
    )

    kafka, registry = config.source.kafka, config.registry
    assert kafka is not None
    assert registry is not None
    assert kafka.options["kafka.ssl.truststore.location"] == whole("tls/trust.jks")
    assert kafka.options["kafka.ssl.keystore.location"] == "/etc/key.p12"
    assert kafka.options["kafka.bootstrap.servers"] == "broker:9092"
    found = [config.changefeed.claim_check, registry.ca, registry.client_cert, registry.client_key]
    found += [config.upstream.dump, config.http.certificate, config.http.key]
    names = ("claims", "ca.pem", "c.pem", "k.pem", "../export", "tls.crt", "tls.key")
    assert found == [whole(name) for name in names]
    other = loaded(place, source='[source]\narchive = "topic"', upstream='schemas = "texts"')
    assert (other.source.archive, other.upstream.schemas) == (whole("topic"), whole("texts"))


def test_an_address_that_is_no_path_stays(place: Path) -> None:
    """As fsspec has them."""
    config = loaded(place, changefeed='claim_check = "s3://b/claims"', upstream='dump = "simplecache::s3://b/dump"')

    assert (config.changefeed.claim_check, config.upstream.dump) == ("s3://b/claims", "simplecache::s3://b/dump")


@pytest.mark.parametrize(
    ("key", "given", "found"),
    [
        ("spark.jars", "a.jar, s3a://b/c.jar,/opt/d.jar", "{0}a.jar,s3a://b/c.jar,/opt/d.jar"),
        ("files", "krb5.conf", "{0}krb5.conf"),
        ("spark.archives", "env.tgz#env", "{0}env.tgz#env"),
        ("spark.driver.extraClassPath", "jars/*:/opt/e.jar", "{0}jars/*:/opt/e.jar"),
        ("spark.kubernetes.executor.podTemplateFile", "pod.yaml", "{0}pod.yaml"),
        ("spark.ssl.trustStore", "trust.jks", "{0}trust.jks"),
        ("spark.eventLog.dir", "events", "{0}events"),
        ("spark.master", "local[2]", "local[2]"),
        ("spark.jars.packages", "a:b:1", "a:b:1"),
        ("spark.pyspark.python", "./env/bin/python", "./env/bin/python"),
    ],
)
def test_files_of_spark(key: str, given: str, found: str, place: Path) -> None:
    """Lists are taken apart; what executors find in folders of their own stays."""
    config = loaded(place, spark=f'"{key}" = "{given}"')

    name = key if key.startswith("spark.") else f"spark.{key}"
    assert config.spark[name] == found.format(whole() + "/")


def test_a_catalog_begun_as_seen_from_the_working_directory_is_named(place: Path) -> None:
    """And never begun a second time: both places are named, with the two ways to go on."""
    (place / "elsewhere/lake").mkdir(parents=True)
    (place / "elsewhere/lake/catalog.db").touch()

    with pytest.raises(ConfigError) as raised:
        loaded(place)

    here = place / "elsewhere"
    new = place / "conf/lake/catalog.db"
    sentence = (
        f"../conf/applier.toml:20: catalog.uri: a catalog is at {here}/lake/catalog.db, and none at {new}, where the "
        "path leads: paths begin in the folder of the configuration, not in the working directory. To go on with that "
        f'catalog, move that file to {new}, or write uri = "jdbc:sqlite:{here}/lake/catalog.db" and '
        f'warehouse = "{here}/lake/tables".'
    )
    assert raised.value.problems == [sentence]
    written = f'type = "jdbc"\nuri = "jdbc:sqlite:{here}/lake/catalog.db"\nwarehouse = "{here}/lake/tables"'
    assert loaded(place, catalog=written).catalog.sqlite_file == here / "lake/catalog.db"
    (place / "conf/lake").mkdir()
    (here / "lake/catalog.db").rename(place / "conf/lake/catalog.db")
    assert loaded(place).catalog.sqlite_file == place / "conf/lake/catalog.db"


def test_so_is_a_folder_that_is_a_catalog(place: Path) -> None:
    """The tables of Hadoop's catalog hold their own paths, so the folder cannot be moved."""
    (place / "elsewhere/lake").mkdir(parents=True)

    with pytest.raises(ConfigError) as raised:
        loaded(place, catalog='type = "hadoop"\nwarehouse = "lake"')

    here = place / "elsewhere"
    assert raised.value.problems[0].endswith(f'To go on with that catalog, write warehouse = "{here}/lake".')
