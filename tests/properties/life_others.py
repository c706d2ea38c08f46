"""Other writers in the life of some tables, and layouts that the configuration draws anew at each start."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from applier.changefeed.history import SUFFIX
from applier.sink.iceberg.catalog import Identifier
from applier.sink.iceberg.table import Table
from tests.lab import Lab
from tests.other_writers import OTHER_WRITERS, undo_roll_back
from tests.properties.life_shapes import LifeShape
from tests.upstream import Name

_LAYOUTS: tuple[Mapping[str, Any], ...] = (
    {},
    {"partition_by": ["bucket(2, id)"]},
    {"partition_by": ["id"], "sort_by": []},
    {"partition_by": [], "sort_by": ["id desc"]},
    {"metadata": ["_commit_ts", "_op"]},
    {"partition_by": ["bucket(2, id)"], "metadata": ["_source_table", "_commit_time"]},
    {"sort_by": ["id"], "properties": {"write.parquet.compression-codec": "zstd"}},
)
"""All by the one column that no DDL takes away: a load of a table into a layout that does not fit it is refused."""


@dataclass(slots=True)
class LifeOthers:
    """What others do to the tables of one changefeed.

    Args:
        lab: The changefeed.
        random: The draw.
        story: What happens is added to it.
        shape: The shape of all tables.

    Attributes:
        rolled: Names of tables that were rolled back at the last act, until it is undone.
    """

    lab: Lab
    random: random.Random
    story: list[str]
    shape: LifeShape = field(default_factory=LifeShape)
    rolled: set[Name] = field(default_factory=set)
    _places: set[str] = field(default_factory=set)

    def act(self) -> None:
        """One of them does something to some table that is there, whether it lives or not."""
        if not (there := sorted(self._tables(), key=lambda item: item[0])):
            return
        name, identifier, table = self.random.choice(there)
        # A table of which another writer takes the column that marks deleted rows is parked until it is loaded again.
        who = self.random.choice(
            sorted(OTHER_WRITERS.keys() - ({"takes a name"} if "deletes" in self.shape.keys else set()))
        )
        self.story.append(f"another writer {who}: {name.database}.{name.table}")
        if who == "rolls back":
            self.rolled.add(Name(name.database, name.table.removesuffix(SUFFIX)))
            self._places.add(str(table.handle.uuid()))
        OTHER_WRITERS[who](self.lab.catalog, identifier)

    def undo(self) -> set[Name]:
        """Do what the refusal of tables says that were rolled back; their names as they were then."""
        undone, self.rolled = self.rolled, set()
        for _, identifier, table in self._tables() if self._places else ():
            if str(table.handle.uuid()) in self._places:
                undo_roll_back(self.lab.catalog, identifier)
        self._places.clear()
        return undone

    def tables_section(self) -> Mapping[str, Any]:
        """Keys of [tables] for the next start."""
        patterns = self.random.sample(["*.*", "shop.*", "mart.*", "shop.orders"], self.random.randint(0, 2))
        layouts = {pattern: self.random.choice(_LAYOUTS) for pattern in patterns}
        version = self.random.choice([2, 3])
        if version == 3 and self.random.random() < 0.5:
            layouts = {pattern: {**layout, "row_ids": "keep"} for pattern, layout in layouts.items()}
        if self.shape.keys:
            layouts.setdefault("*.*", {})
            layouts = {name: {**layout, **self.shape.keys} for name, layout in layouts.items()}
        return {"format_version": version, **self.shape.more, **layouts}

    def _tables(self) -> list[tuple[Name, Identifier, Table]]:
        found = []
        for database in ("shop", "mart"):
            for identifier in self.lab.catalog.list((self.lab.namespace(database),)):
                table = self.lab.catalog.load(identifier)
                if table is not None and table.setting("applier.dropped-at") is None:
                    found.append((Name(database, identifier[-1]), identifier, table))
        return found
