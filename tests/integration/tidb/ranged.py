"""Tables of every kind of key, cut into regions, and a TiDB that shows the past."""

from __future__ import annotations

from collections.abc import Iterator

from applier.config.login import Login
from tests.services.tidb import Tidb

ROWS = 3000


def login(tidb: Tidb, user: str = "root", password: str = "") -> Login:
    """The server, as the configuration has it."""
    return Login("127.0.0.1", tidb.port, user, password)


def keep_past(tidb: Tidb) -> None:
    """Let a server without a GC worker say from when on it has everything."""
    tidb.run("INSERT IGNORE INTO mysql.tidb VALUES ('tikv_gc_safe_point','20160102-15:04:05 -0700','')")


def create(tidb: Tidb, database: str) -> None:
    """Write the tables into a new database, each in some regions."""
    keep_past(tidb)
    tidb.run(f"DROP DATABASE IF EXISTS `{database}`", f"CREATE DATABASE `{database}`", *_statements(database))


def _statements(database: str) -> Iterator[str]:
    yield f"USE `{database}`"
    yield "SET cte_max_recursion_depth = 20000"
    yield "CREATE TABLE numbers (id bigint PRIMARY KEY, v varchar(20))"
    yield (
        f"INSERT INTO numbers WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {ROWS}) "
        "SELECT n * 7 - 9000, CONCAT('v', n) FROM s"
    )
    yield "SPLIT TABLE numbers BY (-8000), (-1), (0), (1), (5000), (1000000)"
    yield "CREATE TABLE wide (id bigint unsigned PRIMARY KEY, v int)"
    yield "INSERT INTO wide SELECT 18446744073709500000 + (id + 9000), id FROM numbers"
    yield "SPLIT TABLE wide BY (18446744073709505000), (18446744073709515000)"
    yield "CREATE TABLE pairs (a varchar(30), n int, v text, PRIMARY KEY (a, n) CLUSTERED) COLLATE utf8mb4_general_ci"
    yield (
        "INSERT INTO pairs SELECT CONCAT(ELT(1 + (id & 7), 'A', 'á', 'b', 'É', 'e', '\\'', '\\\\', '汉'), id % 11), "
        "id, v FROM numbers"
    )
    yield "SPLIT TABLE pairs BY ('a5', 0), ('e', 0), ('e4', 100), ('汉', 0)"
    yield "CREATE TABLE foreigners (k varchar(30) CHARSET gbk, v int, PRIMARY KEY (k) CLUSTERED)"
    yield "INSERT INTO foreigners SELECT CONCAT(ELT(1 + (id & 3), '汉', '字', 'z', 'a'), id), id FROM numbers"
    yield "SPLIT TABLE foreigners BY ('b'), ('汉'), ('字5')"
    yield "CREATE TABLE padded (k varchar(30) COLLATE utf8mb4_unicode_ci, b varbinary(8), PRIMARY KEY (k, b) CLUSTERED)"
    yield (
        "INSERT INTO padded SELECT CONCAT(ELT(1 + (id & 1), 'ß', 'ss'), id % 5, ' '), UNHEX(HEX(id + 9000)) "
        "FROM numbers"
    )
    yield "SPLIT TABLE padded BY ('ss1', ''), ('ss2', 0x20)"
    yield "CREATE TABLE days (d date, t datetime(6), c decimal(20, 5), v int, PRIMARY KEY (d, t, c) CLUSTERED)"
    yield (
        "INSERT INTO days SELECT IF(id % 9, ADDDATE('1999-12-31', id % 40), 0), '2000-01-01 00:00:00.000001', "
        "id / 3, id FROM numbers"
    )
    yield (
        "SPLIT TABLE days BY ('0000-00-00', '2000-01-01 00:00:00.000001', 0), ('2000-01-01', 0, 0), "
        "('2000-01-10', '2000-01-01 00:00:00.000001', -5.5)"
    )
    yield "CREATE TABLE members (e enum('z', 'a'), f float, v int, PRIMARY KEY (e, v) CLUSTERED)"
    yield "INSERT INTO members SELECT 1 + (id & 1), id / 4, id FROM numbers"
    yield "SPLIT TABLE members BY ('z', 0), ('a', 0)"
    yield "CREATE TABLE keyless (a int, b varchar(20))"
    yield "INSERT INTO keyless SELECT id % 3, 'same' FROM numbers"
    yield "SPLIT TABLE keyless BY (100), (2000), (2001)"
    yield "CREATE TABLE loose (k varchar(20) PRIMARY KEY NONCLUSTERED, v int)"
    yield "INSERT INTO loose SELECT v, id FROM numbers"
    yield "SPLIT TABLE loose BY (100), (2000)"
    yield "CREATE TABLE split (id int, v int, PRIMARY KEY (id)) PARTITION BY HASH (id) PARTITIONS 3"
    yield "INSERT INTO split SELECT id, 1 FROM numbers"
    yield "SPLIT TABLE split BY (0), (5000)"
    yield "CREATE TABLE nothing (id int PRIMARY KEY)"
