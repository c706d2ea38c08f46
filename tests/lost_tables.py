"""How a control table is lost: each takes the catalog and an identifier."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from applier.sink.iceberg.catalog import Catalog, Identifier


def drop(catalog: Catalog, identifier: Identifier, _chance: random.Random) -> None:
    """Somebody drops it; its files stay."""
    catalog.drop(identifier)


def roll_back(catalog: Catalog, identifier: Identifier, chance: random.Random) -> None:
    """Somebody sets it to an older snapshot: its rows are old, its properties are not."""
    table = catalog.load(identifier)
    older = [] if table is None else list(table.history())[1:]
    if table is not None and older:
        snapshot = chance.choice(older).id
        if table.has_snapshot(snapshot):
            table.handle.manageSnapshots().setCurrentSnapshot(snapshot).commit()


def restore(catalog: Catalog, identifier: Identifier, chance: random.Random) -> None:
    """Somebody restores its metadata file from a backup: rows and properties are old."""
    table = catalog.load(identifier)
    if table is None:
        return
    former = table.java.items(table.handle.operations().current().previousFiles())
    if files := [str(item.file()) for item in former]:
        catalog.drop(identifier)
        catalog.handle.registerTable(catalog._table(identifier), chance.choice(files))


LOSSES: Mapping[str, Callable[[Catalog, Identifier, random.Random], None]] = {
    "dropped": drop,
    "rolled back": roll_back,
    "restored": restore,
}
