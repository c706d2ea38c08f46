"""Decides whether TiCDC and applier continue after a coming schema or DDL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fastavro.schema import parse_schema

from applier.changefeed.table import TableName, TableVersion
from applier.commands.check.avro import Registrations
from applier.commands.check.ddl import ComingDdl, answers
from applier.commands.check.iceberg_side import Replicas
from applier.commands.check.inputs import Sides
from applier.commands.check.registry_side import VALUE, keyed, role
from applier.commands.check.report import ChangeReport, RegistryAnswer, TableAnswer, Verdict, worst
from applier.config.protocols import Capabilities
from applier.ddl.actions import Action, ModifyColumn, effect, kind, touches
from applier.ddl.parser import parse
from applier.ddl.schema_tracker import Tables
from applier.decode.registry.wire_format import AvroSchema
from applier.errors import ApplierError, DecodeError, SchemaChangeRefused

_DEBEZIUM = (
    "What TiCDC registers for protocol debezium-avro is not derived here. All its fields may be NULL, so columns "
    "that come or go fit every level; a column whose Avro type changes may not."
)
_UNNAMED = "\0"
"""Stands for the database of names that are written without one."""

_SYNTAX = "The statement has to be one that TiDB runs, with names as database.table."
_NO_CATALOG = "What becomes of the Iceberg tables is not known: the catalog does not answer."
_NO_REGISTRY = "Whether the registry takes the new schema is not known: it does not answer."
_UNSEEN = "The feed carries no DDL messages: the applier sees the new columns in rows, and nothing else of it."


def coming_schema(sides: Sides, path: Path) -> ChangeReport:
    """What the registry and the tables do with a schema that is to come."""
    report = ChangeReport("schema", str(path))
    try:
        return _schema(sides, report, path)
    except ApplierError as error:
        return replace(report, verdict="cannot tell", reasons=(str(error),))


def coming_ddl(sides: Sides, sql: str, capabilities: Capabilities) -> ChangeReport:
    """What TiCDC, the registry and the tables do after a DDL that is to come."""
    report = ChangeReport("ddl", sql)
    try:
        actions = parse(sql, _UNNAMED)
        if any(name.database == _UNNAMED for action in actions for name in touches(action)):
            actions = parse(sql, _database(sides, actions))
    except SchemaChangeRefused as error:
        return replace(report, verdict="cannot tell", reasons=(error.what, _SYNTAX))
    try:
        return _ddl(sides, replace(report, kinds=tuple(dict.fromkeys(map(kind, actions)))), actions, capabilities)
    except ApplierError as error:
        return replace(report, verdict="cannot tell", reasons=(str(error),))


# ---- schema


def _schema(sides: Sides, report: ChangeReport, path: Path) -> ChangeReport:
    if sides.client is None:
        reason = "There is no schema registry that could be asked."
        return replace(report, verdict="cannot tell", reasons=(reason,))
    text, problem = _read(path)
    if problem:
        return replace(report, verdict="cannot tell" if text is None else "does not fit", reasons=(problem,))
    schema: AvroSchema = json.loads(text or "")
    subject, why = _subject_of(sides, schema)
    if subject is None:
        return replace(report, verdict="cannot tell", reasons=(why,))
    try:
        raw, version = sides.client.described_by(subject, schema)
    except DecodeError as error:
        return replace(report, verdict="does not fit", reasons=(str(error),))
    registry = sides.client.ask(subject, sides.subjects.get(subject), text or "")
    tables = _followed(sides, subject, raw.name, version) if role(subject) == VALUE else ()
    return _judged(replace(report, registry=(registry,), tables=tables))


def _read(path: Path) -> tuple[str | None, str]:
    """Text of an Avro schema, and what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return None, f"File {path} cannot be read ({getattr(error, 'strerror', None) or type(error).__name__})."
    try:
        parse_schema(json.loads(text), named_schemas={})
    except Exception as error:  # noqa: BLE001 - fastavro raises many types for a schema that is none
        return text, f"File {path} is no Avro schema ({type(error).__name__})."
    return text, ""


def _subject_of(sides: Sides, schema: AvroSchema) -> tuple[str | None, str]:
    """The subject that a schema is meant for, or why that cannot be determined."""
    if sides.asked:
        return sides.asked, ""
    name = (schema.get("namespace"), schema.get("name")) if isinstance(schema, dict) else None
    found = [
        subject.name
        for subject in sides.subjects.values()
        for item in subject.versions[-1:]
        if item.schema and subject.role == VALUE and (item.schema.get("namespace"), item.schema.get("name")) == name
    ]
    if len(found) == 1:
        return found[0], ""
    what = "No subject holds" if not found else "Several subjects hold"
    return None, f"{what} a record of the schema's name: name the subject with --subject."


