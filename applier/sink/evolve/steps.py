"""The steps that an evolution of an Iceberg table is made of, or its refusal; Iceberg calls a column a field."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from applier.changefeed.table import ColumnType, TableName
from applier.errors import RELOAD, SchemaChangeRefused, TableMismatch
from applier.sink.evolve.upstream_rows import UpstreamRows
from applier.sink.format.partition_spec import single_value
from applier.sink.format.renaming import Renaming
from applier.sink.format.types import Field, TableSchema, iceberg_type, is_promotion, schema_json, type_text

if TYPE_CHECKING:
    from applier.sink.iceberg.java import Java

_NEW = -1
"""Field id of a column that is not there yet."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a statement cannot be applied exactly, as one sentence without the table's name, and what to do about it.

    If nothing but the values of a `column` is not known, TiDB can show them.
    """

    reason: str
    hint: str = RELOAD
    column: str = ""

    def of(self, table: TableName) -> SchemaChangeRefused:
        """The same as an error, with the name of the upstream table."""
        return SchemaChangeRefused(f"Table {table} cannot follow its upstream: {self.reason}", self.hint)


class EvolutionStep(ABC):
    """One step; what the methods of a kind of step leave out, it does not do."""

    __slots__ = ()

    @abstractmethod
    def describe(self) -> str:
        """The step in a few words."""

    def rewrite(self, format_version: int) -> str | None:
        """Why it writes files that hold rows anew; None where metadata is enough."""
        return None

    def on_fields(self, fields: dict[str, Field]) -> None:
        """Change fields by name as the step will; their order stays.

        Raises:
            TableMismatch: A field is missing, or has another type than upstream had.
        """

    def named(self, before: Renaming, after: Renaming) -> EvolutionStep:
        """The step with the names that its columns have in Iceberg."""
        return self

    def update(self, update: Any, java: Java) -> None:
        """Put the step into a schema update of Iceberg, by the names there."""

    def is_done(self, schema: TableSchema) -> bool:
        """Whether the columns of a table show that it has taken the step."""
        return False


@dataclass(frozen=True, slots=True)
class AddField(EvolutionStep):
    """A new optional field behind the others; rows that are there already have its default."""

    name: str
    type: pa.DataType
    default: pa.Scalar  # type: ignore[type-arg]
    doc: str = ""

    def keeps_default(self, format_version: int) -> bool:
        """Whether Iceberg keeps the default; otherwise its value has to be written into every row."""
        return format_version >= 3 and not pa.types.is_nested(self.type)

    def describe(self) -> str:
        value = self.default.as_py()
        shown = "NULL" if value is None else repr(value) if isinstance(value, str | bytes) else str(value)
        return f"add {self.name} {_text(self.type)}, {shown} in existing rows"

    def rewrite(self, format_version: int) -> str | None:
        if not self.default.is_valid or self.keeps_default(format_version):
            return None
        if pa.types.is_nested(self.type):
            return f"Iceberg has no default for the nested column {self.name}."
        return f"Format version 2 has no default for the new column {self.name}."

    def on_fields(self, fields: dict[str, Field]) -> None:
        fields[self.name] = Field(_NEW, self.name, iceberg_type(self.type), self.type, required=False)

    def named(self, before: Renaming, after: Renaming) -> EvolutionStep:
        return replace(self, name=before(self.name))

    def update(self, update: Any, java: Java) -> None:
        literal = (_literal_of(java, self.default),) if self.default.is_valid else ()
        # The parent is given, as None, because Iceberg would take a dot in the name for a path otherwise.
        update.addColumn(None, self.name, _type_of(java, self.type), self.doc or None, *literal)

    def is_done(self, schema: TableSchema) -> bool:
        return schema.field(self.name) is not None


@dataclass(frozen=True, slots=True)
class DropField(EvolutionStep):
    """A field that goes; snapshots from before still have it."""

    name: str

    def describe(self) -> str:
        return f"drop {self.name}; older snapshots keep it"

    def on_fields(self, fields: dict[str, Field]) -> None:
        fields.pop(self.name, None)

    def named(self, before: Renaming, after: Renaming) -> EvolutionStep:
        return replace(self, name=before(self.name))

    def update(self, update: Any, java: Java) -> None:
        update.deleteColumn(self.name)

    def is_done(self, schema: TableSchema) -> bool:
        return schema.field(self.name) is None


@dataclass(frozen=True, slots=True)
class RenameField(EvolutionStep):
    """A field with a new name and the same field id."""

    name: str
    to: str

    def describe(self) -> str:
        return f"rename {self.name} to {self.to}"

    def on_fields(self, fields: dict[str, Field]) -> None:
        fields[self.to] = replace(_found(fields, self.name), name=self.to)
        del fields[self.name]

    def named(self, before: Renaming, after: Renaming) -> EvolutionStep:
        return replace(self, name=before(self.name), to=after(self.to))

    def update(self, update: Any, java: Java) -> None:
        if self.name != self.to:
            update.renameColumn(self.name, self.to)


@dataclass(frozen=True, slots=True)
class PromoteField(EvolutionStep):
    """A field whose type becomes wider in place, in one of the ways that Iceberg's specification allows."""

    name: str
    type: pa.DataType

    def describe(self) -> str:
        return f"widen {self.name} to {_text(self.type)}"

    def on_fields(self, fields: dict[str, Field]) -> None:
        fields[self.name] = _retyped(_found(fields, self.name), self.type)

    def named(self, before: Renaming, after: Renaming) -> EvolutionStep:
        return replace(self, name=before(self.name))

    def update(self, update: Any, java: Java) -> None:
        update.updateColumn(self.name, _type_of(java, self.type))

    def is_done(self, schema: TableSchema) -> bool:
        found = schema.field(self.name)
        return found is not None and found.arrow == self.type


