"""Defaults and changes of type in, what a real TiDB stores for them out, as JSON holds it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pymysql

from tests.services.tidb import Tidb

STRICT = "STRICT_TRANS_TABLES"
"""The mode of DDL that refuses what does not fit, and takes zero dates."""

_INVALID = re.compile(r"for (?:column )?'c(\d+)'|column 'c(\d+)'")
_KEPT = """SELECT COLUMN_DEFAULT FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 't' AND column_name <> 'id' ORDER BY ordinal_position"""


class Stored(NamedTuple):
    """What TiDB makes of a default.

    Attributes:
        kept: The text of the default that it keeps, which Simple shows.
        value: What rows hold: see `shown`.
    """

    kept: str
    value: Any


@contextmanager
def session(tidb: Tidb, mode: str = STRICT, zone: str = "+00:00", database: str = "computed") -> Iterator[Any]:
    """A cursor in an SQL mode and a time zone, in a database of its own."""
    connection = pymysql.connect(host="127.0.0.1", port=tidb.port, user="root", autocommit=True, conv={})
    with connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {database}")
        cursor.execute(f"USE {database}")
        cursor.execute(f"SET sql_mode = '{mode}', time_zone = '{zone}'")
        yield cursor


def defaults(cursor: Any, columns: Sequence[tuple[str, str]], *, added: bool) -> list[Stored | None]:
    """What rows hold in columns of a type with a default, as SQL; None for one that TiDB refuses.

    Args:
        cursor: See `session`.
        columns: Type and default of each.
        added: By ADD COLUMN, to a row that is there; else by CREATE TABLE, which is a hundred times faster.
    """
    found: list[Stored | None] = []
    for start in range(0, len(columns), 50):
        found += _some_defaults(cursor, columns[start : start + 50], added=added)
    return found


def _some_defaults(cursor: Any, columns: Sequence[tuple[str, str]], *, added: bool) -> list[Stored | None]:
    kept = dict(enumerate(columns))
    while kept:
        try:
            found = _made(cursor, kept, added=added)
        except pymysql.MySQLError as error:
            match = _INVALID.search(str(error))
            if match is None and len(columns) > 1:
                middle = len(columns) // 2
                halves = (columns[:middle], columns[middle:])
                return [one for half in halves for one in _some_defaults(cursor, half, added=added)]
            del kept[int(match[1] or match[2]) if match else 0]
        else:
            return [found.get(place) for place in range(len(columns))]
    return [None] * len(columns)


def _made(cursor: Any, columns: dict[int, tuple[str, str]], *, added: bool) -> dict[int, Stored]:
    texts = [f"c{place} {kind} DEFAULT {default}" for place, (kind, default) in columns.items()]
    _drop(cursor)
    cursor.execute("CREATE TABLE t (id INT)" if added else f"CREATE TABLE t (id INT, {', '.join(texts)})")
    cursor.execute("INSERT INTO t (id) VALUES (1)")
    if added:
        cursor.execute("ALTER TABLE t " + ", ".join(f"ADD COLUMN {text}" for text in texts))
    cursor.execute("SET @zone = @@time_zone, time_zone = '+00:00'")
    try:
        cursor.execute(f"SELECT {', '.join(shown(f'c{place}', kind) for place, (kind, _) in columns.items())} FROM t")
        values = cursor.fetchone()
    finally:
        cursor.execute("SET time_zone = @zone")
    cursor.execute(_KEPT)
    kept = [text for (text,) in cursor.fetchall()]
    return {place: Stored(*found) for place, *found in zip(columns, kept, values, strict=True)}


def casts(cursor: Any, old: str, new: str, literals: Sequence[str]) -> list[tuple[str, Any, bool]]:
    """What MODIFY COLUMN makes of values: the old value, the new one, and whether TiDB did it.

    Values that the old type does not take are left out, and all of them where TiDB never makes such a change.
    """
    _drop(cursor)
    cursor.execute(f"CREATE TABLE t (id INT PRIMARY KEY, c {old})")
    try:
        cursor.execute(f"ALTER TABLE t MODIFY COLUMN c {new}")
    except pymysql.MySQLError:
        return []
    _drop(cursor)
    cursor.execute(f"CREATE TABLE t (id INT PRIMARY KEY, c {old})")
    for place, literal in enumerate(literals):
        try:
            cursor.execute(f"INSERT INTO t VALUES ({place}, {literal})")
        except pymysql.MySQLError:
            continue
    cursor.execute(f"SELECT id, {shown('c', old)} FROM t WHERE c IS NOT NULL")
    before = dict(cursor.fetchall())
    after = _modified(cursor, old, new, {int(place): literals[int(place)] for place in before})
    return [(value, after.get(int(place)), int(place) in after) for place, value in before.items()]


def _modified(cursor: Any, old: str, new: str, literals: dict[int, str]) -> dict[int, Any]:
    """New values by place: half of the rows at a time, once TiDB refuses all."""
    if not literals:
        return {}
    _drop(cursor)
    cursor.execute(f"CREATE TABLE t (id INT PRIMARY KEY, c {old})")
    cursor.execute("INSERT INTO t VALUES " + ", ".join(f"({place}, {text})" for place, text in literals.items()))
    try:
        cursor.execute(f"ALTER TABLE t MODIFY COLUMN c {new}")
    except pymysql.MySQLError:
        if len(literals) == 1:
            return {}
        items = list(literals.items())
        halves = (dict(items[: len(items) // 2]), dict(items[len(items) // 2 :]))
        return {place: value for half in halves for place, value in _modified(cursor, old, new, half).items()}
    cursor.execute(f"SELECT id, {shown('c', new)} FROM t")
    return {int(place): value for place, value in cursor.fetchall()}


def shown(name: str, kind: str) -> str:
    """SQL that shows a column without loss: bytes in hexadecimal, numbers and times as text."""
    word = kind.lower().split("(")[0].split()[0]
    if word.endswith(("binary", "blob")):
        return f"HEX({name})"
    if word in ("float", "double"):
        return f"CAST(CAST({name} AS DOUBLE) AS CHAR)"
    return f"CAST({name} AS UNSIGNED)" if word in ("bit", "year") else f"CAST({name} AS CHAR)"


def _drop(cursor: Any) -> None:
    cursor.execute("DROP TABLE IF EXISTS t")
