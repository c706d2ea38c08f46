"""DDL that change rows without row events, against tables in a catalog, with crashes at every point between commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from pyspark.sql import SparkSession

from applier.errors import SchemaChangeRefused
from applier.pipeline.state import State
from tests.few import few
from tests.spark.ddl_applier import RANGE, Applier, Crash, Row, Start, partitioned

EXCHANGE = "ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE t"

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("format_version", few([3, 2]))
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
    snapshots = applier.targets.snapshots

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


@pytest.mark.parametrize("point", few(["half-exchanged", "commit-sent", "", "data-files-staged", "commit-done"], 2))
@pytest.mark.parametrize(
    "waiting", [((110, "x"), (120, "y")), pytest.param((), marks=pytest.mark.soak)], ids=["filled", "empty"]
)
def test_a_partition_and_a_table_change_places(
    start: Start, crash: Callable[[str], None], point: str, waiting: Sequence[Row]
) -> None:
    """Whatever point the process dies at, both tables have each other's rows after a restart."""
    applier = start()
    partitioned(applier)
    if waiting:
        applier.insert("t", *waiting)
    applier.checkpoint()
    if point:
        crash(point)
        with pytest.raises(Crash):
            applier.ddl(EXCHANGE)
        applier.restart()

    applier.ddl(EXCHANGE, again=bool(point))

    assert applier.rows("p") == sorted([(1, "a"), (99, "b"), *waiting], key=str)
    assert applier.rows("t") == [(100, "c"), (199, "d")]
    assert applier.decisions()[-1] == ("exchange-partition", "rewritten")
    applier.insert("p", (110, "later"))
    applier.insert("t", (100, "later"))
    assert (110, "later") in applier.rows("p")
    assert applier.rows("t") == [(100, "later"), (199, "d")]


def half_exchanged(start: Start, crash: Callable[[str], None]) -> Applier:
    """A process that died between the two tables of an exchange."""
    applier = start()
    partitioned(applier)
    applier.insert("t", (110, "x"))
    applier.checkpoint()
    crash("half-exchanged")
    with pytest.raises(Crash):
        applier.ddl(EXCHANGE)
    return applier


def test_a_table_that_was_compacted_in_between_still_changes_places(
    start: Start, crash: Callable[[str], None], spark: SparkSession
) -> None:
    """The rows of before are found behind the snapshots of maintenance."""
    applier = half_exchanged(start, crash)
    name = f"{applier.database}.p"
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")

    applier.restart()
    applier.ddl(EXCHANGE, again=True)

    assert applier.rows("p") == [(1, "a"), (110, "x"), (99, "b")]
    assert applier.rows("t") == [(100, "c"), (199, "d")]


@pytest.mark.soak
def test_rows_of_before_that_have_expired_are_missed(
    start: Start, crash: Callable[[str], None], spark: SparkSession
) -> None:
    """Nothing is made up: the refusal says what is gone."""
    applier = half_exchanged(start, crash)
    name = f"{applier.database}.p"
    spark.sql(f"CALL lake.system.expire_snapshots(table => '{name}', older_than => now(), retain_last => 1)")

    applier.restart()
    with pytest.raises(SchemaChangeRefused, match="had before snapshot .* are needed, and have expired"):
        applier.ddl(EXCHANGE, again=True)


def test_rows_that_do_not_belong_are_refused(start: Start) -> None:
    """EXCHANGE … WITHOUT VALIDATION can put rows where no later DDL on the partition would find them."""
    applier = start()
    partitioned(applier)
    applier.insert("t", (5, "x"))

    with pytest.raises(SchemaChangeRefused, match=r"Rows of table .*\.t do not belong in partition p1 of table .*\.p"):
        applier.ddl(f"{EXCHANGE} WITHOUT VALIDATION")

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
        applier.ddl(EXCHANGE)


@pytest.mark.parametrize("tables", [("p", "t"), ("t",)])
def test_a_column_of_another_writer_goes_along_where_both_tables_have_it(start: Start, tables: tuple[str, ...]) -> None:
    """Its values move with their rows; where one table lacks it, the refusal names it."""
    applier = start()
    partitioned(applier)
    applier.insert("t", (7, "x"))
    for table in tables:
        applier.spark.sql(f"ALTER TABLE lake.{applier.database}.{table} ADD COLUMN note string")
        applier.spark.sql(f"UPDATE lake.{applier.database}.{table} SET note = '{table}'")
    for name in list(applier.state.tables):
        applier.targets.forget(name)
    exchange = "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t"
    if len(tables) == 1:
        with pytest.raises(SchemaChangeRefused, match=r"do not have the same columns \(note\)"):
            applier.ddl(exchange)
        return

    applier.ddl(exchange)

    assert applier.rows("p") == [(100, "c", "p"), (199, "d", "p"), (7, "x", "t")]
    assert applier.rows("t") == [(1, "a", "p"), (99, "b", "p")]
