"""Refuses values of key columns that the wire may not tell apart from others: rows of two keys would become one.

What each protocol loses of the values of a key, by type. Every other type is exact in all of them: integers, BIT, YEAR,
TIME, binary strings (base64, ISO-8859-1 and Go's escapes are one to one), FLOAT and DOUBLE; keys that a collation takes
for equal never stand in one table.

  decimal      Debezium in JSON sends a double: exact where its neighbours are closer than the last digit of the column
  double       the same protocol, where rows alone describe the table: one of more than 15 digits may be a decimal
  date,        Debezium makes zero dates 1970-01-01; all protocols: a zero date that becomes NULL
  datetime
  timestamp    text without an offset, in an hour that its zone passes twice (Simple, Open, Canal-JSON, Avro)

Debezium also moves the years 0 to 99 to 1970 to 2069, of which no value shows anything: `docs/limitations.md`.
A value is refused by what it is, whether or not another key like it has come: all keys that would be merged with it are
equal on the wire, so whichever of them is left after the reduction is seen here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.filter import TableFilter, option
from applier.changefeed.table import Column, TableName, TableVersion
from applier.changefeed.types import ColumnPath, TypeRules
from applier.decode.decoder import WireForm
from applier.decode.values.convert import Values, reshape, to_array, to_plain
from applier.decode.values.dates import ZonedText, named_zone
from applier.decode.values.target import Target
from applier.errors import RELOAD

Array: TypeAlias = "pa.Array[Any]"

_NULL_HINT = f"Upgrade TiCDC: in Canal-JSON, v8.5.4 sends the text `null` as NULL. {RELOAD}"

_ZERO = "1970-01-01"
"""What Debezium makes of a zero date."""


def to_column(
    values: Values, column: Column, version: TableVersion, wire: WireForm, rules: TypeRules, lost: int = 0
) -> tuple[Array, int]:
    """`to_array` of a column of a table version, whose values each stand for one value upstream if it is of the key.

    So many zero dates among the values were `lost` as NULL before. The rules also say which tables the user knows to
    have no keys that are alike.

    Raises:
        ValueRefused: A value does not fit; or one of the key is NULL, a zero date, or may stand for several values.
    """
    path = ColumnPath(version.name, column.name)
    if column.name not in version.key:
        array, zeros = to_array(values, column, wire, rules, path)
        return array, zeros + lost
    array, zeros = to_plain(values, column, wire, rules, path)
    target = Target(column, wire, array.type, rules.zero_date_policy(path, column.type), path)
    if zeros + lost:
        why = "it is a zero, partial or impossible date, which a key holds as text alone (tables.zero_dates_of)"
        hint = f'Set zero_dates_of = {{ "{path}" = "string" }} in [tables], and start `applier run -c FILE` again.'
        raise target.refuse(why, hint)
    if array.null_count:
        raise target.refuse("it is part of the key, and NULL, which no key is upstream", _NULL_HINT)
    find = _FINDERS.get(column.type.name)
    # Rows of Debezium show no indexes: a version that has some is that of a DDL.
    is_exact = find is None or (column.type.name == "double" and version.indexes)
    why = "" if find is None or is_exact else find(array, values, target)
    if why and not _filter(rules.distinct_keys)(version.name):
        hint = (
            f"If no two keys of the table differ in that alone, set distinct_keys = [{option([version.name])}] in "
            "[tables] and start `applier run -c FILE` again; else use a protocol that sends them apart (docs/types.md)."
        )
        raise target.refuse(f"it is part of the key, and {why} (tables.distinct_keys)", hint)
    return reshape(array, column, wire, rules, path), zeros + lost


@lru_cache(maxsize=16)
def _filter(rules: tuple[str, ...]) -> Callable[[TableName], bool]:
    return TableFilter(rules).admits


def _decimal(array: Array, _values: Any, target: Target) -> str:
    if not target.wire.double_decimals:
        return ""
    doubles = np.abs(array.cast(pa.float64()).to_numpy(zero_copy_only=False))
    # Doubles that lie twice as close as two values of the column are never the same for both.
    if bool(np.all(2 * np.spacing(doubles) < 10.0 ** -(target.column.type.scale or 0))):
        return ""
    return "the double that the protocol sends is the same for several decimals"


def _double(array: Array, _values: Any, target: Target) -> str:
    if not target.wire.double_decimals or all(float(f"{value:.15g}") == value for value in array.to_pylist()):
        return ""
    return "it may be a DECIMAL, which the protocol sends as a double, and no DDL message shows its digits"


def _date(array: Array, _values: Any, target: Target) -> str:
    if not target.wire.moved_years or not pc.any(pc.equal(array, pa.scalar(_ZERO).cast(array.type))).as_py():
        return ""
    return f"the protocol sends zero dates as {_ZERO}"


def _timestamp(array: Array, values: Any, target: Target) -> str:
    zones = {named_zone(zone, target) for zone in _zones(values, target)} - {"UTC", "Etc/UTC"}
    if not zones:
        return ""
    if pa.types.is_string(array.type):
        # A zero date is one value, whatever the zone.
        array = array.filter(pc.invert(pc.starts_with(array, "0000"))).cast(pa.timestamp("us")).cast(_UTC)
    for zone in sorted(zones):
        moments: Any = array.cast(pa.timestamp("us", tz=zone))
        clocks = pc.local_timestamp(moments)
        try:
            pc.assume_timezone(clocks, zone, ambiguous="raise")
        except pa.ArrowInvalid:
            return f"its wall clock comes twice in the zone {zone} (with tz=UTC, TiCDC sends no such text)"
    return ""


def _zones(values: Any, target: Target) -> set[str]:
    """Zones of the wall clocks among the values; none for instants."""
    if isinstance(values, pa.StructArray):
        return set(pc.struct_field(values, "location").unique().drop_null().to_pylist())
    if isinstance(values, pa.Array):
        return set() if pa.types.is_int64(values.type) else {target.wire.zone}
    kinds = set(map(type, values))
    own = {target.wire.zone} if str in kinds else set[str]()
    return own | ({value.location for value in values if type(value) is ZonedText} if ZonedText in kinds else set())


_UTC = pa.timestamp("us", tz="UTC")
_FINDERS: dict[str, Callable[[Array, Any, Target], str]] = {
    "decimal": _decimal,
    "double": _double,
    **dict.fromkeys(("date", "datetime"), _date),
    "timestamp": _timestamp,
}
"""Why some of the values of a column may stand for several; "" if none does."""
