"""Says in words what the steps of an evolution cost, and derives the columns that they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from applier.commands.catalog_reader import LakeTable
from applier.decode.values.target import type_text
from applier.errors import TableMismatch
from applier.sink.evolve.casts.cast import is_promotion
from applier.sink.evolve.steps import (
    AddField,
    ConvertField,
    DescribeField,
    DescribeTable,
    DropField,
    MoveField,
    PromoteField,
    RelaxField,
    RenameField,
    SetKey,
    Step,
    Truncate,
)
from applier.sink.format.types import Field, TableSchema, TypeJson, iceberg_type

_NEW = -1
"""Field id of a column that is not there yet."""


def described(step: Step) -> str:  # noqa: C901 - one case for each kind of step
    """A step in a few words."""
    match step:
        case AddField(name, kind, default):
            return f"add {name} {iceberg_text(iceberg_type(kind))}, {_value(default)} in existing rows"
        case DropField(name):
            return f"drop {name}; older snapshots keep it"
        case RenameField(name, to):
            return f"rename {name} to {to}"
        case PromoteField(name, kind):
            return f"widen {name} to {iceberg_text(iceberg_type(kind))}"
        case ConvertField(name, old, new):
            return f"convert {name} from {type_text(old)} to {type_text(new)} as TiDB does"
        case MoveField(name, after):
            return f"move {name} {'to the front' if after is None else f'behind {after}'}"
        case RelaxField(name):
            return f"let {name} be NULL"
        case DescribeField(name):
            return f"set the comment of {name}"
        case DescribeTable():
            return "set the table's comment"
        case SetKey(columns):
            return f"rows are identified by {', '.join(columns)}" if columns else "rows have no key any more"
        case Truncate():
            return "remove all rows"


def rewrite(step: Step, table: LakeTable) -> str | None:
    """Why a step writes data files anew; "" where that needs no words, None where metadata is enough."""
    if not table.may_hold_rows:
        return None
    match step:
        case AddField(name, kind, default) if default.is_valid:
            if pa.types.is_nested(kind):
                return f"Iceberg has no default for the nested column {name}."
            return f"Format version 2 has no default for the new column {name}." if table.format_version < 3 else None
        case ConvertField(name, old_arrow=old, new_arrow=new):
            if old != new and not is_promotion(old, new):
                return f"A value of {name} that TiDB would not have cast in strict SQL mode stops the feed."
            return f"Only if the conversion changes a value of {name}; one that strict mode refuses stops the feed."
    return None


def predicted(schema: TableSchema, steps: Sequence[Step]) -> TableSchema:
    """Columns after an evolution; their order is left as it is.

    Raises:
        TableMismatch: The table lacks a column that a step changes, or has another type than upstream had.
    """
    fields = {field.name: field for field in schema.fields}
    for step in steps:
        match step:
            case DropField(name):
                fields.pop(name, None)
            case RenameField(name, to):
                fields[to] = replace(_found(fields, name), name=to)
                del fields[name]
            case AddField(name, kind):
                fields[name] = _retyped(Field(_NEW, name, "", kind, required=False), kind)
            case PromoteField(name, kind):
                fields[name] = _retyped(_found(fields, name), kind)
            case ConvertField(name, old_arrow=old, new_arrow=kind):
                found = _found(fields, name)
                if found.arrow != old:
                    was = iceberg_text(iceberg_type(old))
                    what = f"Column {name} of the Iceberg table is {found.type}, upstream it was {was}."
                    raise TableMismatch(what, "Restore the column's type, or load the table anew.")
                fields[name] = _retyped(found, kind)
            case RelaxField(name):
                fields[name] = replace(_found(fields, name), required=False)
    return replace(schema, fields=tuple(fields.values()))


def iceberg_text(kind: TypeJson) -> str:
    """A type of Iceberg in one word."""
    if isinstance(kind, str):
        return kind
    return f"list<{kind.get('element')}>" if kind.get("type") == "list" else str(kind.get("type"))


def _value(default: pa.Scalar[Any]) -> str:
    value = default.as_py()
    return "NULL" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)


def _found(fields: dict[str, Field], name: str) -> Field:
    if name not in fields:
        what = f"The Iceberg table has no column {name}, which the change concerns."
        raise TableMismatch(what, f"Add it, or load the table anew. Columns are: {', '.join(fields)}.")
    return fields[name]


def _retyped(field: Field, kind: pa.DataType) -> Field:
    return replace(field, type=iceberg_type(kind), arrow=kind)
