"""Statements of TiDB, one by one: what each says, whatever its spelling."""

from __future__ import annotations

import pytest

from applier.changefeed.table import Column, ColumnType, Index, Partition, Partitioning, TableName
from applier.ddl.actions import (
    Action,
    AddColumn,
    AddIndex,
    AddPartitions,
    AlterDatabase,
    CreateDatabase,
    CreateTable,
    CreateView,
    DropColumn,
    DropDatabase,
    DropIndex,
    DropPartitions,
    DropTable,
    DropView,
    ExchangePartition,
    ModifyColumn,
    NoRows,
    RecoverTable,
    RenameColumn,
    RenameIndex,
    RenameTable,
    ReorganizePartitions,
    SetComment,
    SetDefault,
    SetPartitioning,
    TruncatePartitions,
    TruncateTable,
    kind,
    named,
    touches,
)
from applier.ddl.parser import parse

T, U = TableName("shop", "t"), TableName("shop", "u")
INT = ColumnType("int", length=11)
A, B = Column("a", INT), Column("b", INT)
NAMED = Partition("p0", ("10",))

STATEMENTS: list[tuple[str, list[Action]]] = [
    ("CREATE DATABASE `d`", [CreateDatabase("d")]),
    ("create schema if not exists d default character set utf8mb4 collate utf8mb4_bin", [CreateDatabase("d")]),
    ("ALTER DATABASE `d` CHARACTER SET = utf8mb4 COLLATE = utf8mb4_general_ci", [AlterDatabase("d")]),
    ("ALTER DATABASE CHARACTER SET = utf8mb4", [AlterDatabase("shop")]),
    ("ALTER DATABASE `d` /*T![placement] PLACEMENT POLICY = `p` */", [AlterDatabase("d")]),
    ("DROP DATABASE IF EXISTS `d`", [DropDatabase("d")]),
    ("CREATE TABLE `u` LIKE `t`", [CreateTable(U, like=T)]),
    ("create table if not exists shop.u (like x.y)", [CreateTable(U, like=TableName("x", "y"))]),
    ("DROP TABLE IF EXISTS t, `shop`.`u` CASCADE", [DropTable(T), DropTable(U)]),
    ("TRUNCATE TABLE `shop`.`t`", [TruncateTable(T)]),
    ("truncate t", [TruncateTable(T)]),
    ("RENAME TABLE `shop`.`t` TO `shop`.`u`;", [RenameTable(T, U)]),
    (
        "RENAME TABLE shop.t TO x.t, u TO t",
        [RenameTable(T, TableName("x", "t")), RenameTable(U, T)],
    ),
    ("RECOVER TABLE `t`", [RecoverTable(T)]),
    ("RECOVER TABLE t 3", [RecoverTable(T)]),
    ("FLASHBACK TABLE `t` TO `u`", [RecoverTable(T, U)]),
    ("CREATE VIEW `t` AS SELECT `a` FROM `u` WHERE `a` IN (1, 2)", [CreateView(T)]),
    (
        "CREATE OR REPLACE ALGORITHM = MERGE DEFINER = `root`@`%` SQL SECURITY INVOKER VIEW t (x) AS SELECT ';'",
        [CreateView(T)],
    ),
    ("DROP VIEW IF EXISTS t, u RESTRICT", [DropView(T), DropView(U)]),
    ("CREATE SEQUENCE `t` START WITH 1 CACHE 10", [NoRows(T)]),
    ("ALTER SEQUENCE t RESTART WITH 5", [NoRows(T)]),
    ("DROP SEQUENCE t", [NoRows(T)]),
    ("CREATE INDEX `i` ON `shop`.`t` (`a`, `b`)", [AddIndex(T, Index("i", ("a", "b")))]),
    (
        "CREATE UNIQUE INDEX IF NOT EXISTS i USING BTREE ON t (a(3) DESC) COMMENT 'c' INVISIBLE LOCK = NONE",
        [AddIndex(T, Index("i", ("a",), unique=True))],
    ),
    ("CREATE UNIQUE INDEX `i` ON `t` ((LOWER(`a`)))", [NoRows(T)]),
    ("DROP INDEX IF EXISTS `i` ON `t`", [DropIndex(T, "i")]),
    ("CREATE DATABASE d;CREATE VIEW t AS SELECT 1;", [CreateDatabase("d"), CreateView(T)]),
    ("-- one\n# two\n/* three; */ TRUNCATE /*+ four */ t -- five", [TruncateTable(T)]),
]

