"""Maps upstream table names to Iceberg identifiers."""

from __future__ import annotations

from dataclasses import dataclass

from applier.changefeed.table import TableName


@dataclass(frozen=True, slots=True)
class Route:
    """Where tables go.

    Attributes:
        template: `namespace.table` with `{database}` and `{table}` in it; more dots make more namespace levels. Dots
            inside upstream names do not: they stay part of one level.
    """

    template: str

    def identifier(self, name: TableName) -> tuple[str, ...]:
        """Namespace levels and table name of an upstream table."""
        values = {"database": name.database, "table": name.table}
        return tuple(level.format_map(values) for level in self.template.split("."))
