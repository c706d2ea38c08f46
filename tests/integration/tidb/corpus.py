"""Tables of every column type at its extremes, with every kind of name and text, and what SQL shows of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from applier.changefeed.table import TableName
from tests.services.tidb import Tidb

_TEXTS = [
    *(
        "",
        "plain",
        "NULL",
        "\\N",
        "\\\\N",
        "null",
        "NIL",
        '"',
        "'",
        '""',
        "''",
        '"\\""',
        "\\",
        "\\\\",
        "\\n",
        "\\'",
        "\\0",
    ),
    *("a,b", "a|b", "a|+|b", "a\tb", "a;b", ",", "|+|", "\n", "\r\n", "a\nb", "a\r", "\ra", "x\x00y", "\x1a", "\x08"),
    *(
        '","',
        "','",
        "','\n(1,'",
        "'),\n('",
        "');\nINSERT INTO `t` VALUES\n(1,'x",
        "-- x",
        "/* x */;",
        "x'00'",
        "(1)",
        "#",
    ),
    *(
        "naïve",
        "汉字",
        "😀",
        "e\u0301",
        "\u2028",
        "\ufeff",
        " a ",
        "tab\t",
        "%2E",
        "`",
        "0x1F",
        "aGVsbG8=",
        "68656c6c6f",
        "1",
    ),
    *(",\\N", '\\N,"', 'a"\r\n"b', "a'\n'b", "|", "§", "a§b", "'§'", "''''", '"""', "\\\n", "\\\r\n", "NI", "L"),
]
"""Whatever could be taken for structure."""

_INTS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}

_KINDS: Mapping[str, tuple[str, list[list[str]]]] = {
    "ints": (
        ", ".join(f"`{n}` {n}, `{n}_u` {n} unsigned" for n in _INTS) + ", z int(8) zerofill, flag bool, y year",
        [
            [f"{-(2 ** (b - 1))}, 0" for b in _INTS.values()] + ["0, 0, 1901"],
            [f"{2 ** (b - 1) - 1}, {2**b - 1}" for b in _INTS.values()] + ["42, 1, 2155"],
            ["NULL, NULL"] * 5 + ["NULL, NULL, NULL"],
            ["-1, 1"] * 5 + ["99999999, 0, 0"],
        ],
    ),
    "decimals": (
        "a decimal(10,0), b decimal(65,30), c decimal(38,10) unsigned, d decimal(5,5), e decimal(65,0), f decimal(1,0)",
        [
            ["-9999999999", "-" + "9" * 35 + "." + "9" * 30, "0", "-0.99999", "-" + "9" * 65, "-9"],
            ["9999999999", "9" * 35 + "." + "9" * 30, "9" * 28 + ".9999999999", "0.99999", "9" * 65, "9"],
            ["0", "0.000000000000000000000000000001", "0.0000000001", "0.00001", "-1", "0"],
            ["NULL"] * 6,
        ],
    ),
    "reals": (
        "a float, b double, c float(10,3), d double(12,4), e float unsigned, f double unsigned",
        [
            [
                "-3.40282e38",
                "-1.7976931348623157e308",
                "-9999999.5",
                "-99999999.9999",
                "3.40282e38",
                "1.7976931348623157e308",
            ],
            ["1.17549e-38", "2.2250738585072014e-308", "0.001", "0.0001", "0", "0"],
            ["0.1", "0.1", "1.5", "1.5", "1e15", "1e15"],
            ["-0.0", "5e-324", "0", "0", "123456", "123456789012345678"],
            ["NULL"] * 6,
        ],
    ),
    "bits": (
        "a bit(1), b bit(10), c bit(33), d bit(64)",
        [
            ["0"] * 4,
            ["1"] * 4,
            ["1", "1023", "8589934591", "18446744073709551615"],
            ["NULL"] * 4,
            ["0", "10", "13", "92"],
            ["1", "34", "39", "44"],
            ["1", "676", "3338", "23644"],
        ],
    ),
    "times": (
        "a date, b datetime, c datetime(3), d datetime(6), e timestamp null, f timestamp(6) null, g time, h time(6)",
        [
            [
                "'1000-01-01'",
                "'1000-01-01 00:00:00'",
                "'1000-01-01 00:00:00.001'",
                "'0001-01-01 00:00:00.000001'",
                "'1970-01-01 00:00:01'",
                "'1970-01-01 00:00:01.000001'",
                "'-838:59:59'",
                "'-838:59:59'",
            ],
            [
                "'9999-12-31'",
                "'9999-12-31 23:59:59'",
                "'9999-12-31 23:59:59.999'",
                "'9999-12-31 23:59:59.999999'",
                "'2038-01-19 03:14:07'",
                "'2038-01-19 03:14:07.999999'",
                "'838:59:59'",
                "'-00:00:00.000001'",
            ],
            ["'0000-00-00'", "'0000-00-00 00:00:00'", "0", "0", "'0000-00-00 00:00:00'", "0", "0", "0"],
            [
                "'2020-00-00'",
                "'2020-02-00 10:00:00'",
                "'2024-02-29 12:00:00.5'",
                "'2020-01-00'",
                "NULL",
                "NULL",
                "'1'",
                "'23:59:59.999999'",
            ],
            ["NULL"] * 8,
        ],
    ),
    "members": (
        (
            "a enum('red','with space','it''s','a,b','\"q\"','back\\\\slash','naïve','NULL',''), "
            "b set('x','y z','it''s','\"q\"','back\\\\slash','naïve','NULL')"
        ),
        [
            ["'red'", "''"],
            ["'it''s'", "'x,y z'"],
            ["'a,b'", "'it''s,naïve'"],
            ["'\"q\"'", "'\"q\"'"],
            ["NULL", "NULL"],
            ["'back\\\\slash'", "'back\\\\slash'"],
            ["'NULL'", "'NULL'"],
            ["''", "127"],
            ["0", "0"],
        ],
    ),
    "jsons": (
        "a json",
        [
            ["NULL"],
            ["'null'"],
            ['\'"a\\\\"b\\\\\\\\c\\\\n\\\\u0000"\''],
            ['\'{"k": [1, 2.5, true, null, "汉"]}\''],
            ["'\"\\\\\\\\N\"'"],
            ["'18446744073709551615'"],
            ["'1e300'"],
            ["'[]'"],
            ["'\"it''s, |+| \"'"],
        ],
    ),
    "vectors": ("a vector, b vector(3)", [["'[]'", "'[1,-2.5,3e10]'"], ["'[0.1]'", "'[0,0,0]'"], ["NULL", "NULL"]]),
    "charsets": (
        (
            "a varchar(60) charset latin1, b varchar(60) charset ascii, c varchar(60) charset gbk, d text charset utf8,"
            " e char(10) collate utf8mb4_general_ci, f varchar(20) binary"
        ),
        [
            ["'naïve'", "'plain'", "'汉字'", "'汉字'", "'É'", "'É'"],
            ["''"] * 6,
            ["NULL"] * 6,
            ["'\\\\'", *["'\\\"'"] * 5],
        ],
    ),
}
"""By the name of a table, its columns and its rows."""

