"""Casts columns to the types that a user asks for, where every value that is taken keeps its exact meaning."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute

from applier.changefeed.table import ColumnType

pc: Any = pyarrow.compute

Array: TypeAlias = "pa.Array[Any]"

NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit")

_TARGETS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_MOST_DIGITS = 38

_NO_VARIANT = "variant is no type to cast to: PyIceberg, by which applier and others read tables, does not know it yet"
"""Spark reads a variant that PyArrow wrote, but no metadata of such a table is read without a JVM."""

_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_PAIRS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(NUMBERS, ("boolean", "int", "long", "double", "decimal", "string")),
    "decimal": ("int", "long", "decimal", "string"),
    "float": ("double",),
    **dict.fromkeys(("enum", "set"), ("int", "long", "string")),
    "time": ("long", "string"),
    "date": ("timestamp", "string"),
    "datetime": ("timestamptz", "string"),
    "timestamp": ("timestamp", "string"),
    **dict.fromkeys(_BYTES, ("string",)),
    "json": ("string",),
}
"""What columns of each TiDB type can be cast to; a value that the target does not hold exactly is refused."""

CAST_TYPES = tuple(_PAIRS)
"""TiDB types whose columns can be cast."""

UNSIGNED = ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float")
"""Those that may be `unsigned`."""


class NotExact(Exception):
    """A value that a cast does not hold exactly; the text says why, and holds no value."""


def target(text: str) -> pa.DataType:
    """The Arrow type of a target of casts, as Iceberg names it; ValueError for any other text."""
    if (decimal := _DECIMAL.fullmatch(text)) is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        if 1 <= precision <= _MOST_DIGITS and scale <= precision:
            return pa.decimal128(precision, scale)
    if text == "variant":
        raise ValueError(_NO_VARIANT)
    if text not in _TARGETS:
        msg = f"{text} is no type to cast to: types are {', '.join(_TARGETS)}, decimal(P,S) with P up to {_MOST_DIGITS}"
        raise ValueError(msg)
    return _TARGETS[text]


def check_pair(name: str, text: str) -> None:
    """Raise ValueError if columns of a TiDB type cannot be cast to a target at all."""
    target(text)
    pairs = _PAIRS.get(name, ())
    if text.partition("(")[0] not in pairs:
        others = f"it can be cast to {', '.join(pairs)}" if pairs else "it cannot be cast"
        msg = f"{name} has no exact cast to {text}: {others}"
        raise ValueError(msg)


def recast(values: Array, kind: ColumnType, arrow: pa.DataType) -> Array:
    """Values of a column of a TiDB type, in the Arrow type of a cast in place of their usual one. NULL stays NULL.

    Raises:
        NotExact: The type does not hold one of them exactly.
    """
    try:
        if kind.name in ("enum", "set"):
            return _by_value(values, lambda label: member_number(label, kind), arrow)
        if kind.name == "time":
            return _by_value(values, _microseconds, arrow)
        return _numbers(values, arrow) if kind.name in NUMBERS else _plain(values, arrow)
    except (pa.ArrowException, ValueError, ArithmeticError):
        what = f"the cast does not hold it exactly as {arrow}"
        raise NotExact(what) from None


def member_number(label: str, kind: ColumnType) -> int:
    """The number by which TiDB knows a label of an enum, or the labels of a set, as bits.

    Raises:
        NotExact: The members are not known, or do not show which of two is meant.
    """
    members = kind.elements
    if not members:
        raise NotExact("no CREATE TABLE shows the members of the column")
    if kind.name == "set":
        return sum(1 << _place(part, members) for part in label.split(",")) if label else 0
    if label:
        return _place(label, members) + 1
    if "" in members:
        raise NotExact("it is an empty text, which is a member and the error value of the enum")
    return 0


def _place(label: str, members: tuple[str, ...]) -> int:
    if label not in members:
        raise NotExact("it is no member that the column has")
    return members.index(label)


def _by_value(values: Array, convert: Callable[[Any], Any], arrow: pa.DataType) -> Array:
    encoded: Any = values.dictionary_encode()
    distinct = [None if value is None else convert(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(distinct, arrow).take(encoded.indices)


def _microseconds(text: str) -> int:
    clock, _, fraction = text.lstrip("-").partition(".")
    hours, minutes, seconds = map(int, clock.split(":"))
    found = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int(fraction.ljust(6, "0"))
    return -found if text.startswith("-") else found


def _numbers(values: Any, arrow: pa.DataType) -> Array:
    # Arrow casts no decimal to a double and no 64-bit number to a narrow decimal with a check of all values.
    wide = values if pa.types.is_decimal(values.type) else values.cast(pa.decimal128(20, 0))
    if pa.types.is_boolean(arrow):
        bounds = pc.min_max(wide)
        if bounds["min"].is_valid and not (bounds["min"].as_py() >= 0 and bounds["max"].as_py() <= 1):
            raise NotExact("it is neither 0 nor 1")
        return wide.cast(pa.int64()).cast(arrow)  # type: ignore[no-any-return]
    if pa.types.is_floating(arrow):
        return wide.cast(pa.int64()).cast(arrow)  # type: ignore[no-any-return]
    return _plain(wide, arrow)


def _plain(values: Any, arrow: pa.DataType) -> Array:
    if isinstance(arrow, pa.Decimal128Type) and pa.types.is_decimal(values.type):
        # Arrow does not see that more digits after the point overflow 128 bits.
        values = values.cast(pa.decimal256(2 * _MOST_DIGITS, max(arrow.scale, values.type.scale)))
    if pa.types.is_decimal(values.type) and pa.types.is_string(arrow):
        # Arrow writes small ones with an exponent.
        return pa.array([None if value is None else f"{value:f}" for value in values.to_pylist()], arrow)
    return values.cast(arrow)  # type: ignore[no-any-return]
