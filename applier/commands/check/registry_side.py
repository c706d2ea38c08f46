"""Reads the subjects of a schema registry as the decoder does, and its verdict on schemas to come."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from applier.changefeed.table import TableName, TableVersion
from applier.commands.check.compatibility import SchemaDifference, broken, is_transitive, stops
from applier.commands.check.report import RegistryAnswer, SubjectReport, VersionReport
from applier.config.protocols import PROTOCOLS
from applier.decode.avro.names import OriginalNames
from applier.decode.avro.schema import record_schema
from applier.decode.debezium.avro_decoder import declared_version
from applier.decode.registry.framing import GlueId
from applier.decode.registry.registries import RegistryClient
from applier.decode.registry.wire_format import AvroSchema, parse_registered
from applier.errors import DecodeError, RegistryError

_SHOWN = 5
"""Versions that are named with one rule."""

KEY, VALUE = "key", "value"

_READ_ONLY = ("READONLY", "READONLY_OVERRIDE")


@dataclass(frozen=True, slots=True)
class Registered:
    """One version of a subject.

    Attributes:
        schema: The schema as JSON values; None where the text is no JSON.
        table: What it says of its table, under upstream names as far as they are known; None where it cannot be read.
        raw: The same under the names that stand in the schema: characters that Avro forbids are replaced.
        reason: Why it cannot be read; "" if it can.
    """

    version: int
    schema_id: int
    schema: AvroSchema | None
    table: TableVersion | None
    raw: TableVersion | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject with all its versions, oldest first; `level` and `mode` are those that count for it."""

    name: str
    level: str
    mode: str
    versions: tuple[Registered, ...]

    @property
    def role(self) -> str:
        """`key` or `value`."""
        return role(self.name)

    @property
    def newest(self) -> dict[TableName, Registered]:
        """Newest readable version of each table, by its raw name: on a fixed topic several tables share a subject."""
        return {version.raw.name: version for version in self.versions if version.raw is not None}


@dataclass(slots=True)
class RegistrySubjects:
    """The subjects of a changefeed in a registry, which is only read: those that are loaded, by name.

    A method that asks raises RegistryError if the registry refuses to answer, TransientError if it cannot be reached.
    `described` are table versions that DDL described: they know names that Avro schemas do not hold.
    """

    registry: RegistryClient
    protocol: str
    described: Iterable[TableVersion] = ()
    subjects: dict[str, Subject] = field(default_factory=dict)
    _names: OriginalNames = field(default_factory=OriginalNames)

    def __post_init__(self) -> None:
        for version in self.described:
            if version.indexes:
                self._names.learn(version)

    def load(self, names: Collection[str] | None = None) -> None:
        """Load the subjects of some names, or all, that end in `-key` or `-value`, each with all its versions."""
        for name in sorted(self.registry.subjects()):
            if role(name) and (names is None or name in names):
                versions = tuple(self._registered(name, number) for number in self.registry.versions(name))
                level, mode = self.registry.compatibility_level(name), self.registry.mode(name)
                self.subjects[name] = Subject(name, level, mode, versions)

    def _registered(self, name: str, number: int) -> Registered:
        found = self.registry.version(name, number)
        try:
            schema = parse_registered(found.schema_id, found.schema).schema
            raw, table = self.described_by(name, schema, found.schema_id)
        except DecodeError as error:
            return Registered(number, found.schema_id, _json(found.schema.text), None, reason=str(error))
        return Registered(number, found.schema_id, schema, table, raw)

    def described_by(self, subject: str, schema: AvroSchema, schema_id: int = 0) -> tuple[TableVersion, TableVersion]:
        """Table and columns of a schema: under the names that stand in it, and under upstream names.

        Raises DecodeError where the decoder of the protocol would not read its messages.
        """
        if PROTOCOLS[self.protocol].registered == "envelopes":
            version = declared_version(schema, schema_id, is_key=role(subject) == KEY)
            return version, version
        record = record_schema(schema_id, schema)
        raw = TableVersion(record.name, schema_id, record.columns, keys_only=role(subject) == KEY)
        name = self._names.table(record.name)
        renamed = self._names.columns(name, [column.name for column in record.columns])
        named = ((column, renamed[column.name]) for column in record.columns)
        columns = tuple(replace(column, name=new) for column, new in named if new is not None)
        return raw, replace(raw, name=name, columns=columns)

    @property
    def of_values(self) -> list[Subject]:
        """The subjects of rows."""
        return [subject for subject in self.subjects.values() if subject.role == VALUE]

    def tables(self, values: Subject, *, raw: bool = False) -> dict[TableName, TableVersion]:
        """Newest version of each table of a subject of rows, by its raw name, with the key of the subject of keys.

        With `raw` columns keep the names that stand in the schemas.
        """
        keys = self.subjects.get(partner(values.name))
        versions, key_of = (
            {name: item.raw if raw else item.table for name, item in subject.newest.items()} if subject else {}
            for subject in (values, keys)
        )
        names = {name: tuple(column.name for column in key.columns) for name, key in key_of.items() if key}
        return {name: replace(it, handle_key=names.get(name, ())) for name, it in versions.items() if it}

    def ask(self, subject: str, text: str) -> RegistryAnswer:
        """What the registry would do with a coming schema of a subject; nothing is registered."""
        try:
            return self._answer(subject, text)
        except RegistryError as error:
            known = self.subjects.get(subject)
            level, said, ways_out = known.level if known else "", (error.what,), (error.hint,)
            return RegistryAnswer(subject, level, "cannot tell", messages=said, ways_out=ways_out, avro=text)

    def _answer(self, subject: str, text: str) -> RegistryAnswer:
        known = self.subjects.get(subject)
        if known is None or not known.versions:
            return RegistryAnswer(subject, self.registry.compatibility_level(subject), "new subject", avro=text)
        schema = json.loads(text)
        if same := tuple(version.version for version in known.versions if version.schema == schema):
            return RegistryAnswer(subject, known.level, "unchanged", same, avro=text)
        if known.mode in _READ_ONLY:
            what = f"Subject {subject} is {known.mode}: it takes no new version, whatever its level says."
            hint = self.registry.way_to_write(subject)
            return RegistryAnswer(subject, known.level, "refused", rules=(what,), ways_out=(hint,), avro=text)
        against = known.versions if is_transitive(known.level) else known.versions[-1:]
        verdicts = [(version, self.registry.check(subject, text, version.version)) for version in against]
        answer = RegistryAnswer(subject, known.level, "accepted", tuple(item.version for item in against), avro=text)
        refusing = [version for version, verdict in verdicts if not verdict.is_compatible]
        if not refusing:
            return answer
        readable = [(item.version, item.schema) for item in refusing if item.schema is not None and item.table]
        found = [(number, rule) for number, old in readable for rule in broken(old, schema, known.level)]
        return replace(
            answer,
            outcome="refused",
            rules=tuple(_by_version(found, len(against))),
            messages=_once(message for _, verdict in verdicts for message in verdict.messages or ()),
            ways_out=_once(
                [
                    *(rule.way_out for _, rule in found),
                    self.registry.way_to_none(subject),
                ]
            ),
        )


