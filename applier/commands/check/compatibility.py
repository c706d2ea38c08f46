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
_BOTH = frozenset({BACKWARD, FORWARD})

_WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",)}
_ALIKE = {"string", "bytes"}
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
    """One difference between two schemas, in a sentence, that a level may forbid.

    In the directions that it breaks, older and newer rows and readers no longer go together; `way_out` says how the
    upstream change could be made instead.
    """

    what: str
    breaks: frozenset[str]
    way_out: str


def directions(level: str) -> frozenset[str]:
    """Directions that a level demands: BACKWARD, FORWARD, both for FULL, none for NONE."""
    base = level.removesuffix("_TRANSITIVE")
    return _BOTH if base == "FULL" else _BOTH & {base}


def is_transitive(level: str) -> bool:
    """Whether a new schema is compared with every earlier version, not with the newest alone."""
    return level.endswith("_TRANSITIVE")


def stops(level: str, role: str) -> tuple[str, ...]:
    """Upstream changes at which the registry refuses TiCDC's new schema of a `key` or `value`: the changefeed stops."""
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
        yield SchemaDifference(what, _BOTH, hint)
    before, after = ({field["name"]: field for field in schema["fields"]} for schema in (old, new))
    for name, field in after.items():
        if name in before:
            yield from _retyped(name, before[name], field)
        elif "default" not in field:
            yield _added(name, field)
    for name, field in before.items():
        if name not in after and "default" not in field:
            what = f"Field {name} goes and had no default, so readers of the old schema find nothing for it."
            yield SchemaDifference(what, frozenset({FORWARD}), "Let the column be NULL, or give it a DEFAULT, before.")


def _added(name: str, field: dict[str, Any]) -> SchemaDifference:
    what = f"Field {name} is new and has no default, so readers of the new schema find nothing for it in older rows."
    hint = f"Give {name} a DEFAULT, or let it be NULL."
    if "logicalType" in (column_kind(field) or {}):
        hint = f"TiCDC writes no default for a DECIMAL: let {name} be NULL, or use avro-decimal-handling-mode=string."
    return SchemaDifference(what, frozenset({BACKWARD}), hint)


def _retyped(name: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[SchemaDifference]:
    before, after = _branches(old), _branches(new)
    pairs = {BACKWARD: (before, after), FORWARD: (after, before)}
    ways = frozenset(
        way
        for way, (written, reading) in pairs.items()
        if not all(any(_reads(old, new) for new in reading) for old in written)
    )
    if ways:
        what = f"Field {name} changes from {' or '.join(before)} to {' or '.join(after)}, {_in_words(ways)}."
        is_null_alone = set(before) ^ set(after) == {"null"}
        yield SchemaDifference(what, ways, f"Leave {name} as it is, NULL or NOT NULL." if is_null_alone else _RETYPE)


def _in_words(ways: frozenset[str]) -> str:
    if ways == _BOTH:
        return "which neither old nor new readers can follow"
    return "so new readers cannot read older rows" if BACKWARD in ways else "so old readers cannot read newer rows"


def _reads(written: str, reading: str) -> bool:
    return written == reading or reading in _WIDER.get(written, ()) or {written, reading} == _ALIKE


def _branches(field: dict[str, Any]) -> list[str]:
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    return [str(kind["type"] if isinstance(kind, dict) else kind) for kind in kinds]
