"""Shapes that all tables of a life have, and what upstream's rows are in them by plain Python."""

from __future__ import annotations

import hashlib
import hmac
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.upstream import Cell, Row, Schema

COLUMN = "c"
"""The column that shapes hide. No DDL of a shaped life renames or converts it, which would park its table."""

_KEY = "a key of sixteen letters"

_CASTS = {"decimal": "string", "bigint": "string"}

_NAMES = {"c": "code", "v": "Value", "d": "of_d"}
"""Names of columns in Iceberg. DDL rename columns to these, and away from them."""


@dataclass(frozen=True, slots=True)
class LifeShape:
    """One shape.

    Attributes:
        keys: What each pattern under [tables] says of it.
        refused_ddl: Methods of a history whose DDL would park a table of this shape.
        is_keyed: Each table has a key.
        more: Other keys of [tables].
    """

    keys: Mapping[str, Any] = field(default_factory=dict)
    refused_ddl: frozenset[str] = frozenset()
    is_keyed: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def history(self) -> str:
        """Which changes are kept: `changes`, `images`, or "" for none."""
        return str(self.keys.get("history", ""))

    @staticmethod
    def drawn(seed: int, *, keeps_changes: bool | None = None) -> LifeShape:
        """That of a seed: half of them have none. A third of all keeps changes, or as the caller says."""
        found, chance = LifeShape._drawn(seed), random.Random(f"changes of {seed}")
        if not (chance.random() < 1 / 3 if keeps_changes is None else keeps_changes):
            return found
        keys = {key: value for key, value in found.keys.items() if key not in ("where", "deletes")}
        return replace(found, keys={**keys, "history": chance.choice(["changes", "images"])}, is_keyed=True)

    @staticmethod
    def _drawn(seed: int) -> LifeShape:
        chance = random.Random(f"shape of {seed}")
        if chance.random() < 0.5:
            return LifeShape()
        keys: dict[str, Any] = {}
        hidden = chance.choice([None, "exclude", "hash", "last4", "redact"])
        if hidden == "exclude":
            keys["columns"] = {"exclude": [COLUMN.upper()]}
        elif hidden:
            keys["columns"] = {"mask": {COLUMN: hidden}}
        names = random.Random(f"names of {seed}")
        if names.random() < 0.4:
            found = {column: name for column, name in _NAMES.items() if (column, hidden) != (COLUMN, "exclude")}
            keys.setdefault("columns", {})["rename"] = found
        if is_cast := chance.random() < 0.4:
            keys["types"] = _CASTS
        rows = chance.choice(["", "", "where", "soft"])
        if rows == "where":
            keys["where"] = "id < 6 and id <> 2"
        elif rows == "soft":
            keys["deletes"] = "soft"
        refused = {"_modify_column"} if is_cast or hidden else set()
        refused |= {"_rename_column"} if hidden else set()
        refused |= {"_of_partition"} if rows == "soft" else set()
        more = {"mask_key": _KEY} if hidden == "hash" else {}
        return LifeShape(keys, frozenset(refused), rows == "soft", more)

    def rows(self, schema: Schema, rows: Iterable[Row]) -> list[Row]:
        """What upstream's rows of a table are here."""
        types = {column.name: column.type for column in schema.columns}
        return [
            {
                self._named(name): self._cell(name, types[name], cell)
                for name, cell in row.items()
                if not self._is_left_out(name)
            }
            for row in rows
            if self._admits(row)
        ]

    def _named(self, name: str) -> str:
        return str(self.keys.get("columns", {}).get("rename", {}).get(name, name))

    def _is_left_out(self, name: str) -> bool:
        return name == COLUMN and "exclude" in self.keys.get("columns", {})

    def _admits(self, row: Row) -> bool:
        if "where" not in self.keys:
            return True
        key = row["id"]
        return isinstance(key, int) and key < 6 and key != 2

    def _cell(self, name: str, kind: str, cell: Cell) -> Cell:
        if cell is None:
            return None
        mask = self.keys.get("columns", {}).get("mask", {}).get(name)
        if mask is not None:
            return _MASKS[mask](str(cell))
        return str(cell) if "types" in self.keys and kind.partition("(")[0] in _CASTS else cell


_MASKS: Mapping[str, Callable[[str], str]] = {
    "redact": lambda _: "***",
    "last4": lambda text: "*" * len(text) if len(text) <= 4 else "*" * (len(text) - 4) + text[-4:],
    "hash": lambda text: hmac.new(_KEY.encode(), text.encode(), hashlib.sha256).hexdigest(),
}
