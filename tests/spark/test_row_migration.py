"""DDL that change rows without row events, against tables in a catalog, with crashes at every point between commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from applier import faults, row_migration
from applier.changefeed.batch import BagBatch, ChangeBatch
from applier.changefeed.event import SchemaChange
from applier.changefeed.message import Position
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules, column_arrow_type
from applier.config import SinkSection, TablesSection
from applier.ddl_stamp import DROPPED_AT
from applier.decode.ddl import parse
from applier.errors import SchemaChangeRefused
from applier.migration import Migration
from applier.order.barrier import Barrier
from applier.replica import Replica
from applier.sink.control import Control, unix_ms
from applier.sink.iceberg import Catalog
from applier.sink.lease import this_process
from applier.state import State
from applier.survey import Ddl
from tests.spark.feeds import read

pytestmark = pytest.mark.spark

Row = tuple[Any, ...]


class Crash(Exception):
    """Stands for a process that is gone."""


class Applier:
    """The part of an applier that applies DDL; `restart` makes a new one from what is durable.

    Attributes:
        database: Name of the upstream database, and of the Iceberg namespace.
        clock: Commit ts of the newest change.
    """

    def __init__(self, spark: SparkSession, lake: Catalog, database: str, **settings: Any) -> None:
        self.spark, self.lake, self.database = spark, lake, database
        self.settings = TablesSection(**settings)
        self.clock = 100
        self.restart()

    def restart(self) -> None:
        """Forget everything that is not durable, and take the changefeed again."""
        control = Control.open(self.lake, self.database)
        checkpoint, _ = control.take(this_process(unix_ms()), take_over=True)
        self.state = State.load(control, checkpoint)
        rules = TypeRules()
        self.replica = Replica(
            self.lake, self.database, checkpoint.epoch, self.settings, SinkSection(), rules, ordered=True
        )
        self.migration = Migration(self.replica, self.state, {}, self.settings, rules)

    def ddl(self, sql: str, *, again: bool = False, after: TableVersion | None = None) -> None:
        """Apply a DDL, which may tell of the table after it; `again` at the same commit ts, as a restart does."""
        self.clock += 0 if again else 1
        change = SchemaChange(self.clock, sql, self.database, after=after)
        barrier = Barrier(change, "topic", Position(0, self.clock, 0))
        self.migration.apply(Ddl(barrier, parse(sql, self.database)))

    @property
    def versions(self) -> dict[TableName, TableVersion]:
        """Each table as it is now."""
        return dict(self.state.tables.items())

    def insert(self, table: str, *rows: Row) -> None:
        """Add rows."""
        self.clock += 1
        version = self.versions[TableName(self.database, table)]
        kinds = [column_arrow_type(*version.name, column, TypeRules()) for column in version.columns]
        columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
        upserts = pa.table(dict(zip([column.name for column in version.columns], columns, strict=True)))
        fresh = pa.array([False] * len(rows), pa.bool_())
        batch = ChangeBatch(upserts, fresh, upserts.slice(0, 0).select(list(version.key)))
        bag = BagBatch(upserts, upserts.slice(0, 0))
        writer = self.replica.writer(version.name)
        assert writer is not None
        writer.apply(batch if version.key else bag, self.replica.stamp(self.clock), exact=False)

    def checkpoint(self) -> None:
        """End a step."""
        self.state.advance(self.clock, {}, self.replica.snapshots, {}, [])

    def rows(self, table: str) -> list[Row]:
        """Rows of a table, as Spark reads them."""
        found = read(self.spark, (self.database, table)).to_pylist()
        return sorted((tuple(row.values()) for row in found), key=str)

    def decisions(self) -> list[tuple[str, str]]:
        """What the audit says: kind and decision."""
        return [(item.kind, item.decision) for item in self.state.control.decisions()]


Start = Callable[..., Applier]


@pytest.fixture
def start(spark: SparkSession, lake: Catalog, fresh_name: Callable[[], tuple[str, str]]) -> Start:
    """Starts an applier with a database of its own."""
    return lambda **settings: Applier(spark, lake, fresh_name()[1][-40:].strip("_"), **settings)


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Lets the process die at a point, once."""
    at: list[str] = []

    def reach(point: str) -> None:
        if point in at:
            at.remove(point)
            raise Crash(point)

    monkeypatch.setattr(row_migration, "faults", type("Faults", (), {"reach": staticmethod(reach)}))
    monkeypatch.setattr(faults, "reach", reach)
    yield at.append
    assert at == [], "the point was never reached"


