"""Decides which upstream changes a compatibility level of the schema registry stops, and why.

The verdict is always the registry's. What is here says in words of DDL what its verdict rests on: Avro's rules for
reading with one schema what was written with another, applied to the schemas that TiCDC generates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from applier.commands.check.ticdc_avro import column_kind
from applier.decode.registry.wire_format import AvroSchema

BACKWARD, FORWARD = "BACKWARD", "FORWARD"

_WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",)}
_ALIKE = ({"string", "bytes"},)

_RETYPE = "Add a column of the new type that may be NULL or has a DEFAULT, copy the values, and use that one."

_STOPS: Mapping[tuple[str, str], tuple[str, ...]] = {
    (BACKWARD, "value"): (
        "ADD COLUMN … NOT NULL without DEFAULT",
        "ADD COLUMN … DECIMAL NOT NULL, even with DEFAULT (avro-decimal-handling-mode=precise)",
        "RENAME of a NOT NULL column without DEFAULT",
        "MODIFY to a narrower type (BIGINT to INT) or from numbers to text",
        "MODIFY from NULL to NOT NULL without DEFAULT",
        "RENAME TABLE, or a second table, on one fixed topic",
    ),
    (FORWARD, "value"): (
        "DROP of a NOT NULL column without DEFAULT, or of a DECIMAL NOT NULL",
        "RENAME of a NOT NULL column without DEFAULT",
        "MODIFY to a wider type (INT to BIGINT, INT to INT UNSIGNED) or from numbers to text",
        "MODIFY from NOT NULL to NULL",
        "RENAME TABLE, or a second table, on one fixed topic",
    ),
    (BACKWARD, "key"): ("a primary key that gains a column", "MODIFY of a key column to a narrower type"),
    (FORWARD, "key"): ("a primary key that loses a column", "MODIFY of a key column to a wider type"),
}
_TRANSITIVE = (
    "changes that fit the newest version but not an older one: a column dropped and added again with another type, "
    "or the DEFAULT taken from a column that was added with it"
)


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """One difference between two schemas that a level may forbid.

    Attributes:
        what: One sentence.
        breaks: Directions in which older and newer rows and readers no longer go together.
        ways_out: How the upstream change could be made instead.
    """

    what: str
    breaks: frozenset[str]
    ways_out: tuple[str, ...] = ()


def directions(level: str) -> frozenset[str]:
    """Directions that a level demands: BACKWARD, FORWARD, both for FULL, none for NONE."""
    base = level.removesuffix("_TRANSITIVE")
    return frozenset({BACKWARD, FORWARD}) if base == "FULL" else frozenset({base} & {BACKWARD, FORWARD})


def is_transitive(level: str) -> bool:
    """Whether a new schema is compared with every earlier version, not with the newest alone."""
    return level.endswith("_TRANSITIVE")


def stops(level: str, role: str) -> tuple[str, ...]:
    """Upstream changes at which the registry refuses TiCDC's new schema, so that the changefeed stops.

    Args:
        level: Compatibility level.
        role: `key` or `value`.
    """
    wanted = directions(level)
    found = dict.fromkeys(ddl for way in (BACKWARD, FORWARD) if way in wanted for ddl in _STOPS.get((way, role), ()))
    return (*found, _TRANSITIVE) if is_transitive(level) else tuple(found)


def broken(old: AvroSchema, new: AvroSchema, level: str) -> list[SchemaDifference]:
    """Differences between two schemas of TiCDC that a level forbids."""
    wanted = directions(level)
    return [difference for difference in differences(old, new) if difference.breaks & wanted]


def differences(old: AvroSchema, new: AvroSchema) -> Iterator[SchemaDifference]:
    """Differences between two record schemas of TiCDC that some level forbids."""
    if (old["name"], old.get("namespace")) != (new["name"], new.get("namespace")):
        names = f"{old.get('namespace')}.{old['name']}", f"{new.get('namespace')}.{new['name']}"
        what = f"The record is called {names[1]}, and {names[0]} in the subject: records of two names never match."
        hint = "Give each table a topic of its own, by a topic rule with {schema} and {table}."
        yield SchemaDifference(what, frozenset({BACKWARD, FORWARD}), (hint,))
    fields = [{field["name"]: field for field in schema["fields"]} for schema in (old, new)]
    for name, field in fields[1].items():
        if name not in fields[0] and "default" not in field:
            yield _added(name, field)
        elif name in fields[0]:
            yield from _retyped(name, fields[0][name], field)
    for name, field in fields[0].items():
        if name not in fields[1] and "default" not in field:
            what = f"Field {name} goes and had no default, so readers of the old schema find nothing for it."
            yield SchemaDifference(
                what, frozenset({FORWARD}), ("Let the column be NULL, or give it a DEFAULT, before.",)
            )


def _added(name: str, field: dict[str, Any]) -> SchemaDifference:
    what = f"Field {name} is new and has no default, so readers of the new schema find nothing for it in older rows."
    kind = column_kind(field)
    if kind is not None and "logicalType" in kind:
        hint = f"TiCDC writes no default for a DECIMAL: let {name} be NULL, or use avro-decimal-handling-mode=string."
        return SchemaDifference(what, frozenset({BACKWARD}), (hint,))
    return SchemaDifference(what, frozenset({BACKWARD}), (f"Give {name} a DEFAULT, or let it be NULL.",))


def _retyped(name: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[SchemaDifference]:
    before, after = _branches(old), _branches(new)
    ways = set()
    if not all(any(_reads(written, reading) for reading in after) for written in before):
        ways.add(BACKWARD)
    if not all(any(_reads(written, reading) for reading in before) for written in after):
        ways.add(FORWARD)
    if ways:
        what = f"Field {name} changes from {_named(before)} to {_named(after)}, {_in_words(ways)}."
        is_null_alone = set(before) ^ set(after) == {"null"}
        hint = f"Leave {name} as it is, NULL or NOT NULL." if is_null_alone else _RETYPE
        yield SchemaDifference(what, frozenset(ways), (hint,))


def _in_words(ways: set[str]) -> str:
    if len(ways) == 2:
        return "which neither old nor new readers can follow"
    return "so new readers cannot read older rows" if BACKWARD in ways else "so old readers cannot read newer rows"


def _reads(written: str, reading: str) -> bool:
    return written == reading or reading in _WIDER.get(written, ()) or any({written, reading} <= s for s in _ALIKE)


def _branches(field: dict[str, Any]) -> list[str]:
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    return [str(kind["type"] if isinstance(kind, dict) else kind) for kind in kinds]


def _named(branches: list[str]) -> str:
    return " or ".join(branches)