def _followed(sides: Sides, subject: str, raw: TableName, version: TableVersion) -> tuple[TableAnswer, ...]:
    """How the table follows from the newest registered version, which is of the same kind as the coming one."""
    if sides.replicas is None:
        return ()
    known = sides.subjects.get(subject)
    before = keyed(known, sides.subjects).get(raw) if known else None
    if before is not None:
        after = replace(version, handle_key=before.handle_key)
        return (sides.replicas.follow(before, after, (), "registry"),)
    found = sides.replicas.report(version, "registry")
    outcome = TableAnswer(found.table, found.iceberg, "nothing to do" if found.exists else "created", "")
    if found.verdict == "fits":
        return (replace(outcome, reasons=found.reasons),)
    return (replace(outcome, outcome="refused", reasons=found.reasons, ways_out=found.ways_out),)


# ---- DDL


def _database(sides: Sides, actions: Sequence[Action]) -> str:
    """The database that a statement without one must mean: the only one that has tables of its names.

    Raises:
        SchemaChangeRefused: None or several have.
    """
    names = {name.table.lower() for action in actions for name in touches(action) if name.database == _UNNAMED}
    known = [*(sides.replicas.known if sides.replicas else ()), *(v.name for v in sides.registered().values())]
    found: set[str] = {name.database for name in known if name.table.lower() in names}
    if len(found) != 1:
        which = f"is in {', '.join(sorted(found))}" if found else "is in no database that is known"
        raise SchemaChangeRefused(f"Table {', '.join(sorted(names))} {which}.")
    return found.pop()


def _ddl(sides: Sides, report: ChangeReport, actions: tuple[Action, ...], capabilities: Capabilities) -> ChangeReport:
    registry: tuple[RegistryAnswer, ...] = ()
    notes: list[str] = []
    lacks_ddl = False
    if sides.client is not None and sides.config.changefeed.traits.registered == "rows":
        registrations = Registrations(sides.client, sides.subjects)
        registry, lacks_ddl = tuple(registrations.answers(actions)), not registrations.has_extension
        notes += [*registrations.notes(actions), *([_UNSEEN] if lacks_ddl else ())]
    tables: tuple[TableAnswer, ...] = ()
    if sides.replicas is not None:
        statement = _statement(sides.replicas, sides.registered(), actions, carries=not lacks_ddl)
        tables = tuple(answers(statement, sides.replicas))
    done = _judged(replace(report, registry=registry, tables=tables, notes=tuple(notes)))
    missing = tuple(_missing(sides, actions, capabilities))
    return replace(done, verdict=worst([done.verdict, "cannot tell"]), reasons=missing) if missing else done


def _missing(sides: Sides, actions: Sequence[Action], capabilities: Capabilities) -> Iterator[str]:
    """What the answer lacks."""
    if sides.replicas is None:
        yield _NO_CATALOG
    if capabilities.schema == "registry" and sides.client is None:
        yield _NO_REGISTRY
    elif sides.config.changefeed.traits.registered == "envelopes" and any(isinstance(a, ModifyColumn) for a in actions):
        levels = {subject.level for subject in sides.subjects.values()} - {"NONE"}
        if levels:
            yield f"{_DEBEZIUM} The levels in use are {', '.join(sorted(levels))}."


def _statement(
    replicas: Replicas, registered: dict[str, TableVersion], actions: tuple[Action, ...], *, carries: bool
) -> ComingDdl:
    tables, known_from = replicas.known.copy(), dict[TableName, str]()
    for name in _concerned(replicas.known, registered, actions):
        version, source = replicas.before(name, registered.get(str(name).lower()))
        if version is not None:
            tables.put(version)
            known_from[name] = source
    return ComingDdl(actions, tables, known_from, carries)


def _concerned(known: Tables, registered: dict[str, TableVersion], actions: Iterable[Action]) -> dict[TableName, None]:
    """Tables that a statement names, and those of databases that it drops."""
    names = dict.fromkeys(name for action in actions for name in touches(action))
    for action in actions:
        names |= dict.fromkeys(effect(action).leaving([*known, *(version.name for version in registered.values())]))
    return names


# ---- verdicts


def _judged(report: ChangeReport) -> ChangeReport:
    """The report with the verdict that its answers lead to."""
    registry = [_REGISTRY.get(answer.outcome, "fits") for answer in report.registry]
    tables = [_TABLES.get(answer.outcome, "fits") for answer in report.tables]
    return replace(report, verdict=worst([*registry, *tables]))


_REGISTRY: dict[str, Verdict] = {"refused": "does not fit", "cannot tell": "cannot tell"}
_TABLES: dict[str, Verdict] = {"refused": "does not fit", "cannot tell": "cannot tell"}
