"""Converts schemas between Arrow, with field ids, and Iceberg's JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

import pyarrow as pa

from applier.changefeed.shape import METADATA_COLUMNS
from applier.changefeed.table import fold
from applier.errors import TableMismatch

TypeJson: TypeAlias = str | dict[str, Any]
"""A type in Iceberg's own JSON: a name, or an object for struct, list and map."""

Array: TypeAlias = "pa.Array[Any]"
Chunks: TypeAlias = "pa.ChunkedArray[Any]"
"""Values of one column, whatever their type."""

LINEAGE = ("_row_id", "_last_updated_sequence_number")
"""Iceberg's columns that say which row this is and when it was last changed (format 3)."""

FIELD_ID = b"PARQUET:field_id"
"""Where Arrow keeps the number by which Iceberg knows a column, whatever its name is."""

ADDED_COLUMNS = "applier-added-columns"
"""Table property: names of the columns that applier added to those of upstream, with a space between two. It outlives
the changefeed, whose own properties begin with `applier.`."""

RENAMED_COLUMNS = "applier-renamed-columns"
"""Table property: names of columns of the table that have another one upstream, with that one, as JSON. Outside
`sink/iceberg` and what writes files, columns have their names of upstream. It outlives the changefeed as well."""

_DELETED_AT = "_deleted_at"

METADATA_TYPES: Mapping[str, pa.DataType] = {
    "_commit_ts": pa.int64(),
    "_commit_time": pa.timestamp("us", tz="UTC"),
    "_op": pa.string(),
    "_source_table": pa.string(),
    _DELETED_AT: pa.timestamp("us", tz="UTC"),
}
"""Types of those columns. One of another type is not theirs: a user dropped ours, and another writer took its name."""

DOC = b"doc"
"""Where a field's comment travels in Arrow metadata."""