RANGE = "PARTITION BY RANGE (`id`) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200))"


def partitioned(applier: Applier, clause: str = RANGE) -> None:
    """A table of two partitions with two rows each, and another table of its columns."""
    applier.ddl(f"CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(9)) {clause}")
    applier.ddl("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))")
    applier.insert("p", (1, "a"), (99, "b"))
    applier.insert("p", (100, "c"), (199, "d"))


@pytest.mark.parametrize("format_version", [2, 3])
def test_rows_of_a_partition_go_with_it(start: Start, format_version: int) -> None:
    """TRUNCATE and DROP PARTITION remove the rows of that partition, and the audit says so."""
    applier = start(format_version=format_version)
    partitioned(applier)

    applier.ddl("ALTER TABLE p TRUNCATE PARTITION p1")
    assert applier.rows("p") == [(1, "a"), (99, "b")]
    applier.insert("p", (150, "e"))
    applier.ddl("ALTER TABLE p DROP PARTITION p0")
    assert applier.rows("p") == [(150, "e")]
    applier.ddl("ALTER TABLE p TRUNCATE PARTITION ALL")
    assert applier.rows("p") == []

    assert applier.decisions()[2:] == [
        ("truncate-partitions", "applied"),
        ("drop-partitions", "applied"),
        ("truncate-partitions", "applied"),
    ]


def test_rows_that_are_gone_are_not_asked_where_they_belong(start: Start) -> None:
    """Rows of a dropped partition still lie in the data files, and belong to no partition any more."""
    applier = start()
    lists = "PARTITION a VALUES IN (1, 2), PARTITION b VALUES IN (3), PARTITION c VALUES IN (4)"
    applier.ddl(f"CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY LIST (id) ({lists})")
    applier.insert("p", (1,), (2,), (3,), (4,))

    applier.ddl("ALTER TABLE p DROP PARTITION a")
    applier.ddl("ALTER TABLE p TRUNCATE PARTITION b")

    assert applier.rows("p") == [(4,)]


