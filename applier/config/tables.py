"""Which tables are followed, where they go, and what their columns and rows become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import ConfigDict, Field, SecretStr, model_validator

from applier.changefeed.filter import TableFilter, TablePattern, most_specific
from applier.changefeed.route import misrouted
from applier.changefeed.shape import Shape
from applier.changefeed.table import TableName
from applier.config.readers import Reader, with_format
from applier.config.section import Section, refuse
from applier.config.table_layout import LayoutSection, TableLayout

ZeroDates = Literal["null", "stop", "string"]

_SHORTEST_KEY = 16


class TablesSection(Section):
    """Which tables, where they go, and how their types map."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, LayoutSection] = Field(init=False)

    include: tuple[str, ...] = ("*.*",)
    """TiCDC's filter rules, e.g. `shop.*`, `!shop.tmp_*`; the last that fits wins. Databases that lie among the tables
    of the changefeed itself (`applier_<name>`, and the same with `__load` or `__resume`) are always left out."""
    route: str = "{database}.{table}"
    """Iceberg namespace and table of an upstream table: `{database}` and `{table}` stand for its names, and dots
    separate levels, as in `lake.{database}.{table}`."""
    incomplete: Literal["allow", "refuse"] = "allow"
    """What becomes of a table whose CREATE TABLE the feed does not hold, as it may lack earlier rows: it is made,
    marked as incomplete and kept out of the cut; or the run is refused."""
    on_drop: Literal["keep", "drop"] = "keep"
    """What DROP TABLE does to the Iceberg table; kept ones are stamped."""
    readers: tuple[Reader, ...] = ()
    """Engines that are to read the tables: nothing is written that one of them cannot read (docs/reading.md)."""
    format_version: Literal[2, 3] = 3
    """Iceberg format of new tables: 3 marks removed rows by deletion vectors, 2 by position delete files. Where the key
    is left out, it is 2 if one of the `readers` reads no other. Existing tables keep theirs."""
    properties: dict[str, str] = Field(default={})
    """Iceberg properties of new tables."""
    tinyint1: Literal["int", "boolean"] = "int"
    """Type of tinyint(1)."""
    zero_dates: ZeroDates = "null"
    """What zero and partial dates become: NULL (counted), a stop, or text columns."""
    zero_dates_of: dict[str, ZeroDates] = Field(default={})
    """The same for single columns, by `database.table.column`."""
    virtual_columns: Literal["omit", "null"] = "omit"
    """Virtual generated columns, whose values no message carries, are left out of new tables and columns, or are there
    and hold NULL."""
    unknown_default: Literal["stop", "null"] = "stop"
    """A new column whose default is not known in rows before the DDL."""
    distinct_keys: tuple[str, ...] = ()
    """Tables of which you know that no two keys differ only in what the protocol loses (docs/types.md), by TiCDC's
    filter rules: their rows are not refused for such keys."""
    keys: dict[str, tuple[str, ...]] = Field(default={})
    """Debezium of TiCDC v8.0 to v8.4, whose messages have no key: key columns by `database.table`, `[]` for a table
    without any key."""
    mask_key: SecretStr | None = None
    """Key of the masks of the kind `hash` (docs/shapes.md), of 16 characters or more: `"${file:/run/secrets/mask_key}"`
    or `"${MASK_KEY}"`. Tables keep a fingerprint of it: with another key, they are parked."""

    @classmethod
    def unknown(cls, key: str, value: Any) -> tuple[str | None, str] | None:
        """See `Section`; the pattern of a layout has a dot."""
        found = None if "." in key else super().unknown(key, value)
        if found is None:
            return None
        meant, instead = found
        if not isinstance(value, dict):
            instead += ', and patterns of tables, as in [tables."db.table"]'
        elif any(isinstance(inner, dict) for inner in value.values()):
            instead = f'a pattern needs quotes: [tables."{key}.…"]'
        else:
            instead = f'a pattern names the database, too: write [tables."DATABASE.{key}"]'
        return meant, instead

    @classmethod
    def section_of(cls, key: str) -> type[Section] | None:
        """See `Section`."""
        return LayoutSection if "." in key else super().section_of(key)

    @model_validator(mode="before")
    @classmethod
    def _follow_readers(cls, given: Any) -> Any:
        return with_format(given)

    @model_validator(mode="after")
    def _check(self) -> TablesSection:
        problems = {}
        filters = {"include": self.include, "distinct_keys": self.distinct_keys}
        for key in [*filters, *self.layouts]:
            try:
                TableFilter(filters[key]) if key in filters else TablePattern(key)
            except ValueError as error:
                problems[key] = str(error)
        for key, layout in self.layouts.items():
            if layout.row_ids == "keep" and self.format_version < 3:
                problems[f"{key}.row_ids"] = "is for format 3, and tables.format_version or tables.readers ask for 2"
        problems |= {key: problem for key, route in self.routes.items() if (problem := misrouted(route))}
        if problem := self._key_problem:
            problems["mask_key"] = problem
        refuse(problems)
        return self

    @property
    def _key_problem(self) -> str:
        hashing = [key for key, layout in self.layouts.items() if "hash" in layout.columns.mask.values()]
        if self.mask_key is None:
            missing = 'missing: a mask of [tables."{}".columns] is "hash"; set it to "${{file:PATH}}" or "${{NAME}}"'
            return missing.format(hashing[0]) if hashing else ""
        is_short = len(self.mask_key.get_secret_value()) < _SHORTEST_KEY
        return f"must have {_SHORTEST_KEY} characters or more, or it can be guessed" if is_short else ""

    @property
    def layouts(self) -> dict[str, LayoutSection]:
        """The layouts, by their patterns."""
        return self.__pydantic_extra__ or {}

    def layout_of(self, name: TableName) -> TableLayout | None:
        """How a table should lie, by the most specific pattern; None if no pattern names it."""
        patterns = ((TablePattern(text), (text, section)) for text, section in self.layouts.items())
        found = most_specific(patterns, name)
        return None if found is None else replace(found[1].layout, pattern=found[0])

    @property
    def shapes(self) -> Sequence[tuple[TablePattern, Shape]]:
        """What the rows of the tables of each pattern are to be."""
        key = "" if self.mask_key is None else self.mask_key.get_secret_value()
        return tuple((TablePattern(text), section.shape(text, key)) for text, section in self.layouts.items())

    @property
    def routes(self) -> dict[str, str]:
        """The templates of routes, by their keys."""
        return {"route": self.route} | {f"{key}.route": each.route for key, each in self.layouts.items() if each.route}
