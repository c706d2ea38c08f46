"""Columns as statements define them: types, attributes, defaults, keys, in printed and in typed text."""

from __future__ import annotations

import pytest

from applier.changefeed.table import Column, ColumnType, Partition, Partitioning, TableVersion
from applier.ddl.actions import AddColumn, CreateTable
from applier.ddl.parser import parse


def column(definition: str) -> Column:
    """The column of an ADD COLUMN."""
    action = parse(f"ALTER TABLE `shop`.`t` ADD COLUMN `c` {definition}", "")[0]
    assert isinstance(action, AddColumn)
    return action.column


def created(elements: str, options: str = "") -> CreateTable:
    """The action of a CREATE TABLE."""
    (action,) = parse(f"CREATE TABLE `shop`.`t` ({elements}) {options}", "")
    assert isinstance(action, CreateTable)
    return action


def table(elements: str, options: str = "") -> TableVersion:
    """The table of a CREATE TABLE."""
    version = created(elements, options).version
    assert version is not None
    return version


TYPES = [
    ("BOOL", ColumnType("tinyint", length=1)),
    ("TINYINT", ColumnType("tinyint", length=4)),
    ("TINYINT UNSIGNED", ColumnType("tinyint", unsigned=True, length=3)),
    ("INT1", ColumnType("tinyint", length=4)),
    ("INTEGER", ColumnType("int", length=11)),
    ("INT(8) ZEROFILL", ColumnType("int", unsigned=True, length=8)),
    ("INT SIGNED", ColumnType("int", length=11)),
    ("MIDDLEINT", ColumnType("mediumint", length=9)),
    ("INT8 UNSIGNED", ColumnType("bigint", unsigned=True, length=20)),
    ("SERIAL", ColumnType("bigint", unsigned=True, length=20)),
    ("DECIMAL", ColumnType("decimal", length=10, scale=0)),
    ("NUMERIC(5)", ColumnType("decimal", length=5, scale=0)),
    ("DEC(65,30) UNSIGNED", ColumnType("decimal", unsigned=True, length=65, scale=30)),
    ("FIXED(7, 2)", ColumnType("decimal", length=7, scale=2)),
    ("FLOAT", ColumnType("float", length=12)),
    ("FLOAT(24)", ColumnType("float", length=12)),
    ("FLOAT(25)", ColumnType("double", length=22)),
    ("FLOAT(30,5)", ColumnType("float", length=30, scale=5)),
    ("REAL", ColumnType("double", length=22)),
    ("DOUBLE PRECISION UNSIGNED", ColumnType("double", unsigned=True, length=22)),
    ("BIT", ColumnType("bit", length=1)),
    ("BIT(64)", ColumnType("bit", length=64)),
    ("YEAR", ColumnType("year", length=4)),
    ("DATE", ColumnType("date", length=10)),
    ("TIME(6)", ColumnType("time", length=17, scale=6)),
    ("DATETIME", ColumnType("datetime", length=19, scale=0)),
    ("TIMESTAMP(3)", ColumnType("timestamp", length=23, scale=3)),
    ("CHAR", ColumnType("char", length=1)),
    ("CHARACTER VARYING(7)", ColumnType("varchar", length=7)),
    ("NATIONAL VARCHAR(7)", ColumnType("varchar", length=7)),
    ("NCHAR VARCHAR(7)", ColumnType("varchar", length=7)),
    ("VARCHAR(7) BINARY", ColumnType("varchar", length=7)),
    ("VARCHAR(7) CHARACTER SET binary", ColumnType("varbinary", length=7)),
    ("VARCHAR(7) NOT NULL COLLATE binary", ColumnType("varbinary", length=7)),
    ("CHAR(3) BYTE", ColumnType("binary", length=3)),
    ("BINARY", ColumnType("binary", length=1)),
    ("TEXT", ColumnType("text", length=65535)),
    ("TEXT(63)", ColumnType("tinytext", length=255)),
    ("TEXT(64)", ColumnType("text", length=65535)),
    ("TEXT(64) CHARACTER SET latin1", ColumnType("tinytext", length=255)),
    ("TEXT CHARACTER SET BINARY", ColumnType("blob", length=65535)),
    ("BLOB(300)", ColumnType("blob", length=65535)),
    ("BLOB(65536)", ColumnType("mediumblob", length=16777215)),
    ("LONG VARCHAR", ColumnType("mediumtext", length=16777215)),
    ("LONG VARBINARY", ColumnType("mediumblob", length=16777215)),
    ("ENUM('a','b''c','d ','\\')", ColumnType("enum", length=3, elements=("a", "b'c", "d", "\\"))),
    ("SET('x','yy') CHARACTER SET utf8mb4", ColumnType("set", length=4, elements=("x", "yy"))),
    ("ENUM(x'61')", ColumnType("enum", length=1, elements=("a",))),
    ("JSON", ColumnType("json", length=4294967295)),
    ("VECTOR", ColumnType("vector")),
    ("VECTOR<FLOAT>(3)", ColumnType("vector", length=3)),
]


