"""Maps upstream table names to Iceberg identifiers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from applier.changefeed.filter import TablePattern, most_specific
from applier.changefeed.table import TableName


@dataclass(frozen=True, slots=True)
class Route:
    """Where tables go.

    Attributes:
        template: `namespace.table` with `{database}` and `{table}` in it; more dots make more namespace levels. Dots
            inside upstream names do not: they stay part of one level. Own routes of the applier have `{both}` instead:
            database and table in one level, which no other table has.
        patterns: Templates of the tables of some patterns, of which the most specific one counts; None for `template`.
    """

    template: str
    patterns: Sequence[tuple[TablePattern, str | None]] = ()

    def identifier(self, name: TableName) -> tuple[str, ...]:
        """Namespace levels and table name of an upstream table."""
        values = {"database": name.database, "table": name.table}
        if "{both}" in self.template:
            values["both"] = _both(name)
        template = most_specific(self.patterns, name) or self.template
        return tuple(level.format_map(values) for level in template.split("."))


def misrouted(template: str) -> str:
    """What is wrong with a template that a user gives; "" if nothing is."""
    unknown = sorted(set(re.findall(r"\{(.*?)\}", template)) - {"database", "table"})
    if "{table}" not in template or "." not in template:
        return "needs a namespace and {table}, such as {database}.{table}"
    return f"knows {{database}} and {{table}}, not {', '.join(unknown)}" if unknown else ""


def _both(name: TableName) -> str:
    """A database and a table as one name: the first two underscores part them, or the length of the database does."""
    is_plain = "__" not in f"{name.database}_"
    return f"{name.database}__{name.table}" if is_plain else f"__{len(name.database)}_{name.database}__{name.table}"