def test_a_partition_is_not_emptied_again_after_a_crash(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is stamped with the DDL, so a crash before the audit row does not lose later rows."""
    applier = start()
    partitioned(applier)
    applier.checkpoint()
    with monkeypatch.context() as patch:
        patch.setattr(State, "record", lambda *_: (_ for _ in ()).throw(Crash()))
        with pytest.raises(Crash):
            applier.ddl("ALTER TABLE p TRUNCATE PARTITION p1")
    snapshots = applier.replica.snapshots

    applier.restart()
    applier.ddl("ALTER TABLE p TRUNCATE PARTITION p1", again=True)

    assert applier.rows("p") == [(1, "a"), (99, "b")]
    table = applier.lake.load((applier.database, "p"))
    assert table is not None
    assert table.snapshot_id == snapshots[applier.database, "p"]
    applier.insert("p", (150, "e"))
    applier.restart()
    applier.ddl("ALTER TABLE p TRUNCATE PARTITION p1", again=False)
    assert applier.rows("p") == [(1, "a"), (99, "b")]


def test_a_restart_knows_the_partitions(start: Start) -> None:
    """The statements that gave the bounds are not read again: the checkpoint holds what they said."""
    applier = start()
    partitioned(applier)
    applier.ddl("ALTER TABLE p ADD PARTITION (PARTITION p2 VALUES LESS THAN (300))")
    halves = "PARTITION a VALUES LESS THAN (50), PARTITION b VALUES LESS THAN (100)"
    applier.ddl(f"ALTER TABLE p REORGANIZE PARTITION p0 INTO ({halves})")
    applier.insert("p", (250, "z"))
    applier.checkpoint()

    applier.restart()
    applier.ddl("ALTER TABLE p TRUNCATE PARTITION p2, a")

    assert applier.rows("p") == [(100, "c"), (199, "d"), (99, "b")]


@pytest.mark.parametrize("point", ["", "data-files-staged", "commit-sent", "commit-done", "half-exchanged"])
@pytest.mark.parametrize("waiting", [((110, "x"), (120, "y")), ()], ids=["filled", "empty"])
def test_a_partition_and_a_table_change_places(
    start: Start, crash: Callable[[str], None], point: str, waiting: Sequence[Row]
) -> None:
    """Whatever point the process dies at, both tables have each other's rows after a restart."""
    applier = start()
    partitioned(applier)
    if waiting:
        applier.insert("t", *waiting)
    applier.checkpoint()
    sql = "ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE t"
    if point:
        crash(point)
        with pytest.raises(Crash):
            applier.ddl(sql)
        applier.restart()

    applier.ddl(sql, again=bool(point))

    assert applier.rows("p") == sorted([(1, "a"), (99, "b"), *waiting], key=str)
    assert applier.rows("t") == [(100, "c"), (199, "d")]
    assert applier.decisions()[-1] == ("exchange-partition", "rewritten")
    applier.insert("p", (110, "later"))
    applier.insert("t", (100, "later"))
    assert (110, "later") in applier.rows("p")
    assert applier.rows("t") == [(100, "later"), (199, "d")]


def test_a_table_that_was_compacted_in_between_still_changes_places(
    start: Start, crash: Callable[[str], None], spark: SparkSession
) -> None:
    """The rows of before are found behind the snapshots of maintenance."""
    applier = start()
    partitioned(applier)
    applier.insert("t", (110, "x"))
    applier.checkpoint()
    crash("half-exchanged")
    with pytest.raises(Crash):
        applier.ddl("ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE t")
    name = f"{applier.database}.p"
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")

    applier.restart()
    applier.ddl("ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE t", again=True)

    assert applier.rows("p") == [(1, "a"), (110, "x"), (99, "b")]
    assert applier.rows("t") == [(100, "c"), (199, "d")]


def test_rows_of_before_that_have_expired_are_missed(
    start: Start, crash: Callable[[str], None], spark: SparkSession
) -> None:
    """Nothing is made up: the refusal says what is gone."""
    applier = start()
    partitioned(applier)
    applier.insert("t", (110, "x"))
    applier.checkpoint()
    crash("half-exchanged")
    with pytest.raises(Crash):
        applier.ddl("ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE t")
    name = f"{applier.database}.p"
    spark.sql(f"CALL lake.system.expire_snapshots(table => '{name}', older_than => now(), retain_last => 1)")

    applier.restart()
    with pytest.raises(SchemaChangeRefused, match="had before snapshot .* are needed, and have expired"):
        applier.ddl("ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE t", again=True)


def test_rows_that_do_not_belong_are_refused(start: Start) -> None:
    """EXCHANGE … WITHOUT VALIDATION can put rows where no later DDL on the partition would find them."""
    applier = start()
    partitioned(applier)
    applier.insert("t", (5, "x"))

    with pytest.raises(SchemaChangeRefused, match=r"Rows of table .*\.t do not belong in partition p1 of table .*\.p"):
        applier.ddl("ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE t WITHOUT VALIDATION")

    assert len(applier.rows("p")) == 4
    assert applier.rows("t") == [(5, "x")]
    assert applier.decisions()[-1] == ("exchange-partition", "refused")


def test_tables_without_a_key_change_places(start: Start) -> None:
    """Equal rows stay as many as they were."""
    applier = start()
    clause = "PARTITION BY LIST (v) (PARTITION a VALUES IN (1, NULL), PARTITION b VALUES IN (2))"
    applier.ddl(f"CREATE TABLE p (id INT, v INT) {clause}")
    applier.ddl("CREATE TABLE t (ID INT, V INT)")
    applier.insert("p", (1, 1), (1, 1), (3, None), (4, 2))
    applier.insert("t", (7, 1), (7, 1))

    applier.ddl("ALTER TABLE p EXCHANGE PARTITION A WITH TABLE t")

    assert applier.rows("p") == [(4, 2), (7, 1), (7, 1)]
    assert applier.rows("t") == [(1, 1), (1, 1), (3, None)]


def test_a_column_that_the_feed_leaves_out_does_not_decide(start: Start) -> None:
    """A column that is NULL in all rows may be a generated one or left out by a selector."""
    applier = start()
    applier.ddl(f"CREATE TABLE p (k INT PRIMARY KEY, id INT) {RANGE}")
    applier.insert("p", (1, None), (2, None))

    with pytest.raises(SchemaChangeRefused, match="No row of table .* has a value of column id"):
        applier.ddl("ALTER TABLE p TRUNCATE PARTITION p0")


def test_a_table_that_is_not_replicated_cannot_change_places(start: Start) -> None:
    """Its rows are not here."""
    applier = start(include=("*.p",))
    applier.ddl(f"CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(9)) {RANGE}")

    with pytest.raises(SchemaChangeRefused, match=r"The rows of table .*\.t, which are exchanged, are not here"):
        applier.ddl("ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE t")


@pytest.mark.parametrize("statement", ["FLASHBACK TABLE p", "RECOVER TABLE p", "FLASHBACK TABLE p TO q"])
@pytest.mark.parametrize("restart", [False, True])
def test_a_dropped_table_comes_back(start: Start, statement: str, restart: bool) -> None:
    """With the rows that it had, under its name or another, and goes on from there."""
    applier = start()
    partitioned(applier)
    applier.ddl("DROP TABLE p")
    applier.checkpoint()
    if restart:
        applier.restart()

    applier.ddl(statement)

    name = statement.rsplit(maxsplit=1)[-1]
    table = applier.lake.load((applier.database, name))
    assert table is not None
    assert table.setting(DROPPED_AT) is None
    applier.insert(name, (1, "new"))
    assert applier.rows(name) == [(1, "new"), (100, "c"), (199, "d"), (99, "b")]
    applier.checkpoint()
    applier.restart()
    assert TableName(applier.database, name) in applier.state.tables


def test_the_newest_dropped_table_of_a_name_comes_back(start: Start) -> None:
    """A table that took the name meanwhile stays what it is."""
    applier = start()
    for number in (1, 2, 3):
        applier.ddl("CREATE TABLE d (id INT PRIMARY KEY)")
        applier.insert("d", (number,))
        if number < 3:
            applier.ddl("DROP TABLE d")

    applier.ddl("FLASHBACK TABLE d TO back")

    assert applier.rows("back") == [(2,)]
    assert applier.rows("d") == [(3,)]


def test_a_table_comes_back_after_a_crash_before_its_new_name(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark of the drop is off, but the name is still the old one: the restart finds it all the same."""
    applier = start()
    partitioned(applier)
    applier.ddl("DROP TABLE p")
    applier.checkpoint()
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "rename", lambda *_: (_ for _ in ()).throw(Crash()))
        with pytest.raises(Crash):
            applier.ddl("FLASHBACK TABLE p TO q")

    applier.restart()
    applier.ddl("FLASHBACK TABLE p TO q", again=True)

    assert applier.rows("q") == [(1, "a"), (100, "c"), (199, "d"), (99, "b")]
    assert applier.lake.load((applier.database, "p")) is None


@pytest.mark.parametrize("crashes", [False, True])
def test_truncated_rows_come_back_under_another_name(
    start: Start, monkeypatch: pytest.MonkeyPatch, crashes: bool
) -> None:
    """FLASHBACK after TRUNCATE makes a second table; the first keeps its new rows."""
    applier = start()
    partitioned(applier)
    applier.ddl("TRUNCATE TABLE p")
    applier.insert("p", (5, "new"))
    told = applier.versions[TableName(applier.database, "p")].renamed(TableName(applier.database, "q"))
    applier.checkpoint()
    if crashes:
        with monkeypatch.context() as patch:
            patch.setattr(row_migration, "replace_rows", lambda *_: (_ for _ in ()).throw(Crash()))
            with pytest.raises(Crash):
                applier.ddl("FLASHBACK TABLE p TO q", after=told)
        applier.restart()

    applier.ddl("FLASHBACK TABLE p TO q", again=crashes, after=told)

    assert applier.rows("q") == [(1, "a"), (100, "c"), (199, "d"), (99, "b")]
    assert applier.rows("p") == [(5, "new")]


def test_a_table_that_was_not_kept_cannot_come_back(start: Start) -> None:
    """The refusal names the setting that keeps dropped tables."""
    applier = start(on_drop="drop")
    partitioned(applier)
    applier.ddl("DROP TABLE p")

    with pytest.raises(SchemaChangeRefused, match="brings back rows of table .* that are not here") as refusal:
        applier.ddl("FLASHBACK TABLE p")

    assert 'tables.on_drop to "keep"' in refusal.value.hint
