from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from applier.changefeed.change_batch import ChangeBatch
from applier.errors import CheckpointConflict, TableMismatch, TransientError, ValueRefused
from applier.runtime import failpoints
from applier.sink.commit.stamp import EPOCH, RESOLVED_TS, Stamp
from applier.sink.iceberg import commit as iceberg
from applier.sink.iceberg.catalog import Catalog, Table
from applier.sink.iceberg.commit import Change, CommitFailure
from applier.sink.write.table_writer import TableWriter
from tests.spark.feeds import Feed, read, sql_name
from tests.spark.writes import apply

pytestmark = pytest.mark.spark

Name = Callable[[], tuple[str, str]]


class Case:
    """A table with some rows, and its writer."""

    def __init__(self, spark: SparkSession, lake: Catalog, name: tuple[str, str], **options: Any) -> None:
        self.spark, self.lake, self.name = spark, lake, name
        self.feed = Feed(("long",))
        self.writer = TableWriter(self.feed.create(lake, name, **options), "shop", 2)
        self.ts = 0
        self.apply()
        self.apply()

    def apply(self, **options: Any) -> int:
        """Apply one more batch; the table must then equal the model."""
        self.ts += 1
        applied = apply(self.writer, self.feed.batch(), Stamp("shop", 2, self.ts), **{"exact": True, **options})
        return applied.snapshot_id

    def check(self) -> None:
        """Assert that the table equals the model."""
        self.feed.check(read(self.spark, self.name))

    def compact(self) -> None:
        """Rewrite all data files, as maintenance does."""
        call = f"table => '{'.'.join(self.name)}', options => map('rewrite-all', 'true')"
        self.spark.sql(f"CALL lake.system.rewrite_data_files({call})")

    def other(self, epoch: int, changefeed: str = "shop") -> TableWriter:
        """A writer of another applier."""
        table = self.lake.load(self.name)
        assert table is not None
        return TableWriter(table, changefeed, epoch)


@pytest.fixture
def case(spark: SparkSession, lake: Catalog, fresh_name: Name) -> Case:
    """A table with some rows."""
    return Case(spark, lake, fresh_name())


def test_stamp_is_in_summary_and_properties_of_one_metadata_version(case: Case) -> None:
    """Rows and progress become visible by one swap of the catalog's pointer."""
    versions = f"SELECT count(*) FROM {sql_name(case.name)}.metadata_log_entries"
    before = case.spark.sql(versions).first()

    snapshot_id = case.apply()

    after = case.spark.sql(versions).first()
    assert before is not None
    assert after is not None
    assert after[0] - before[0] == 1
    table = case.lake.load(case.name)
    assert table is not None
    newest = next(table.history())
    assert (newest.id, newest.summary[RESOLVED_TS], newest.summary[EPOCH]) == (snapshot_id, "3", "2")
    assert (table.properties[RESOLVED_TS], table.properties[EPOCH]) == ("3", "2")


def test_older_epoch_is_refused_once_a_newer_one_wrote(case: Case) -> None:
    """A zombie that wakes up cannot commit; the refusal names who holds the table."""
    case.other(epoch=5).stamp(Stamp("shop", 5, 9))

    with pytest.raises(CheckpointConflict, match="newer applier of changefeed shop: epoch 5, resolved ts 9"):
        case.apply()

    with pytest.raises(CheckpointConflict, match="epoch 5"):
        case.other(epoch=4)


def test_newer_epoch_notices_that_an_older_one_moved_the_table(case: Case) -> None:
    """A batch counted from an older resolved ts is not applied to a table that has moved on since."""
    newer = case.other(epoch=3)
    case.apply()

    with pytest.raises(CheckpointConflict, match="epoch 2 moved table .* from 2 to 3"):
        apply(newer, case.feed.batch(), Stamp("shop", 3, 4), exact=True)


def test_table_of_another_changefeed_is_refused(case: Case) -> None:
    """Two changefeeds never write one table."""
    with pytest.raises(TableMismatch, match="belongs to changefeed shop, not to other"):
        case.other(epoch=9, changefeed="other")


@pytest.mark.parametrize("version", [2, 3])
def test_compaction_between_batches(spark: SparkSession, lake: Catalog, fresh_name: Name, version: int) -> None:
    """After somebody else's compaction the batch is planned again on the new files."""
    case = Case(spark, lake, fresh_name(), format_version=version)
    case.compact()

    case.apply()

    case.check()