@pytest.mark.parametrize(("text", "expected"), TYPES)
def test_type_has_the_name_and_length_that_simple_reports(text: str, expected: ColumnType) -> None:
    """Synonyms, default lengths and charsets lead to the type that TiDB makes of them."""
    assert column(text).type == expected


DEFAULTS = [
    ("INT DEFAULT 7", "7"),
    ("INT DEFAULT -7", "-7"),
    ("INT DEFAULT +7", "7"),
    ("INT DEFAULT x'10'", "16"),
    ("INT DEFAULT NULL", None),
    ("INT DEFAULT (8)", "8"),
    ("TINYINT(1) DEFAULT TRUE", "1"),
    ("DOUBLE DEFAULT 1.5e+03", "1500"),
    ("VARCHAR(9) DEFAULT 1e3", "1000"),
    ("BIT(22) DEFAULT 5e2", "3485744"),
    ("CHAR(9) DEFAULT -00.50", "-0.50"),
    ("CHAR(9) DEFAULT -0", "0"),
    ("DECIMAL(6,2) NOT NULL DEFAULT _UTF8MB4'3.14'", "3.14"),
    ("VARCHAR(20) DEFAULT _UTF8MB4'nul''l'", "nul'l"),
    ("VARCHAR(20) DEFAULT _UTF8MB4''", ""),
    ("VARCHAR(20) DEFAULT N'x'", "x"),
    ("VARCHAR(20) DEFAULT x'6162'", "ab"),
    ("VARCHAR(40) DEFAULT (UUID())", "UUID()"),
    ("JSON DEFAULT (JSON_OBJECT('a', 1))", "JSON_OBJECT('a', 1)"),
    ("BIT(4) DEFAULT b'101'", "5"),
    ("BIT(4) DEFAULT 0b101", "5"),
    ("BIT(8) DEFAULT 0xF", "15"),
    ("BIT(8) DEFAULT _UTF8MB4'a'", "97"),
    ("BINARY(4) DEFAULT _UTF8MB4'ab'", "ab\0\0"),
    ("ENUM('a','b') DEFAULT _UTF8MB4'b'", "b"),
    ("ENUM('a','b') DEFAULT 2", "b"),
    ("ENUM('a','b') DEFAULT 'B'", "b"),
    ("SET('a','b','c') DEFAULT 5", "a,c"),
    ("SET('a','b') DEFAULT 'B,a'", "b,a"),
    ("TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP()", "CURRENT_TIMESTAMP"),
    ("DATETIME(3) DEFAULT NOW(3) ON UPDATE CURRENT_TIMESTAMP(3)", "CURRENT_TIMESTAMP"),
    ("DATETIME DEFAULT (CURRENT_TIMESTAMP)", "CURRENT_TIMESTAMP"),
    ("DATE DEFAULT CURRENT_DATE()", "CURRENT_DATE"),
    ("DATE DEFAULT DATE '2020-01-01'", "2020-01-01"),
    ("BIGINT DEFAULT NEXT VALUE FOR `shop`.`s`", "NEXT VALUE FOR `shop`.`s`"),
    ("BIGINT DEFAULT NEXTVAL(`s`)", "NEXTVAL(`s`)"),
    ("VARCHAR(9) COMMENT 'DEFAULT 5'", None),
    ("VARCHAR(9) NULL", None),
]


@pytest.mark.parametrize(("text", "expected"), DEFAULTS)
def test_default_is_the_text_that_tidb_keeps(text: str, expected: str | None) -> None:
    """Strings lose their quotes, bits become decimal, members become labels, functions and expressions stay text."""
    assert column(text).default == expected


