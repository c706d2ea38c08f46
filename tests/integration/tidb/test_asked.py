"""Values that no message shows are computed as TiDB stored them, or TiDB is asked for them as of the DDL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pymysql
import pytest

from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules, arrow_type
from applier.ddl.actions import AddColumn
from applier.ddl.parser import parse
from applier.decode.tidb.rows_as_of import RowsAsOf
from applier.errors import ValueRefused
from tests import computed
from tests.computed import Refused
from tests.integration.tidb import people, ranged, stored
from tests.services.tidb import Tidb

DATABASE = "asked"
RULES = TypeRules(session_zone="UTC")


class Tried:
    """What became of the cases: those that are refused without a TiDB, and those that are wrong or refused with it."""

    def __init__(self) -> None:
        self.parked, self.wrong, self.passed_over = list[Any](), list[Any](), list[Any]()

    def compare(self, case: object, wanted: Any, found: Any, shown: Any) -> None:
        """Compare a computed value, if there is one, and one that TiDB was asked for, with what SQL shows."""
        if isinstance(found, Refused):
            self.parked.append((case, found))
        elif found != wanted:
            self.wrong.append((case, wanted, found))
        if shown != wanted:
            self.wrong.append((case, wanted, shown))


@pytest.fixture(scope="module")
def tried(tidb: Tidb) -> Tried:
    """All cases, each made in TiDB; behind each the table changes once more."""
    ranged.keep_past(tidb)
    tried = Tried()
    with stored.session(tidb, database=DATABASE) as cursor:
        for place, text in enumerate(people.ADDED):
            _add(tried, tidb, cursor, f"added{place}", text)
        for place, (old, new, values) in enumerate([*people.CHANGED, *people.ODD]):
            _change(tried, tidb, cursor, f"changed{place}", (old, new, values))
    return tried


def _add(tried: Tried, tidb: Tidb, cursor: Any, table: str, text: str) -> None:
    (action,) = parse(f"ALTER TABLE t ADD COLUMN c {text}", "d")
    assert isinstance(action, AddColumn)
    column = action.column
    _made(cursor, table, "id INT PRIMARY KEY", "(1), (2)")
    try:
        cursor.execute(f"ALTER TABLE {table} ADD COLUMN c {text}")
    except pymysql.MySQLError:
        tried.passed_over.append(text)
        return
    tso = _now(tidb)
    cursor.execute(f"SELECT {stored.shown('c', text)} FROM {table} LIMIT 1")
    (value,) = cursor.fetchone()
    cursor.execute(f"ALTER TABLE {table} RENAME COLUMN c TO d")
    wanted = None if value is None else computed.value_of(value, column.type)
    rows = RowsAsOf.find(ranged.login(tidb), tso, TableName(DATABASE, table), RULES)
    shown = rows.only_value("c", arrow_type(column.type))
    tried.compare(text, wanted, computed.existing(column, "UTC"), None if shown is None else shown.as_py())


def _change(tried: Tried, tidb: Tidb, cursor: Any, table: str, case: tuple[str, str, str]) -> None:
    old, new, values = case
    rows = ", ".join(f"({place}, {value})" for place, value in enumerate(values.split(", ")))
    _made(cursor, table, f"id INT PRIMARY KEY, c {old}", rows)
    cursor.execute(f"SELECT {stored.shown('c', old)} FROM {table} ORDER BY id")
    before = [value for (value,) in cursor.fetchall()]
    try:
        cursor.execute(f"ALTER TABLE {table} MODIFY COLUMN c {new}")
    except pymysql.MySQLError:
        tried.passed_over.append(case)
        return
    tso = _now(tidb)
    cursor.execute(f"SELECT {stored.shown('c', new)} FROM {table} ORDER BY id")
    after = [computed.shown_as(new, value) for (value,) in cursor.fetchall()]
    cursor.execute(f"DELETE FROM {table}")
    kind = computed.written(new).type
    asked = RowsAsOf.find(ranged.login(tidb), tso, TableName(DATABASE, table), RULES)
    keys = pa.table({"id": pa.array(range(len(before)), pa.int32())})
    shown = asked.values("c", kind, arrow_type(kind), keys).to_pylist()
    found = [computed.cast_of(old, new, value) for value in before]
    refused = next((one for one in found if isinstance(one, Refused)), None)
    tried.compare(case, after, found if refused is None else refused, shown)


def _made(cursor: Any, table: str, columns: str, rows: str) -> None:
    cursor.execute(f"DROP TABLE IF EXISTS {table}")
    cursor.execute(f"CREATE TABLE {table} ({columns})")
    cursor.execute(f"INSERT INTO {table} VALUES {rows}")


def test_no_value_is_wrong(tried: Tried) -> None:
    """Neither one that is computed, nor one that TiDB is asked for, though the table is another one since."""
    assert len(people.ADDED) + len(people.CHANGED) == 117
    assert tried.wrong == []


def test_few_are_refused_without_a_tidb(tried: Tried) -> None:
    """Of those that people make; with it none is, as each has been compared."""
    assert len([case for case, _ in tried.parked if case not in people.ODD]) <= 15, tried.parked
    assert len(tried.passed_over) <= 2, tried.passed_over


KEYS = {
    "bigint unsigned": ["18446744073709551615", "0"],
    "decimal(20, 5)": ["-1.50000", "12.00001"],
    "varchar(20) COLLATE utf8mb4_general_ci": ["'a'", "'b\\\\\\'c'"],
    "varbinary(8)": ["x'00ff'", "x'41'"],
    "date": ["'2024-01-01'", "'1999-12-31'"],
    "datetime(6)": ["'2024-01-01 10:00:00.000001'", "'2024-01-01'"],
    "timestamp(3)": ["'2024-01-01 10:00:00.001'", "'2024-06-01'"],
}
"""Types of keys with values."""


@pytest.mark.parametrize("kind", KEYS)
def test_rows_are_found_by_their_keys(kind: str, tidb: Tidb) -> None:
    """Whatever type these have, in the order in which they are asked for; many in more than one query."""
    ranged.keep_past(tidb)
    first, second = KEYS[kind]
    with stored.session(tidb, database=DATABASE) as cursor:
        _made(cursor, "keyed", f"k {kind}, n INT, c INT, PRIMARY KEY (n, k)", f"({first}, 1, 10), ({second}, 2, 20)")
    asked = RowsAsOf.find(ranged.login(tidb), _now(tidb), TableName(DATABASE, "keyed"), RULES)
    column = asked.version.column("k")
    assert column is not None
    arrow, shown = arrow_type(column.type), {"binary": "HEX(k)"}.get(kind[3:9], "CAST(k AS CHAR)")
    texts = [row[0] for row in tidb.rows(f"SELECT {shown} FROM {DATABASE}.keyed ORDER BY n DESC")]
    values = [computed.value_of(text, column.type) for text in texts] * 600
    keys = pa.table({"k": pa.array(values, arrow), "n": pa.array([2, 1] * 600, pa.int32())})

    found = asked.values("c", computed.written("INT").type, pa.int32(), keys.slice(1, 1000))

    assert found.to_pylist() == [10, 20] * 500


def test_rows_that_differ_are_not_taken_for_each_other(tidb: Tidb) -> None:
    """A row that TiDB does not show, another type than the statement gives, and rows that are not all alike."""
    ranged.keep_past(tidb)
    columns = "id INT PRIMARY KEY, c TIME(3), t VARCHAR(9) COLLATE utf8mb4_general_ci, j JSON"
    with stored.session(tidb, database=DATABASE) as cursor:
        _made(cursor, "differing", columns, "(1, '10:00', 'a', '1'), (2, '10:00', 'A', '1.0')")
    asked = RowsAsOf.find(ranged.login(tidb), _now(tidb), TableName(DATABASE, "differing"), RULES)
    time, two = computed.written("TIME(3)").type, pa.table({"id": pa.array([2, 1], pa.int32())})

    assert asked.values("c", time, pa.string(), two).to_pylist() == ["10:00:00.000"] * 2
    with pytest.raises(ValueRefused, match="its column c was time then"):
        asked.values("c", computed.written("TIME").type, pa.string(), two)
    with pytest.raises(ValueRefused, match="rows are here that were not there then"):
        asked.values("c", time, pa.string(), pa.table({"id": pa.array([2, 3], pa.int32())}))
    with pytest.raises(ValueRefused, match="none of them was there then"):
        asked.values("c", time, pa.string(), two.slice(0, 1).set_column(0, "id", pa.array([9], pa.int32())))
    with pytest.raises(ValueRefused, match="it had no column d then"):
        asked.only_value("d", pa.string())
    assert asked.only_value("t", pa.string()) is None
    assert asked.only_value("j", pa.string()) is None
    assert str(asked.only_value("c", pa.string())) == "10:00:00.000"


def _now(tidb: Tidb) -> int:
    return int(tidb.rows("SHOW MASTER STATUS")[0][1])
