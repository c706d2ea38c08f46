"""The read-only view of the catalog."""

from __future__ import annotations

import sqlite3
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ServerError, UnauthorizedError
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO

from applier.commands.before_spark import refuse
from applier.commands.catalog_reader import catalog_properties, open_lake, reported
from applier.commands.control_reader import ControlView
from applier.config.settings import CatalogSection
from applier.errors import ConfigError, TransientError
from applier.sink.control.whereabouts import ForeignLake
from tests.unit.commands.check.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A folder with a catalog."""
    return World(tmp_path)


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ({"uri": "jdbc:sqlite:/a b/c.db"}, "sqlite:///file:/a%20b/c.db?mode=ro&uri=true"),
        ({"uri": "jdbc:postgresql://h:1/d"}, "postgresql+psycopg2://h:1/d"),
        (
            {"uri": "jdbc:postgresql://h/d", "jdbc.user": "me", "jdbc.password": "p@ss/"},
            "postgresql+psycopg2://me:p%40ss%2F@h/d",
        ),
        ({"uri": "jdbc:postgresql://h/d?prepareThreshold=0"}, "postgresql+psycopg2://h/d"),
        ({"uri": "jdbc:postgresql://h/d?ssl=true"}, "postgresql+psycopg2://h/d?sslmode=verify-full"),
        (
            {"uri": "jdbc:postgresql://h/d?sslmode=require&currentSchema=lake&loginTimeout=5"},
            "postgresql+psycopg2://h/d?sslmode=require&connect_timeout=5&options=-csearch_path%3Dlake",
        ),
        ({"uri": "jdbc:mysql://h/d", "jdbc.user": "me"}, "mysql+pymysql://me:@h/d"),
    ],
)
def test_a_jdbc_catalog_is_opened_by_sqlalchemy(given: dict[str, str], uri: str) -> None:
    """Address and log-in are translated; SQLite is opened for reading alone."""
    section = CatalogSection.model_validate({"name": "lake", "type": "jdbc", "warehouse": "w", **given})

    properties = catalog_properties(section)

    assert properties == {"type": "sql", "uri": uri, "warehouse": "w", "init_catalog_tables": "false"}


def test_settings_of_java_stay_away_from_python() -> None:
    """Classes and caches of Spark's catalog mean nothing to PyIceberg, everything else goes on."""
    given = {"uri": "http://h", "io-impl": "org.x.S3FileIO", "cache-enabled": "false", "s3.endpoint": "http://s"}
    section = CatalogSection.model_validate({"name": "lake", "type": "rest", **given})

    assert catalog_properties(section) == {"type": "rest", "uri": "http://h", "s3.endpoint": "http://s"}


def test_tables_and_rows_are_read(world: World) -> None:
    """Columns, format, properties and the number of rows come from the newest metadata; rows by a filter."""
    world.create(("shop", "orders"), {"id": pa.int64(), "v": pa.string()}, rows=3)

    with open_lake(world.config.catalog) as lake:
        table = lake.table(("shop", "orders"))
        rows = lake.rows(("shop", "orders"), ("id",), "id > 1")
        assert lake.table(("shop", "nothing")) is None
        assert lake.rows(("nowhere", "nothing"), ("id",)) == []

    assert table is not None
    assert table.figures is not None
    assert (str(table), table.figures.rows, table.format_version) == ("shop.orders", 3, 2)
    assert [field.name for field in table.schema.fields] == ["id", "v"]
    assert rows == [{"id": 2}]


def test_a_catalog_that_is_locked_is_called_so(world: World) -> None:
    """The sentence says what to wait for, and not that the log-in may be wrong."""
    world.create(("shop", "orders"), {"id": pa.int64()})
    database = sqlite3.connect(f"{world.folder}/catalog.db", isolation_level=None)
    database.execute("BEGIN EXCLUSIVE")

    with (
        open_lake(world.config.catalog) as lake,
        pytest.raises(
            TransientError, match=r"Cannot load table shop\.orders of catalog lake: its SQLite file is locked"
        ),
    ):
        lake.table(("shop", "orders"))
    database.close()


def test_a_lost_metadata_file_is_one_sentence(world: World) -> None:
    """Whatever the storage library raises, the table is named."""
    metadata = world.create(("shop", "orders"), {"id": pa.int64()})
    Path(metadata).unlink()

    with (
        open_lake(world.config.catalog) as lake,
        pytest.raises(TransientError, match=r"Cannot load table shop\.orders") as lost,
    ):
        lake.table(("shop", "orders"))
    assert str(lost.value).startswith(
        f"Cannot load table shop.orders of catalog lake (the catalog names {metadata}, which is not there). "
        "Hint: if this catalog is a copy, or older than its files, set catalog.uri to the one that is in use, and "
        "change nothing; if the warehouse was moved, move it back, or link it to its former path, where nothing is "
    )


