"""Groups rows by a partition spec; each group has its values as Iceberg's single-value JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute

from applier.errors import TableMismatch
from applier.runtime.decimals import of_unscaled, to_bytes, unscaled
from applier.sink.format.types import Array, Chunks, TableSchema, by_value

compute: Any = pyarrow.compute
"""The type stubs know each kernel by the type of its array, which is only known at run time here."""

Numbers: TypeAlias = "np.ndarray[Any, Any]"

_ARGUMENT = re.compile(r"(\w+)(?:\[(\d+)\])?")
_MICROSECONDS_PER_HOUR = 3_600_000_000


@dataclass(frozen=True, slots=True)
class SpecField:
    """One field of a partition spec: an Iceberg transform of a column.

    The width is the number of buckets or that of a truncation; 0 for other transforms.
    """

    column: str
    transform: str
    width: int = 0


def parse_spec(name: str, spec: Mapping[str, Any], schema: TableSchema) -> tuple[SpecField, ...]:
    """Read a partition spec from Iceberg's JSON.

    Raises:
        TableMismatch: A transform is not known, or its source is no top-level column.
    """
    names = {field.id: field.name for field in schema.fields}
    result = []
    for field in spec["fields"]:
        match = _ARGUMENT.fullmatch(field["transform"])
        column = names.get(field["source-id"])
        if match is None or match[1] not in _TRANSFORMS or column is None:
            what = f"Table {name} is partitioned by {field['transform']} of {column or 'a nested column'}"
            raise TableMismatch(what, "Replace that partition field by one of Iceberg's own transforms.")
        result.append(SpecField(column, match[1], int(match[2] or 0)))
    return tuple(result)


def split(rows: pa.Table, spec: Sequence[SpecField]) -> Iterator[tuple[list[Any], pa.Table]]:
    """Group rows by partition; rows keep their order within a group.

    Yields:
        Partition values in the order of the spec, as single-value JSON, and the rows.
    """
    columns = [transform(rows[field.column], field) for field in spec]
    codes = [_codes(column) for column in columns]
    _, first, group = np.unique(np.stack(codes, axis=1), axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[order], np.arange(len(first) + 1))
    for index, example in enumerate(first):
        values = [single_value(column[int(example)].as_py(), column.type) for column in columns]
        yield values, rows.take(order[edges[index] : edges[index + 1]])


def transform(values: Chunks, field: SpecField) -> Array:
    """Partition values of a column; NULL stays NULL.

    Raises:
        TableMismatch: A negative decimal, truncated, has more digits than its column.
    """
    try:
        result: Array = _TRANSFORMS[field.transform](values.combine_chunks(), field.width)
    except pa.ArrowInvalid:
        # The text of the error holds the value.
        what = f"A value of column {field.column} has too many digits for its partition by truncate[{field.width}]."
        raise TableMismatch(what, "Replace that partition field by one of another transform, such as bucket.") from None
    return result


def single_value(value: Any, kind: pa.DataType) -> Any:
    """A Python value as Iceberg's single-value JSON (table specification, appendix D)."""
    match value:
        case bytes():
            return value.hex().upper()
        case Decimal():
            return f"{value:f}"
        case datetime():
            text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
            return text + "+00:00" if getattr(kind, "tz", None) else text
        case date():
            return value.isoformat()
    return value


def _codes(column: Array) -> np.ndarray[Any, Any]:
    indices = column.dictionary_encode(null_encoding="encode").indices
    return np.asarray(indices.to_numpy(zero_copy_only=False))


def _bucket(values: Array, buckets: int) -> Any:
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.unit == "us"):
        return _of_numbers(values, lambda numbers: (_hash_numbers(numbers) & 0x7FFFFFFF) % buckets, pa.int32())
    return by_value(values, lambda value: (_hash(value, kind) & 0x7FFFFFFF) % buckets, pa.int32())


def _truncate(values: Array, width: int) -> Any:
    kind = values.type
    if pa.types.is_string(kind):
        return compute.utf8_slice_codeunits(values, 0, width)
    if pa.types.is_binary(kind):
        return compute.binary_slice(values, 0, width)
    if pa.types.is_decimal(kind):
        scale: int = kind.scale

        def cut(value: Decimal) -> Decimal:
            digits = unscaled(value, scale)
            return of_unscaled(digits - digits % width, scale)

        return by_value(values, cut, kind)
    return _of_numbers(values, lambda numbers: numbers - numbers % width, kind)


def _of_numbers(values: Array, function: Callable[[Numbers], Numbers], kind: pa.DataType) -> Any:
    """Apply a function to all values as whole numbers at once, as Java does with overflow; NULL stays NULL."""
    whole = values.cast(pa.int32()) if pa.types.is_date(values.type) else values
    numbers = whole.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(function(numbers), pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False)).cast(
        kind, safe=False
    )


def _hash_numbers(numbers: Numbers) -> Numbers:
    """Murmur3 of 64-bit numbers, as `_hash` of each."""
    wide = numbers.astype(np.int64).view(np.uint64)
    found = np.zeros(len(wide), np.uint32)
    for half in (wide.astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)):
        mixed = _rotated(half * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        found = _rotated(found ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    found ^= np.uint32(8)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        found = (found ^ (found >> np.uint32(shift))) * np.uint32(factor)
    return found.astype(np.int64)


def _rotated(numbers: Numbers, bits: int) -> Numbers:
    return (numbers << np.uint32(bits)) | (numbers >> np.uint32(32 - bits))


def _hash(value: Any, kind: pa.DataType) -> int:
    """Murmur3 of a text, bytes or a decimal, as Iceberg's buckets define it (table specification, appendix B)."""
    match value:
        case str():
            return int(mmh3.hash(value.encode()))
        case bytes():
            return int(mmh3.hash(value))
        case Decimal():
            return int(mmh3.hash(to_bytes(value, getattr(kind, "scale", 0))))
    msg = f"a bucket of {type(value).__name__}"
    raise TypeError(msg)


def _days(values: Array) -> Any:
    is_moment = pa.types.is_timestamp(values.type)
    return compute.floor_temporal(values, unit="day").cast(pa.date32()) if is_moment else values


def _months(values: Array) -> Any:
    return compute.add(compute.multiply(_years(values), 12), compute.subtract(compute.month(values), 1))


def _years(values: Array) -> Any:
    return compute.subtract(compute.year(values), 1970)


_TRANSFORMS: dict[str, Callable[[Array, int], Any]] = {
    "identity": lambda values, _: values,
    "void": lambda values, _: pa.nulls(len(values), values.type),
    "bucket": _bucket,
    "truncate": _truncate,
    "year": lambda values, _: _years(values).cast(pa.int32()),
    "month": lambda values, _: _months(values).cast(pa.int32()),
    "day": lambda values, _: _days(values),
    "hour": lambda values, _: _of_numbers(values, lambda numbers: numbers // _MICROSECONDS_PER_HOUR, pa.int32()),
}
