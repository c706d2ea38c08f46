"""Restores upstream names from those that TiCDC writes into Avro schemas, as far as the DDL messages show them.

Avro allows `[A-Za-z_][A-Za-z0-9_]*`, so TiCDC writes `my-db` as `my_db` and records the original nowhere in the schema.
Only a DDL message (`avro-enable-watermark`) has it. Without one, tables and columns keep their sanitised names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

from applier.changefeed.table import TableName, TableVersion
from applier.errors import DecodeError

_Name = TypeVar("_Name", str, TableName)
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_]")
_HINT = "give them names that differ in letters, digits and underscores too, or use another protocol."


def sanitised(name: str) -> str:
    """A name as TiCDC writes it: one `_` for each character that Avro forbids, one more before a leading digit."""
    clean = _FORBIDDEN.sub("_", name)
    return f"_{clean}" if clean[:1].isdigit() else clean


class OriginalNames:
    """Upstream names by the sanitised ones, learnt from table versions that come from DDL."""

    def __init__(self) -> None:
        self._tables: dict[TableName, set[TableName]] = defaultdict(set)
        self._columns: dict[tuple[TableName, str], set[str]] = defaultdict(set)
        self._computed: dict[tuple[TableName, str], bool] = {}

    def learn(self, version: TableVersion) -> None:
        """Take the names of one described table version."""
        name = version.name
        self._tables[TableName(sanitised(name.database), sanitised(name.table))].add(name)
        for column in version.columns:
            self._columns[name, sanitised(column.name)].add(column.name)
            is_virtual = column.generated == "virtual"
            self._computed[name, column.name] = is_virtual and self._computed.get((name, column.name), True)

    def table(self, name: TableName) -> TableName:
        """Upstream name of a table.

        Raises:
            DecodeError: Two tables share the sanitised name.
        """
        originals = self._tables.get(name, {name})
        return _only(originals, f"Avro record {name}")

    def columns(self, table: TableName, names: Iterable[str]) -> dict[str, str | None]:
        """Upstream names of columns, by their sanitised ones; None for virtual generated columns, which hold no value.

        Raises:
            DecodeError: Two columns that the table has, or had at another time, share a sanitised name.
        """
        found = {name: self._columns.get((table, name), {name}) for name in names}
        originals = {name: _only(columns, f"field {name} of {table}") for name, columns in found.items()}
        return {name: None if self._computed.get((table, column)) else column for name, column in originals.items()}


def _only(originals: set[_Name], what: str) -> _Name:
    if len(originals) > 1:
        names = ", ".join(sorted(str(name) for name in originals))
        what = f"{what[0].upper()}{what[1:]} may stand for each of {names}: Avro gives them one name."
        raise DecodeError(what, _HINT)
    return next(iter(originals))
