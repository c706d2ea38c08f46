"""Resolves the steps of an evolution against an Iceberg table as it is: schema updates, and the fields written anew.

Iceberg has no step that casts values: a field that cannot stay is dropped and added again, and every row is rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa

from applier.config.table_layout import PartitionField, SortField
from applier.errors import TableMismatch, ValueRefused
from applier.sink.evolve import steps as evolve
from applier.sink.evolve.rewrite import LiveRows, ValueSource
from applier.sink.format.layout import takes
from applier.sink.format.types import Field, TableSchema, is_promotion

KEY = "applier.key"
"""Property: the columns that identify a row, as a JSON list. Iceberg's identifier fields say the same where they can:
they may be neither float nor double, and hold no NULL."""

_S = TypeVar("_S", bound=evolve.EvolutionStep)


@dataclass(frozen=True, slots=True)
class TableBefore:
    """An Iceberg table before an evolution.

    Comments are given by field id. Partition fields of the current spec have their names, and each spec that there
    ever was has its columns, by its id. The sort order is empty where it is not of columns alone.
    """

    name: str
    format_version: int
    schema: TableSchema
    docs: Mapping[int, str] = field(default_factory=dict)
    sort: Sequence[SortField] = ()
    partition: Mapping[str, PartitionField] = field(default_factory=dict)
    specs: Mapping[int, Collection[str]] = field(default_factory=dict)


class Resolution:
    """What the steps of an evolution do to a table as it is.

    Attributes:
        updates: Schema updates, one after the other: drops and renames, so that later names are those of after; then
            all that changes fields; then the identity, as Iceberg looks at the former field when an identifier is made
            anew. They hold no conversions, and a new field has a default only if Iceberg keeps it.
        sort: Columns to sort by once the fields that go, or are made anew, are out of the order; None if none of them
            is in it.
        unpartitioned: Names of the partition fields of columns that go or are made anew: they go first.
        repartitioned: Those of them whose column is made anew, in a type that the transform takes.
        truncates: All rows go.
        rewrites: All rows are written anew, with the values of `sources`.
        properties: Table properties to set.

    Raises:
        CastRefused: A value cannot be cast exactly.
        TableMismatch: A column is missing, or is not of the type that it had upstream.
    """

    def __init__(self, table: TableBefore, steps: Sequence[evolve.EvolutionStep], rows: LiveRows) -> None:
        self._table = table
        self._steps = steps
        self._rows = rows
        self._renamed = {step.to: step.name for step in self._of(evolve.RenameField)}
        self._after = {old: new for new, old in self._renamed.items()}
        self._dropped = {step.name: step for step in self._of(evolve.DropField)}
        self._added = {step.name: step for step in self._of(evolve.AddField)}
        self.truncates = bool(self._of(evolve.Truncate))
        converted = self._of(evolve.ConvertField)
        self._remade = {step.name: step for step in converted if self.truncates or not self._stays(step)}
        self._gone = {*self._dropped, *(self._before(name).name for name in self._remade)}
        identity = self._identity()
        self.updates: tuple[tuple[evolve.EvolutionStep, ...], ...] = (
            (*(() if identity is None else [evolve.SetKey(())]), *self._drops_and_renames()),
            (*self._field_changes(), *self._moves()),
            (evolve.SetKey(identity),) if identity else (),
        )
        self.sort = self._sort()
        self.unpartitioned = tuple(name for name, part in table.partition.items() if part.column in self._gone)
        self.repartitioned = self._repartitioned()
        is_filled = any(step.rewrite(table.format_version) for step in self._added.values())
        self.rewrites = (
            not self.truncates and bool(self._remade or is_filled or self._loses_partition()) and rows.count > 0
        )
        keys = [(KEY, json.dumps(step.columns)) for step in self._of(evolve.SetKey)]
        self.properties = dict(keys + [("comment", step.doc) for step in self._of(evolve.DescribeTable)])

    def sources(self, after: TableSchema) -> list[ValueSource]:
        """Where the values of each field come from, once the updates have given new fields their ids."""
        kept = {old.id: old for old in self._table.schema.fields}
        return [
            ValueSource(new, kept[new.id])
            if new.id in kept
            else self._remade_from(new, self._remade[new.name])
            if new.name in self._remade
            else ValueSource(new, constant=self._added[new.name].default)
            for new in after.fields
        ]

    def _remade_from(self, new: Field, step: evolve.ConvertField) -> ValueSource:
        if step.shown is None:
            return ValueSource(new, self._before(new.name), step)
        if not step.shown.key or not self._remade.keys().isdisjoint(step.shown.key):
            raise ValueRefused(f"Rows of table {self._table.name} have no key that stays what it is.")
        return ValueSource(new, step=step, key=tuple((name, self._before(name).name) for name in step.shown.key))

    def _of(self, kind: type[_S]) -> list[_S]:
        return [step for step in self._steps if isinstance(step, kind)]

    def _before(self, name: str) -> Field:
        """The field that has this name after the statement, as it was before."""
        found = self._table.schema.field(self._renamed.get(name, name))
        if found is None:
            known = ", ".join(column.name for column in self._table.schema.fields)
            what = f"Table {self._table.name} has no column {name}, which its upstream table changes"
            raise TableMismatch(what, f"Add it, or load the table anew. Columns are: {known}.")
        return found

    def _stays(self, step: evolve.ConvertField) -> bool:
        """Whether a field can stay: its type needs no new field, and no row gets another value."""
        old = self._before(step.name)
        if old.arrow != step.old_arrow:
            what = f"Column {step.name} of table {self._table.name} is {old.type}, upstream it was {step.old_arrow}"
            raise TableMismatch(what, "Restore the column's type, or load the table anew.")
        if step.shown is not None or (old.arrow != step.new_arrow and not is_promotion(old.arrow, step.new_arrow)):
            return False
        return not self._rows.count or not self._rows.are_changed(old, step)

    def _drops_and_renames(self) -> list[evolve.EvolutionStep]:
        for name in self._renamed:
            self._before(name)
        drops = [step for step in self._dropped.values() if self._table.schema.field(step.name) is not None]
        return [*drops, *self._of(evolve.RenameField)]

    def _field_changes(self) -> list[evolve.EvolutionStep]:
        changes: list[evolve.EvolutionStep] = []
        for step in self._steps:
            match step:
                case evolve.AddField():
                    keeps = step.keeps_default(self._table.format_version)
                    changes.append(step if keeps else replace(step, default=pa.scalar(None, step.type)))
                case evolve.ConvertField(name=name, new_arrow=kind) if name in self._remade:
                    changes += [
                        evolve.DropField(name),
                        evolve.AddField(name, kind, pa.scalar(None, kind), self._doc(name)),
                    ]
                case evolve.PromoteField(name=name, type=kind) | evolve.ConvertField(name=name, new_arrow=kind):
                    changes += [evolve.PromoteField(name, kind)] if self._before(name).arrow != kind else []
                case evolve.RelaxField(name=name):
                    changes += [step] if self._before(name).required else []
                case evolve.DescribeField(name=name):
                    changes += [step] if name not in self._remade else []
        return changes

    def _now(self, name: str) -> str:
        return self._after.get(name, name)

    def _moves(self) -> list[evolve.EvolutionStep]:
        names = [column.name for column in self._table.schema.fields if column.name not in self._dropped]
        order = [self._now(name) for name in names]
        # A field that is made anew comes last; it goes back behind the one that it was behind.
        places = sorted(map(order.index, self._remade))
        back = [evolve.MoveField(order[place], order[place - 1] if place else None) for place in places]
        return [*back, *self._of(evolve.MoveField)]

    def _sort(self) -> tuple[SortField, ...] | None:
        if self._gone.isdisjoint(part.column for part in self._table.sort):
            return None
        kept = [part for part in self._table.sort if part.column not in self._dropped]
        return tuple(replace(part, column=self._now(part.column)) for part in kept)

    def _repartitioned(self) -> tuple[PartitionField, ...]:
        found = [
            replace(part, column=self._now(part.column))
            for part in self._table.partition.values()
            if part.column in self._gone and part.column not in self._dropped
        ]
        return tuple(part for part in found if takes(part.transform, self._remade[part.column].new_arrow))

    def _loses_partition(self) -> bool:
        """Whether a file lies in a partition of a column that goes: the values of that partition have no type then."""
        specs = {number for number, columns in self._table.specs.items() if not self._gone.isdisjoint(columns)}
        return bool(specs) and not specs.isdisjoint(self._rows.spec_ids)

    def _identity(self) -> tuple[str, ...] | None:
        """Identifier fields of after; None where they stay what they are."""
        for step in self._of(evolve.SetKey):
            return step.columns if all(self._can_identify(name) for name in step.columns) else ()
        names = tuple(self._now(name) for name in self._table.schema.identifier)
        return None if self._remade.keys().isdisjoint(names) else names

    def _can_identify(self, name: str) -> bool:
        """Whether a field may be required: it holds no NULL, in the files or at least in the living rows."""
        if name in self._added:
            return self._added[name].default.is_valid or not self._rows.count
        old = self._before(name)
        types = {step.name: step.new_arrow for step in self._of(evolve.ConvertField)}
        if pa.types.is_floating(types.get(name, old.arrow)) or pa.types.is_nested(old.arrow):
            return False
        return old.required or not self._rows.count or not self._rows.has_null(old)

    def _doc(self, name: str) -> str:
        told = [step.doc for step in self._steps if isinstance(step, evolve.DescribeField) and step.name == name]
        return told[-1] if told else self._table.docs.get(self._before(name).id, "")