_NAMES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.binary(16),
    "unknown": pa.null(),
}
_TYPES = {arrow: name for name, arrow in _NAMES.items() if name != "uuid"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_FIXED = re.compile(r"fixed\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Field:
    """One top-level column of an Iceberg table.

    Attributes:
        id: Its field id, which outlives renames.
        name: Its name; that of upstream if the configuration renames it.
        type: Its type as Iceberg's JSON.
        arrow: The same as Arrow.
        required: True where Iceberg allows no NULL.
        initial_default: Single-value JSON that rows written before the column existed read; None for NULL.
        renamed: Its name in Iceberg if the configuration renames it; "" where that is its name.
    """

    id: int
    name: str
    type: TypeJson
    arrow: pa.DataType
    required: bool
    initial_default: Any = None
    renamed: str = ""

    @property
    def iceberg_name(self) -> str:
        """The name that readers of the table know."""
        return self.renamed or self.name


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of an Iceberg table as of one schema id.

    Attributes:
        id: Iceberg's schema id.
        fields: Columns in order.
        identifier: Names of the identifier fields, in column order.
        arrow: The same columns as Arrow, field ids in the metadata.
        added: Names of the columns that applier adds to those of upstream; see `row_metadata`. One that a user dropped
            keeps its name until that is removed from the property.
    """

    id: int
    fields: tuple[Field, ...]
    identifier: tuple[str, ...]
    arrow: pa.Schema
    added: frozenset[str] = frozenset()

    @staticmethod
    def parse(text: str, properties: Mapping[str, str] | None = None) -> TableSchema:
        """Read Iceberg's schema JSON, and in the properties of its table which columns were added or renamed.

        Raises:
            TableMismatch: A column is of a type that cannot be written; or two are one column of upstream.
        """
        value, properties = json.loads(text), properties or {}
        upstream = json.loads(properties.get(RENAMED_COLUMNS) or "{}")
        fields = tuple(_field(column, upstream) for column in value["fields"])
        _refuse_two_of_one(fields)
        others = {field.name for field in fields if METADATA_TYPES.get(field.name, field.arrow) != field.arrow}
        keys = set(value.get("identifier-field-ids", ()))
        return TableSchema(
            id=value.get("schema-id", 0),
            fields=fields,
            identifier=tuple(field.name for field in fields if field.id in keys),
            arrow=pa.schema([_member(each.name, each.type, each.id, required=each.required) for each in fields]),
            added=frozenset(properties.get(ADDED_COLUMNS, "").split()) - others,
        )

    @property
    def upstream(self) -> tuple[Field, ...]:
        """The columns that may hold values of upstream, in order: those of other writers are among them."""
        return tuple(field for field in self.fields if field.name not in self.added) if self.added else self.fields

    @property
    def names(self) -> frozenset[str]:
        """Names of all columns."""
        return frozenset(field.name for field in self.fields)

    @property
    def shadows(self) -> bool:
        """Whether a column has a name of Iceberg's own, so that no job of Spark may read or write the table."""
        return any(fold(field.iceberg_name) in METADATA_COLUMNS for field in self.fields)

    @property
    def renamed(self) -> dict[str, str]:
        """Names in Iceberg of the columns that have another one upstream."""
        return {field.name: field.renamed for field in self.fields if field.renamed}

    @property
    def deleted_at(self) -> Field | None:
        """The column that says when upstream deleted a row that stays; None where such rows go."""
        return self.field(_DELETED_AT) if _DELETED_AT in self.added else None

    def taken(self, names: Iterable[str]) -> list[str]:
        """Those of some names of upstream columns that are names of columns which applier added, in any letters."""
        added = set(map(fold, self.added))
        return [name for name in names if fold(name) in added]

    def field(self, name: str) -> Field | None:
        """The column of that name, or None."""
        return next((field for field in self.fields if field.name == name), None)


def renamed_entries(renamed: Mapping[str, str]) -> dict[str, str]:
    """The property of a table whose columns have other names in Iceberg, by those of upstream; none without any."""
    found = {own: name for name, own in sorted(renamed.items()) if own != name}
    return {RENAMED_COLUMNS: json.dumps(found)} if found else {}


def schema_json(columns: pa.Schema, key: Sequence[str] = ()) -> str:
    """Iceberg's schema JSON for new columns.

    Nullability gives `required`, metadata `doc` the comment, and field ids are given anew. The identifier fields are
    those of the key; they become required, as Iceberg demands. It allows no float or double among them, so a key with
    one is left out.

    Raises:
        TableMismatch: A column's type has no Iceberg type.
    """
    if any(field.name in key and pa.types.is_floating(field.type) for field in columns):
        key = ()
    ids = count(1)
    numbered = [(next(ids), field) for field in columns]
    return json.dumps(
        {
            "type": "struct",
            "schema-id": 0,
            "fields": [_field_json(number, field, ids, required=field.name in key) for number, field in numbered],
            "identifier-field-ids": [number for number, field in numbered if field.name in key],
        }
    )


def iceberg_type(arrow: pa.DataType, ids: Any = None) -> TypeJson:
    """Iceberg's JSON of an Arrow type; `ids` numbers nested fields, from 1 when absent.

    Raises:
        TableMismatch: Iceberg has no such type.
    """
    ids = ids or count(1)
    if arrow in _TYPES:
        return _TYPES[arrow]
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision}, {arrow.scale})"
    if pa.types.is_fixed_size_binary(arrow):
        return f"fixed[{arrow.byte_width}]"
    if pa.types.is_list(arrow):
        number = next(ids)
        element = {"element": iceberg_type(arrow.value_type, ids), "element-required": not arrow.value_field.nullable}
        return {"type": "list", "element-id": number, **element}
    if pa.types.is_struct(arrow):
        members = [(next(ids), arrow.field(index)) for index in range(arrow.num_fields)]
        return {"type": "struct", "fields": [_field_json(number, field, ids) for number, field in members]}
    raise TableMismatch(f"Iceberg has no type for a column of Arrow type {arrow}")


