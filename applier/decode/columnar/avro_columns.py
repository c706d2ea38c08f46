"""Turns fields of many Avro datums into Arrow arrays of wire values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.event import Op
from applier.changefeed.row_block import ColumnBlock
from applier.changefeed.table import ColumnType, TableVersion
from applier.decode.columnar.avro_reader import (
    DECIMAL_BYTES,
    Datums,
    Flags,
    Ints,
    Numbers,
    Records,
    Texts,
    Values,
    Zoned,
    taken,
    to_arrow,
)
from applier.decode.columnar.groups import OldRows
from applier.decode.registry.wire_format import AvroSchema
from applier.decode.values.dates import ZONED

_MAX_DIGITS = 38
_KINDS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_NONE = np.zeros(0, np.int64)
_REPLACES = frozenset({Op.UPDATE, Op.UPSERT})
"""Kinds that may have an old image, whose key may be another one."""

Head: TypeAlias = tuple[bytes, bytes]
"""The beginnings of key and value, which name their schemas."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How one column is read.

    Attributes:
        field: Its name in the datum.
        name: Its name upstream.
        kind: What `to_arrow` makes of it.
        factor: Numbers are multiplied by this.
    """

    field: str
    name: str
    kind: pa.DataType
    factor: int = 1

    def odd(self, values: Values) -> Flags | None:
        """Values that only the decoder itself can read; None for none."""
        if isinstance(values, Texts) and pa.types.is_decimal(self.kind):
            return values.sizes > DECIMAL_BYTES
        if isinstance(values, Numbers) and self.factor > 1:
            most = ((1 << 63) - 1) // self.factor
            return np.asarray((values.values > most) | (values.values < -most))
        return None

    def array(self, values: Values, rows: Ints) -> pa.Array[Any]:
        """Values of some rows."""
        if isinstance(values, Zoned):
            pair = [to_arrow(taken(part, rows), pa.string()) for part in (values.locations, values.clocks)]
            return pa.StructArray.from_arrays(pair, fields=list(ZONED), mask=pair[0].is_null())
        if not isinstance(values, Numbers | Texts):
            nulls: pa.Array[Any] = pa.array([None] * len(rows), self.kind)
            return nulls
        chosen = taken(values, rows)
        if isinstance(chosen, Numbers) and self.factor > 1:
            chosen = Numbers(chosen.values * self.factor, chosen.present)
        return to_arrow(chosen, self.kind)


def _kind(avro: str, column: ColumnType) -> pa.DataType:
    if column.name == "decimal" and avro == "bytes" and (column.length or 0) <= _MAX_DIGITS:
        return pa.decimal128(_MAX_DIGITS, column.scale or 0)
    if avro not in _KINDS or (column.name == "decimal" and avro == "bytes"):
        raise ValueError
    return _KINDS[avro]


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How the columns of rows that refer to a table version are read; for its form see `ColumnBlock`.

    Raises ValueError for rows without a key of columns whose equal values are equal bytes: nothing can reduce them.
    """

    version: TableVersion
    form: int | str
    columns: tuple[ColumnPlan, ...]

    def __post_init__(self) -> None:
        exact = {plan.name for plan in self.columns if plan.kind != pa.float64()}
        if not self.version.key or not exact.issuperset(self.version.key):
            raise ValueError

    @staticmethod
    def of(version: TableVersion, form: int, record: AvroSchema, fields: Sequence[tuple[str, str, int]]) -> RowPlan:
        """The plan of some fields of a record: name there, name of the column, and what numbers are multiplied by.

        Raises:
            ValueError: The rows must be read one by one.
        """
        avro, types = avro_types(record), {column.name: column.type for column in version.columns}
        columns = (ColumnPlan(field, name, _kind(avro[field], types[name]), by) for field, name, by in fields)
        return RowPlan(version, form, tuple(columns))

    def odd(self, image: Records, count: int) -> Flags:
        """Rows of an image that only the decoder itself can read, or that lack it."""
        odd = np.zeros(count, np.bool_)
        if image.rows is not None:
            odd[:] = True
            odd[image.rows] = False
        held: Any = slice(None) if image.rows is None else image.rows
        for column in self.columns:
            found = column.odd(image.fields[column.field])
            if found is not None:
                odd[held] |= found
        return odd

    def arrays(self, image: Values, rows: Ints, names: Sequence[str]) -> dict[str, pa.Array[Any]]:
        """Values of some columns of some rows, which all have the image."""
        if not isinstance(image, Records):
            raise TypeError
        inside = within(image, rows)
        return {plan.name: plan.array(image.fields[plan.field], inside) for plan in self.columns if plan.name in names}

    def moved(self, before: Records, after: Records, rows: Ints) -> Flags:
        """Which of some rows changed their key."""
        moved = np.zeros(len(rows), np.bool_)
        for plan in self.columns:
            if plan.name in self.version.key:
                old: Any = plan.array(before.fields[plan.field], within(before, rows))
                new: Any = plan.array(after.fields[plan.field], within(after, rows))
                for one, other in zip(_parts(old), _parts(new), strict=True):
                    moved |= ~pc.fill_null(pc.equal(one, other), False).to_numpy(zero_copy_only=False)
        return moved