@pytest.mark.parametrize(
    ("text", "nullable"), [("", True), ("NULL", True), ("NOT NULL", False), ("NOT NULL NULL", True)]
)
def test_a_column_may_be_null_unless_it_says_otherwise(text: str, nullable: bool) -> None:
    """NOT NULL counts, unless a NULL follows it."""
    assert column(f"INT {text} COMMENT 'NOT NULL'").nullable is nullable


def test_attributes_that_change_no_value_are_taken() -> None:
    """All other attributes are understood, in any order, inside TiDB's comments as well."""
    found = table(
        "`id` BIGINT(20) NOT NULL /*T![auto_rand] AUTO_RANDOM(5, 54) */ PRIMARY KEY /*T![clustered_index] CLUSTERED */"
        " COMMENT 'k',`a` INT COLUMN_FORMAT FIXED STORAGE DISK CHECK(`a` > (0)) NOT ENFORCED COMMENT 'it''s; `x`',"
        "`b` INT CONSTRAINT `c` CHECK(`b` <> 1) REFERENCES `u`(`x`) MATCH FULL ON DELETE SET NULL ON UPDATE NO ACTION,"
        "`c` INT GENERATED ALWAYS AS(`a` + (1)) VIRTUAL UNIQUE KEY,`d` INT AS (a) STORED NOT NULL,"
        "`e` INT AUTO_INCREMENT"
    )
    assert [item.comment for item in found.columns] == ["k", "it's; `x`", "", "", "", ""]
    assert [item.generated for item in found.columns] == [None, None, None, "virtual", "stored", None]
    assert [item.nullable for item in found.columns] == [False, True, True, True, False, True]
    assert found.key == ("id",)


def test_keys_of_a_table_are_named_and_spelt_as_tidb_does() -> None:
    """Indexes without a name get that of their first column, numbered if taken; key columns become NOT NULL."""
    found = table(
        "`A` INT,`b` INT NOT NULL UNIQUE,PRIMARY KEY(`a`),KEY(`b`),UNIQUE KEY(`b`, `a`),KEY `k`((`a` + 1)),"
        "KEY `b_4`(`A`),KEY(`b`),"
        "CONSTRAINT `fk` FOREIGN KEY(`b`) REFERENCES `u`(`x`),FULLTEXT `ft`(`b`),CHECK(`a` > 1) ENFORCED"
    )
    assert [(index.name, index.columns, index.unique) for index in found.indexes] == [
        ("PRIMARY", ("A",), True),
        ("b", ("b",), False),
        ("b_2", ("b", "A"), True),
        ("b_4", ("A",), False),
        ("b_3", ("b",), False),
        ("ft", ("b",), False),
        ("b_5", ("b",), True),
    ]
    assert not found.columns[0].nullable


def test_words_that_are_no_keywords_there_may_be_names() -> None:
    """Columns and indexes may be called like the words that begin other things."""
    found = table("`primary` INT,vector INT,`key` INT,comment INT,type INT,`index` INT,UNIQUE type (type),date DATE")
    assert [item.name for item in found.columns] == [
        "primary",
        "vector",
        "key",
        "comment",
        "type",
        "index",
        "date",
    ]
    assert [index.name for index in found.indexes] == ["type"]


def test_the_charset_of_the_table_counts_for_columns_without_one() -> None:
    """In a table of charset `binary`, text without a charset is bytes."""
    found = table("`a` VARCHAR(3),`b` TEXT COLLATE utf8_bin,`c` ENUM('x')", "DEFAULT CHARACTER SET = BINARY")
    assert [item.type.name for item in found.columns] == ["varbinary", "text", "enum"]


def test_bytes_that_are_no_text_do_not_keep_a_table_from_being_created() -> None:
    """No row lacks a column that its table was created with, so that default is never filled in."""
    assert table("`a` VARBINARY(9) DEFAULT x'FF61'").columns[0].default == "\ufffda"


def test_options_of_a_table_are_taken() -> None:
    """Options, TiDB's own in comments, do not hide what follows."""
    found = created(
        "`a` INT",
        "ENGINE = InnoDB, AUTO_INCREMENT = 5, ROW_FORMAT = COMPACT COMMENT = 'x' "
        "/*T![auto_id_cache] AUTO_ID_CACHE = 1 */ /*T! SHARD_ROW_ID_BITS = 4 */ "
        "/*T![ttl] TTL = `a` + INTERVAL 1 DAY */ /*T![ttl] TTL_ENABLE = 'OFF' */ "
        "STATS_PERSISTENT = DEFAULT /* TableOptionStatsPersistent is not supported */  UNION = (`x`) "
        "PARTITION BY KEY (`a`) PARTITIONS 2",
    )
    assert found.partitioning == Partitioning("key", "`a`", (Partition("p0"), Partition("p1")))


