"""Rows of many messages of one table version and kind: as structs that msgspec filled, or as columns."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from applier.changefeed.event import Op
from applier.changefeed.table import TableName
from applier.changefeed.zoned_text import ZONED, ZonedText

Ints: TypeAlias = npt.NDArray[np.int64]


class FixedRow(msgspec.Struct, gc=False):
    """Base of rows with a fixed set of columns."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """The columns of rows of one kind, and how they are read.

    Attributes:
        row: The struct of a row: fields `c0`, `c1`, … under the names of the columns, text or `ZonedText` or None.
        names: The columns.
        zoned: Numbers of those whose values are `ZonedText`.
        key: Names of the key columns, all among `names`.
    """

    row: type[FixedRow]
    names: tuple[str, ...]
    zoned: frozenset[int]
    key: tuple[str, ...]

    def arrays(self, rows: Sequence[FixedRow], names: Sequence[str]) -> list[pa.Array[Any]]:
        """Wire values of some columns, as `to_array` takes them."""
        numbers = [self.names.index(name) for name in names]
        values = zip(*map(attrgetter(*(f"c{number}" for number in [*numbers, 0])), rows), strict=True)
        return [_array(column, is_zoned=number in self.zoned) for number, column in zip(numbers, values, strict=False)]


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Row changes of one table version and kind.

    Attributes:
        name: The table's upstream name.
        version: What the rows refer to.
        op: Insert, update or delete, as all the messages say. No update among them changes a key.
        shape: The columns.
        places: Number of each row's message in what was read.
        commit_ts: TSO of each row.
        rows: The new image of each row, of a delete the old one.
    """

    name: TableName
    version: int
    op: Op
    shape: RowShape
    places: Ints
    commit_ts: Ints
    rows: list[FixedRow]

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the key columns."""
        return self.shape.key

    @property
    def form(self) -> Hashable:
        """Blocks of one version and of one form have columns of one type: the same are text with a zone here."""
        return frozenset(self.shape.names[number] for number in self.shape.zoned)

    def part(self, rows: Ints) -> RowBlock:
        """Some of its rows."""
        kept = [self.rows[row] for row in rows.tolist()]
        return replace(self, places=self.places[rows], commit_ts=self.commit_ts[rows], rows=kept)


@dataclass(frozen=True, slots=True)
class ColumnBlock:
    """The same where the rows are columns already.

    Attributes:
        name: See `RowBlock`, also for the next four.
        version: What the rows refer to.
        op: Insert, update or delete.
        key: Names of the key columns.
        places: Number of each row's message in what was read.
        commit_ts: TSO of each row.
        form: See `RowBlock`.
        columns: Wire values, as `to_array` takes them; of a delete at least those of the key.
        indexes: Number of each row within its message; None where each message holds one.
    """

    name: TableName
    version: int
    op: Op
    key: tuple[str, ...]
    places: Ints
    commit_ts: Ints
    form: Hashable
    columns: Mapping[str, pa.Array[Any]]
    indexes: Ints | None = None

    def part(self, rows: Ints) -> ColumnBlock:
        """Some of its rows."""
        return replace(
            self,
            places=self.places[rows],
            commit_ts=self.commit_ts[rows],
            columns={name: column.take(rows) for name, column in self.columns.items()},
            indexes=None if self.indexes is None else self.indexes[rows],
        )


Block: TypeAlias = RowBlock | ColumnBlock


def without(block: Block, places: Collection[int]) -> Block:
    """A block without the rows of some messages."""
    rows = np.flatnonzero(~np.isin(block.places, list(places)))
    return block if len(rows) == len(block.places) else block.part(rows)


def row_shape(names: Sequence[str], key: Sequence[str], zoned: Sequence[str] = ()) -> RowShape:
    """The shape of rows with these columns, no more and no fewer."""
    numbered = list(enumerate(names))
    fields = [(f"c{number}", ZonedText | None if name in zoned else str | None) for number, name in numbered]
    renamed = {f"c{number}": name for number, name in numbered}
    row: Any = msgspec.defstruct("Row", fields, bases=(FixedRow,), gc=False, forbid_unknown_fields=True, rename=renamed)
    places = frozenset(number for number, name in numbered if name in zoned)
    return RowShape(row, tuple(names), places, tuple(key))


def _array(values: Sequence[Any], *, is_zoned: bool) -> pa.Array[Any]:
    if not is_zoned:
        return pa.array(values, pa.string())
    locations = pa.array([None if value is None else value.location for value in values], pa.string())
    texts = pa.array([None if value is None else value.value for value in values], pa.string())
    return pa.StructArray.from_arrays([locations, texts], fields=list(ZONED), mask=locations.is_null())