SPECIFICATIONS: list[tuple[str, list[Action]]] = [
    ("ADD COLUMN `a` INT", [AddColumn(T, A)]),
    ("ADD a INT FIRST", [AddColumn(T, A, first=True)]),
    ("ADD COLUMN IF NOT EXISTS a INT AFTER `t`.`b`", [AddColumn(T, A, after="b", if_not_exists=True)]),
    ("ADD COLUMN (`a` INT, `b` INT)", [AddColumn(T, A), AddColumn(T, B)]),
    (
        "ADD (a INT UNIQUE, INDEX i (a))",
        [AddColumn(T, A), AddIndex(T, Index("i", ("a",))), AddIndex(T, Index("", ("a",), unique=True))],
    ),
    ("ADD COLUMN a INT UNIQUE KEY", [AddColumn(T, A), AddIndex(T, Index("", ("a",), unique=True))]),
    ("DROP COLUMN `a`", [DropColumn(T, "a")]),
    ("DROP a RESTRICT", [DropColumn(T, "a")]),
    ("DROP COLUMN IF EXISTS a", [DropColumn(T, "a", if_exists=True)]),
    ("MODIFY COLUMN `a` INT FIRST", [ModifyColumn(T, "a", A, first=True)]),
    ("MODIFY IF EXISTS a INT NULL AFTER b", [ModifyColumn(T, "a", A, after="b")]),
    ("CHANGE COLUMN `b` `a` INT", [ModifyColumn(T, "b", A)]),
    ("CHANGE b a INT AFTER c", [ModifyColumn(T, "b", A, after="c")]),
    ("RENAME COLUMN `a` TO `b`", [RenameColumn(T, "a", "b")]),
    ("ALTER COLUMN `a` SET DEFAULT 99", [SetDefault(T, "a", "99")]),
    ("ALTER a SET DEFAULT (b'101')", [SetDefault(T, "a", "5")]),
    ("ALTER COLUMN `a` SET DEFAULT x'6162'", [SetDefault(T, "a", "ab")]),
    ("ALTER COLUMN `a`  DROP DEFAULT", [SetDefault(T, "a", None)]),
    ("ADD INDEX `i`(`a`)", [AddIndex(T, Index("i", ("a",)))]),
    ("ADD KEY USING BTREE (a)", [AddIndex(T, Index("", ("a",)))]),
    ("ADD INDEX IF NOT EXISTS `i`(`a`) KEY_BLOCK_SIZE=8 VISIBLE", [AddIndex(T, Index("i", ("a",)))]),
    ("ADD UNIQUE `i`(`a`)", [AddIndex(T, Index("i", ("a",), unique=True))]),
    ("ADD CONSTRAINT `c` UNIQUE KEY (a)", [AddIndex(T, Index("c", ("a",), unique=True))]),
    ("ADD CONSTRAINT c UNIQUE INDEX i (a)", [AddIndex(T, Index("i", ("a",), unique=True))]),
    ("ADD UNIQUE `i`(`a`) /*T![global_index] GLOBAL */", [AddIndex(T, Index("i", ("a",), unique=True))]),
    ("ADD UNIQUE i (a) WHERE `b` > (1)", [AddIndex(T, Index("i", ("a",), unique=False))]),
    ("ADD PRIMARY KEY(`a`, `b`)", [AddIndex(T, Index("PRIMARY", ("a", "b"), unique=True, primary=True))]),
    (
        "ADD CONSTRAINT PRIMARY KEY USING BTREE (a) /*T![clustered_index] NONCLUSTERED */",
        [AddIndex(T, Index("PRIMARY", ("a",), unique=True, primary=True))],
    ),
    ("ADD FULLTEXT INDEX `i`(`a`) WITH PARSER ngram", [AddIndex(T, Index("i", ("a",)))]),
    ("ADD COLUMNAR INDEX i (a) USING INVERTED", [AddIndex(T, Index("i", ("a",)))]),
    ("ADD INDEX i ((`a` + 1), b)", [NoRows(T)]),
    ("DROP INDEX IF EXISTS `i`", [DropIndex(T, "i")]),
    ("DROP KEY i", [DropIndex(T, "i")]),
    ("DROP PRIMARY KEY", [DropIndex(T, "primary")]),
    ("RENAME INDEX `i` TO `j`", [RenameIndex(T, "i", "j")]),
    ("RENAME KEY i TO j", [RenameIndex(T, "i", "j")]),
    ("COMMENT = 'it''s'", [SetComment(T, "it's")]),
    ("EXCHANGE PARTITION `p0` WITH TABLE `u` WITHOUT VALIDATION", [ExchangePartition(T, "p0", U)]),
    ("ADD PARTITION (PARTITION `p0` VALUES LESS THAN (10))", [AddPartitions(T, (NAMED,))]),
    ("ADD PARTITION IF NOT EXISTS PARTITIONS 2", [AddPartitions(T, (Partition(""), Partition("")))]),
    ("DROP PARTITION IF EXISTS `p0`,`p1`", [DropPartitions(T, ("p0", "p1"))]),
    ("TRUNCATE PARTITION `p0`,`p1`", [TruncatePartitions(T, ("p0", "p1"))]),
    ("TRUNCATE PARTITION ALL", [TruncatePartitions(T, ())]),
    (
        "REORGANIZE PARTITION `p1`,`p2` INTO (PARTITION `p0` VALUES LESS THAN (10))",
        [ReorganizePartitions(T, ("p1", "p2"), (NAMED,))],
    ),
    ("REORGANIZE PARTITION", [ReorganizePartitions(T, (), ())]),
    ("COALESCE PARTITION 2", [ReorganizePartitions(T, (), ())]),
    ("REMOVE PARTITIONING", [SetPartitioning(T, None)]),
    (
        "PARTITION BY RANGE (`a`) (PARTITION `p0` VALUES LESS THAN (10))",
        [SetPartitioning(T, Partitioning("range", "`a`", (NAMED,)))],
    ),
    ("RENAME TO u", [RenameTable(T, U)]),
    ("RENAME AS `u`", [RenameTable(T, U)]),
]