@pytest.mark.parametrize("where", ["data-files-staged", "commit-sent"])
def test_compaction_during_a_commit(case: Case, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A compaction that slips in makes the batch be planned again, up to the moment when the pointer is swapped."""
    waiting = [case.compact]
    monkeypatch.setattr(failpoints, "reach", lambda point: waiting.pop()() if point == where and waiting else None)

    case.apply()

    case.check()
    assert not waiting


def test_files_that_maintenance_removed_are_planned_anew(case: Case) -> None:
    """A cached plan whose data files are compacted away and expired is thrown away, not an error."""
    case.compact()
    old = "TIMESTAMP '2100-01-01 00:00:00'"
    case.spark.sql(f"CALL lake.system.expire_snapshots('{'.'.join(case.name)}', {old}, 1)")

    case.apply(exact=False)

    case.check()


def test_rows_that_somebody_appended_are_replaced(case: Case) -> None:
    """After a foreign append no key counts as new: its row is looked up and replaced."""
    case.spark.sql(f"INSERT INTO {sql_name(case.name)} VALUES (12345, 1, 'foreign', null)")

    apply(case.writer, case.feed.taken({(12345,): (2, "ours", None)}, set()), Stamp("shop", 2, 3), exact=True)

    case.check()


@pytest.mark.parametrize("happened", [True, False])
def test_lost_answer_of_the_catalog(case: Case, monkeypatch: pytest.MonkeyPatch, *, happened: bool) -> None:
    """Whether a commit whose answer was lost was made or not, its rows are there once."""
    real = iceberg.commit
    lost = [True]

    def commit(table: Table, change: Change, expected: int | None, sending: Callable[[], None]) -> int:
        if not lost:
            return real(table, change, expected, sending)
        lost.pop()
        snapshot_id = real(table, change, expected, sending) if happened else 7
        raise CommitFailure("Commit failed", "UncheckedSQLException", "connection lost", snapshot_id)

    monkeypatch.setattr("applier.sink.commit.committer.commit", commit)
    before = len(list(case.writer.table.history()))

    case.apply()
    case.apply()

    assert not lost
    assert len(list(case.writer.table.history())) - before == 2
    case.check()


@pytest.mark.parametrize("version", [2, 3])
def test_a_commit_that_comes_while_the_next_attempt_is_prepared(
    spark: SparkSession, lake: Catalog, fresh_name: Name, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The table has the delete files of the first attempt: with others in mind, a file would get a second vector."""
    case = Case(spark, lake, fresh_name(), format_version=version)
    real = iceberg.commit
    held: list[Any] = []

    def commit(table: Table, change: Change, expected: int | None, sending: Callable[[], None]) -> int:
        if not held and change.deletes:
            described = iceberg._described(change, expected, table.after)
            held.append(table.java.own.PreparedCommit.prepare(table.handle, None, described))
            raise CommitFailure("Commit failed", "UncheckedSQLException", "no answer", int(held[0].snapshotId()))
        if len(held) == 1:  # It is made behind the look that found it was not.
            held.append(None)
            held[0].commit()
        return real(table, change, expected, sending)

    monkeypatch.setattr("applier.sink.commit.committer.commit", commit)
    before = len(list(case.writer.table.history()))

    for _ in range(5):
        case.apply()
        case.check()

    assert len(list(case.writer.table.history())) - before == 5


def test_table_that_keeps_moving_is_given_up(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts are bounded: a table that others commit to all the time ends in an error that may be retried."""
    foreign = f"INSERT INTO {sql_name(case.name)} VALUES (999, 1, 'foreign', null)"
    monkeypatch.setattr(
        failpoints, "reach", lambda point: case.spark.sql(foreign) if point == "data-files-staged" else None
    )
    monkeypatch.setattr("applier.sink.commit.committer.ATTEMPTS", 2)

    with pytest.raises(TransientError, match="head is"):
        case.apply()


def test_equality_deletes_are_refused(case: Case) -> None:
    """A table to which another engine wrote equality deletes is refused, with the way out."""
    table = case.lake.load(case.name)
    assert table is not None
    _add_equality_delete(table)

    with pytest.raises(TableMismatch, match="holds equality deletes.*rewrite_data_files"):
        case.apply()


def test_dropped_column_is_named(case: Case) -> None:
    """Columns that somebody dropped in Iceberg are a mismatch, not lost values."""
    case.spark.sql(f"ALTER TABLE {sql_name(case.name)} DROP COLUMN text")

    with pytest.raises(TableMismatch, match="dropped or renamed column text"):
        case.apply()


def test_column_made_anew_under_its_old_name_is_refused(case: Case) -> None:
    """Files staged with the ids of an old schema are not committed under a new one: older rows lack values."""
    case.spark.sql(f"ALTER TABLE {sql_name(case.name)} DROP COLUMN text")
    case.spark.sql(f"ALTER TABLE {sql_name(case.name)} ADD COLUMN text string AFTER v")

    with pytest.raises(TableMismatch, match="dropped or renamed column text"):
        apply(case.writer, case.feed.taken({(77,): (1, "kept", None)}, set()), Stamp("shop", 2, 3), exact=True)

    assert 77 not in read(case.spark, case.name)["k0"].to_pylist()


def test_key_column_is_found_after_promotion_and_rename(spark: SparkSession, lake: Catalog, fresh_name: Name) -> None:
    """Rows in files from before the key was widened and renamed are still found: columns count by field id."""
    name = fresh_name()
    feed = Feed(("int",))
    writer = TableWriter(feed.create(lake, name), "shop", 1)
    apply(writer, feed.taken({(1,): (1, "old", None), (2,): (2, "old", None)}, set()), Stamp("shop", 1, 1), exact=True)
    spark.sql(f"ALTER TABLE {sql_name(name)} ALTER COLUMN k0 TYPE bigint")
    spark.sql(f"ALTER TABLE {sql_name(name)} RENAME COLUMN k0 TO `new key`")
    writer.reload()

    rows = pa.table({"new key": pa.array([1, 2**40]), "v": pa.array([10, 20], pa.int32()), "text": ["new", "new"]})
    keys = pa.table({"new key": pa.array([2], pa.int64())})
    batch = ChangeBatch(rows.append_column("vec", pa.nulls(2, pa.list_(pa.float32()))), pa.array([False, False]), keys)
    apply(writer, batch, Stamp("shop", 1, 2), exact=False)

    found = {row["new key"]: row["v"] for row in read(spark, name).to_pylist()}
    assert found == {1: 10, 2**40: 20}


def test_value_that_does_not_fit_is_refused_by_name(case: Case) -> None:
    """A value beyond the column's type is refused with table and column, and nothing is committed."""
    wide = pa.table({"k0": pa.array([2**40]), "v": pa.array([2**40])})
    batch = ChangeBatch(wide, pa.array([False]), pa.table({"k0": pa.array([], pa.int64())}))
    head = case.writer.table.snapshot_id

    with pytest.raises(ValueRefused, match=r"column v of table test\..*upstream int64, here int"):
        apply(case.writer, batch, Stamp("shop", 2, 3), exact=False)

    case.writer.table.refresh()
    assert case.writer.table.snapshot_id == head


def test_stamp_alone_moves_progress_only(case: Case) -> None:
    """An idle table follows the resolved ts without a data file, and its plan stays good."""
    case.writer.stamp(Stamp("shop", 2, 3, {"applier.ddl-ts": "17"}))

    case.check()
    assert case.writer.table.setting("applier.ddl-ts") == "17"
    case.apply()
    case.check()


@pytest.mark.parametrize("version", [2])
def test_format_version_may_be_raised(spark: SparkSession, lake: Catalog, fresh_name: Name, version: int) -> None:
    """After an upgrade from 2 to 3 the position deletes of before go into the first deletion vector of each file."""
    case = Case(spark, lake, fresh_name(), format_version=version)
    spark.sql(f"ALTER TABLE {sql_name(case.name)} SET TBLPROPERTIES ('format-version' = '3')")
    case.writer.reload()

    case.apply(exact=False)
    case.apply()

    case.check()


@pytest.mark.parametrize("version", [2, 3])
def test_truncate_removes_all_rows_with_its_stamp(
    spark: SparkSession, lake: Catalog, fresh_name: Name, version: int
) -> None:
    """TRUNCATE is one stamped commit, and the table goes on from there."""
    case = Case(spark, lake, fresh_name(), format_version=version)

    case.writer.truncate(Stamp("shop", 2, 3))

    assert read(spark, case.name).num_rows == 0
    assert case.writer.known == Stamp("shop", 2, 3)
    case.feed.rows.clear()
    case.apply()
    case.check()


def test_replace_where_removes_the_named_rows(case: Case) -> None:
    """Rows that a predicate over some columns names are removed in one stamped commit."""
    case.writer.replace_where(
        ["v"], lambda rows: pa.array([value == 2 for value in rows["v"].to_pylist()]), Stamp("shop", 2, 3)
    )

    gone = {key for key, row in case.feed.rows.items() if row[0] == 2}
    assert gone
    for key in gone:
        del case.feed.rows[key]
    case.check()


def _add_equality_delete(table: Table) -> None:
    """Delete key 1 by value, as Flink does."""
    path = table.file_layout.place(f"{uuid.uuid4()}.parquet")
    key = pa.schema([pa.field("k0", pa.int64(), False, {b"PARQUET:field_id": b"1"})])
    pq.write_table(pa.table([[1]], schema=key), path.removeprefix("file:"))
    iceberg = table.java.iceberg
    value = {
        "spec-id": 0,
        "content": "equality-deletes",
        "file-path": path,
        "file-format": "parquet",
        "partition": [],
        "file-size-in-bytes": 500,
        "record-count": 1,
        "equality-ids": [1],
    }
    delete = iceberg.ContentFileParser.fromJson(table.java.node(json.dumps(value)), table.handle.specs())
    table.handle.newRowDelta().addDeletes(delete).commit()
