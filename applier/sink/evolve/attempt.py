"""One attempt at an evolution on a table's head: what is staged before the commit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TypeVar

import pyarrow as pa

from applier.errors import TableMismatch
from applier.runtime.logs import logger
from applier.sink.commit.stamp import Stamp
from applier.sink.evolve.casts.widening import is_promotion
from applier.sink.evolve.rewrite import LiveRows, ValueSource, changes, rewrite
from applier.sink.evolve.steps import (
    AddField,
    ConvertField,
    DescribeField,
    DescribeTable,
    DropField,
    MoveField,
    PromoteField,
    RelaxField,
    RenameField,
    SetKey,
    Step,
    Truncate,
)
from applier.sink.format.files import DataFile
from applier.sink.format.types import Field, TableSchema
from applier.sink.iceberg.java import translated
from applier.sink.iceberg.schema import RevisableTable, Revised, Revision, SchemaUpdate

KEY = "applier.key"
"""Property: the columns that identify a row, as a JSON list. Iceberg's identifier fields say the same where they can:
they may be neither float nor double, and hold no NULL."""

_S = TypeVar("_S", AddField, ConvertField, DescribeTable, DropField, MoveField, RenameField, SetKey, Truncate)


class EvolutionAttempt:
    """One attempt at an evolution.

    The schema is changed in up to three updates: drops and renames, so that later names are those of after; then all
    that changes fields; then the identity, as Iceberg looks at the former field when an identifier is made anew.

    Args:
        table: The table, as it is now.
        steps: The steps of the evolution.

    Attributes:
        rewritten: Rows that were written anew.
    """

    def __init__(self, table: RevisableTable, steps: Sequence[Step]) -> None:
        self.table = table
        self.rewritten = 0
        self._steps = steps
        self._schema = table.schema
        # Read now: a revision looks at the newest metadata, which may be another applier's by then.
        fields = json.loads(table.schema_json)["fields"]
        self._docs = {column["id"]: column.get("doc", "") for column in fields}
        self._renamed = {step.to: step.name for step in self._of(RenameField)}
        self._dropped = {step.name for step in self._of(DropField)}

    @cached_property
    def live(self) -> LiveRows:
        """The rows of the head."""
        return LiveRows(self.table, self.table.snapshot_id)

    @cached_property
    def has_rows(self) -> bool:
        """Whether there are any."""
        return self.table.snapshot_id is not None and self.live.count > 0

    def change(self, stamp: Stamp) -> Revised:
        """Stage everything that the commit needs.

        Raises:
            CastRefused: A value cannot be cast exactly.
            TableMismatch: A column is missing, or is not of the type that it had upstream.
            JavaError: Iceberg refuses a step, or does not answer.
        """
        truncates = bool(self._of(Truncate))
        remade = [step for step in self._of(ConvertField) if truncates or not self._stays(step)]
        filled = [step for step in self._of(AddField) if not truncates and self._must_be_filled(step)]
        revision = Revision(self.table)
        identity = self._identity(remade)
        with translated(f"Cannot change the columns of table {self.table}"):
            order = self._unsort(revision, remade)
            self._rename(revision, is_identity_new=identity is not None)
            self._reshape(revision, remade, filled)
            self._identify(revision, identity)
            if order:
                revision.sort(order)
        replaces = bool(remade or filled) and not truncates and self.has_rows
        rows = self._rewrite(revision, remade) if replaces else []
        return Revised(
            rows=rows,
            truncate=truncates,
            replace=replaces,
            summary=stamp.entries(),
            properties=stamp.entries() | self._properties(),
            revision=revision,
        )

    def _of(self, kind: type[_S]) -> list[_S]:
        return [step for step in self._steps if isinstance(step, kind)]

    def _before(self, name: str) -> Field:
        """The field that has this name after the statement, as it was before."""
        found = self._schema.field(self._renamed.get(name, name))
        if found is None:
            known = ", ".join(column.name for column in self._schema.fields)
            what = f"Table {self.table} has no column {name}, which its upstream table changes"
            raise TableMismatch(what, f"Add it, or load the table anew. Columns are: {known}.")
        return found

    def _stays(self, step: ConvertField) -> bool:
        """Whether a field can stay: its type needs no new field, and no row gets another value."""
        old = self._before(step.name)
        if old.arrow != step.old_arrow:
            what = f"Column {step.name} of table {self.table} is {old.type}, upstream it was {step.old_arrow}"
            raise TableMismatch(what, "Restore the column's type, or load the table anew.")
        if not _is_in_place(old.arrow, step.new_arrow):
            return False
        return not self.has_rows or not changes(self.live, old, step)

    def _must_be_filled(self, step: AddField) -> bool:
        """Whether the value of a new field has to be written into every row."""
        has_no_default = self.table.format_version < 3 or pa.types.is_nested(step.type)
        return has_no_default and step.default.is_valid and self.has_rows

    def _unsort(self, revision: Revision, remade: Sequence[ConvertField]) -> tuple[str, ...]:
        """Take fields that go or are made anew out of the sort order, and say what to sort by once they are back."""
        gone = self._dropped | {self._before(step.name).name for step in remade}
        names = {column.id: column.name for column in self._schema.fields}
        columns = [names.get(part["source-id"], "") for part in self.table.sort_order_json["fields"]]
        if not gone.intersection(columns):
            return ()
        revision.sort(())
        after = {old: new for new, old in self._renamed.items()}
        return tuple(after.get(name, name) for name in columns if name not in self._dropped)

    def _rename(self, revision: Revision, *, is_identity_new: bool) -> None:
        if not (self._dropped or self._renamed or is_identity_new):
            return
        update = revision.update()
        if is_identity_new:
            update.identify(())
        for name in self._dropped:
            if self._schema.field(name) is not None:
                update.drop(name)
        for to, name in self._renamed.items():
            self._before(to)
            update.rename(name, to)
        update.prepare()

    def _reshape(self, revision: Revision, remade: Sequence[ConvertField], filled: Sequence[AddField]) -> None:
        update = revision.update()
        order = [field.name for field in revision.pending.schema.fields]
        for step in self._steps:
            self._take(step, update, remade, filled)
        for place in sorted(order.index(step.name) for step in remade):
            # A field that is made anew comes last; it goes back behind the one that it was behind.
            update.move(order[place], order[place - 1] if place else None)
        for step in self._of(MoveField):
            update.move(step.name, step.after)
        update.prepare()

    def _take(
        self, step: Step, update: SchemaUpdate, remade: Sequence[ConvertField], filled: Sequence[AddField]
    ) -> None:
        match step:
            case AddField() if step.default.is_valid and self.table.format_version >= 3 and step not in filled:
                update.add_with_default(step.name, step.type, step.default, step.doc)
            case AddField():
                update.add(step.name, step.type, step.doc)
            case ConvertField() if step in remade:
                update.drop(step.name)
                update.add(step.name, step.new_arrow, self._doc(step.name))
            case PromoteField(name=name, type=kind) | ConvertField(name=name, new_arrow=kind):
                if self._before(name).arrow != kind:
                    update.promote(name, kind)
            case RelaxField(name=name):
                if self._before(name).required:
                    update.relax(name)
            case DescribeField(name=name, doc=doc):
                if not any(name == other.name for other in remade):
                    update.describe(name, doc)

    def _identity(self, remade: Sequence[ConvertField]) -> tuple[str, ...] | None:
        """Identifier fields of after; None where they stay what they are."""
        for step in self._of(SetKey):
            return step.columns if all(self._can_identify(name) for name in step.columns) else ()
        after = {old: new for new, old in self._renamed.items()}
        names = tuple(after.get(name, name) for name in self._schema.identifier)
        is_remade = any(step.name in names for step in remade)
        return names if is_remade else None

    def _can_identify(self, name: str) -> bool:
        """Whether a field may be required: it holds no NULL, in the files or at least in the living rows."""
        added = {step.name: step for step in self._of(AddField)}
        if name in added:
            return added[name].default.is_valid or not self.has_rows
        old = self._before(name)
        types = {step.name: step.new_arrow for step in self._of(ConvertField)}
        if pa.types.is_floating(types.get(name, old.arrow)) or pa.types.is_nested(old.arrow):
            return False
        if old.required or not self.has_rows:
            return True
        return self.table.null_counts([old.name])[old.name] == 0 or not self.live.has_null(old)

    def _identify(self, revision: Revision, names: tuple[str, ...] | None) -> None:
        if not names:
            return
        update = revision.update()
        fields = {field.name: field for field in revision.pending.schema.fields}
        for name in names:
            if not fields[name].required:
                update.require(name)
        update.identify(names)
        update.prepare()

    def _rewrite(self, revision: Revision, remade: Sequence[ConvertField]) -> list[DataFile]:
        self.rewritten = self.live.count
        logger().info("rewriting table", table=str(self.table), rows=self.rewritten)
        pending = revision.pending
        sources = self._sources(pending.schema, remade)
        return rewrite(self.live, sources, pending, pending.schema.identifier)

    def _sources(self, after: TableSchema, remade: Sequence[ConvertField]) -> list[ValueSource]:
        old = {field.id: field for field in self._schema.fields}
        casts = {step.name: step for step in remade}
        constants = {step.name: step.default for step in self._of(AddField)}
        result = []
        for field in after.fields:
            if field.id in old:
                result.append(ValueSource(field, old[field.id]))
            elif field.name in casts:
                result.append(ValueSource(field, self._before(field.name), casts[field.name]))
            else:
                result.append(ValueSource(field, constant=constants[field.name]))
        return result

    def _doc(self, name: str) -> str:
        """Comment that a field has after the statement."""
        told = [step.doc for step in self._steps if isinstance(step, DescribeField) and step.name == name]
        old = self._before(name).id
        return str(told[-1] if told else self._docs[old])

    def _properties(self) -> dict[str, str]:
        properties: dict[str, str] = {}
        for key in self._of(SetKey):
            properties[KEY] = json.dumps(key.columns)
        for comment in self._of(DescribeTable):
            properties["comment"] = comment.doc
        return properties


def _is_in_place(old: pa.DataType, new: pa.DataType) -> bool:
    return old == new or is_promotion(old, new)
