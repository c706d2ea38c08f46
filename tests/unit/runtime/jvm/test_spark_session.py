"""What the configuration makes of Spark's settings, without starting Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from applier.errors import ConfigError
from applier.runtime.jvm import cds_archive, jars, spark_session

_JDBC = {"type": "jdbc", "uri": "jdbc:sqlite:lake/catalog.db", "warehouse": "lake/warehouse"}


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder, with jars that are only names and an archive of classes for them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cds_archive, "java_options", lambda class_path: "-XX:SharedArchiveFile=it")
    monkeypatch.setattr(jars, "fetch", lambda group: [Path(f"/jars/{group}.jar")])


def _settings(spark: Mapping[str, str] | None = None, catalog: Mapping[str, str] | None = None) -> dict[str, str]:
    return spark_session._settings("test", spark or {}, "lake", catalog or _JDBC)


def test_the_catalog_gets_every_property() -> None:
    """Keys that applier does not know reach Iceberg as they are."""
    settings = _settings(catalog={"type": "rest", "uri": "https://catalog/", "header.x": "1"})

    assert settings["spark.sql.catalog.lake"] == "org.apache.iceberg.spark.SparkCatalog"
    assert settings["spark.sql.catalog.lake.uri"] == "https://catalog/"
    assert settings["spark.sql.catalog.lake.header.x"] == "1"
    assert settings["spark.sql.catalog.lake.cache-enabled"] == "false"


def test_the_folder_of_a_sqlite_catalog_is_made(tmp_path: Path) -> None:
    """SQLite does not do so itself; what follows the question mark is not part of the path."""
    settings = _settings(catalog=_JDBC | {"uri": f"jdbc:sqlite:{tmp_path}/lake/catalog.db?busy_timeout=9000"})

    assert settings["spark.sql.catalog.lake.uri"] == f"jdbc:sqlite:{tmp_path}/lake/catalog.db?busy_timeout=9000"
    assert settings["spark.sql.catalog.lake.jdbc.schema-version"] == "V1"
    assert (tmp_path / "lake").is_dir()


def test_a_warehouse_with_a_scheme_is_left_alone() -> None:
    """Object stores have no relative paths."""
    assert _settings(catalog=_JDBC | {"warehouse": "s3://lake/w"})["spark.sql.catalog.lake.warehouse"] == "s3://lake/w"


def test_a_folder_that_cannot_be_made_is_a_problem_of_the_configuration(tmp_path: Path) -> None:
    """The sentence names the key and the folder."""
    (tmp_path / "lake").touch()

    with pytest.raises(ConfigError, match=r"catalog.uri: cannot make the folder .*/lake: File exists\."):
        _settings()


def test_the_users_settings_win() -> None:
    """A value of the configuration replaces every default of applier, also of the catalog."""
    given = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.catalog.lake.cache-enabled": "true"}

    settings = _settings(given)

    assert settings.items() >= given.items()


def test_lists_are_added_to() -> None:
    """Jars and extensions of the user are kept beside those that applier needs."""
    settings = _settings({"spark.jars": "mine.jar, /jars/spark.jar", "spark.sql.extensions": "my.Extensions"})

    assert settings["spark.jars"] == "mine.jar,/jars/spark.jar"
    assert settings["spark.sql.extensions"].split(",") == [
        "my.Extensions",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    ]


def test_the_jars_for_s3_come_with_a_catalog_on_s3() -> None:
    """The large bundle is fetched only where S3FileIO is asked for."""
    settings = _settings(catalog=_JDBC | {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"})

    assert settings["spark.driver.extraClassPath"] == "/jars/spark.jar:/jars/s3.jar"


def test_metadata_is_kept_in_memory_before_the_file_io_that_is_named() -> None:
    """A REST catalog may name one itself, which ours must not hide."""
    named = _settings(catalog={"type": "rest", "uri": "http://h", "io-impl": "org.x.GCSFileIO"})
    unnamed = _settings(catalog={"type": "rest", "uri": "http://h"})

    assert named["spark.sql.catalog.lake.io-impl"] == "applier.CachingFileIO"
    assert named["spark.sql.catalog.lake.applier.io-impl"] == "org.x.GCSFileIO"
    assert "spark.sql.catalog.lake.io-impl" not in unnamed


def test_one_machine_gets_the_jars_on_its_class_path() -> None:
    """Where the archive of classes covers them; the user's own follow."""
    settings = _settings({"spark.driver.extraClassPath": "/mine/*"})

    assert settings["spark.driver.extraClassPath"] == "/jars/spark.jar:/mine/*"
    assert "-XX:SharedArchiveFile=it" in settings["spark.driver.extraJavaOptions"]
    assert "spark.jars" not in settings


@pytest.mark.parametrize(
    "spark", [{"spark.master": "yarn"}, {"spark.jars": "mine.jar"}, {"spark.jars.packages": "a:b:1"}]
)
def test_executors_and_jars_of_the_user_get_ours_beside_them(spark: dict[str, str]) -> None:
    """A driver of a database is seen by Iceberg only where one class loader has both."""
    settings = _settings(spark)

    assert settings["spark.jars"].endswith("/jars/spark.jar")
    assert "spark.driver.extraClassPath" not in settings
    assert "SharedArchiveFile" not in settings["spark.driver.extraJavaOptions"]


