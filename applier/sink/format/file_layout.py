"""How new files of a table are written, as a value that is good in any process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from applier.config.table_layout import SortField
from applier.sink.format.partition_spec import parse_spec
from applier.sink.format.places import partition_folder, place
from applier.sink.format.types import TableSchema


@dataclass(frozen=True, slots=True)
class FileLayout:
    """What the metadata of a table says of files that are to come.

    Attributes:
        table: Its name, for messages.
        location: Root of its files.
        schema: Its columns.
        spec: Its partition spec, in Iceberg's JSON.
        order: Its sort order, in Iceberg's JSON.
        properties: Its properties.
        format_version: 1, 2 or 3.
    """

    table: str
    location: str
    schema: TableSchema
    spec: Mapping[str, Any]
    order: Mapping[str, Any]
    properties: Mapping[str, str]
    format_version: int

    def place(self, name: str, values: Sequence[Any] = ()) -> str:
        """Where a new file of some name belongs, in the partition of these values of single-value JSON.

        Raises:
            TableMismatch: Something else than Iceberg's own rules places the files.
        """
        folder = ""
        if values:
            spec = parse_spec(self.table, self.spec, self.schema)
            types = {field.name: field.type for field in self.schema.fields}
            folder = partition_folder([field["name"] for field in self.spec["fields"]], spec, types, values)
        return place(self.table, self.location, self.properties, folder, name)

    @property
    def sort(self) -> tuple[SortField, ...] | None:
        """Columns of the sort order; None if it is by anything but top-level columns as `SortField` orders them."""
        columns = {column.id: column.name for column in self.schema.fields}
        parts = self.order["fields"]
        kinds = {(part["transform"], part["direction"], part["null-order"]) for part in parts}
        if kinds - {("identity", "asc", "nulls-first"), ("identity", "desc", "nulls-last")}:
            return None
        if any(part["source-id"] not in columns for part in parts):
            return None
        return tuple(SortField(columns[part["source-id"]], part["direction"] == "desc") for part in parts)

    def order_of(self, key: Sequence[str]) -> tuple[tuple[SortField, ...], int]:
        """The order in which rows are written, and the id of the table's sort order if they are in it, else 0."""
        by_key, order = tuple(map(SortField, key)), self.sort
        if not order:
            return by_key, 0 if order is None else int(self.order["order-id"])
        columns = {each.column for each in order}
        return (*order, *(each for each in by_key if each.column not in columns)), int(self.order["order-id"])
