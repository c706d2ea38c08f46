"""A row of a table as it was sent and as a batch takes it, for a look that shows what the shape of the table does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from applier.changefeed.table import Column, TableVersion
from applier.changefeed.types import VIRTUAL, ColumnPath, TypeRules


class Sample(NamedTuple):
    """A row of a table.

    Attributes:
        version: The version that it is written in, with the types that count.
        sent: The row as upstream has it, by column, without the columns that the shape of its table hides.
        row: The row as a part has it: columns of `KEYED_SCHEMA` or `KEYLESS_SCHEMA`, and those of its table.
    """

    version: TableVersion
    sent: Mapping[str, Any]
    row: pa.Table

    @property
    def place(self) -> tuple[int, ...]:
        """Its place among the rows of its table."""
        return tuple(self.row[name][0].as_py() or 0 for name in ("\0ts", "\0partition", "\0offset", "\0index"))

    def newer(self, other: Sample | None) -> Sample:
        """The newer one of two."""
        return self if other is None or other.place < self.place else other


def as_sent(rules: TypeRules) -> TypeRules:
    """The rules for types that change the least of what upstream has."""
    return TypeRules(zero_dates="string", distinct_keys=rules.distinct_keys)


def is_hidden(version: TableVersion, column: Column, rules: TypeRules) -> bool:
    """Whether the values that upstream has in a column must not be found here."""
    is_masked = rules.mask_of(ColumnPath(version.name, column.name)) is not None
    return is_masked or rules.shape_of(version.name).excludes(column.name)


def is_shown(version: TableVersion, column: Column, rules: TypeRules) -> bool:
    """Whether a row as upstream has it shows a column: no protocol carries the values of a virtual one."""
    return column.generated != VIRTUAL and not is_hidden(version, column, rules)