@pytest.mark.parametrize("is_there", [True, False])
def test_a_catalog_that_names_files_of_another_lake_is_a_copy(world: World, *, is_there: bool) -> None:
    """Also where the original has removed them since: nothing of it has to be read."""
    metadata = Path(world.create(("applier_shop", "checkpoints"), {"id": pa.int64()}))
    assert metadata.parent.name == "metadata"
    if not is_there:
        metadata.unlink()
    world.raw["catalog"]["warehouse"] = f"{world.folder}/copy"

    with open_lake(world.config.catalog) as lake, pytest.raises(ForeignLake) as refusal:
        ControlView(lake, "shop").checkpoint()
    assert str(refusal.value).startswith(
        f"Catalog lake names table applier_shop.checkpoints at {metadata.parent.parent}, which is not below "
        f"catalog.warehouse, {world.folder}/copy: it is a copy of the catalog of another lake"
    )
    with pytest.raises(ForeignLake):
        refuse(world.config, takes=False, reads=False)


@pytest.mark.parametrize(
    ("kind", "uri", "module", "package", "extra"),
    [
        ("jdbc", "jdbc:postgresql://127.0.0.1:1/lake", "psycopg2", "pyiceberg[sql-postgres]", "postgres"),
        ("jdbc", "jdbc:mysql://127.0.0.1:1/lake", "pymysql", "pymysql", "mysql"),
        ("glue", "", "boto3", "pyiceberg[glue]", "glue"),
        ("hive", "thrift://127.0.0.1:1", "thrift", "pyiceberg[hive]", "hive"),
    ],
)
def test_a_missing_library_is_named_by_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, kind: str, uri: str, module: str, package: str, extra: str
) -> None:
    """The extra is one of pyproject.toml, and holds the library."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name in [module, f"pyiceberg.catalog.{kind}"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    section = CatalogSection.model_validate({"name": "lake", "type": kind, "warehouse": "w", "uri": uri})

    with pytest.raises(ConfigError, match="is not installed") as refusal, open_lake(section):
        pass

    assert str(refusal.value).endswith(f"{module} is not installed. Run `pip install 'applier[{extra}]'`.")
    assert project["optional-dependencies"][extra][0].startswith(package)


def test_a_reader_waits_a_second_for_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status` is to say within seconds that the catalog is locked; the default of SQLite is five at each try."""
    (tmp_path / "catalog.db").touch()
    section = CatalogSection.model_validate(
        {"name": "lake", "type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db"}
    )
    opened: list[str] = []

    def load(*_: str, **properties: str) -> SimpleNamespace:
        opened.append(properties["uri"])
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr("applier.commands.catalog_reader.load_catalog", load)
    with open_lake(section):
        pass

    assert opened == [f"sqlite:///file:{tmp_path}/catalog.db?mode=ro&uri=true&timeout=1.0"]


@pytest.mark.parametrize(("given", "expected"), [({}, 2), ({"glue.max-retries": "5"}, 5)])
def test_glue_is_asked_again_a_few_times(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: int) -> None:
    """`status` is to say within seconds that Glue is down; and a number as text would end in the client of AWS."""
    section = CatalogSection.model_validate({"name": "lake", "type": "glue", "warehouse": "s3://bucket", **given})
    opened: list[object] = []

    def load(*_: str, **properties: object) -> SimpleNamespace:
        opened.append(properties["glue.max-retries"])
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr("applier.commands.catalog_reader.load_catalog", load)
    with open_lake(section):
        pass

    assert opened == [expected]


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        (
            "When reading key 'a?token=x': AWS Error SLOW_DOWN (HTTP status 503) during HeadObject: No.",
            "(the storage answers 503, SLOW_DOWN)",
            "the storage is out of order or overloaded for now",
        ),
        (
            "When reading information for key 'a?token=x': AWS Error ACCESS_DENIED during HeadObject operation: No",
            "(the storage answers ACCESS_DENIED)",
            "correct the log-in in [catalog] (user, password or key), or give it the rights.",
        ),
        ("something of token=x", "(OSError)", "check [catalog]: its address, its log-in"),
    ],
)
def test_what_a_storage_answers_is_named(text: str, reason: str, hint: str) -> None:
    """An outage is none of the log-in; nothing else of the text is shown."""
    with pytest.raises(TransientError) as raised, reported("load table shop.orders of catalog lake"):
        raise OSError(text)

    assert reason in raised.value.what
    assert raised.value.hint.startswith(hint)
    assert "token" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "HTTPConnection(host='db.example', port=80): Failed to resolve 'db.example' ([Errno -2] …)",
            "host db.example",
        ),
        ('could not translate host name "db.example" to address: Name or service not known', "host db.example"),
        ("(2003, \"Can't connect to MySQL server on 'db.example' ([Errno -2] Name or …)\")", "host db.example"),
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: Couldn't resolve host name", "the host"),
    ],
)
def test_a_host_that_does_not_resolve_is_named_and_no_login(text: str, reason: str) -> None:
    """The sentence leads to the one key that is wrong."""
    with pytest.raises(TransientError) as raised, reported("open catalog lake"):
        raise OSError(text)

    assert raised.value.what == f"Cannot open catalog lake ({reason} does not resolve)."
    assert raised.value.hint == "correct the host in [catalog], or see to the name service of this machine."


