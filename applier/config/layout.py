"""Sections of `[tables]` that say how single tables lie, by a pattern of their names."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, model_validator

from applier.changefeed.filter import TablePattern
from applier.changefeed.table import TableName
from applier.config.section import Section, refuse
from applier.config.table_layout import TableLayout, partition_fields, sort_fields


class LayoutSection(Section):
    """How the tables of a pattern lie, which is as in `include` without `!`: `[tables."shop.*"]`. Of the patterns that
    name a table, the most specific one counts, and it alone: an exact name before a pattern, then the pattern with more
    letters, then the last.
    """

    partition_by: tuple[str, ...] | None = None
    """Partition fields, e.g. `["day(created)", "bucket(16, id)", "region"]`. Transforms: `identity`, `year`, `month`,
    `day`, `hour`, `bucket(N, column)`, `truncate(N, column)` (not of decimals). `[]` for none. Default: none for new
    tables, and existing ones stay as they are."""
    sort_by: tuple[str, ...] | None = None
    """Order of the rows in a file, e.g. `["created", "id desc"]`. Default: the key for new tables, and existing ones
    stay as they are."""
    properties: dict[str, str] = Field(default={})
    """Iceberg properties of these tables, beside `tables.properties`; existing tables get them as well."""

    @model_validator(mode="after")
    def _check(self) -> LayoutSection:
        problems = {}
        for key, read in {"partition_by": partition_fields, "sort_by": sort_fields}.items():
            try:
                read(getattr(self, key) or ())
            except ValueError as error:
                problems[key] = str(error).removeprefix(f"{key} ")
        own = sorted(key for key in self.properties if key.startswith("applier"))
        if own:
            problems["properties"] = f"{own[0]} is set by applier alone"
        refuse(problems)
        return self

    @property
    def layout(self) -> TableLayout:
        """The section's values, read."""
        return TableLayout(
            None if self.partition_by is None else partition_fields(self.partition_by),
            None if self.sort_by is None else sort_fields(self.sort_by),
            self.properties,
        )


def layout_of(sections: Mapping[str, LayoutSection], name: TableName) -> TableLayout | None:
    """The layout of a table by the most specific pattern; None if no pattern names it."""
    patterns = [(TablePattern(text), section) for text, section in sections.items()]
    fitting = [(pattern.rank, place) for place, (pattern, _) in enumerate(patterns) if pattern.names(name)]
    return patterns[max(fitting)[1]][1].layout if fitting else None
