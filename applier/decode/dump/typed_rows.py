"""Converts the values of an export to the types of their table, by the same rules as those of a feed.

TiDB shows a FLOAT of 1e15 and more with six digits to Dumpling, and all of them to a feed: such a value is that of the
feed only from its next change on.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from applier.changefeed.table import Column, TableVersion
from applier.changefeed.types import BINARIES, TypeRules
from applier.decode.decoder import WireForm
from applier.decode.dump.csv_form import look_encoded
from applier.decode.values.alike import Keys
from applier.decode.values.convert import to_array

WIRE = WireForm(binary="bytes", members="label", zone="UTC")
"""Dumpling writes TIMESTAMP in UTC with `--params time_zone=+00:00`, and the labels of enums and sets."""

BYTES = frozenset({*BINARIES, "bit"})
"""Types whose values are bytes: a BIT comes as a big-endian number."""

TEXTS = BYTES | {
    *("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "enum", "set", "vector"),
    *("date", "datetime", "timestamp", "time", "year"),
}
"""Types whose values Dumpling writes within delimiters."""

_Unwrap = Callable[[bytes], bytes]


def _as_is(value: bytes) -> bytes:
    return value


def _of_literal(value: bytes) -> bytes:
    if not (value.startswith(b"x'") and value.endswith(b"'")):
        raise ValueError("a value of a binary column is not written as x'00ff'")
    return bytes.fromhex(value[2:-1].decode("ascii"))


UNWRAP: dict[str, _Unwrap] = {
    "raw": _as_is,
    "hex": binascii.unhexlify,
    "base64": lambda value: binascii.a2b_base64(value, strict_mode=True),
    "literal": _of_literal,
}
"""Turns a value of a column of `BYTES` into its bytes, by the form in which it stands in its file."""


def texts_of(version: TableVersion) -> frozenset[str]:
    """Names of the columns whose values Dumpling writes within delimiters."""
    return frozenset(column.name for column in version.columns if column.type.name in TEXTS)


def loaded(version: TableVersion) -> tuple[Column, ...]:
    """The columns that are not generated: Dumpling leaves the others out."""
    return tuple(column for column in version.columns if column.generated is None)


def kept(version: TableVersion, names: Sequence[str]) -> list[Column]:
    """The columns of a file that its table holds: virtual generated ones have no values in any feed."""
    found = [column for name in names if (column := version.column(name)) is not None]
    return [column for column in found if column.generated != "virtual"]


def typed(
    rows: pa.Table, version: TableVersion, rules: TypeRules, form: str | None, zone: str = "UTC"
) -> tuple[pa.Table, int]:
    """The rows, a `binary` column for each of the file, in the types of the feed, and how many zero dates became NULL.

    The form is that of values of `BYTES` in the file: a key of `UNWRAP`, or None if that is not known. The zone is the
    IANA zone of TIMESTAMP values.

    Raises:
        ValueRefused: A value does not fit its column.
        ValueError: Bytes are not written in the form.
    """
    wire = replace(WIRE, zone=zone)
    keys = Keys(version, wire, rules)
    arrays, zeros, columns = list[Any](), 0, kept(version, rows.column_names)
    for column in columns:
        values: Any = rows[column.name].combine_chunks()
        values = _bytes(values, column, form) if column.type.name in BYTES else _text(values, column)
        array, found = to_array(values, column, wire, rules, f"{version.name}.{column.name}")
        keys.check(column, values, array, found)
        arrays.append(array)
        zeros += found
    return pa.table(arrays, names=[column.name for column in columns]), zeros


def _text(values: Any, column: Column) -> Any:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        msg = f"column {column.name} holds bytes that are no UTF-8"
        raise ValueError(msg) from None


def _bytes(values: Any, column: Column, form: str | None) -> Any:
    if form is None and look_encoded(list(filter(None, values.to_pylist()))):
        msg = f"values of binary column {column.name} may be bytes, hex or base64, and binary is not set"
        raise ValueError(msg)
    unwrap = UNWRAP[form or "raw"]
    if unwrap is _as_is and column.type.name != "bit":
        return values
    try:
        return [None if value is None else unwrap(value) for value in values.to_pylist()]
    except binascii.Error:
        msg = f"values of binary column {column.name} are not written in {form}"
        raise ValueError(msg) from None
