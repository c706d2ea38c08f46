"""Derives the Avro schemas that TiCDC would register after a coming DDL, and the registry's verdict on them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from applier.changefeed.table import Column, Index, TableName, TableVersion, fold
from applier.commands.check.ddl import refuse_unknown
from applier.commands.check.registry_side import Registered, RegistrySubjects, Subject, partner
from applier.commands.check.report import RegistryAnswer
from applier.commands.check.ticdc_avro import AvroForm, extension, key_schema, value_schema
from applier.ddl.actions import (
    Action,
    AddColumn,
    ColumnAction,
    IndexAction,
    ModifyColumn,
    RenameColumn,
    TableAction,
    effect,
    touches,
)
from applier.ddl.schema_tracker import Tables
from applier.decode.avro.namesakes import sanitised
from applier.decode.avro.schema import CHECKSUM
from applier.errors import IncompatibleSchema
from applier.sink.evolve.column_mapping import lineage

_NEW_TOPIC = "(topic of {name})-value"

_CHECKSUM_NOTE = (
    "With row checksums, a column that is placed FIRST or AFTER another can stop the changefeed: a defect of TiCDC. "
    "Add it as the last column."
)


@dataclass(slots=True)
class Registrations:
    """What TiCDC would register after a DDL, as far as what is registered shows it."""

    client: RegistrySubjects

    @property
    def values(self) -> dict[TableName, Subject]:
        """The subject of each table's rows, by the table's name in Avro."""
        return {raw: subject for subject in self.client.of_values for raw in subject.newest}

    @property
    def has_extension(self) -> bool:
        """Whether `enable-tidb-extension` is on, as far as the registered schemas show; True without any."""
        newest = self._newest()
        return not newest or any(extension(item.schema) for item in newest)

    def answers(self, actions: Sequence[Action]) -> Iterator[RegistryAnswer]:
        """The registry's verdict on each schema that the statement changes; raises what `refuse_unknown` does, too."""
        cleaned: list[Action] = [_renamed(action) for action in actions]
        before = Tables(
            version for subject in self._values() for version in self.client.tables(subject, raw=True).values()
        )
        after, origin = before.copy(), {name: name for name in before}
        for action, given in zip(cleaned, actions, strict=True):
            if clash := _clash(after, action, given):
                known = self.values.get(touches(action)[0])
                hint = "Choose a name that differs in letters, digits and underscores too."
                yield RegistryAnswer(known.name if known else "", "", "refused", rules=(clash,), ways_out=(hint,))
                return
            refuse_unknown(after, action)
            after.apply(action, 0)
            origin |= {to: origin.pop(table) for table, to in effect(action).moved if table in origin}
        for name in dict.fromkeys(name for action in cleaned for name in touches(action)):
            version = after.get(name)
            if version is not None:
                source = before.get(origin[name]) if name in origin else None
                yield from self._table(source, version, cleaned)

    def notes(self, actions: Sequence[Action]) -> tuple[str, ...]:
        """What else to know of these actions."""
        named = [item for item in actions if isinstance(item, AddColumn | ModifyColumn)]
        placed = any(item.first or item.after for item in named)
        checked = any(field["name"] == CHECKSUM for field in self._form(None).extension)
        return (_CHECKSUM_NOTE,) if placed and checked else ()

    def _values(self) -> list[Subject]:
        return list({subject.name: subject for subject in self.values.values()}.values())

    def _newest(self) -> list[Registered]:
        return [item for subject in self._values() for item in subject.newest.values()]

    def _table(
        self, before: TableVersion | None, after: TableVersion, actions: Sequence[Action]
    ) -> Iterator[RegistryAnswer]:
        """Verdicts on the schemas of one table; none where nothing about it changes."""
        if before is not None and _shape(before) == _shape(after):
            return
        known = self.values.get(before.name) if before else None
        subject = self._subject_of(before, after, known)
        form = self._form(known.newest[before.name] if known and before else None)
        names = {after.name, before.name} if before else {after.name}
        own = [action for action in actions if names & set(touches(action))]
        keys = self.client.subjects.get(partner(known.name)) if known else None
        try:
            kept = _kept(before, after, known, own)
            yield self.client.ask(subject, value_schema(after.name, after.columns, form, kept))
            if key := _key(after):
                columns = [column for column in after.columns if column.name in key]
                kept = _kept(before, after, keys, own)
                yield self.client.ask(partner(subject), key_schema(after.name, columns, form, kept))
        except IncompatibleSchema as error:
            level = known.level if known else ""
            ways_out = (error.hint,) if error.hint else ()
            yield RegistryAnswer(subject, level, "refused", rules=(error.what,), ways_out=ways_out)

    def _form(self, own: Registered | None) -> AvroForm:
        """How the changefeed writes schemas: the table's own newest schema counts most."""
        others = sorted(self._newest(), key=lambda item: -item.schema_id)
        return AvroForm.of(item.schema for item in ([own] if own else []) + others)

    def _subject_of(self, before: TableVersion | None, after: TableVersion, known: Subject | None) -> str:
        """The subject that a table's rows get: the one they have, or what the subjects of other tables suggest."""
        if known is not None and before is not None and before.name == after.name:
            return known.name
        for raw, subject in self.values.items() if known is None else [(before.name, known)] if before else []:
            pattern = f"(.*){re.escape(raw.database)}(.*){re.escape(raw.table)}(.*)"
            if found := re.fullmatch(pattern, subject.name, re.DOTALL):
                return f"{found[1]}{after.name.database}{found[2]}{after.name.table}{found[3]}"
        fixed = [subject.name for subject in self._values()]
        return fixed[0] if fixed else _NEW_TOPIC.format(name=after.name)


