"""The steps that an evolution of an Iceberg table is made of; a field is what Iceberg calls a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from applier.changefeed.table import ColumnType


@dataclass(frozen=True, slots=True)
class AddField:
    """A new optional field behind the others; rows that are there already have its default."""

    name: str
    type: pa.DataType
    default: pa.Scalar  # type: ignore[type-arg]
    doc: str = ""


@dataclass(frozen=True, slots=True)
class DropField:
    """A field that goes; snapshots from before still have it."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameField:
    """A field with a new name and the same field id."""

    name: str
    to: str


@dataclass(frozen=True, slots=True)
class PromoteField:
    """A field whose type becomes wider in place, in one of the ways that Iceberg's specification allows."""

    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class ConvertField:
    """A field whose values TiDB rewrote, without row events: every value is cast.

    Attributes:
        name: The field, by its new name.
        old: TiDB type that its values have.
        new: TiDB type that they get.
        old_arrow: The same as Arrow.
        new_arrow: The same as Arrow; where Iceberg cannot promote the field to it, the field is made anew.
        holds_null: False where upstream had no NULL, so that NULL here is a zero date that has no Iceberg value.
    """

    name: str
    old: ColumnType
    new: ColumnType
    old_arrow: pa.DataType
    new_arrow: pa.DataType
    holds_null: bool = True


@dataclass(frozen=True, slots=True)
class MoveField:
    """A field that moves behind another, or to the front (None)."""

    name: str
    after: str | None


@dataclass(frozen=True, slots=True)
class RelaxField:
    """A field that may be NULL from here on; nothing to do where it may be already."""

    name: str


@dataclass(frozen=True, slots=True)
class DescribeField:
    """A field's comment."""

    name: str
    doc: str


@dataclass(frozen=True, slots=True)
class DescribeTable:
    """The table's comment."""

    doc: str


@dataclass(frozen=True, slots=True)
class SetKey:
    """The columns that identify a row from here on; () for a table without a key."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows go."""


Step: TypeAlias = (
    AddField
    | DropField
    | RenameField
    | PromoteField
    | ConvertField
    | MoveField
    | RelaxField
    | DescribeField
    | DescribeTable
    | SetKey
    | Truncate
)
