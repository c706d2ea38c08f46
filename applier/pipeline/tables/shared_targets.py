"""Refuses two upstream tables that would write one Iceberg table, and names that the control tables have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from applier.changefeed.filter import TableFilter
from applier.changefeed.route import Route
from applier.changefeed.table import TableName, TableVersion, fold
from applier.config import own_namespaces
from applier.config.settings import Config
from applier.ddl.actions import Effect
from applier.ddl.schema_tracker import Tables
from applier.errors import TableMismatch
from applier.pipeline.scan.window_scan import WindowScan
from applier.runtime.logs import logger


def refuse_shared(config: Config, scan: WindowScan, known: Tables, described: Iterable[TableVersion] = ()) -> None:
    """Walk through what a step would apply, and refuse the first moment at which two tables would be one.

    `known` are the tables before it, and `described` those that it would make without a CREATE TABLE.

    Raises:
        TableMismatch: Two upstream tables have one Iceberg table, or one lies among the control tables.
    """
    made = {name for ddl in scan.ddl for name in ddl.brought}
    met = {name for name, _ in scan.results.parts} | {version.name for version in described}
    targets = refuse_shared_names(config, {*known, *(met - made)})
    for ddl in scan.ddl:
        for done in ddl.effects:
            targets.follow(done)


def refuse_shared_names(config: Config, names: Iterable[TableName]) -> _Targets:
    """The same for tables that are there together, which have these Iceberg tables.

    Raises:
        TableMismatch: As `refuse_shared`.
    """
    name, route = config.changefeed.name, config.tables.route
    # A job writes its copies there.
    own = [each for each in own_namespaces.own(name) if not route.startswith(f"{each}.{{both}}")]
    targets = _Targets(config.route, config.filter, frozenset(_folded((each,)) for each in own))
    for table in sorted(set(names)):
        targets.claim(table)
    return targets


@dataclass(slots=True)
class _Targets:
    """Which upstream table has which Iceberg table.

    Names count in small letters: many catalogs fold them, and so do file systems.
    """

    route: Route
    include: TableFilter
    own: frozenset[tuple[str, ...]]
    _owners: dict[tuple[str, ...], TableName] = field(default_factory=dict)

    def claim(self, name: TableName, *, is_new: bool = False) -> None:
        identifier = self.route.identifier(name)
        target = ".".join(identifier)
        is_own = _folded(identifier[:-1]) in self.own
        what = f"Upstream table {name} goes to {target}, a namespace of this changefeed's own."
        if not self.include.admits(name):
            if is_own and is_new:
                logger().warning("table left out", table=str(name), because=what)
            return
        if is_own:
            hint = f"Route it elsewhere with tables.route, or leave it out with tables.include: !{name}."
            raise TableMismatch(what, hint)
        other = self._owners.setdefault(_folded(identifier), name)
        if other != name:
            what = f"Upstream tables {other} and {name} both go to the Iceberg table {target}."
            hint = (
                "Give each its own with {database} in tables.route, or by a route of its pattern under [tables]; "
                f"or leave one out with tables.include: !{name}."
            )
            raise TableMismatch(what, hint)

    def follow(self, done: Effect) -> None:
        for name in done.leaving(list(self._owners.values())):
            identifier = _folded(self.route.identifier(name))
            if self._owners.get(identifier) == name:
                del self._owners[identifier]
        for name in done.brought:
            self.claim(name, is_new=True)


def _folded(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(fold(part) for part in parts)
