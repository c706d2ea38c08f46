"""An export of a real TiDB, or the TiDB itself, loaded into Iceberg, is what SQL shows."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from applier.commands.load.command import load
from applier.config import settings
from applier.decode.dump.export import Export
from tests import expected
from tests.integration.tidb import corpus, ranged
from tests.integration.tidb.feed import now, replay
from tests.recovery.process import Applier, once
from tests.services.tidb import Tidb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE, KEYS = "loaded", "loaded_keys"


@pytest.mark.soak
@pytest.mark.parametrize("options", [("--filetype", "csv"), ("-F", "32KiB", "--compress", "zstd")], ids=str)
def test_a_loaded_export_is_what_sql_shows(
    options: tuple[str, ...], tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """All tables, with the generated column that Dumpling leaves out; the next step changes nothing."""
    if not tidb.rows(f"SHOW DATABASES LIKE '{DATABASE}'"):
        corpus.create(tidb, DATABASE)
    address = tidb.dump(tmp_path / "export", "--filter", f"{DATABASE}.*", *options)
    found = replay(f"tidb{len(options)}", Export.find(address).tso, {"dump": address}, lake, tmp_path)
    done = load(settings.parse(found.raw), None, (), lambda _: None)
    assert done.refused == ()
    with found.running(spark) as pipeline:
        assert pipeline.step().error is None
    wanted = corpus.shown(tidb, DATABASE)
    assert found.tables() == set(wanted)
    for name, table in wanted.items():
        assert expected.bag(found.contents(name) or []) == expected.bag(expected.rows(table)), name


@pytest.mark.soak
def test_a_database_loaded_by_sql_is_what_sql_shows(
    tidb: Tidb, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """All tables with all columns, in ranges of each kind of key; without a right to one of them nothing is begun."""
    corpus.create(tidb, DATABASE)
    ranged.create(tidb, KEYS)
    found = replay("tidbsql", now(tidb) + (1 << 40), {"url": f"mysql://root@127.0.0.1:{tidb.port}"}, lake, tmp_path)
    found.raw["tables"] |= {"include": [f"{DATABASE}.*", f"{KEYS}.*"], "zero_dates_of": {f"{KEYS}.days.d": "string"}}
    done = load(settings.parse(found.raw), None, (), lambda _: None)
    assert done.refused == ()
    with found.running(spark) as pipeline:
        assert pipeline.step().error is None
    wanted = corpus.shown(tidb, DATABASE) | corpus.shown(tidb, KEYS)
    assert found.tables() == set(wanted)
    for name, table in wanted.items():
        here = found.contents(name) or []
        if name.table == "days":
            assert len({(row["d"], row["c"]) for row in here}) == len(here) == ranged.ROWS
        else:
            assert expected.bag(here) == expected.bag(expected.rows(table)), name


@pytest.mark.soak
def test_killed_in_a_load_by_sql(tidb: Tidb, tmp_path: Path) -> None:
    """The same command goes on as of the same TSO and in the same ranges, though rows and regions have changed."""
    ranged.create(tidb, KEYS)
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/tables"}
    url = f"mysql://root@127.0.0.1:{tidb.port}"
    found = replay("tidbkill", now(tidb) + (1 << 40), {"url": url}, lake, tmp_path)
    found.raw["tables"] |= {"include": [f"{KEYS}.*", f"!{KEYS}.days"]}
    wanted = corpus.shown(tidb, KEYS)
    killed = Applier(found.raw, tmp_path, kill_at="load-committed:2", command="load").wait()
    assert killed.code == -signal.SIGKILL, killed.everything
    tidb.run(f"DELETE FROM {KEYS}.split WHERE id < 0", f"UPDATE {KEYS}.keyless SET b = 'later'")
    tidb.run(f"SPLIT TABLE {KEYS}.split BY (-4000)", f"SPLIT TABLE {KEYS}.keyless BY (700)")
    for point in ("load-staged:2", "load-committed:5", "load-begun"):
        killed = Applier(found.raw, tmp_path, kill_at=point, command="load").wait()
        assert killed.code == -signal.SIGKILL, f"never came to {point}: {killed.everything}"

    for ended in (Applier(found.raw, tmp_path, command="load").wait(), once(found.raw, tmp_path)):
        assert ended.code == 0, ended.everything

    for name, table in wanted.items():
        if name.table != "days":
            assert expected.bag(found.contents(name) or []) == expected.bag(expected.rows(table)), name
