"""What others do to a table by hand is survived, or refused by name."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from applier.errors import TableMismatch
from applier.runtime import retry
from applier.runtime.retry import with_retry
from applier.sink.commit.foreign_commits import BACKFILL, FOREIGN
from applier.sink.commit.stamp import RESOLVED_TS, Stamp
from applier.sink.iceberg.catalog import Catalog
from applier.sink.upkeep import Thresholds, Upkeep
from applier.sink.write.table_writer import TableWriter
from tests.spark.feeds import read, sql_name
from tests.spark.test_sink_commit import Case
from tests.spark.writes import apply

pytestmark = pytest.mark.spark

Name = Callable[[], tuple[str, str]]


@pytest.fixture
def case(spark: SparkSession, lake: Catalog, fresh_name: Name) -> Case:
    """A table with some rows, whose writer has stopped."""
    return Case(spark, lake, fresh_name())


def insert(case: Case, key: int) -> None:
    """Append a row by hand."""
    case.spark.sql(f"INSERT INTO {sql_name(case.name)} VALUES ({key}, 1, 'foreign', null)")


def restart(case: Case) -> TableWriter:
    """A writer of a later start."""
    case.writer = case.other(epoch=2)
    return case.writer


def add(case: Case, *keys: int) -> None:
    """Apply INSERTs of keys that are new upstream."""
    case.ts += 1
    rows = {(key,): (2, "ours", None) for key in keys}
    apply(case.writer, case.feed.taken(rows, set()), Stamp("shop", 2, case.ts), exact=True)


MANY = range(12345, 14345)
"""So many keys that the few of them that are looked up anyway do not show that the first one is there."""


def expire(case: Case) -> None:
    """Drop all snapshots but the head."""
    case.spark.sql(f"CALL lake.system.expire_snapshots('{'.'.join(case.name)}', TIMESTAMP '2100-01-01 00:00:00', 1)")


def test_rows_appended_while_nothing_ran_are_replaced(case: Case) -> None:
    """A start sees that the head is not its own; so does each later one, as the table says so from then on."""
    insert(case, 12345)
    insert(case, 12346)
    restart(case)

    add(case, 12345)
    assert case.writer.table.setting(FOREIGN) == "true"
    restart(case)
    add(case, 12346)

    case.check()


def test_rows_appended_before_a_compaction_and_an_expiry_are_replaced(case: Case) -> None:
    """Where the history is gone nobody can tell, so every key is looked up."""
    insert(case, 12345)
    case.compact()
    expire(case)

    restart(case)
    add(case, 12345)

    case.check()


@pytest.mark.parametrize("task", ["compact", "by_iceberg", "rewrite_manifests"])
def test_rows_of_others_are_remembered_where_a_run_commits_no_more_than_maintenance(case: Case, task: str) -> None:
    """The head is its own then, so nothing else shows a later run what others did before."""
    insert(case, 12345)
    restart(case)
    assert any(getattr(Upkeep(case.writer, Thresholds(small_files=2, manifests=1)), task)().values())
    restart(case)
    add(case, *MANY)

    case.check()


def test_rows_that_others_may_have_added_before_an_expiry_are_remembered(case: Case) -> None:
    """Nobody can tell whether there are any; the next commit hides that from later runs."""
    insert(case, 12345)
    case.compact()
    expire(case)
    restart(case)
    add(case, 20000)
    restart(case)
    add(case, *MANY)

    case.check()


def test_a_compaction_leaves_new_keys_new(case: Case) -> None:
    """Rows that only moved to other files cost no look-ups, and the table is not marked."""
    case.compact()
    case.compact()

    writer = restart(case)
    add(case, 12345)

    assert writer.table.setting(FOREIGN) is None
    assert writer._committer.trusts_new_keys
    case.check()


@pytest.mark.parametrize("running", [True, False])
def test_a_table_that_was_rolled_back_is_refused(case: Case, *, running: bool) -> None:
    """Its rows are older than its stamp: nothing is applied on top of them, and the ways out are named."""
    older = [snapshot.id for snapshot in case.writer.table.history()][1]
    case.spark.sql(f"CALL lake.system.rollback_to_snapshot('{'.'.join(case.name)}', {older})")
    if not running:
        restart(case)
        assert "resolved ts 2, but shows resolved ts 1" in str(case.writer.rolled_back)
        return

    with pytest.raises(TableMismatch, match="was rolled back by hand: .* resolved ts 2, but shows resolved ts 1"):
        case.apply()


@pytest.mark.parametrize("running", [True, False])
def test_a_table_that_was_rolled_back_within_one_stamp_is_refused(case: Case, *, running: bool) -> None:
    """Two commits may carry the same stamp: the snapshot that the table had shows what it lacks."""
    newest = case.apply()
    apply(case.writer, case.feed.taken({(12345,): (2, "ours", None)}, set()), Stamp("shop", 2, case.ts), exact=True)
    listed = case.writer.head
    case.spark.sql(f"CALL lake.system.rollback_to_snapshot('{'.'.join(case.name)}', {newest})")
    writer = case.writer if running else restart(case)
    assert writer.rolled_back is None

    with pytest.raises(
        TableMismatch, match=f"was rolled back by hand: it was at snapshot {listed}, but shows the older"
    ):
        case.apply() if running else writer.hold_to(listed)


def test_a_table_that_was_rolled_back_to_what_was_loaded_is_refused(case: Case) -> None:
    """No stamp is in its history any more."""
    name = (case.name[0], f"{case.name[1]}_loaded")
    case.spark.sql(f"CREATE TABLE {sql_name(name)} AS SELECT * FROM {sql_name(case.name)}")
    table = case.lake.load(name)
    assert table is not None
    loaded = table.snapshot_id
    TableWriter(table, "shop", 2).stamp(Stamp("shop", 2, 5))
    listed = table.snapshot_id
    case.spark.sql(f"CALL lake.system.set_current_snapshot('{'.'.join(name)}', {loaded})")
    table.refresh()

    with pytest.raises(TableMismatch, match="was rolled back by hand: it was at snapshot"):
        TableWriter(table, "shop", 3).hold_to(listed)


def test_commits_on_top_of_a_listed_snapshot_are_no_rollback(case: Case) -> None:
    """A compaction, rows by hand, and the expiry of the listed snapshot."""
    listed = case.writer.head
    case.compact()
    insert(case, 12345)
    restart(case).hold_to(listed)
    expire(case)

    restart(case).hold_to(listed)


def test_a_table_that_is_set_forward_again_goes_on(case: Case) -> None:
    """The first way out works."""
    newest, older = [snapshot.id for snapshot in case.writer.table.history()][:2]
    name = ".".join(case.name)
    case.spark.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {older})")
    case.spark.sql(f"CALL lake.system.set_current_snapshot('{name}', {newest})")

    assert restart(case).rolled_back is None
    case.apply()
    case.check()


def test_a_branch_that_a_backfill_shows_is_no_rollback(case: Case) -> None:
    """Its snapshots are stamped with where the backfill was when it met the last rows, which may be below the table."""
    case.writer.stamp(Stamp("shop", 2, 1, {BACKFILL: "job"}))
    case.spark.sql(f"ALTER TABLE {sql_name(case.name)} SET TBLPROPERTIES ('{RESOLVED_TS}' = '2')")
    case.spark.sql(f"ALTER TABLE {sql_name(case.name)} UNSET TBLPROPERTIES ('{BACKFILL}')")

    writer = restart(case)

    assert writer.rolled_back is None
    assert writer.known is not None
    assert replace(writer.known, extra={}) == Stamp("shop", 2, 2)
    case.apply()
    case.check()


def test_a_column_added_by_hand_stays_empty(case: Case) -> None:
    """Rows go on as if it were not there."""
    case.spark.sql(f"ALTER TABLE {sql_name(case.name)} ADD COLUMN note string")

    case.apply()

    rows = read(case.spark, case.name)
    assert rows["note"].null_count == rows.num_rows > 0
    case.feed.check(rows.drop_columns(["note"]))


def test_a_column_renamed_by_hand_is_named(case: Case) -> None:
    """Its values have no place any more."""
    case.spark.sql(f"ALTER TABLE {sql_name(case.name)} RENAME COLUMN text TO words")

    with pytest.raises(TableMismatch, match="dropped or renamed column text"):
        case.apply()


def test_a_table_dropped_while_it_is_written_is_named(case: Case) -> None:
    """The next commit finds it gone; it is not made anew."""
    case.lake.drop(case.name)

    with pytest.raises(TableMismatch, match="was dropped or replaced by another one"):
        case.apply()

    assert case.lake.load(case.name) is None


def _lost(lake: Catalog, name: tuple[str, ...]) -> None:
    """Load a new table, the metadata of which is gone."""
    table = lake.create(name, pa.schema([pa.field("id", pa.int64())]))
    for file in Path(table.location.removeprefix("file:"), "metadata").glob("*.metadata.json"):
        file.unlink()
    try:
        lake.load(name)
    finally:
        lake.drop(name)


def test_lost_metadata_is_named(case: Case, lake: Catalog) -> None:
    """The catalog knows the table, but the file that it points to is gone."""
    location = case.writer.table.location.removeprefix("file:")
    for file in Path(location, "metadata").glob("*.metadata.json"):
        file.unlink()

    with pytest.raises(TableMismatch, match=r"The metadata of table test\..* is gone: .*system.register_table"):
        lake.load(case.name)
    with pytest.raises(TableMismatch, match=r"is gone: ") as control:
        _lost(lake, ("applier_lost", "checkpoints"))
    assert not re.search("drop|register", control.value.hint)
    # A table that cannot be read keeps the orphans of the whole catalog.
    lake.drop(case.name)
    assert case.name not in lake.list(case.name[:-1])


@pytest.mark.soak
def test_a_locked_catalog_is_waited_for(case: Case, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody holds the catalog's database: the commit is tried again, and made once the lock is gone."""
    lock = sqlite3.connect(warehouse / "catalog.db", isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    told: list[str] = []

    class Log:
        """Lets go of the lock once the applier says that it waits."""

        def warning(self, event: str, error: str, **_: float) -> None:
            """Take note."""
            told.append(f"{event}: {error}")
            lock.execute("ROLLBACK")

    monkeypatch.setattr(retry, "logger", Log)
    monkeypatch.setattr("applier.sink.commit.committer.ATTEMPTS", 1)
    try:
        batch = case.feed.taken({(12345,): (2, "ours", None)}, set())
        with_retry(lambda: apply(case.writer, batch, Stamp("shop", 2, 3), exact=True))
    finally:
        lock.close()

    assert len(told) == 1
    assert told[0].startswith("waiting for an outside system: ")
    assert "locked" in told[0].lower()
    case.writer.table.refresh()
    assert case.writer.table.setting(RESOLVED_TS) == "3"
    case.check()