def _kept(
    before: TableVersion | None, after: TableVersion, known: Subject | None, actions: Sequence[Action]
) -> dict[str, dict[str, Any]]:
    """Registered fields of columns that stay what they are, under their names of after."""
    registered = known.newest.get(before.name) if known and before else None
    if before is None or registered is None or registered.schema is None:
        return {}
    found = {field["name"]: field for field in registered.schema["fields"]}
    pairs = [(old, new) for old, new in lineage(before, after, actions).pairs if old and old.name in found]
    return {new.name: found[old.name] | {"name": new.name} for old, new in pairs if replace(old, name=new.name) == new}


def _clash(tables: Tables, action: Action, given: Action) -> str:
    """Why Avro has no name for the column that an action makes; "" where it has, or upstream has that column already.

    Tables and action have their names in Avro; `given` is the action as written.
    """
    name, written = _made(action), _made(given)
    version = tables.get(touches(action)[0]) if name else None
    others = {column.name for column in version.columns if not _is_from(action, column)} if version else set()
    if name not in others or (name == written and isinstance(action, AddColumn)):
        return ""
    return f"Column {written} becomes {name} in Avro, as another column does already, so TiCDC can make no schema."


def _made(action: Action) -> str:
    """Name of the column that an action makes or names anew; "" for none."""
    match action:
        case AddColumn(column=column) | ModifyColumn(column=column):
            return column.name
        case RenameColumn(to=to):
            return to
    return ""


def _is_from(action: Action, column: Column) -> bool:
    if not isinstance(action, RenameColumn | ModifyColumn):
        return False
    return fold(action.name) == fold(column.name)


def _key(version: TableVersion) -> tuple[str, ...]:
    """Columns of the Kafka key: TiCDC's new architecture takes the primary key alone."""
    primary = (index.columns for index in version.indexes if index.primary)
    return version.handle_key or next(primary, ())


def _shape(version: TableVersion) -> tuple[object, ...]:
    return version.name, version.columns, _key(version)


def _renamed(value: Any) -> Any:
    """An action, or a part of one, with all names as Avro has them."""
    if isinstance(value, TableName):
        return TableName(*map(sanitised, value))
    if isinstance(value, tuple):
        return tuple(map(_renamed, value))
    if isinstance(value, Index):
        return replace(value, columns=tuple(map(sanitised, value.columns)))
    if not isinstance(value, Column | TableVersion | ColumnAction | IndexAction | TableAction):
        return value
    names = ("name", "to", "after") if isinstance(value, Column | ColumnAction) else ()
    changes: dict[str, Any] = {}
    for item in fields(value):
        if item.init:
            part = getattr(value, item.name)
            changes[item.name] = sanitised(part) if isinstance(part, str) and item.name in names else _renamed(part)
    return replace(value, **changes)
