"""Samples of regions in, conditions out of which each key fits exactly one."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.changefeed.table import TableVersion
from applier.ddl.schema_files import read_schemas
from applier.decode.tidb.table_ranges import MOST_RANGES, Bound, Order, order_of, thinned

_HEAD = "CREATE TABLE `t` (\n  `a` varchar(9) NOT NULL,\n  `b` bigint NOT NULL,\n  `e` enum('x','y') NOT NULL,\n"


def _text(key: str, *, is_clustered: bool = True) -> str:
    kind = "CLUSTERED" if is_clustered else "NONCLUSTERED"
    return f"{_HEAD}  PRIMARY KEY ({key}) /*T![clustered_index] {kind} */\n) ENGINE=InnoDB"


def _version(text: str) -> TableVersion:
    ((_, version),) = read_schemas({"shop.t-schema.sql": text}).items()
    return version


@pytest.mark.parametrize(
    ("text", "by", "columns"),
    [
        (_text("`b`"), "`b`", "`b`"),
        (_text("`a`,`b`"), "`a`, `b`", "`a`, `b`"),
        (_text("`a`,`e`,`b`"), "`a`, `e`, `b`", "`a`"),
        (_text("`e`,`b`"), "`e`, `b`", ""),
        (_text("`a`", is_clustered=False), "`_tidb_rowid`", "`_tidb_rowid`"),
        (_HEAD.rstrip(",\n") + "\n)", "`_tidb_rowid`", "`_tidb_rowid`"),
    ],
)
def test_rows_lie_by_their_clustered_key_or_by_their_number(text: str, by: str, columns: str) -> None:
    """Bounds have the first columns of the key that compare with a literal as they are sorted."""
    order = order_of(_version(text), text)

    assert (order.by, order.columns) == (by, columns)


def _bound(order: Order, *cells: bytes) -> Bound:
    bound = order.bound(cells)
    assert bound is not None
    return bound


def test_text_that_is_no_utf8_bounds_nothing() -> None:
    """No literal holds it; what reads its row says so."""
    text = _text("`a`,`b`")

    assert order_of(_version(text), text).bound((b"\xff", b"1")) is None


keys = st.tuples(st.text(alphabet="ab'%é", max_size=3), st.integers(-3, 3))


def _shown(condition: str) -> str:
    # SQLite writes a quote in text twice.
    return "SELECT a, b FROM t WHERE " + condition.replace("\\'", "''")


@given(st.lists(keys, unique=True, max_size=20), st.lists(keys, max_size=5))
def test_each_key_is_in_one_range(held: list[tuple[str, int]], sampled: list[tuple[str, int]]) -> None:
    """Whatever the bounds are, as long as they are sorted as the database sorts them."""
    text = _text("`a`,`b`")
    order = order_of(_version(text), text)
    bounds = thinned([_bound(order, a.encode(), str(b).encode()) for a, b in sorted(sampled)])
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE t (a, b)")
        database.executemany("INSERT INTO t VALUES (?, ?)", held)

        found = [row for part in order.ranges(bounds, 0) for row in database.execute(_shown(part.condition))]

    assert sorted(found) == sorted(held)


def test_a_table_of_many_regions_has_few_bounds() -> None:
    """The first region begins where the table does."""
    bounds = thinned([(str(number),) for number in range(10_000)])

    assert len(bounds) + 1 <= MOST_RANGES
    assert bounds[:2] == (("20",), ("40",))
    assert thinned([]) == thinned([("1",)]) == ()


def test_bytes_and_names_stand_as_sql_takes_them() -> None:
    """No value ends its literal."""
    text = "CREATE TABLE `t` (\n  `a``b` varbinary(9) NOT NULL,\n  `c` varchar(9) NOT NULL,\n  PRIMARY KEY (`a``b`,`c`)"
    text += " /*T![clustered_index] CLUSTERED */\n)"
    order = order_of(_version(text), text)

    (first, _) = order.ranges([_bound(order, b"\x00'", b"x'\\")], 10)

    assert first.condition == r"(`a``b` < x'0027' OR (`a``b` = x'0027' AND `c` < 'x\'\\'))"
    assert first.size == 5