def test_java_options_of_the_user_come_last() -> None:
    """A log configuration of the user's own replaces the quiet one."""
    options = _settings({"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=mine"})

    assert options["spark.driver.extraJavaOptions"].endswith(" -Dlog4j2.configurationFile=mine")


def test_the_jvm_keeps_to_the_memory_that_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unless the environment or the user's options, which come later, say otherwise."""
    options = _settings({"spark.driver.extraJavaOptions": "-XX:GCTimeRatio=12"})["spark.driver.extraJavaOptions"]
    assert options.index("-XX:GCTimeRatio=4") < options.index("-XX:GCTimeRatio=12")

    monkeypatch.setattr("applier.runtime.jvm.spark_session.java_home.find", lambda: tmp_path)
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME"):
        monkeypatch.setenv(name, "")
    for given, kept in (("", "2"), ("8", "8")):
        monkeypatch.setenv("MALLOC_ARENA_MAX", given)
        if not given:
            monkeypatch.delenv("MALLOC_ARENA_MAX")
        spark_session._set_environment({}, local=True)
        assert os.environ["MALLOC_ARENA_MAX"] == kept


@pytest.mark.parametrize(
    ("master", "cores", "is_serial"),
    [
        ("local", 64, True),
        ("local[2]", 64, True),
        ("local[3,2]", 64, True),
        ("local[4]", 2, False),
        ("local[*]", 2, True),
        ("local[*]", 4, False),
        ("local[*]", None, False),
        ("local-cluster[2,1,1024]", 2, False),
        ("yarn", 64, True),
    ],
)
def test_few_cores_have_the_collector_of_one_thread_and_less_heap(
    master: str, cores: int | None, is_serial: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many tasks at once as read for themselves, Java chooses; those of a cluster run elsewhere."""
    monkeypatch.setattr("applier.runtime.jvm.java_options.os.cpu_count", lambda: cores)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)

    settings = _settings({"spark.master": master})

    assert ("-XX:+UseSerialGC" in settings["spark.driver.extraJavaOptions"].split()) == is_serial
    assert settings["spark.driver.memory"] == ("1536m" if is_serial else "2g")
    assert _settings({"spark.master": master, "spark.driver.memory": "3g"})["spark.driver.memory"] == "3g"


@pytest.mark.parametrize("where", ["spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions", "environment"])
def test_a_collector_of_the_user_is_the_only_one(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM starts with no two of them."""
    chosen = "-Xss4m -XX:+UseParallelGC"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", chosen if where == "environment" else "")

    settings = _settings({"spark.master": "local[1]", **({where: chosen} if where != "environment" else {})})

    assert "-XX:+UseSerialGC" not in settings["spark.driver.extraJavaOptions"]


def test_options_of_executors_are_safe_beside_those_of_their_machines() -> None:
    """No collector is named: a JVM that has two does not start. The user's options come last."""
    given = {"spark.master": "yarn", "spark.executor.extraJavaOptions": "-XX:G1HeapRegionSize=8m"}
    options = _settings(given)["spark.executor.extraJavaOptions"].split()
    assert "-XX:G1HeapRegionSize=32m" in options[:-1]
    assert options[-1] == "-XX:G1HeapRegionSize=8m"
    assert not any(option.startswith("-XX:+Use") for option in options)
    assert "spark.executor.extraJavaOptions" not in _settings()


def test_a_cluster_keeps_its_own_addresses() -> None:
    """Only a local master is bound to the loopback address."""
    assert "spark.driver.host" not in _settings({"spark.master": "yarn"})
    assert _settings()["spark.driver.host"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("value", "written"),
    [("plain=:#!", "plain=:#!"), (" a\\b", "\\ a\\\\b"), ("two\nlines", "two\\nlines")],
)
def test_property_files_give_values_back(value: str, written: str) -> None:
    """Backslashes, line ends and leading blanks survive java.util.Properties."""
    assert spark_session._property(value) == written


@pytest.mark.parametrize("master", ["k8s://https://cluster:443", "yarn", "local-cluster[1,1,512]"])
def test_other_processes_have_to_prove_themselves(master: str) -> None:
    """Driver and executors authenticate and encrypt by default where Spark can hand out the secret; the user wins."""
    settings = _settings({"spark.master": master})
    assert (settings["spark.authenticate"], settings["spark.network.crypto.enabled"]) == ("true", "true")

    given = {"spark.master": master, "spark.authenticate": "false"}
    assert _settings(given)["spark.authenticate"] == "false"


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_no_secret_is_made_that_a_cluster_would_not_know(master: str) -> None:
    """One process needs no secret, and a standalone cluster has its own."""
    settings = _settings({"spark.master": master})

    assert not any(key.startswith("spark.authenticate") for key in settings)


@pytest.mark.parametrize("is_there", [True, False])
def test_only_a_session_that_was_started_here_is_stopped(*, is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that runs in this process already is used as it is, whatever fails meanwhile."""
    session, config = mock.MagicMock(), mock.MagicMock()
    monkeypatch.setattr(SparkContext, "_active_spark_context", session if is_there else None)
    monkeypatch.setattr(SparkSession, "builder", mock.MagicMock(**{"getOrCreate.return_value": session}))
    monkeypatch.setattr(spark_session, "build_session", build := mock.Mock(return_value=session))

    with suppress(ConfigError), spark_session.running(config, _JDBC) as found:
        assert found is session
        raise ConfigError(["It fails."])

    assert (build.called, session.stop.called) == (not is_there, not is_there)