ROWLESS = [
    "ADD CONSTRAINT `fk` FOREIGN KEY(`a`) REFERENCES `x`.`y`(`b`) ON DELETE CASCADE ON UPDATE SET NULL",
    "ADD CONSTRAINT `c` CHECK(`a` > 0) NOT ENFORCED",
    "ADD STATS_EXTENDED `s` CORRELATION(`a`, `b`)",
    "ADD VECTOR INDEX `v`((VEC_COSINE_DISTANCE(`a`))) USING HNSW",
    "DROP FOREIGN KEY `fk`",
    "DROP CHECK `c`",
    "ALTER INDEX `i` INVISIBLE",
    "ALTER CHECK `c` NOT ENFORCED",
    "AUTO_INCREMENT = 5",
    "FORCE AUTO_INCREMENT = 5",
    "AUTO_ID_CACHE = 100",
    "SHARD_ROW_ID_BITS = 4",
    "TTL = `a` + INTERVAL 1 YEAR TTL_ENABLE = 'OFF'",
    "REMOVE TTL",
    "DEFAULT CHARACTER SET = UTF8MB4",
    "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "CONVERT TO CHARACTER SET utf8mb4",
    "CONVERT TO CHARACTER SET DEFAULT",
    "SET TIFLASH REPLICA 2 LOCATION LABELS 'a', 'b'",
    "CACHE",
    "NOCACHE",
    "ENGINE = InnoDB",
    "ROW_FORMAT = COMPACT",
    "ALGORITHM = INSTANT",
    "LOCK = NONE",
    "FORCE",
    "READ ONLY",
    "ENABLE KEYS",
    "WITHOUT VALIDATION",
    "ATTRIBUTES = 'x'",
    "STATS_OPTIONS = 'x'",
    "PARTITION `p0` ATTRIBUTES = 'x'",
    "ORDER BY `a`, `b` DESC",
]