_BYTES = [
    *(
        b"",
        b"\0",
        b"\\",
        b"\\N",
        b'"',
        b"'",
        b",",
        b"\r\n",
        b"\n",
        b"\xff\xfe\xfd",
        bytes(range(256)),
        b"NULL",
        b"plain",
    ),
    *(
        b"\xe4\xb8",
        b"\\0",
        b"\x1a",
        b"|+|",
        b'","',
        b"68656c6c6f",
        b"aGVsbG8=",
        b"x'00'",
        b"\xc2\xa7",
        b"\xa7",
        b"\x1f\x1e",
    ),
]

NAMES = (
    "a.b",
    "with space",
    'quo"te',
    "汉字",
    "back`tick",
    "it's",
    "per%cent",
    "UPPER",
    "a,b",
    "select",
    "semi;colon",
    "-dash",
)
"""Names of tables and columns."""


def create(tidb: Tidb, database: str) -> None:
    """Write all tables into a new database, in the place of one that an earlier part of the same tests has made."""
    tidb.run(f"DROP DATABASE IF EXISTS `{database}`", f"CREATE DATABASE `{database}`", *_statements(database))


def _statements(database: str) -> Iterator[str]:
    yield f"USE `{database}`"
    for table, (columns, rows) in _KINDS.items():
        yield f"CREATE TABLE {table} (id int PRIMARY KEY, {columns})"
        for number, row in enumerate(rows):
            yield f"INSERT INTO {table} VALUES ({number}, {', '.join(row)})"
    yield "CREATE TABLE texts (id int PRIMARY KEY, a varchar(200), n int, b longtext, c char(60))"
    for number, text in enumerate(_TEXTS):
        hexed = f"x'{text.encode().hex()}'"
        yield f"INSERT INTO texts VALUES ({number}, {hexed}, {number % 3 or 'NULL'}, {hexed}, {hexed})"
    yield "INSERT INTO texts VALUES (-1, NULL, NULL, NULL, NULL), (-2, '', 0, 'last', NULL)"
    yield "CREATE TABLE bins (id int PRIMARY KEY, a binary(8), b varbinary(300), c tinyblob, d blob, e longblob)"
    for number, data in enumerate(_BYTES):
        hexed = f"x'{data.hex()}'"
        yield f"INSERT INTO bins VALUES ({number}, LEFT({hexed}, 8), {hexed}, LEFT({hexed}, 255), {hexed}, {hexed})"
    yield "INSERT INTO bins (id) VALUES (-1)"
    yield from _shapes()
    yield "CREATE TABLE large (id int PRIMARY KEY, a text, b blob, n bigint)"
    yield "SET cte_max_recursion_depth = 20000"
    yield (
        "INSERT INTO large WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 6000) SELECT n, "
        "CONCAT(REPEAT(CHAR(13, 10, 34, 39, 92), n % 5), REPEAT('line\\n', n % 7), n), UNHEX(SHA1(n)), n * n FROM s"
    )


