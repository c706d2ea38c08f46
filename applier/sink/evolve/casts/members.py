"""Casts between labels, numbers and texts of enums and sets."""

from __future__ import annotations

import pyarrow as pa

from applier.changefeed.table import ColumnType
from applier.sink.evolve.steps import ConvertField
from applier.sink.format.types import Array, by_value


def to_enum(values: Array, step: ConvertField) -> Array:
    """Labels of the new enum: the old ones where they are still among them.

    A label in different case, or one that is gone, is left to TiDB, as the collation decides.

    Raises:
        KeyError: A label is not among the new ones.
    """
    known = {label: label for label in step.new.elements}
    if step.old.name == "enum":
        known.setdefault("", "")  # The error value, which MySQL prints so, stays what it is.
    return by_value(values, known.__getitem__, pa.string())


def enum_of_index(values: Array, step: ConvertField) -> Array:
    """Labels of an enum by their number."""
    known = dict(enumerate(step.new.elements, 1))
    return by_value(values, lambda number: known[int(number)], pa.string())


def to_set(values: Array, step: ConvertField) -> Array:
    """Members of the new set, in its own order."""
    order = {label: place for place, label in enumerate(step.new.elements)}
    return by_value(values, lambda text: ",".join(sorted(set(_members(text)), key=order.__getitem__)), pa.string())


def index_of(values: Array, kind: ColumnType) -> Array:
    """Numbers of an enum's labels; 0 for the error value."""
    index = {"": 0} | {label: place for place, label in reversed(list(enumerate(kind.elements, 1)))}
    return by_value(values, index.__getitem__, pa.int64())


def mask_of(values: Array, kind: ColumnType) -> Array:
    """Bit masks of a set's members."""
    bits = {label: 1 << place for place, label in enumerate(kind.elements)}
    return by_value(values, lambda text: sum(bits[label] for label in _members(text)), pa.uint64())


def _members(text: str) -> list[str]:
    return text.split(",") if text else []
