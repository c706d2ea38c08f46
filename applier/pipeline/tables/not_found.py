"""Changes of rows that a table should hold and does not: refused, or counted and shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from applier import wording
from applier.changefeed.completeness import Reason, Why
from applier.changefeed.table import TableName
from applier.config.settings import Config
from applier.pipeline.state import State
from applier.runtime.logs import logger


@dataclass(slots=True)
class MissingRows:
    """Counts updates and deletes whose row was not in the table, step by step.

    Attributes:
        count: Rows of the step under way.
    """

    count: int = 0
    _logged: set[TableName] = field(default_factory=set)

    def refusing(self, names: Iterable[TableName], state: State, config: Config) -> Collection[TableName]:
        """The tables that must hold each row that a change updates or deletes: live ones, unless they may go on."""
        if config.tables.incomplete == "allow" and config.changefeed.on_table_error == "stop":
            return frozenset()
        return {name for name in names if name in state.completeness and state.completeness[name].is_live}

    def note(self, name: TableName, rows: int, state: State) -> None:
        """Count rows that a table did not hold; a table that counted as live is incomplete from here on."""
        if not rows:
            return
        self.count += rows
        found = state.completeness.get(name)
        if found is not None and found.is_live:
            found = state.completeness[name] = replace(found, reason=Reason(Why.NOT_FOUND))
        if name not in self._logged:
            self._logged.add(name)
            way_out = wording.way_out([name], found, state.config_path) if found is not None else ""
            logger().warning("rows to change are not in the table", table=str(name), rows=rows, way_out=way_out)
