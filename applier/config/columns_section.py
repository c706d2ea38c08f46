"""What a user wants the columns of an Iceberg table to be where that is not what upstream has."""

from __future__ import annotations

from pydantic import model_validator

from applier.config.section import Section, refuse


class ColumnsSection(Section):
    """What becomes of single columns of the tables of a pattern, by their upstream names in any letters."""

    exclude: tuple[str, ...] = ()
    """Columns that the tables do not get: their values are read from the feed and forgotten (docs/shapes.md). Existing
    tables lose them at the next start."""

    @model_validator(mode="after")
    def _check(self) -> ColumnsSection:
        refuse({"exclude": "has an empty name of a column"} if "" in self.exclude else {})
        return self