@dataclass(frozen=True, slots=True)
class ConvertField(EvolutionStep):
    """A field, by its new name, whose values TiDB rewrote, without row events: every value is cast.

    Where Iceberg cannot promote the field to the new type, it is made anew. It `holds_null` where NULL here
    is NULL upstream too, and no zero date that has no Iceberg value. Where TiDB shows the new values, none is cast.
    """

    name: str
    old: ColumnType
    new: ColumnType
    old_arrow: pa.DataType
    new_arrow: pa.DataType
    holds_null: bool = True
    shown: UpstreamRows | None = None

    def describe(self) -> str:
        return f"convert {self.name} from {self.old.text} to {self.new.text} as TiDB does"

    def rewrite(self, format_version: int) -> str | None:
        if self.old_arrow != self.new_arrow and not is_promotion(self.old_arrow, self.new_arrow):
            return f"A value of {self.name} that TiDB would not have cast in strict SQL mode parks the table."
        return f"Only if the conversion changes a value of {self.name}; one that strict mode refuses parks the table."

    def on_fields(self, fields: dict[str, Field]) -> None:
        found = _found(fields, self.name)
        if found.arrow != self.old_arrow:
            what = f"Column {self.name} of the Iceberg table is {found.type}, upstream it was {_text(self.old_arrow)}."
            raise TableMismatch(what, "Restore the column's type, or load the table anew.")
        fields[self.name] = _retyped(found, self.new_arrow)

    def is_done(self, schema: TableSchema) -> bool:
        found = schema.field(self.name)
        return found is not None and found.arrow == self.new_arrow != self.old_arrow


@dataclass(frozen=True, slots=True)
class MoveField(EvolutionStep):
    """A field that moves behind another, or to the front (None)."""

    name: str
    after: str | None

    def describe(self) -> str:
        return f"move {self.name} {'to the front' if self.after is None else f'behind {self.after}'}"

    def named(self, before: Renaming, after: Renaming) -> EvolutionStep:
        return replace(self, name=before(self.name), after=None if self.after is None else before(self.after))

    def update(self, update: Any, java: Java) -> None:
        update.moveFirst(self.name) if self.after is None else update.moveAfter(self.name, self.after)


@dataclass(frozen=True, slots=True)
class RelaxField(EvolutionStep):
    """A field that may be NULL from here on; nothing to do where it may be already."""

    name: str

    def describe(self) -> str:
        return f"let {self.name} be NULL"

    def on_fields(self, fields: dict[str, Field]) -> None:
        fields[self.name] = replace(_found(fields, self.name), required=False)

    def named(self, before: Renaming, after: Renaming) -> EvolutionStep:
        return replace(self, name=before(self.name))

    def update(self, update: Any, java: Java) -> None:
        update.makeColumnOptional(self.name)


@dataclass(frozen=True, slots=True)
class DescribeField(EvolutionStep):
    """A field's comment."""

    name: str
    doc: str

    def describe(self) -> str:
        return f"set the comment of {self.name}"

    def named(self, before: Renaming, after: Renaming) -> EvolutionStep:
        return replace(self, name=before(self.name))

    def update(self, update: Any, java: Java) -> None:
        update.updateColumnDoc(self.name, self.doc or None)


@dataclass(frozen=True, slots=True)
class DescribeTable(EvolutionStep):
    """The table's comment."""

    doc: str

    def describe(self) -> str:
        return "set the table's comment"


@dataclass(frozen=True, slots=True)
class SetKey(EvolutionStep):
    """The columns that identify a row from here on; () for a table without a key."""

    columns: tuple[str, ...]

    def describe(self) -> str:
        return f"rows are identified by {', '.join(self.columns)}" if self.columns else "rows have no key any more"

    def named(self, before: Renaming, after: Renaming) -> EvolutionStep:
        return replace(self, columns=tuple(map(before, self.columns)))

    def update(self, update: Any, java: Java) -> None:
        for name in self.columns:
            update.requireColumn(name)
        update.setIdentifierFields(java.texts(self.columns))


@dataclass(frozen=True, slots=True)
class Truncate(EvolutionStep):
    """All rows go."""

    def describe(self) -> str:
        return "remove all rows"


def _found(fields: dict[str, Field], name: str) -> Field:
    if name not in fields:
        what = f"The Iceberg table has no column {name}, which the change concerns."
        raise TableMismatch(what, f"Add it, or load the table anew. Columns are: {', '.join(fields)}.")
    return fields[name]


def _retyped(field: Field, kind: pa.DataType) -> Field:
    return replace(field, type=iceberg_type(kind), arrow=kind)


def _text(kind: pa.DataType) -> str:
    return type_text(iceberg_type(kind))


def _type_of(java: Java, kind: pa.DataType) -> Any:
    """Iceberg's type of an Arrow type."""
    return java.iceberg.SchemaParser.fromJson(schema_json(pa.schema([pa.field("c", kind)]))).findType("c")


def _literal_of(java: Java, default: pa.Scalar[Any]) -> Any:
    """Iceberg's literal of a value that is not NULL."""
    value = default.as_py()
    if isinstance(value, bytes):
        value = java.jvm.java.nio.ByteBuffer.wrap(value)
    elif isinstance(value, Decimal):
        value = java.jvm.java.math.BigDecimal(f"{value:f}")
    elif isinstance(value, int) and not isinstance(value, bool):
        value = java.jvm.java.lang.Long.valueOf(value)
    elif not isinstance(value, str | bool | float):
        value = single_value(value, default.type)
    return java.iceberg.expressions.Expressions.lit(value)
