"""The tables that exports are loaded into, aside from those that readers see, and what they say about themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from applier.changefeed.history import KEPT_FROM
from applier.changefeed.message import Count
from applier.changefeed.route import Route
from applier.changefeed.table import Partitioning, TableName, TableVersion
from applier.config import own_namespaces
from applier.pipeline.tables.target_tables import TargetTables
from applier.sink.iceberg.table import Table

LOADED = "applier.loaded"
"""Property of a table that an export was loaded into: its `LoadRecord` as JSON."""


def entries(targets: TargetTables, load: LoadRecord) -> dict[str, str]:
    """Entries of the commits of a table that an export is loaded into, which holds none of its changes."""
    kept = {} if targets.maker.rules.changes(load.name) is None else {KEPT_FROM: str(load.tso)}
    return {LOADED: load.to_json(), **kept}


class LoadRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a table that is loaded; any process can go on with it, and hand it over.

    Attributes:
        name: The upstream table.
        tso: The export holds every change at or below this commit ts, and none above.
        files: Files of the export that are in the table: each commit of rows says how many it has brought it to.
        of: Files that the export has of the table.
        described: The table as the export declares it, as `TableVersion.to_json`.
        partitioning: How it is partitioned upstream.
        is_unique: No two rows of the table have one key; not known before all files are in it.
        form: How its files are read: rows that were read in another way do not count.
        bounds: Keys at which a table of a TiDB was cut into ranges, which count as files.
        mark: What tells a table of a TiDB from one of the same name in another cluster.
    """

    name: TableName
    tso: Count
    files: Count
    of: Count
    described: str
    partitioning: Partitioning | None = None
    is_unique: bool = False
    form: str = ""
    bounds: tuple[tuple[str, ...], ...] = ()
    mark: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether every row of the export is in the table, once."""
        return self.files == self.of and self.is_unique

    @property
    def share(self) -> float:
        """Share of the files that are in the table."""
        return self.files / self.of if self.of else 1.0

    @property
    def version(self) -> TableVersion:
        """The table as the export declares it; its number is the TSO."""
        return TableVersion.from_json(self.described)

    def to_json(self) -> str:
        """Text form, as the property `LOADED` holds it."""
        return msgspec.json.encode(self, enc_hook=tuple).decode()

    @staticmethod
    def told_by(properties: Mapping[str, str]) -> LoadRecord | None:
        """What the properties of a table say; None for one that no export was loaded into."""
        text = properties.get(LOADED)
        if text is None:
            return None
        return msgspec.json.decode(text, type=LoadRecord, dec_hook=lambda kind, parts: kind(*parts))


def route(changefeed: str) -> str:
    """The route of these tables, as `tables.route`."""
    return f"{own_namespaces.loads(changefeed)}.{{both}}"


def place_of(changefeed: str, name: TableName) -> tuple[str, ...]:
    """Where an upstream table is loaded."""
    return Route(route(changefeed)).identifier(TableName(*name.folded))


def find(targets: TargetTables, name: TableName) -> tuple[LoadRecord, Table] | None:
    """The table that an upstream table is loaded into; None without one."""
    table = targets.catalog.load(place_of(targets.feed.name, name))
    load = None if table is None else LoadRecord.told_by(table.properties)
    return None if table is None or load is None else (load, table)


def discard(targets: TargetTables, name: TableName, tso: int) -> None:
    """Forget the table of an export, which readers have now; its files stay. One of a later load stays."""
    found = find(targets, name)
    if found is not None and found[0].tso == tso:
        targets.catalog.drop(place_of(targets.feed.name, name))


def others(targets: TargetTables, names: Iterable[TableName]) -> Sequence[tuple[str, ...]]:
    """The tables that exports were loaded into, save those of some upstream tables."""
    kept = {place_of(targets.feed.name, name) for name in names}
    return [place for place in targets.catalog.list((own_namespaces.loads(targets.feed.name),)) if place not in kept]
