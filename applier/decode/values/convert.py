"""Converts the wire values of a column to an Arrow array, the same one in all protocols that carry the same row.

Wire values of a column, by type; None is NULL, and an absent column has no value at all. Text comes as str, or many at
once as an Arrow array of strings or of `ZONED`, which need not become Python objects where Arrow converts them. So may
numbers and bytes, as arrays of `int64`, `float64`, `bool_`, `binary` and decimals:

  tinyint … bigint, year       text of digits, or int; a negative int in an unsigned bigint, set or bit wraps around
  decimal                      text, `Decimal`, int; a float that has the digits of the column, to its last bits
  float, double                text, float, int
  bit                          text of digits, int, bool, or bytes (big-endian)
  char … longtext, json        str, or bytes in UTF-8
  binary … longblob            bytes, or str in the form that `WireForm.binary` names
  enum, set                    int or text of digits where `WireForm.members` is `index`, else the labels
  date, datetime, timestamp    see `decode/dates.py`; an int counts days, microseconds, microseconds since the epoch
  time                         text as MySQL prints it, or an int of microseconds
  vector                       text `[1,2.5]`, or a list of numbers

Bytes that are no UTF-8 are refused in a text column, and so is a str with lone surrogates, which is what a decoder gets
that decodes with `surrogateescape`: TiDB stores UTF-8, so such bytes are damage. The JSON encoders of TiCDC put U+FFFD
in their place, which cannot be distinguished from a U+FFFD that the row holds.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from operator import methodcaller
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.cast import NotExact
from applier.changefeed.table import Column
from applier.changefeed.types import (
    BINARIES,
    DATE_TYPES,
    INTEGERS,
    OPEN,
    TEXTS,
    UINT64,
    TypeRules,
    arrow_type,
    plain_type,
    reshaped,
)
from applier.decode.decoder import WireForm
from applier.decode.open.cells import unescape
from applier.decode.values.dates import listed, strings, to_dates, to_datetimes, to_times, to_timestamps
from applier.decode.values.target import NO_CREATE, Target
from applier.errors import ValueRefused
from applier.runtime.decimals import of_unscaled

_CAST_HINT = (
    "Give the column another type in `cast` or `types` of its pattern under [tables], and load the table again, with "
    "`applier load -c FILE --from DIR --tables TABLE`."
)

_U64 = (1 << 64) - 1
_DIGITS = re.compile(r"-?[0-9]+(\.[0-9]+)?")
Values: TypeAlias = "Sequence[Any] | pa.Array[Any]"
"""Wire values of one column."""

_Dated: TypeAlias = "Callable[[Sequence[Any], Target], tuple[pa.Array[Any], int]]"
_Convert: TypeAlias = "Callable[[Sequence[Any], Target], pa.Array[Any]]"


def to_array(values: Values, column: Column, wire: WireForm, rules: TypeRules, path: str) -> tuple[pa.Array[Any], int]:
    """Turn the wire values of one column into an array of exactly `arrow_type(column.type, rules, path)`.

    There is one value for each row, None for NULL. The column is that of the table version that the values were written
    in, the path its `database.table.column`.

    Returns:
        The array, and how many zero or partial dates in it became NULL.

    Raises:
        ValueRefused: A value is malformed, out of range, or of a type that TiDB does not have; or a cast does not hold
            it exactly.
    """
    array, zeros = to_plain(values, column, wire, rules, path)
    return reshape(array, column, wire, rules, path), zeros


def reshape(array: pa.Array[Any], column: Column, wire: WireForm, rules: TypeRules, path: str) -> pa.Array[Any]:
    """The second half of `to_array`: values in the type that the user casts them to."""
    try:
        return reshaped(array, column.type, rules, path)
    except NotExact as error:
        policy = rules.zero_date_policy(path, column.type)
        raise Target(column, wire, array.type, policy, path).refuse(str(error), _CAST_HINT) from None


def to_plain(values: Values, column: Column, wire: WireForm, rules: TypeRules, path: str) -> tuple[pa.Array[Any], int]:
    """The first half of `to_array`: values in `plain_type(column.type, rules, path)`."""
    try:
        arrow_type(column.type, rules, path)
        arrow = plain_type(column.type, rules, path)
    except ValueError as error:
        hint = (NO_CREATE,) if column.type.name in OPEN else ()
        raise Target(column, wire, pa.null(), "null", path).refuse(str(error), *hint) from None
    # A traceback shows what an error was raised from, and the messages of Arrow hold the value: hence `from None`.
    target = Target(column, wire, arrow, rules.zero_date_policy(path, column.type), path)
    try:
        return _convert(values, target)
    except ValueRefused as refusal:
        raise refusal from None
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError):
        raise target.refuse() from None


def _convert(values: Any, target: Target) -> tuple[pa.Array[Any], int]:
    name = target.column.type.name
    if isinstance(values, pa.Array) and not _stays(values.type, name):
        values = listed(values)
    if name in DATE_TYPES:
        array, zeros = _DATED[name](values, target)
    else:
        array, zeros = _PLAIN[name](values, target), 0
    if not isinstance(array, pa.Array):  # pyarrow splits what is too large for one array
        raise target.refuse("the values of one batch are over 2 GiB", "Lower source.messages_per_step.")
    return array, zeros


def _stays(kind: pa.DataType, name: str) -> bool:
    """Whether Arrow converts an array of a type to the values of a column."""
    if pa.types.is_int64(kind):
        return name in _FROM_INTEGERS
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return name == "decimal" or (name in ("float", "double") and pa.types.is_floating(kind))
    if pa.types.is_binary(kind):
        return _PLAIN.get(name) in (_text, _binary)
    return name in _FROM_ARROW and (pa.types.is_string(kind) or pa.types.is_struct(kind))


def _text(values: Any, _target: Target) -> pa.Array[Any]:
    return strings(values).cast(pa.string())


def _integer(values: Any, target: Target) -> pa.Array[Any]:
    array: pa.Array[Any]
    is_unsigned = target.arrow == UINT64
    if isinstance(values, pa.Array) and pa.types.is_int64(values.type):
        array = values.view(pa.uint64()) if is_unsigned else values
    else:
        try:
            array = strings(values)
        except pa.ArrowTypeError:
            array = _whole_numbers(values, is_unsigned=is_unsigned)
        else:
            _refuse_hexadecimal(array, target)
    if is_unsigned:
        return array.cast(pa.uint64()).cast(UINT64)
    return _truth(array.cast(pa.int64()), target) if pa.types.is_boolean(target.arrow) else array.cast(target.arrow)


def _refuse_hexadecimal(texts: pa.Array[Any], target: Target) -> None:
    # Arrow reads 0x1F as 31. One look at all characters together costs a tenth of a match for each value.
    characters = texts.buffers()[2]
    if characters is not None and (b"x" in (data := characters.to_pybytes()) or b"X" in data):
        raise target.refuse()


def _whole_numbers(values: Sequence[Any], *, is_unsigned: bool) -> pa.Array[Any]:
    numbers = values if set(map(type, values)) <= {int, type(None)} else [_whole(value) for value in values]
    if not is_unsigned:
        return pa.array(numbers, pa.int64())
    wrapped = [number & _U64 if number is not None and -(1 << 63) <= number < 0 else number for number in numbers]
    return pa.array(wrapped, pa.uint64())


def _whole(value: Any) -> int | None:
    if value is None or isinstance(value, int):
        return None if value is None else int(value)
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        return int(value)
    raise ValueError


def _truth(numbers: pa.Array[Any], target: Target) -> pa.Array[Any]:
    bounds = pc.min_max(numbers)
    if bounds["min"].is_valid and not (bounds["min"].as_py() >= 0 and bounds["max"].as_py() <= 1):
        raise target.refuse("it is neither 0 nor 1", 'Set tables.tinyint1 = "int" to keep the numbers.')
    return numbers.cast(pa.bool_())


def _bit(values: Sequence[Any], target: Target) -> pa.Array[Any]:
    if bytes in set(map(type, values)):
        values = [int.from_bytes(value, "big") if isinstance(value, bytes) else value for value in values]
    return _integer(values, target)


def _decimal(values: Any, target: Target) -> pa.Array[Any]:
    if pa.types.is_string(target.arrow):
        return pa.array([None if value is None else _plain(value, target) for value in listed(values)], pa.string())
    if isinstance(values, pa.Array) and pa.types.is_floating(values.type):
        return _decimal_of_doubles(values, target)
    try:
        return strings(values).cast(target.arrow)
    except pa.ArrowTypeError:
        return pa.array([_number(value, target) for value in values], target.arrow)


def _decimal_of_doubles(values: pa.Array[Any], target: Target) -> pa.Array[Any]:
    try:
        # The shortest text that is read as the double, as `repr` writes it; mostly it has no digits to be rounded.
        return values.cast(pa.string()).cast(target.arrow)
    except pa.ArrowInvalid:
        return pa.array([_number(value, target) for value in listed(values)], target.arrow)


def _plain(value: Any, target: Target) -> str:
    """Text of a decimal too wide for Arrow, with the column's scale and without an exponent."""
    text = value if isinstance(value, str) else f"{_number(value, target):f}"
    if not _DIGITS.fullmatch(text):
        raise ValueError
    return text