def of(*specifications: str) -> tuple[Action, ...]:
    """Actions of an ALTER TABLE."""
    return parse(f"ALTER TABLE `shop`.`t` {', '.join(specifications)}", "")


@pytest.mark.parametrize(("sql", "actions"), STATEMENTS)
def test_statement_says(sql: str, actions: list[Action]) -> None:
    """A statement gives exactly these actions; unqualified names belong to the message's database."""
    assert parse(sql, "shop") == tuple(actions)


@pytest.mark.parametrize(("specification", "actions"), SPECIFICATIONS)
def test_specification_says(specification: str, actions: list[Action]) -> None:
    """A specification of ALTER TABLE gives exactly these actions."""
    assert parse(f"ALTER TABLE t {specification}", "shop") == tuple(actions)


@pytest.mark.parametrize("specification", ROWLESS)
def test_specification_without_rows_is_understood(specification: str) -> None:
    """What touches neither rows nor columns becomes `NoRows`."""
    assert of(specification) == (NoRows(T),)


def test_a_tidb_comment_counts_as_text() -> None:
    """What TiDB prints into `/*T![feature] … */` is read, also where it is the whole specification."""
    assert of("/*T![ttl] REMOVE TTL */") == (NoRows(T),)
    assert of("/*T![force_inc] FORCE */ AUTO_INCREMENT = 9") == (NoRows(T),)


def test_an_alter_whose_specifications_were_left_out_changes_nothing() -> None:
    """TiCDC leaves out placement rules, and may so print an ALTER TABLE of nothing."""
    assert of() == (NoRows(T),)


def test_a_comment_among_other_options_is_told_apart() -> None:
    """COMMENT and the options beside it give one action each."""
    assert of("COMMENT = 'x' AUTO_INCREMENT = 5") == (
        SetComment(T, "x"),
        NoRows(T),
    )


def test_a_rename_among_others_comes_last() -> None:
    """The other actions name the table as it was, so the rename is put behind them."""
    assert of("RENAME TO `shop`.`u`", "DROP COLUMN `a`") == (DropColumn(T, "a"), RenameTable(T, U))


def test_partitioning_may_follow_without_a_comma() -> None:
    """PARTITION BY stands behind the specifications, with a comma or without."""
    expected = (AddColumn(T, A), SetPartitioning(T, Partitioning("hash", "a", (Partition("p0"), Partition("p1")))))
    assert of("ADD COLUMN a INT PARTITION BY HASH (a) PARTITIONS 2") == expected
    assert of("ADD COLUMN a INT", "PARTITION BY HASH (a) PARTITIONS 2") == expected


def test_kinds_are_named_for_policies() -> None:
    """The short name of an action is the name of its class, in lower case with hyphens."""
    actions = [action for _, actions in STATEMENTS + SPECIFICATIONS for action in actions]
    assert {kind(action) for action in actions} == {
        "create-database", "alter-database", "drop-database", "create-table", "drop-table", "truncate-table",
        "rename-table", "recover-table", "create-view", "drop-view", "no-rows", "set-comment",
        "add-column", "drop-column", "rename-column", "modify-column", "set-default",
        "add-index", "drop-index", "rename-index",
        "add-partitions", "drop-partitions", "truncate-partitions", "exchange-partition", "reorganize-partitions",
        "set-partitioning",
    }  # fmt: skip


def test_an_action_names_all_tables_that_it_concerns() -> None:
    """Renames, recoveries and exchanges concern two tables; databases do not name theirs."""
    both: list[Action] = [RenameTable(T, U), RecoverTable(T, U), ExchangePartition(T, "p", U)]
    assert [touches(action) for action in both] == [named(action) for action in both] == [(T, U)] * 3
    one: list[Action] = [RecoverTable(T), CreateTable(T), DropColumn(T, "a")]
    assert [touches(action) for action in one] == [named(action) for action in one] == [(T,)] * 3
    assert touches(DropDatabase("shop")) == named(DropDatabase("shop")) == ()


def test_the_source_of_a_like_is_named_and_nothing_happens_to_it() -> None:
    """CREATE TABLE … LIKE reads the columns of a table, which stays as it is."""
    action = CreateTable(T, like=U)

    assert touches(action) == (T,)
    assert named(action) == (T, U)