def is_promotion(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether Iceberg widens a field from one type to the other in place."""
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale and old.precision <= new.precision)
    return (old, new) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def type_text(kind: TypeJson) -> str:
    """A type of Iceberg in one word."""
    if isinstance(kind, str):
        return kind
    return f"list<{kind.get('element')}>" if kind.get("type") == "list" else str(kind.get("type"))


def arrow_type(kind: TypeJson) -> pa.DataType:
    """Arrow type of an Iceberg type, nested field ids included.

    Raises:
        TableMismatch: A type that this writer cannot fill, such as variant or geometry.
    """
    if isinstance(kind, dict):
        return _nested(kind)
    if kind in _NAMES:
        return _NAMES[kind]
    if match := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(match[1]), int(match[2]))
    if match := _FIXED.fullmatch(kind):
        return pa.binary(int(match[1]))
    raise TableMismatch(f"Columns of Iceberg type {kind} cannot be written")


def default_of(field: Field) -> pa.Scalar[Any]:
    """The value of the column in rows written before it existed: its initial default, or NULL."""
    kind, value = field.arrow, field.initial_default
    if value is None or pa.types.is_nested(kind):
        return pa.scalar(value, kind)
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.scalar(bytes.fromhex(value.replace("-", "")), kind)
    return pa.scalar(value).cast(kind) if isinstance(value, str) else pa.scalar(value, kind)


def repeated(value: Any, rows: int) -> Chunks:
    """A column that holds one value in each row."""
    return pa.chunked_array([pa.repeat(value, rows)])


def by_value(values: Any, function: Callable[[Any], Any], kind: pa.DataType) -> Array:
    """Apply a function to each distinct value once; NULL stays NULL."""
    encoded = values.dictionary_encode()
    return pa.array([function(value) for value in encoded.dictionary.to_pylist()], kind).take(encoded.indices)


def leaves(kind: pa.DataType) -> int:
    """Number of Parquet columns that a column of this type takes."""
    if pa.types.is_nested(kind):
        return sum(leaves(kind.field(index).type) for index in range(kind.num_fields))
    return 1


def _nested(kind: dict[str, Any]) -> pa.DataType:
    if kind["type"] == "struct":
        return pa.struct([_arrow_field(field) for field in kind["fields"]])
    if kind["type"] == "list":
        return pa.list_(_member("element", kind["element"], kind["element-id"], required=kind["element-required"]))
    key: Any = _member("key", kind["key"], kind["key-id"], required=True)
    value: Any = _member("value", kind["value"], kind["value-id"], required=kind["value-required"])
    result: pa.DataType = pa.map_(key, value)
    return result


def _member(name: str, kind: TypeJson, number: int, *, required: bool) -> pa.Field[Any]:
    return pa.field(name, arrow_type(kind), not required, {FIELD_ID: str(number).encode()})


def _arrow_field(value: dict[str, Any]) -> pa.Field[Any]:
    return _member(value["name"], value["type"], value["id"], required=value["required"])


def _refuse_two_of_one(fields: Sequence[Field]) -> None:
    for each in filter(lambda field: field.renamed, fields):
        if any(other.name == each.name and other.id != each.id for other in fields):
            renamed, name = each.renamed, each.name
            what = f"Column {renamed} of an Iceberg table is {name} upstream, and others have added a column {name}"
            raise TableMismatch(what, "Rename or drop the column that was added.")


def _field(value: dict[str, Any], upstream: Mapping[str, str]) -> Field:
    name = upstream.get(value["name"], value["name"])
    return Field(
        id=value["id"],
        name=name,
        type=value["type"],
        arrow=arrow_type(value["type"]),
        required=value["required"],
        initial_default=value.get("initial-default"),
        renamed="" if name == value["name"] else value["name"],
    )


def _field_json(number: int, field: pa.Field[Any], ids: Any, *, required: bool = False) -> dict[str, Any]:
    result = {
        "id": number,
        "name": field.name,
        "required": required or not field.nullable,
        "type": iceberg_type(field.type, ids),
    }
    doc = (field.metadata or {}).get(DOC, b"").decode()
    return result | ({"doc": doc} if doc else {})
