"""What the columns of a table are called in Iceberg where the configuration renames those of upstream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from applier.changefeed.shape import Shape
from applier.changefeed.table import fold
from applier.config.table_layout import PartitionField, SortField
from applier.sink.format.types import RENAMED_COLUMNS, TableSchema, renamed_entries


@dataclass(frozen=True, slots=True)
class Renaming:
    """Names of columns in Iceberg by those of upstream; others are the same."""

    names: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(schema: TableSchema) -> Renaming:
        """The names of the columns of a table."""
        return Renaming(schema.renamed)

    def changed(
        self, shape: Shape, dropped: Iterable[str], renamed: Mapping[str, str], added: Iterable[str]
    ) -> Renaming:
        """The names behind a change of columns upstream, which renames some (new names by former ones): columns whose
        name is new there are called as a shape says, and so are those that had their names in Iceberg so far.
        """
        gone, new = {*dropped, *renamed}, {name: shape.renamed(name) for name in (*renamed.values(), *added)}
        kept, taken = {name: own for name, own in self.names.items() if name not in gone}, set(map(fold, new.values()))
        return Renaming({name: shape.renamed(name) if fold(own) in taken else own for name, own in kept.items()} | new)

    def __call__(self, name: str) -> str:
        """The name of one column."""
        return self.names.get(name, name)

    def columns(self, columns: pa.Schema) -> pa.Schema:
        """The columns under their names in Iceberg."""
        return pa.schema([column.with_name(self(column.name)) for column in columns]) if self.names else columns

    def partition(self, fields: Sequence[PartitionField]) -> tuple[PartitionField, ...]:
        """The same for partition fields."""
        return tuple(replace(each, column=self(each.column)) for each in fields)

    def sort(self, fields: Sequence[SortField]) -> tuple[SortField, ...]:
        """The same for a sort order."""
        return tuple(replace(each, column=self(each.column)) for each in fields)

    def entries(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The property of a table with these columns alone, where it is another one than among `properties`: a name
        that it has of a column which is gone would be taken for that of the next one.
        """
        found = renamed_entries(self.names).get(RENAMED_COLUMNS, "")
        return {} if found == properties.get(RENAMED_COLUMNS, "") else {RENAMED_COLUMNS: found}