class Found(NamedTuple):
    """What the datums of some messages hold.

    Attributes:
        commit_ts: TSO of each message.
        good: Messages that are whole rows.
        images: Of each kind the messages that are of it, and the image that holds their rows.
        before: The old image of updates that have one.
    """

    commit_ts: Ints
    good: Flags
    images: Sequence[tuple[Op, Flags | bool, Values]]
    before: Values = None


@dataclass(frozen=True, slots=True)
class AvroRows:
    """How messages of one schema are read; see `groups.Reader`.

    Attributes:
        plan: The columns.
        find: Reads the datums, and also gets the values of the messages. Raises ValueError if it cannot read them so.
        start: Bytes before each datum.
        kept: Kinds of changes whose old rows are asked for.
        in_keys: The datums are the keys of the messages.
    """

    plan: RowPlan
    find: Callable[[Datums, Sequence[bytes | None]], Found]
    start: int
    kept: frozenset[Op]
    in_keys: bool = False

    def suits(self, old_rows: OldRows) -> bool:
        """See `groups.Reader`."""
        return self.kept == old_rows(self.plan.version.name)

    def read(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], places: Ints
    ) -> tuple[list[ColumnBlock], Flags]:
        """See `groups.Reader`."""
        plan, version, count = self.plan, self.plan.version, len(places)
        found = self.find(Datums.of([data or b"" for data in (keys if self.in_keys else values)], self.start), values)
        blocks, alone = [], np.ones(count, np.bool_)
        for op, mine, image in found.images:
            if not isinstance(image, Records):
                continue
            chosen = found.good & mine & (found.commit_ts >= 0) & ~plan.odd(image, count)
            told = held(found.before, np.flatnonzero(chosen)) if op in _REPLACES else _NONE
            if isinstance(found.before, Records) and len(told):
                chosen[told[plan.moved(found.before, image, told)]] = False
                if op in self.kept:
                    chosen &= ~plan.odd(found.before, count)
            rows = np.flatnonzero(chosen)
            names = version.key if op is Op.DELETE and op not in self.kept else [column.name for column in plan.columns]
            columns = plan.arrays(image, rows, names)
            at, stamps = places[rows], found.commit_ts[rows]
            before = plan.arrays(found.before, rows, names) if len(told) and op in self.kept else None
            block = ColumnBlock(
                version.name, version.version, op, version.key, at, stamps, plan.form, columns, before=before
            )
            blocks.append(block)
            alone[rows] = False
        return blocks, alone


def _parts(array: Any) -> list[Any]:
    return list(array.flatten()) if pa.types.is_struct(array.type) else [array]


def within(image: Records, rows: Ints) -> Ints:
    """Places of some rows, which all have the image, in its fields."""
    return rows if image.rows is None else np.searchsorted(image.rows, rows)


def held(values: Values, rows: Ints) -> Ints:
    """Those of some rows that have a record."""
    if not isinstance(values, Records):
        return _NONE
    return rows if values.rows is None else np.intersect1d(rows, values.rows, assume_unique=True)


def avro_types(record: AvroSchema) -> dict[str, str]:
    """Avro's name of the type of each field, beside null."""
    return {field["name"]: _type(field["type"]) for field in record["fields"]}


def _type(schema: AvroSchema) -> str:
    branches = schema if isinstance(schema, list) else [schema]
    kind = next((branch for branch in branches if branch != "null"), "null")
    return str(kind["type"] if isinstance(kind, dict) else kind)