def role(subject: str) -> str:
    """What a subject holds by TiCDC's names: `key`, `value`, or "" for neither."""
    ending = subject.rpartition("-")[2]
    return ending if ending in (KEY, VALUE) else ""


def partner(subject: str) -> str:
    """The subject of the keys of a subject of values, and the other way round."""
    stem, _, ending = subject.rpartition("-")
    return f"{stem}-{KEY if ending == VALUE else VALUE}"


def topic_subjects(topics: Sequence[str], protocol: str) -> frozenset[str]:
    """Subjects of topics; those of schemas of rows have `_` for each `.` of a topic."""
    stems = [topic.replace(".", "_") if PROTOCOLS[protocol].registered == "rows" else topic for topic in topics]
    return frozenset(f"{stem}-{ending}" for stem in stems for ending in (KEY, VALUE))


def reported(subject: Subject) -> SubjectReport:
    """Report one subject: whether its versions can be read, and whether TiCDC can add one."""
    names = [str(item.table.name) if item.table else "" for item in subject.versions]
    versions = tuple(
        VersionReport(item.version, _shown(item.schema_id), name, not item.reason, item.reason)
        for item, name in zip(subject.versions, names, strict=True)
    )
    reasons = [f"Version {item.version} cannot be read: {item.reason}" for item in versions if item.reason]
    if subject.mode in _READ_ONLY:
        reasons.append(f"The subject is {subject.mode}: TiCDC stops at the next change of the table's columns.")
    return SubjectReport(
        subject=subject.name,
        role=subject.role,
        level=subject.level,
        mode=subject.mode,
        breaks=stops(subject.level, subject.role),
        versions=versions,
        verdict="does not fit" if reasons else "fits",
        reasons=tuple(reasons),
    )


def _shown(schema_id: int) -> int | str:
    """An id as its registry shows it."""
    return str(schema_id) if isinstance(schema_id, GlueId) else schema_id


def _by_version(found: Iterable[tuple[int, SchemaDifference]], compared: int) -> Iterator[str]:
    """Each rule once, with the versions that break it where several were compared."""
    versions: dict[str, list[int]] = {}
    for version, item in found:
        versions.setdefault(item.what, []).append(version)
    for what, broken_by in versions.items():
        numbers = ", ".join(map(str, broken_by[:_SHOWN])) + (", …" if len(broken_by) > _SHOWN else "")
        yield what if compared == 1 else f"{what} (compared with version {numbers})"


def _json(text: str) -> AvroSchema | None:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
