"""Casts labels and texts to those of enums and sets."""

from __future__ import annotations

import pyarrow as pa

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


def to_set(values: Array, step: ConvertField) -> Array:
    """Members of the new set, in its own order."""
    order = {label: place for place, label in enumerate(step.new.elements)}
    return by_value(
        values, lambda text: ",".join(sorted(set(text.split(",") if text else ()), key=order.__getitem__)), pa.string()
    )