def _number(value: Any, target: Target) -> Decimal | None:
    if isinstance(value, float | int):
        return _rounded(value, target)
    return None if value is None else Decimal(value)


_DOUBLE = 1e-15
"""What a double that a decimal was sent as may differ from it, as a part of it: a few of its last bits."""


def _rounded(value: float, target: Target) -> Decimal:
    """The decimal that a protocol sent as a double. The largest ones round up to one digit more than the column has.

    JSON writes a double of 2^53 and more without a point, so it comes as an int.
    """
    digits, scale = target.column.type.length, target.column.type.scale
    if scale is None:
        return Decimal(repr(value))
    number = Decimal(f"{Decimal(repr(value)):.{scale}f}")
    if not math.isclose(float(number), value, rel_tol=_DOUBLE):
        raise ValueError  # The column has more digits upstream since.
    if digits is None:
        return number
    largest = of_unscaled(10**digits - 1, scale)
    return largest.copy_sign(number) if number.copy_abs() > largest and abs(value) == float(largest) else number


def _real(values: Sequence[Any], target: Target) -> pa.Array[Any]:
    try:
        array = strings(values).cast(target.arrow)
    except pa.ArrowTypeError:
        array = pa.array([None if value is None else float(value) for value in values], target.arrow)
    if pc.all(pc.is_finite(array)).as_py() is False:
        raise target.refuse()
    return array


