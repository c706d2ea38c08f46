"""Orphan removal beside other tables: files of a table that somebody reads are never orphans."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from applier.runtime.jvm.spark_session import _catalog_settings
from applier.sink import upkeep as maintenance
from applier.sink.commit.stamp import Stamp
from applier.sink.control.control import unix_ms
from applier.sink.format.storage import local_path
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.location import OWN_LOCATION
from applier.sink.iceberg.orphans import Neighbours
from applier.sink.upkeep import ORPHANS_REMOVED_AT, Thresholds, Upkeep
from applier.sink.write.table_writer import TableWriter
from tests.few import few
from tests.spark.ddl_applier import Applier, Start
from tests.spark.feeds import Feed, read, sql_name
from tests.spark.writes import apply

pytestmark = pytest.mark.spark

Name = Callable[[], tuple[str, str]]

AT_ONCE = Thresholds(orphan_hours=-1)
"""Every file that a table does not reference is old enough, those of a minute ago included."""


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What maintenance warns of."""
    found: list[dict[str, Any]] = []

    class Logger:
        def warning(self, event: str, **fields: Any) -> None:
            found.append({"event": event, **fields})

    monkeypatch.setattr(maintenance, "logger", Logger)
    return found


def orphans_removed(applier: Applier) -> int:
    """Remove the orphans of all tables of an applier, as often as there are tables."""
    return sum(
        Upkeep(writer, AT_ONCE, Neighbours(applier.lake)).remove_orphans()["orphans"]
        for name in applier.versions
        if (writer := applier.targets.writer(name)) is not None
    )


def old_table(lake: Catalog, name: tuple[str, str], location: str, epoch: int = 1) -> tuple[Feed, TableWriter]:
    """A table with rows at a location of which nothing says that it belongs to this table alone."""
    feed = Feed(("long",))
    writer = TableWriter(feed.create(lake, name, location=location), "shop", epoch)
    apply(writer, feed.batch(), Stamp("shop", epoch, 1), exact=True)
    return feed, writer


def aged(writer: TableWriter, file: str = "data/left.parquet") -> Path:
    """A file that no table references."""
    path = Path(local_path(writer.table.location)) / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"orphan")
    os.utime(path, (1_000_000, 1_000_000))
    return path


@pytest.mark.parametrize(
    "statements",
    few(
        [
            [
                "CREATE TABLE _a_gho (id INT PRIMARY KEY, v VARCHAR(9))",
                "RENAME TABLE a TO _a_del",
                "RENAME TABLE _a_gho TO a",
            ],
            ["RENAME TABLE a TO b", "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9))"],
            ["DROP TABLE a", "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9))"],
        ]
    ),
    ids=["online-schema-change", "rename-create", "drop-create"],
)
def test_a_table_that_takes_a_name_shares_no_folder_with_the_one_that_had_it(
    start: Start, statements: list[str]
) -> None:
    """A table of a name that was in use before lies elsewhere, and removing orphans of either leaves both whole."""
    applier = start(on_drop="keep")
    applier.ddl("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9))")
    applier.insert("a", (1, "old"), (2, "old"))
    for sql in statements:
        applier.ddl(sql)
    applier.insert("a", (3, "new"))

    orphans_removed(applier)

    assert applier.rows("a") == [(3, "new")]
    tables = [applier.lake.load(name) for name in applier.lake.list((applier.database,))]
    found = [table for table in tables if table is not None]
    assert len({table.location for table in found}) == len(found) == 2
    assert all(table.setting(OWN_LOCATION) == table.location for table in found)
    rows = [read(applier.spark, table.identifier).num_rows for table in found]
    assert sorted(rows) == [1, 2]


