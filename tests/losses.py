"""What a protocol loses on the way: a cell as it is upstream and as it arrived in, whether a loss explains it out.

The sentences are those of `Capabilities.losses`, and so of `docs/protocols.md`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import date
from typing import Any, Protocol

from applier.changefeed.table import Column
from applier.changefeed.types import TypeRules
from applier.decode.decoder import WireForm
from applier.decode.values.convert import to_array


class Rule(Protocol):
    """Whether a loss explains that a cell `wanted` arrived as `found`."""

    def __call__(self, column: Column, wanted: Any, found: Any) -> bool:
        """True if it does."""


def rounded(column: Column, wanted: Any, found: Any) -> bool:
    """Both are decimals, and the same double."""
    return column.type.name == "decimal" and None not in (wanted, found) and float(wanted) == float(found)


def widened(column: Column, wanted: Any, found: Any) -> bool:
    """The digits of a FLOAT became a double, and are the same as FLOAT."""
    is_float = column.type.name == "float" and None not in (wanted, found)
    return is_float and struct.pack("f", found) == struct.pack("f", wanted)


def defaulted(column: Column, wanted: Any, found: Any) -> bool:
    """NULL became the DEFAULT."""
    if wanted is not None or column.default is None or column.default.startswith("CURRENT"):
        return False
    wire = WireForm(binary="latin1", members="label")
    array, _ = to_array([column.default], column, wire, TypeRules(), f"t.{column.name}")
    return bool(array.to_pylist() == [found])


def epoch(column: Column, wanted: Any, found: Any) -> bool:
    """A date that is none became the first day of 1970."""
    is_epoch = isinstance(found, date) and found.timetuple()[:6] == (1970, 1, 1, 0, 0, 0)
    return wanted is None and is_epoch and (not column.nullable or column.type.name == "timestamp")


def moved(column: Column, wanted: Any, found: Any) -> bool:
    """A year of two digits became one of four, whatever the column."""
    del column
    if not isinstance(wanted, date) or not isinstance(found, date) or wanted.year >= 100:
        return False
    return found == wanted.replace(year=wanted.year + (2000 if wanted.year < 70 else 1900))


RULES: Mapping[str, Mapping[str, Rule]] = {
    "debezium": {
        "Decimals pass through a double: beyond 15 digits they are not exact.": rounded,
        "NULL in a column with a DEFAULT arrives as the default (since TiCDC v8.5.1).": defaulted,
        "Zero and partial dates arrive as NULL, in a TIMESTAMP or a NOT NULL column as 1970-01-01.": epoch,
        "Years below 100 arrive moved to 1970 to 2069 (since TiCDC v8.5.1).": moved,
        "FLOAT(M,D) arrives as DOUBLE without `enable-tidb-extension`.": widened,
    },
    "debezium-avro": {
        "NULL in a column with a DEFAULT arrives as the default.": defaulted,
        "Zero and partial dates arrive as NULL, in a TIMESTAMP or a NOT NULL column as 1970-01-01.": epoch,
        "Years below 100 arrive moved to 1970 to 2069.": moved,
    },
}
"""Losses that change cells, by protocol. Where there is none, every cell is the same."""


def explained(protocol: str, column: Column | None, wanted: Any, found: Any) -> bool:
    """Whether a loss of the protocol explains the difference of a cell; never where there is no such column."""
    return column is not None and any(rule(column, wanted, found) for rule in RULES.get(protocol, {}).values())