def test_an_oauth2_server_that_is_out_of_order_is_named() -> None:
    """PyIceberg says only what it could not read."""
    with pytest.raises(TransientError) as raised, reported("open catalog lake"):
        raise ServerError("RESTError 500: Received unexpected JSON Payload: oops, errors: Invalid JSON")

    said = "the REST server, or the OAuth2 server of its log-in, answers that it is out of order"
    assert raised.value.what == f"Cannot open catalog lake ({said})."
    assert "oauth2-server-uri" in raised.value.hint


@pytest.mark.parametrize(
    "error",
    [
        OSError('connection to server at "db", port 5432 failed: FATAL:  password authentication failed for user "u"'),
        OSError("(1045, \"Access denied for user 'u'@'h' (using password: YES)\")"),
        UnauthorizedError("NotAuthorizedException: token=x"),
        OSError("An error occurred (UnrecognizedClientException) when calling the GetTable operation: …"),
    ],
)
def test_a_login_that_is_refused_is_named_and_no_host(error: Exception) -> None:
    """A server that refuses a log-in has answered."""
    with pytest.raises(TransientError) as raised, reported("open catalog lake"):
        raise error

    assert raised.value.what == "Cannot open catalog lake (the log-in is refused)."
    assert raised.value.hint.startswith("correct the log-in in [catalog] (user")


@pytest.mark.parametrize(
    ("said", "reason", "way_out"),
    [
        ('port 5432 failed: FATAL:  database "nodb" does not exist', "there is no database nodb", "create it in"),
        ("(1049, \"Unknown database 'nodb'\")", "there is no database nodb", "create it in"),
        ('relation "iceberg_namespace_properties" does not exist', "no tables of a catalog yet", "the first `applier"),
        ("(1146, \"Table 'lake.iceberg_tables' doesn't exist\")", "no tables of a catalog yet", "the first `applier"),
        ('server at "db", port 9 failed: Connection refused', "the connection is refused", "correct host and port"),
    ],
)
def test_what_the_database_of_a_catalog_says(said: str, reason: str, way_out: str) -> None:
    """Each has a way out of its own, as PostgreSQL and MySQL put it."""
    with pytest.raises(TransientError, match=reason) as raised, reported("open catalog lake"):
        raise OSError(said)

    assert raised.value.hint.startswith(way_out)


def test_a_catalog_that_nothing_listens_for_is_no_matter_of_the_login() -> None:
    """The causes count that a library hands over inside its own error."""
    with pytest.raises(TransientError) as raised, reported("open catalog lake"):
        raise OSError(ValueError(), ConnectionRefusedError(111, "Connection refused"))

    assert raised.value.what == "Cannot open catalog lake (the connection is refused)."
    assert "log-in" not in raised.value.hint


def test_tables_on_azure_name_the_package_that_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg misses it at the first file."""
    monkeypatch.setitem(sys.modules, "adlfs", None)
    place = "abfss://c@a.dfs.core.windows.net/t"

    with (
        pytest.raises(ConfigError, match=r"adlfs is not installed\. Run `pip install 'applier\[azure\]'`\."),
        reported("x"),
    ):
        load_file_io({"adls.account-name": "a"}, place).new_input(place).exists()


def test_tables_on_google_cloud_need_a_token_with_its_end_or_none() -> None:
    """Arrow reads them; without either it looks for keys where Google's clients do."""
    token = {"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": "1790000000000"}

    for properties in ({}, token):
        io = load_file_io(properties, "gs://b/t")
        assert isinstance(io, PyArrowFileIO)
        assert io.fs_by_scheme("gs", "b").type_name == "gcs"
    with pytest.raises(TransientError), reported("x"):
        load_file_io({"gcs.oauth2.token": "t"}, "gs://b/t").new_input("gs://b/t").exists()
