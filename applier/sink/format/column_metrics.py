"""Reads Iceberg's column metrics from a Parquet footer: what every later plan prunes by.

Iceberg's own library can read them too, but it would open each new file again, over the network and with a Hadoop
configuration parsed anew: a third of the CPU of a small commit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from applier.runtime.decimals import to_bytes
from applier.sink.format.bounds import ordered
from applier.sink.format.types import Field, leaves

PREFIX = "write.metadata.metrics."
"""Table properties that say which metrics are kept, by column (`column.<name>`) and by default (`default`)."""

MAX_COLUMNS = 100
"""Columns that have metrics where the table does not say (`max-inferred-column-defaults`)."""

TRUNCATE = "truncate(16)"
"""The mode where the table does not say: bounds of strings and bytes are cut to 16."""


def metrics(footer: pq.FileMetaData, fields: Iterable[Field], key: Iterable[str], properties: Mapping[str, str]) -> Any:
    """Sizes, counts and bounds of the columns, in the JSON of a data file.

    The columns of the footer are those of `fields`, in order. Columns of the key always get bounds, as a look-up
    without them reads every file. The table properties say which metrics are kept of the others.
    """
    keys = set(key)
    result: dict[str, dict[int, Any]] = {name: {} for name in _NAMES}
    first = 0
    for place, field in enumerate(fields):
        if not pa.types.is_nested(field.arrow):
            mode = _mode(field.iceberg_name, place, properties)
            _add(result, footer, first, field, TRUNCATE if field.name in keys and mode in ("none", "counts") else mode)
        first += leaves(field.arrow)
    pairs = {name: {"keys": list(values), "values": list(values.values())} for name, values in result.items()}
    return {"record-count": footer.num_rows, "split-offsets": _split_offsets(footer), **pairs}


def encode_bound(kind: pa.DataType, value: Any) -> bytes:
    """A value in Iceberg's binary single-value form (table specification, appendix D)."""
    if isinstance(value, Decimal):
        return to_bytes(value, getattr(kind, "scale", 0))
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if pa.types.is_boolean(kind):
        return b"\x01" if value else b"\x00"
    if pa.types.is_floating(kind):
        return struct.pack("<f" if kind.bit_width == 32 else "<d", value)
    return struct.pack("<i" if kind.bit_width == 32 else "<q", ordered(value, kind))


def cut_lower(value: Any, width: int) -> Any:
    """A lower bound of at most `width` characters or bytes."""
    return value[:width] if isinstance(value, (str, bytes)) else value


def cut_upper(value: Any, width: int) -> Any:
    """An upper bound of at most `width` characters or bytes: what is cut is made up for by a larger end.

    None if there is no bound so short.
    """
    if not isinstance(value, (str, bytes)) or len(value) <= width:
        return value
    numbers = [ord(char) for char in value[:width]] if isinstance(value, str) else list(value[:width])
    while numbers:
        number = _next(numbers.pop(), is_text=isinstance(value, str))
        if number is not None:
            numbers.append(number)
            return "".join(map(chr, numbers)) if isinstance(value, str) else bytes(numbers)
    return None


_NAMES = ("column-sizes", "value-counts", "null-value-counts", "lower-bounds", "upper-bounds")


def _add(result: dict[str, dict[int, Any]], footer: pq.FileMetaData, leaf: int, field: Field, mode: str) -> None:
    groups = [footer.row_group(index).column(leaf) for index in range(footer.num_row_groups)]
    sizes, values, nulls, lower, upper = (result[name] for name in _NAMES)
    sizes[field.id] = sum(group.total_compressed_size for group in groups)
    if mode == "none":
        return
    statistics: list[Any] = [group.statistics for group in groups]
    values[field.id] = footer.num_rows
    if all(found is not None and found.has_null_count for found in statistics):
        nulls[field.id] = sum(found.null_count for found in statistics if found is not None)
    ends = [(found.min, found.max) for found in statistics if found is not None and found.has_min_max]
    empty = [found for found in statistics if found is not None and found.num_values == 0]
    has_order = getattr(field.arrow, "unit", "us") != "ns"  # Python's datetime would cut nanoseconds
    if mode == "counts" or not has_order or not ends or len(ends) + len(empty) < len(groups):
        return
    can_cut = pa.types.is_string(field.arrow) or pa.types.is_binary(field.arrow)
    width = int(mode[9:-1]) if can_cut and mode.startswith("truncate(") else 1 << 30
    low, high = cut_lower(min(end[0] for end in ends), width), cut_upper(max(end[1] for end in ends), width)
    lower[field.id] = encode_bound(field.arrow, low).hex().upper()
    if high is not None:
        upper[field.id] = encode_bound(field.arrow, high).hex().upper()


def _mode(name: str, place: int, properties: Mapping[str, str]) -> str:
    """The metrics mode of a column: its own, or the table's, or Iceberg's default for the first columns."""
    given = properties.get(f"{PREFIX}column.{name}") or properties.get(f"{PREFIX}default")
    limit = int(properties.get(f"{PREFIX}max-inferred-column-defaults", MAX_COLUMNS))
    return (given or (TRUNCATE if place < limit else "none")).lower()


def _next(number: int, *, is_text: bool) -> int | None:
    """The next code point or byte; None behind the last."""
    if not is_text:
        return number + 1 if number < 0xFF else None
    if number == 0xD7FF:
        return 0xE000  # surrogates between are no characters
    return number + 1 if number < 0x10FFFF else None


def _split_offsets(footer: pq.FileMetaData) -> list[int]:
    columns = [footer.row_group(index).column(0) for index in range(footer.num_row_groups)]
    return [
        (column.dictionary_page_offset or 0) if column.has_dictionary_page else column.data_page_offset
        for column in columns
    ]