PARTITIONINGS = [
    (
        "PARTITION BY RANGE (YEAR(d)) (PARTITION x VALUES LESS THAN (-1 + 2),PARTITION y VALUES LESS THAN MAXVALUE)",
        Partitioning("range", "YEAR(d)", (Partition("x", ("-1 + 2",)), Partition("y", ("MAXVALUE",)))),
    ),
    (
        "PARTITION BY RANGE COLUMNS (`a`,`d`) (PARTITION x VALUES LESS THAN (1, 'it''s') COMMENT 'c' ENGINE = InnoDB)",
        Partitioning("range columns", "`a`, `d`", (Partition("x", ("1", "'it''s'")),)),
    ),
    (
        "PARTITION BY RANGE COLUMNS (`a`,`d`) (PARTITION `x` VALUES LESS THAN (_UTF8MB4'q', maxvalue))",
        Partitioning("range columns", "`a`, `d`", (Partition("x", ("'q'", "MAXVALUE")),)),
    ),
    (
        "PARTITION BY LIST (`a`) (PARTITION `p0` VALUES IN (-1, NULL, (2)),PARTITION `p1` VALUES IN (DEFAULT))",
        Partitioning(
            "list",
            "`a`",
            (Partition("p0", values=(("-1",), (None,), ("2",))), Partition("p1", values=(("DEFAULT",),))),
        ),
    ),
    (
        "PARTITION BY LIST COLUMNS (a,d) (PARTITION `p0` VALUES IN ((1, 'x'), (NULL, 'NULL')),PARTITION p1 DEFAULT)",
        Partitioning(
            "list columns",
            "a, d",
            (Partition("p0", values=(("1", "'x'"), (None, "'NULL'"))), Partition("p1", values=(("DEFAULT",),))),
        ),
    ),
    ("PARTITION BY LINEAR HASH (`a`)", Partitioning("hash", "`a`", (Partition("p0"),))),
    (
        "PARTITION BY HASH (`a`) (PARTITION x, PARTITION y) UPDATE INDEXES (`i` LOCAL)",
        Partitioning("hash", "`a`", (Partition("x"), Partition("y"))),
    ),
    ("PARTITION BY KEY ALGORITHM = 2 () PARTITIONS 1", Partitioning("key", "", (Partition("p0"),))),
]


@pytest.mark.parametrize(("text", "expected"), PARTITIONINGS)
def test_partitions_keep_their_bounds_as_sql(text: str, expected: Partitioning) -> None:
    """Bounds and values stay SQL, so that a partition's rows can be found by a predicate."""
    assert created("`a` INT,`d` DATE", text).partitioning == expected


BACKSLASHES = [
    ("ALTER TABLE `t` ADD COLUMN `c` VARCHAR(9) DEFAULT _UTF8MB4'a\\nb'", "a\\nb"),
    ("ALTER TABLE `t` ADD COLUMN `c` VARCHAR(9) DEFAULT _UTF8MB4'a\\'", "a\\"),
    ("ALTER TABLE `t` ADD COLUMN `c` VARCHAR(9) COLLATE utf8mb4_bin DEFAULT _UTF8MB4'\\\\'", "\\\\"),
    ("ALTER TABLE `a\"b` ADD COLUMN `c` VARCHAR(9) DEFAULT _UTF8MB4'a\\tb'", "a\\tb"),
    ("alter table t add column c varchar(9) default 'a\\nb\\%'", "a\nb\\%"),
    ("alter table t add column c varchar(9) default 'it\\'s'", "it's"),
    ('ALTER TABLE `t` ADD COLUMN `c` VARCHAR(9) DEFAULT "a\\tb""c"', 'a\tb"c'),
]


@pytest.mark.parametrize(("sql", "expected"), BACKSLASHES)
def test_a_backslash_that_tidb_printed_stands_for_itself(sql: str, expected: str) -> None:
    """TiDB's printer does not escape backslashes, people do; which of them wrote the text shows in its spelling."""
    (action,) = parse(sql, "shop")
    assert isinstance(action, AddColumn)
    assert action.column.default == expected