def test_a_file_io_that_cannot_list_keeps_all_files(
    spark: SparkSession, tmp_path: Path, warnings: list[dict[str, Any]]
) -> None:
    """A search is not tried again before the next day, and one sentence says why nothing goes."""
    properties = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": "memory://lake"}
    properties["io-impl"] = "org.apache.iceberg.inmemory.InMemoryFileIO"
    for key, value in _catalog_settings("unlisted", properties).items():
        spark.conf.set(key, value)
    writer = TableWriter(Feed(("long",)).create(Catalog(spark, "unlisted"), ("test", "a")), "shop", 1)
    writer.stamp(Stamp("shop", 1, 1))

    assert Upkeep(writer, AT_ONCE).remove_orphans(7) == {"orphans": 0}

    assert writer.table.setting(ORPHANS_REMOVED_AT) == "7"
    assert [(each["event"], each["because"]) for each in warnings] == [
        ("orphans left alone", "the FileIO of the catalog cannot list files (it lacks SupportsPrefixOperations)")
    ]


def test_names_that_read_alike_as_folders_lie_apart(lake: Catalog) -> None:
    """A slash in a name and its escaped form are two tables, with a folder each."""
    columns = pa.schema([pa.field("id", pa.int64())])

    slash, escaped = (lake.create(("test", name), columns) for name in ("fold/y", "fold_2Fy"))

    assert slash.location != escaped.location


@pytest.mark.parametrize(
    "name", [("test", "表" * 64), ("😀" * 64, "t"), ("test", "a" * 255)], ids=["table", "database", "ascii"]
)
def test_a_name_longer_than_a_folder_name_may_be_works(
    spark: SparkSession, lake: Catalog, name: tuple[str, str]
) -> None:
    """The folder of a table with a long name is cut, so that storage takes it, and rows can be read."""
    lake.drop(name, purge=True)
    feed = Feed(("long",))
    writer = TableWriter(feed.create(lake, name), "shop", 1)

    apply(writer, feed.batch(), Stamp("shop", 1, 1), exact=True)

    feed.check(read(spark, name))
    assert max(len(part.encode()) for part in writer.table.location.split("/")) <= 255


def test_two_tables_in_one_folder_are_left_alone(
    spark: SparkSession, lake: Catalog, warehouse: Path, fresh_name: Name, warnings: list[dict[str, Any]]
) -> None:
    """Of two tables that an older version put into one folder neither loses a file, and the log says why."""
    location = f"file:{warehouse}/tables/shared-{fresh_name()[1]}"
    names = fresh_name(), fresh_name()
    tables = [old_table(lake, name, location) for name in names]
    left = aged(tables[0][1])

    for _, writer in tables:
        assert Upkeep(writer, AT_ONCE, Neighbours(lake)).remove_orphans() == {"orphans": 0}

    for name, (feed, _) in zip(names, tables, strict=True):
        feed.check(read(spark, name))
    assert left.exists()
    assert {warning["event"] for warning in warnings} == {"orphans left alone"}
    assert all("is the metadata of another table" in warning["because"] for warning in warnings)


def test_a_table_that_left_the_catalog_keeps_its_files(
    lake: Catalog, warehouse: Path, fresh_name: Name, warnings: list[dict[str, Any]]
) -> None:
    """Files of a table that was dropped without them stay: it can be registered again."""
    location = f"file:{warehouse}/tables/left-{fresh_name()[1]}"
    gone, name = fresh_name(), fresh_name()
    _, writer = old_table(lake, gone, location)
    files = {file.path for file in writer.table.scan(writer.head or 0)}
    lake.drop(gone)
    _, other = old_table(lake, name, location)

    assert Upkeep(other, AT_ONCE, Neighbours(lake)).remove_orphans() == {"orphans": 0}

    assert all(Path(local_path(file)).exists() for file in files)
    assert "is the metadata of another table" in " ".join(warning["because"] for warning in warnings)


