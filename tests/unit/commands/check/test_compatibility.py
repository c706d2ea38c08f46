"""Why a level forbids a difference, in words; the verdict itself is the registry's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from applier.commands.check.compatibility import broken, differences, directions
from tests.unit.commands.check.world import column, nullable, record

ID = column("id")
DECIMAL: dict[str, Any] = {"logicalType": "decimal", "precision": 6, "scale": 2}
BOTH = {"BACKWARD", "FORWARD"}


def schema(*fields: dict[str, Any], table: str = "orders") -> Any:
    """A record with these columns."""
    return json.loads(record(*fields, table=table))


@pytest.mark.parametrize(
    ("old", "new", "breaks"),
    [
        (schema(ID), schema(ID, nullable("c")), set()),
        (schema(ID), schema(ID, column("c") | {"default": 0}), set()),
        (schema(ID), schema(ID, column("c")), {"BACKWARD"}),
        (schema(ID, column("c")), schema(ID), {"FORWARD"}),
        (schema(ID, nullable("c")), schema(ID), set()),
        (schema(column("a")), schema(column("b")), BOTH),
        (schema(column("a", "int")), schema(column("a", "long")), {"FORWARD"}),
        (schema(column("a", "long")), schema(column("a", "int")), {"BACKWARD"}),
        (schema(column("a", "int")), schema(column("a", "double")), {"FORWARD"}),
        (schema(column("a", "int")), schema(column("a", "string")), BOTH),
        (schema(column("a", "string")), schema(column("a", "bytes")), set()),
        (schema(nullable("a")), schema(column("a")), {"BACKWARD"}),
        (schema(column("a")), schema(nullable("a")), {"FORWARD"}),
        (schema(ID), schema(ID, table="other"), BOTH),
    ],
)
def test_a_difference_breaks_what_avro_says(old: Any, new: Any, breaks: set[str]) -> None:
    """The table of what TiCDC's DDL do to its schemas, row by row."""
    assert {way for difference in differences(old, new) for way in difference.breaks} == breaks


def test_a_precise_decimal_has_a_way_out_of_its_own() -> None:
    """A DEFAULT does not help there, since TiCDC writes none."""
    new = schema(ID, column("d", "bytes", "DECIMAL", **DECIMAL))

    (difference,) = broken(schema(ID), new, "BACKWARD")

    assert "avro-decimal-handling-mode=string" in difference.way_out
    assert broken(schema(ID), new, "FORWARD") == []


@pytest.mark.parametrize(
    ("level", "wanted"),
    [("NONE", set()), ("BACKWARD_TRANSITIVE", {"BACKWARD"}), ("FORWARD", {"FORWARD"}), ("FULL_TRANSITIVE", BOTH)],
)
def test_a_level_demands_directions(level: str, wanted: set[str]) -> None:
    """TRANSITIVE adds versions, not directions."""
    assert directions(level) == wanted
