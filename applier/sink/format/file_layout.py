"""How new files of a table are written, and where by the rules of Iceberg's own location providers: good anywhere."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from urllib.parse import quote_plus

import mmh3

from applier.config.table_layout import SortField
from applier.errors import TableMismatch
from applier.sink.format.partition_spec import parse_spec
from applier.sink.format.types import TableSchema, TypeJson

_CUSTOM = "write.location-provider.impl"
"""A Java class that places files."""

_DATA = "write.data.path"

_HASH_BITS = 20

_ZEROS = re.compile(r"(\.0+|(?<=[1-9])0+)(?=\+|$)")
"""Zeros at the end of a second."""


@dataclass(frozen=True, slots=True)
class FileLayout:
    """What the metadata of a table, which is named for messages, says of files that are to come.

    The location is the root of its files; partition spec and sort order are in Iceberg's JSON.
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
            TableMismatch: A Java class places the files of the table, or a property that Iceberg knows no more.
        """
        is_hashed = self._says("write.object-storage.enabled", "")
        self._refuse_strange(is_hashed=is_hashed)
        root = self.location.rstrip("/")
        data = self.properties.get(_DATA, f"{root}/data").rstrip("/")
        file = f"{self._folder(values)}/{name}" if values else name
        if not is_hashed:
            return f"{data}/{file}"
        has_folders = self._says("write.object-storage.partitioned-paths", "true")
        file = file if has_folders else name
        if not data.startswith(root):
            # Other tables may have the same folder.
            return "/".join((data, _hashed(file), *root.split("/")[-2:], file))
        return f"{data}/{_hashed(file)}{'/' if has_folders else '-'}{file}"

    def _says(self, key: str, otherwise: str) -> bool:
        return self.properties.get(key, otherwise).lower() == "true"

    def _refuse_strange(self, *, is_hashed: bool) -> None:
        table, properties = self.table, self.properties
        if _CUSTOM in properties:
            custom = properties[_CUSTOM]
            what = f"Files of table {table} are placed by the Java class {custom}, which applier does not run"
            raise TableMismatch(what, f"Remove the table property {_CUSTOM}.")
        for key in ("write.folder-storage.path", *(["write.object-storage.path"] if is_hashed else [])):
            if key in properties and _DATA not in properties:
                what = f"Table {table} says by {key} where its files belong, which Iceberg does not read any more"
                raise TableMismatch(what, f"Set the table property {_DATA} instead, and remove {key}.")

    def _folder(self, values: Sequence[Any]) -> str:
        spec = parse_spec(self.table, self.spec, self.schema)
        types = {field.name: field.type for field in self.schema.fields}
        shown = [_shown(value, field.transform, types[field.column]) for field, value in zip(spec, values, strict=True)]
        named = zip(self.spec["fields"], shown, strict=True)
        return "/".join(f"{_escaped(field['name'])}={_escaped(value)}" for field, value in named)

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


def _shown(value: Any, transform: str, kind: TypeJson) -> str:
    """A partition value as people read it."""
    if value is None:
        return "null"
    match transform:
        case "year":
            return f"{1970 + value:04}"
        case "month":
            return f"{1970 + value // 12:04}-{value % 12 + 1:02}"
        case "hour":
            return f"{date.fromordinal(date(1970, 1, 1).toordinal() + value // 24)}-{value % 24:02}"
        case "identity" | "truncate" if str(kind).startswith(("binary", "fixed")):
            return base64.b64encode(bytes.fromhex(value)).decode()
        case "identity" if str(kind).startswith("time"):
            return _ZEROS.sub("", value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escaped(text: str) -> str:
    """As Java's `URLEncoder` writes it."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def _hashed(name: str) -> str:
    """Folders that spread files evenly over the prefixes of an object storage."""
    bits = f"{mmh3.hash(name, signed=False) % (1 << _HASH_BITS):0{_HASH_BITS}b}"
    return "/".join((bits[:4], bits[4:8], bits[8:12], bits[12:]))
