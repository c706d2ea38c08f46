"""Decides whether TiCDC and applier continue after a coming schema or DDL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fastavro.schema import parse_schema

from applier.changefeed.table import TableVersion
from applier.commands.check.avro import Registrations
from applier.commands.check.ddl import answers
from applier.commands.check.iceberg_side import Replicas
from applier.commands.check.inputs import Sides
from applier.commands.check.registry_side import VALUE, RegistrySubjects, role
from applier.commands.check.report import ChangeReport, RegistryAnswer, TableAnswer, TableOutcome, Verdict, worst
from applier.ddl.actions import Action, ModifyColumn, kind, named
from applier.ddl.parser import parse
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


def coming_ddl(sides: Sides, sql: str) -> ChangeReport:
    """What TiCDC, the registry and the tables do after a DDL that is to come."""
    report = ChangeReport("ddl", sql)
    try:
        actions = parse(sql, _UNNAMED)
        if any(name.database == _UNNAMED for action in actions for name in named(action)):
            actions = parse(sql, _database(sides, actions))
    except SchemaChangeRefused as error:
        return replace(report, verdict="cannot tell", reasons=(error.what, _SYNTAX))
    try:
        return _ddl(sides, replace(report, kinds=tuple(dict.fromkeys(map(kind, actions)))), actions)
    except ApplierError as error:
        return replace(report, verdict="cannot tell", reasons=(str(error),))


def _schema(sides: Sides, report: ChangeReport, path: Path) -> ChangeReport:
    if (client := sides.client) is None:
        raise ApplierError("There is no schema registry that could be asked.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = f"File {path} cannot be read ({getattr(error, 'strerror', None) or type(error).__name__})."
        raise ApplierError(reason) from error
    try:
        schema: AvroSchema = json.loads(text)
        parse_schema(schema, named_schemas={})
    except Exception as error:  # noqa: BLE001 - fastavro raises many types for an invalid schema
        reason = f"File {path} is no Avro schema ({type(error).__name__})."
        return replace(report, verdict="does not fit", reasons=(reason,))
    subjects = [sides.asked] if sides.asked else _subjects_of(client, schema)
    if len(subjects) != 1:
        what = "Several subjects hold" if subjects else "No subject holds"
        reason = f"{what} a record of the schema's name: name the subject with --subject."
        raise ApplierError(reason)
    (subject,) = subjects
    try:
        raw, version = client.described_by(subject, schema)
    except DecodeError as error:
        return replace(report, verdict="does not fit", reasons=(str(error),))
    registry = client.ask(subject, text)
    tables: tuple[TableAnswer, ...] = ()
    if sides.replicas is not None and role(subject) == VALUE:
        known = client.subjects.get(subject)
        before = client.tables(known).get(raw.name) if known else None
        tables = (_followed(sides.replicas, before, version),)
    return _judged(replace(report, registry=(registry,), tables=tables))


def _subjects_of(client: RegistrySubjects, schema: AvroSchema) -> list[str]:
    """Subjects of rows whose newest version is a record of the same name."""
    name = (schema.get("namespace"), schema.get("name")) if isinstance(schema, dict) else None
    newest = ((subject.name, item.schema) for subject in client.of_values for item in subject.versions[-1:])
    return [subject for subject, held in newest if held and (held.get("namespace"), held.get("name")) == name]


def _followed(replicas: Replicas, before: TableVersion | None, version: TableVersion) -> TableAnswer:
    """How the table follows from the newest registered version, which is of the same kind as the coming one."""
    if before is not None:
        return replicas.follow(before, replace(version, handle_key=before.handle_key), (), "registry")
    found = replicas.report(version, "registry")
    outcome: TableOutcome = "nothing to do" if found.exists else "created"
    if found.verdict != "fits":
        outcome = "refused"
    return TableAnswer(found.table, found.iceberg, outcome, reasons=found.reasons, ways_out=found.ways_out)


def _database(sides: Sides, actions: Sequence[Action]) -> str:
    """The only database that has tables of these names, which a statement without one must mean; else a refusal."""
    names = {name.folded[1] for action in actions for name in named(action) if name.database == _UNNAMED}
    known = [*(sides.replicas.known if sides.replicas else ()), *(v.name for v in sides.registered().values())]
    found: set[str] = {name.database for name in known if name.folded[1] in names}
    if len(found) != 1:
        which = f"is in {', '.join(sorted(found))}" if found else "is in no database that is known"
        raise SchemaChangeRefused(f"Table {', '.join(sorted(names))} {which}.")
    return found.pop()


def _ddl(sides: Sides, report: ChangeReport, actions: tuple[Action, ...]) -> ChangeReport:
    registry: tuple[RegistryAnswer, ...] = ()
    notes: list[str] = []
    lacks_ddl = False
    if sides.client is not None and sides.config.changefeed.traits.registered == "rows":
        registrations = Registrations(sides.client)
        registry, lacks_ddl = tuple(registrations.answers(actions)), not registrations.has_extension
        notes += [*registrations.notes(actions), *([_UNSEEN] if lacks_ddl else ())]
    tables: tuple[TableAnswer, ...] = ()
    if sides.replicas is not None:
        tables = tuple(answers(actions, sides.replicas, sides.registered(), carries_ddl=not lacks_ddl))
    done = _judged(replace(report, registry=registry, tables=tables, notes=tuple(notes)))
    missing = tuple(_missing(sides, actions))
    return replace(done, verdict=worst([done.verdict, "cannot tell"]), reasons=missing) if missing else done


def _missing(sides: Sides, actions: Sequence[Action]) -> Iterator[str]:
    traits = sides.config.changefeed.traits
    if sides.replicas is None:
        yield _NO_CATALOG
    if traits.carries.schema == "registry" and sides.client is None:
        yield _NO_REGISTRY
    elif traits.registered == "envelopes" and any(isinstance(action, ModifyColumn) for action in actions):
        subjects = sides.client.subjects.values() if sides.client else ()
        if levels := {subject.level for subject in subjects} - {"NONE"}:
            yield f"{_DEBEZIUM} The levels in use are {', '.join(sorted(levels))}."


def _judged(report: ChangeReport) -> ChangeReport:
    outcomes = {*(answer.outcome for answer in report.registry), *(answer.outcome for answer in report.tables)}
    verdict: Verdict = "cannot tell" if "cannot tell" in outcomes else "fits"
    return replace(report, verdict="does not fit" if "refused" in outcomes else verdict)
