"""Groups rows by a partition spec; each group has its values as Iceberg's single-value JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute

from applier.errors import TableMismatch
from applier.sink.format.types import Array, Chunks, TableSchema, by_value

compute: Any = pyarrow.compute
"""The type stubs know each kernel by the type of its array, which is only known at run time here."""

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


def parse_spec(name: str, spec: dict[str, Any], schema: TableSchema) -> tuple[SpecField, ...]:
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
    """Partition values of a column; NULL stays NULL."""
    result: Array = _TRANSFORMS[field.transform](values.combine_chunks(), field.width)
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


def _identity(values: Array, _: int) -> Any:
    return values


def _void(values: Array, _: int) -> Any:
    return pa.nulls(len(values), values.type)


def _bucket(values: Array, buckets: int) -> Any:
    return by_value(values, lambda value: (_hash(value) & 0x7FFFFFFF) % buckets, pa.int32())


def _truncate(values: Array, width: int) -> Any:
    kind = values.type
    if pa.types.is_string(kind):
        return compute.utf8_slice_codeunits(values, 0, width)
    if pa.types.is_binary(kind):
        return compute.binary_slice(values, 0, width)
    if pa.types.is_decimal(kind):
        step = Decimal(width).scaleb(-kind.scale)
        return by_value(values, lambda value: value - (((value % step) + step) % step), kind)
    return by_value(values, lambda value: value - value % width, kind)


def _years(values: Array, _: int) -> Any:
    return compute.subtract(compute.year(values), 1970).cast(pa.int32())


def _months(values: Array, _: int) -> Any:
    years = compute.multiply(compute.subtract(compute.year(values), 1970), 12)
    return compute.add(years, compute.subtract(compute.month(values), 1)).cast(pa.int32())


def _days(values: Array, _: int) -> Any:
    return (
        compute.floor_temporal(values, unit="day").cast(pa.date32()) if pa.types.is_timestamp(values.type) else values
    )


def _hours(values: Array, _: int) -> Any:
    return by_value(values.cast(pa.int64()), lambda value: value // _MICROSECONDS_PER_HOUR, pa.int32())


def _hash(value: Any) -> int:
    """Murmur3 of a value, as Iceberg's bucket transform defines it (table specification, appendix B)."""
    match value:
        case str():
            return int(mmh3.hash(value.encode()))
        case bytes():
            return int(mmh3.hash(value))
        case Decimal():
            exponent = value.as_tuple().exponent
            unscaled = int(value.scaleb(-exponent)) if isinstance(exponent, int) else 0
            size = ((unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8) + 1
            return int(mmh3.hash(unscaled.to_bytes(size, "big", signed=True)))
        case datetime():
            moment = value.replace(tzinfo=None) - datetime(1970, 1, 1)
            return _hash((moment.days * 86_400 + moment.seconds) * 1_000_000 + moment.microseconds)
        case date():
            return _hash(value.toordinal() - date(1970, 1, 1).toordinal())
    return int(mmh3.hash(int(value).to_bytes(8, "little", signed=True)))


_TRANSFORMS: dict[str, Callable[[Array, int], Any]] = {
    "identity": _identity,
    "void": _void,
    "bucket": _bucket,
    "truncate": _truncate,
    "year": _years,
    "month": _months,
    "day": _days,
    "hour": _hours,
}