def _binary(values: Any, target: Target) -> pa.Array[Any]:
    if isinstance(values, pa.Array):
        return values
    decode = _BYTES[target.wire.binary]
    return pa.array([decode(value) if isinstance(value, str) else value for value in values], pa.binary())


def _no_text(_text: str) -> bytes:
    raise ValueError


def _member(values: Any, target: Target) -> pa.Array[Any]:
    labels = _Labels(target)
    if isinstance(values, pa.Array):
        encoded: Any = values.dictionary_encode()
        distinct = pa.array([labels[value] for value in encoded.dictionary.to_pylist()], pa.string())
        return distinct.take(encoded.indices)
    return pa.array([labels[value] for value in values], pa.string())


class _Labels(dict[Any, str | None]):
    """Label of each wire value of an enum or set, worked out when it is first met."""

    def __init__(self, target: Target) -> None:
        super().__init__({None: None})
        self._target = target

    def __missing__(self, value: Any) -> str | None:
        if isinstance(value, str) and self._target.wire.members == "label":
            return value
        label = self[value] = _label(_index(value), self._target)
        return label


def _label(index: int, target: Target) -> str:
    elements, mask = target.column.type.elements, index & _U64
    if target.column.type.name == "enum":
        if index == 0:
            return ""  # The error value, which MySQL prints so.
        if 0 < index <= len(elements):
            return elements[index - 1]
    elif not mask >> len(elements):
        return ",".join(label for bit, label in enumerate(elements) if mask >> bit & 1)
    if elements:
        raise target.refuse("it names a member that the column does not have")
    raise target.refuse("the members are not known", NO_CREATE)


def _index(value: Any) -> int:
    number = _whole(value)
    if number is None or not -(1 << 63) <= number <= _U64:
        raise ValueError
    return number


def _vector(values: Sequence[Any], target: Target) -> pa.Array[Any]:
    rows = [_FLOATS.decode(value) if isinstance(value, str) else value for value in values]
    array: pa.ListArray[Any] = pa.array(rows, target.arrow)  # type: ignore[assignment]
    if pc.all(pc.is_finite(array.flatten())).as_py() is False:
        raise target.refuse()
    return array


_FLOATS = msgspec.json.Decoder(list[float])
_BYTES: dict[str, Callable[[str], bytes]] = {
    "base64": partial(binascii.a2b_base64, strict_mode=True),
    "latin1": methodcaller("encode", "latin-1"),
    "escaped": unescape,
    "bytes": _no_text,
}
_DATED: dict[str, _Dated] = {"date": to_dates, "datetime": to_datetimes, "timestamp": to_timestamps}
_PLAIN: dict[str, _Convert] = {
    **dict.fromkeys((*INTEGERS, "year"), _integer),
    **dict.fromkeys((*TEXTS, "json"), _text),
    **dict.fromkeys(BINARIES, _binary),
    **dict.fromkeys(("float", "double"), _real),
    **dict.fromkeys(("enum", "set"), _member),
    "bit": _bit,
    "decimal": _decimal,
    "time": to_times,
    "vector": _vector,
}
_FROM_ARROW = frozenset(
    name
    for name, convert in (_PLAIN | _DATED).items()
    if convert in (_integer, _text, _real, _member, _decimal, to_dates, to_datetimes, to_timestamps)
)
"""Types whose values may stay in Arrow where they are text."""

_FROM_INTEGERS = frozenset(
    name for name, convert in (_PLAIN | _DATED).items() if convert in (_integer, to_dates, to_datetimes, to_timestamps)
)
"""The same where they are integers."""