def test_metadata_that_cannot_be_read_may_be_another_table(
    lake: Catalog, fresh_name: Name, warnings: list[dict[str, Any]]
) -> None:
    """A metadata file that nothing can read keeps the files beside it, as it may list them."""
    feed = Feed(("long",))
    writer = TableWriter(feed.create(lake, fresh_name()), "shop", 1)
    apply(writer, feed.batch(), Stamp("shop", 1, 1), exact=True)
    broken, left = aged(writer, "metadata/00001-x.metadata.json"), aged(writer)

    assert Upkeep(writer, AT_ONCE, Neighbours(lake)).remove_orphans() == {"orphans": 0}

    assert broken.exists()
    assert left.exists()
    assert "cannot be read" in warnings[0]["because"]


@pytest.mark.soak
def test_a_table_with_its_metadata_elsewhere_keeps_its_data(
    spark: SparkSession, lake: Catalog, warehouse: Path, fresh_name: Name, warnings: list[dict[str, Any]]
) -> None:
    """Data files of another table of the catalog stay, although no metadata file beside them names that table."""
    location = f"file:{warehouse}/tables/apart-{fresh_name()[1]}"
    name, beside = fresh_name(), fresh_name()
    feed, writer = old_table(lake, name, location)
    other = Feed(("long",))
    paths = {"write.data.path": f"{location}/data"}
    guest = TableWriter(other.create(lake, beside, properties=paths), "shop", 1)
    apply(guest, other.batch(), Stamp("shop", 1, 1), exact=True)

    assert Upkeep(writer, AT_ONCE, Neighbours(lake, stray_seconds=600)).remove_orphans() == {"orphans": 0}

    other.check(read(spark, beside))
    feed.check(read(spark, name))
    assert f"table {'.'.join(beside)} keeps files there" in warnings[0]["because"]


@pytest.mark.soak
def test_files_that_a_moved_table_left_behind_stay(
    spark: SparkSession, lake: Catalog, warehouse: Path, fresh_name: Name, warnings: list[dict[str, Any]]
) -> None:
    """Data files of a table stay where they are once its location was changed and no metadata is left beside them."""
    location = f"file:{warehouse}/tables/moved-{fresh_name()[1]}"
    name, moved = fresh_name(), fresh_name()
    options = {"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true"}
    other = Feed(("long",))
    guest = TableWriter(other.create(lake, moved, location=location, properties=options), "shop", 1)
    apply(guest, other.batch(), Stamp("shop", 1, 1), exact=True)
    spark.sql(f"ALTER TABLE {sql_name(moved)} SET LOCATION '{location}-elsewhere'")
    for _ in range(2):
        spark.sql(f"ALTER TABLE {sql_name(moved)} SET TBLPROPERTIES ('a' = 'b')")
    assert not list(Path(local_path(location)).glob("metadata/*.metadata.json"))
    feed, writer = old_table(lake, name, location)

    assert Upkeep(writer, AT_ONCE, Neighbours(lake, stray_seconds=0)).remove_orphans() == {"orphans": 0}
    assert Upkeep(writer, AT_ONCE, Neighbours(lake, stray_seconds=600)).remove_orphans() == {"orphans": 0}

    other.check(read(spark, moved))
    feed.check(read(spark, name))
    assert "not all of them have been asked for their files yet" in warnings[0]["because"]
    assert f"table {'.'.join(moved)} keeps files there" in warnings[1]["because"]


@pytest.mark.soak
def test_a_table_registered_under_a_second_name_keeps_its_files(
    spark: SparkSession, lake: Catalog, fresh_name: Name, warnings: list[dict[str, Any]]
) -> None:
    """Rows that a copy of a table has written into the folder of the original are no orphans of the original."""
    name, copy = fresh_name(), fresh_name()
    feed = Feed(("long",))
    writer = TableWriter(feed.create(lake, name), "shop", 1)
    apply(writer, feed.batch(), Stamp("shop", 1, 1), exact=True)
    metadata = writer.table.handle.operations().current().metadataFileLocation()
    spark.sql(f"CALL lake.system.register_table(table => '{'.'.join(copy)}', metadata_file => '{metadata}')")
    spark.table(sql_name(name)).writeTo(sql_name(copy)).append()
    rows = read(spark, copy).num_rows

    assert Upkeep(writer, AT_ONCE, Neighbours(lake, stray_seconds=600)).remove_orphans() == {"orphans": 0}

    assert read(spark, copy).num_rows == rows
    feed.check(read(spark, name))
    assert f"table {'.'.join(copy)} keeps files there" in warnings[0]["because"]


