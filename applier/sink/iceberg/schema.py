"""Prepares schema updates, which a change then commits together with new files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from applier.errors import TableMismatch
from applier.sink.format.partition_spec import single_value
from applier.sink.format.types import schema_json
from applier.sink.iceberg.java import JavaError, translated
from applier.sink.iceberg.table import Table

_REFUSED = frozenset({"ValidationException", "IllegalArgumentException", "UnsupportedOperationException"})


class Revision:
    """A transaction on a table: schema updates that are prepared but not committed.

    Args:
        table: The table, at the head that the revision is planned on.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        with translated(f"Cannot begin a transaction on table {table}"):
            self.transaction: Any = table.handle.newTransaction()

    @property
    def pending(self) -> Table:
        """The table as it will be: new files are described and placed by it. It must not be committed to."""
        return Table(self._table.java, self.transaction.table(), self._table.identifier, self._table.branch)

    def update(self) -> SchemaUpdate:
        """Begin a schema update; nothing counts before its `prepare`."""
        return SchemaUpdate(self._table, self.transaction.updateSchema().allowIncompatibleChanges())

    def sort(self, columns: Sequence[str]) -> None:
        """Replace the sort order by these columns, ascending; () for none."""
        with translated(f"Cannot change the sort order of table {self._table}"):
            iceberg = self._table.java.iceberg
            order = self.transaction.replaceSortOrder()
            for column in columns:
                order.asc(iceberg.expressions.Expressions.ref(column), iceberg.NullOrder.NULLS_FIRST)
            order.commit()


class SchemaUpdate:
    """One update of a schema.

    As in Iceberg, names are those before the update, save that added fields go by their own.
    """

    def __init__(self, table: Table, update: Any) -> None:
        self._table = table
        self._java = table.java
        self._update = update

    def add(self, name: str, kind: pa.DataType, default: pa.Scalar[Any], doc: str = "") -> None:
        """Add an optional field that existing rows read as `default`, which is NULL before format version 3."""
        literal = (self._literal(kind, default),) if default.is_valid else ()
        # The parent is given, as None, because Iceberg would take a dot in the name for a path otherwise.
        self._update.addColumn(None, name, self._type(kind), doc or None, *literal)

    def drop(self, name: str) -> None:
        """Remove a field."""
        self._update.deleteColumn(name)

    def rename(self, name: str, to: str) -> None:
        """Rename a field."""
        self._update.renameColumn(name, to)

    def promote(self, name: str, kind: pa.DataType) -> None:
        """Widen a field's type."""
        self._update.updateColumn(name, self._type(kind))

    def move(self, name: str, after: str | None) -> None:
        """Move a field behind another or to the front."""
        if after is None:
            self._update.moveFirst(name)
        else:
            self._update.moveAfter(name, after)

    def relax(self, name: str) -> None:
        """Let a field be NULL."""
        self._update.makeColumnOptional(name)

    def require(self, name: str) -> None:
        """Let a field never be NULL; that the rows keep to it is the caller's promise."""
        self._update.requireColumn(name)

    def describe(self, name: str, doc: str) -> None:
        """Set a field's comment."""
        self._update.updateColumnDoc(name, doc or None)

    def identify(self, names: Iterable[str]) -> None:
        """Set the identifier fields, by the names of after the update."""
        self._update.setIdentifierFields(self._java.list(names))

    def prepare(self) -> None:
        """Make the update part of its revision."""
        self._update.commit()

    def _type(self, kind: pa.DataType) -> Any:
        schema = self._java.iceberg.SchemaParser.fromJson(schema_json(pa.schema([pa.field("c", kind)])))
        return schema.findType("c")

    def _literal(self, kind: pa.DataType, default: pa.Scalar[Any]) -> Any:
        value = default.as_py()
        jvm = self._java.jvm
        if isinstance(value, bytes):
            value = jvm.java.nio.ByteBuffer.wrap(value)
        elif isinstance(value, Decimal):
            value = jvm.java.math.BigDecimal(f"{value:f}")
        elif isinstance(value, int) and not isinstance(value, bool):
            value = jvm.java.lang.Long.valueOf(value)
        elif not isinstance(value, str | bool | float):
            value = single_value(value, kind)
        return self._java.iceberg.expressions.Expressions.lit(value)


def refused(table: Table, error: JavaError) -> TableMismatch:
    """The error for a schema update that Iceberg refuses, such as dropping a column that partitions the table."""
    return TableMismatch(f"Iceberg refuses the change of table {table}: {error.detail}")


def is_refusal(error: JavaError) -> bool:
    """Whether the library says that the change itself is wrong, not that it came too late."""
    return error.kind in _REFUSED
