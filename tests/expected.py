"""Lines of `expected.jsonl` in, the same contents as Python values out, and what the tables are.

What SQL showed is read here by rules of its own, not by those of the applier.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from applier.changefeed.table import Column, ColumnType, Index, TableName, TableVersion

Contents = Mapping[str, Mapping[str, Any]]
"""Member `tables` of a line."""

_TYPE = re.compile(r"(\w+)(?:\((.*)\))?(.*)")


def tables(lines: Sequence[Mapping[str, Any]]) -> dict[TableName, TableVersion]:
    """Each table as its last line shows it, with the key that identifies its rows."""
    found = {}
    for text in {text for line in lines for text in line["tables"]}:
        shown = [line["tables"][text] for line in lines if text in line["tables"]]
        found[name_of(text)] = _table(text, shown)
    return found


def rows(table: Mapping[str, Any], *, without: frozenset[str] = frozenset()) -> list[dict[str, Any]]:
    """Rows as Python values: what the wire never holds (virtual columns), and columns in `without`, are left out."""
    columns = [
        (number, column["name"], _reader(column["mysql_type"]))
        for number, column in enumerate(table["columns"])
        if column.get("generated") != "virtual" and column["name"] not in without
    ]
    return [
        {name: None if row[number] is None else read(row[number]) for number, name, read in columns}
        for row in table["rows"]
    ]


def bag(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows in a form that compares: no order, floats by their bits."""
    return sorted(repr(sorted((name, _comparable(value)) for name, value in row.items())) for row in found)


def name_of(text: str) -> TableName:
    """A table's name from `database.table`."""
    return TableName(*text.split(".", 1))


def _table(text: str, shown: Sequence[Mapping[str, Any]]) -> TableVersion:
    last = shown[-1]
    key = tuple(last["primary_key"] or _unique(shown))
    columns = tuple(
        Column(column["name"], _column_type(column["mysql_type"]), nullable=column["name"] not in key)
        for column in last["columns"]
    )
    return TableVersion(name_of(text), 0, columns, (Index("k", key, unique=True, primary=True),) if key else ())


def _unique(shown: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """The first unique key none of whose columns ever shows NULL; the lines do not say which columns are NOT NULL."""
    for key in shown[-1].get("unique_keys") or ():
        nulls = (
            row[n] is None for t in shown for n, c in enumerate(t["columns"]) if c["name"] in key for row in t["rows"]
        )
        if not any(nulls):
            return list(key)
    return ()


def _column_type(text: str) -> ColumnType:
    match = _TYPE.fullmatch(text)
    assert match is not None
    name, inside, rest = match[1], match[2] or "", match[3]
    if name in ("enum", "set"):
        return ColumnType(name, elements=tuple(re.findall("'([^']*)'", inside)))
    numbers = [int(number) for number in inside.split(",") if number]
    if name in ("time", "datetime", "timestamp"):
        return ColumnType(name, scale=sum(numbers))
    length, scale = [*numbers, None, None][:2]
    return ColumnType(name, "unsigned" in rest, length, scale)


def _reader(mysql_type: str) -> Callable[[Any], Any]:
    name = re.split("[( ]", mysql_type, maxsplit=1)[0]
    if name == "decimal":
        digits = _column_type(mysql_type).length or 0
        return str if digits > 38 else Decimal
    return _READERS.get(name, str)


def _single(text: str) -> float:
    value: float = struct.unpack("<f", struct.pack("<f", float(text)))[0]
    return value


def _bytes(cell: Mapping[str, str]) -> bytes:
    return bytes.fromhex(cell["hex"])


def _date(text: str) -> date | None:
    return None if "-00" in text or text.startswith("0000") else date.fromisoformat(text)


def _datetime(text: str) -> datetime | None:
    return None if _date(text[:10]) is None else datetime.fromisoformat(text)


def _timestamp(text: str) -> datetime | None:
    moment = _datetime(text)
    return None if moment is None else moment.replace(tzinfo=UTC)


def _vector(text: str) -> tuple[float, ...]:
    return tuple(_single(number) for number in text[1:-1].split(",") if number)


_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit"), int),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _bytes),
    "float": _single,
    "double": float,
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "vector": _vector,
}


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    if isinstance(value, tuple):
        return tuple(map(_comparable, value))
    return str(value) if isinstance(value, int) else value