def _shapes() -> Iterator[str]:
    yield "CREATE TABLE empty (id int PRIMARY KEY, a text)"
    yield "CREATE TABLE keyless (a int, b varchar(20))"
    yield "INSERT INTO keyless VALUES (1, 'x'), (1, 'x'), (NULL, NULL)"
    yield "CREATE TABLE one (a varchar(20) PRIMARY KEY)"
    yield "INSERT INTO one VALUES ('a'), ('b,c'), ('\"'), ('it''s'), ('')"
    yield "CREATE TABLE number (a int PRIMARY KEY)"
    yield "INSERT INTO number VALUES (1), (-2)"
    yield (
        "CREATE TABLE made (id int PRIMARY KEY, v int AS (id + 1), a varchar(9), "
        "s varchar(30) AS (concat(a, '-', id)) STORED, b int)"
    )
    yield "INSERT INTO made (id, a, b) VALUES (1, 'x', 7), (2, NULL, NULL)"
    yield "CREATE TABLE must (id int PRIMARY KEY, d date NOT NULL, t datetime(3) NOT NULL, s timestamp NOT NULL)"
    yield "INSERT INTO must VALUES (1, 0, 0, 0), (2, '2020-01-01', '2020-01-01', '2020-01-01')"
    yield "CREATE TABLE cut (id int, a int, PRIMARY KEY (id)) PARTITION BY HASH (id) PARTITIONS 3"
    yield "INSERT INTO cut VALUES (1, 1), (2, 2), (3, 3), (4, NULL)"
    yield "CREATE VIEW seen AS SELECT 1 AS id, 'x' AS a"
    yield "CREATE SEQUENCE counter"
    for number, name in enumerate(NAMES):
        odd = name.replace("`", "``")
        yield f"CREATE TABLE `{odd}` (id int PRIMARY KEY, `{odd}` varchar(20), `{odd}2` int)"
        yield f"INSERT INTO `{odd}` VALUES ({number}, 'a\\'b', 1), (-1, NULL, NULL)"


def shown(tidb: Tidb, database: str) -> dict[TableName, dict[str, Any]]:
    """What SQL shows of each table of a database, in the form of `expected.jsonl`."""
    literal = "x'" + database.encode().hex() + "'"
    found: dict[TableName, dict[str, Any]] = {}
    for name, column, kind, extra in tidb.rows(
        "SELECT c.table_name, column_name, column_type, extra FROM information_schema.columns c JOIN "
        "information_schema.tables t USING (table_schema, table_name) WHERE table_type = 'BASE TABLE' "
        f"AND table_schema = {literal} ORDER BY table_name, ordinal_position"
    ):
        generated = "virtual" if "VIRTUAL" in extra else "stored" if "STORED" in extra else None
        entry = {"name": column, "mysql_type": kind, "generated": generated}
        found.setdefault(TableName(database, name), {"columns": []})["columns"].append(entry)
    for name, table in found.items():
        cells = ", ".join(_cell(column) for column in table["columns"])
        query = f"SELECT {cells} FROM {_quoted(name.database)}.{_quoted(name.table)}"
        table["rows"] = [_row(row, table["columns"]) for row in tidb.rows(query)]
    return found


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _cell(column: Mapping[str, Any]) -> str:
    name = _quoted(column["name"])
    if _is_bytes(column):
        return f"HEX({name})"
    return f"CAST({name} AS UNSIGNED)" if column["mysql_type"].startswith("bit") else name


def _is_bytes(column: Mapping[str, Any]) -> bool:
    return "blob" in column["mysql_type"] or column["mysql_type"].startswith(("binary", "varbinary"))


def _row(row: tuple[Any, ...], columns: list[dict[str, Any]]) -> list[Any]:
    pairs = zip(row, columns, strict=True)
    return [{"hex": cell} if _is_bytes(column) and cell is not None else cell for cell, column in pairs]