def test_a_table_whose_files_are_shared_keeps_all_of_them(lake: Catalog, fresh_name: Name) -> None:
    """Where `gc.enabled` is false neither expiry nor orphan removal removes a file, and neither of them fails."""
    feed = Feed(("long",))
    table = feed.create(lake, fresh_name(), properties={"gc.enabled": "false"})
    writer = TableWriter(table, "shop", 1)
    for ts in (1, 2):
        apply(writer, feed.batch(), Stamp("shop", 1, ts), exact=True)
    left, upkeep = aged(writer), Upkeep(writer, Thresholds(snapshots=1, orphan_hours=-1), Neighbours(lake))
    before = upkeep.snapshots

    assert upkeep.expire(None) == {}
    assert upkeep.remove_orphans() == {}

    assert left.exists()
    assert upkeep.snapshots == before > 1


@pytest.mark.soak
def test_orphans_of_a_lone_old_table_are_removed(
    spark: SparkSession, lake: Catalog, warehouse: Path, fresh_name: Name, warnings: list[dict[str, Any]]
) -> None:
    """A table whose location an older version took from its name is cleaned while no other table uses its folder."""
    name = fresh_name()
    feed, writer = old_table(lake, name, f"file:{warehouse}/tables/lone-{name[1]}")
    left = aged(writer)

    assert Upkeep(writer, AT_ONCE).remove_orphans() == {"orphans": 0}
    assert left.exists()
    assert "not chosen for this table alone" in warnings[0]["because"]
    assert Upkeep(writer, AT_ONCE, Neighbours(lake, stray_seconds=600)).remove_orphans() == {"orphans": 1}

    assert not left.exists()
    feed.check(read(spark, name))


def test_a_clock_that_runs_ahead_makes_no_file_old(lake: Catalog, fresh_name: Name) -> None:
    """The age of a file is measured by the clock of storage: a new file stays, whatever the time is here."""
    feed = Feed(("long",))
    writer = TableWriter(feed.create(lake, fresh_name()), "shop", 1)
    apply(writer, feed.batch(), Stamp("shop", 1, 1), exact=True)
    old, young = aged(writer), aged(writer, "data/young.parquet")
    os.utime(young)

    in_a_month = unix_ms() + 30 * 86_400_000
    assert Upkeep(writer, Thresholds()).remove_orphans(in_a_month) == {"orphans": 1}

    assert [old.exists(), young.exists()] == [False, True]


@pytest.mark.soak
def test_a_catalog_that_decides_on_locations_gets_its_way(spark: SparkSession, tmp_path: Path) -> None:
    """A catalog that takes no location creates its tables where it wants them, and the rows are there."""
    spark.conf.set("spark.sql.catalog.paths", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set("spark.sql.catalog.paths.type", "hadoop")
    spark.conf.set("spark.sql.catalog.paths.cache-enabled", "false")
    spark.conf.set("spark.sql.catalog.paths.warehouse", f"file:{tmp_path}/paths")
    paths = Catalog(spark, "paths")
    feed = Feed(("long",))

    writer = TableWriter(feed.create(paths, ("shop", "a")), "shop", 1)
    apply(writer, feed.batch(), Stamp("shop", 1, 1), exact=True)

    assert writer.table.location.endswith("/paths/shop/a")
    assert writer.table.setting(OWN_LOCATION) is None
    assert Upkeep(writer, AT_ONCE, Neighbours(paths)).remove_orphans() == {"orphans": 0}
