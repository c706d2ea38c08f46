"""Prepares schema updates of an Iceberg table, which a change then commits together with new files."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from applier.config.table_layout import PartitionField, SortField
from applier.sink.evolve.steps import (
    AddField,
    DescribeField,
    DropField,
    MoveField,
    PromoteField,
    RelaxField,
    RenameField,
    SetKey,
    Step,
)
from applier.sink.format.partition_spec import single_value
from applier.sink.format.types import schema_json
from applier.sink.iceberg.java import translated
from applier.sink.iceberg.layout import replace_order, update_spec
from applier.sink.iceberg.table import Table


class Revision:
    """A transaction on a table at the head that it is planned on, of schema updates that are not committed."""

    def __init__(self, table: Table) -> None:
        self._table = table
        with translated(f"Cannot begin a transaction on table {table}"):
            self.transaction: Any = table.handle.newTransaction()

    @property
    def pending(self) -> Table:
        """The table as it will be: new files are described and placed by it. It must not be committed to."""
        return Table(self._table.java, self.transaction.table(), self._table.identifier, self._table.branch)

    def update(self, steps: Sequence[Step]) -> None:
        """Prepare one schema update. As in Iceberg, names are those before it, save that added fields go by their own.

        `SetKey` makes its columns required; that the rows keep to it is the caller's promise.
        """
        update = self.transaction.updateSchema().allowIncompatibleChanges()
        for step in steps:
            self._take(update, step)
        update.commit()

    def sort(self, fields: Sequence[SortField]) -> None:
        """Replace the sort order by these columns; () for none."""
        with translated(f"Cannot change the sort order of table {self._table}"):
            replace_order(self._table, self.transaction, fields)

    def partition(self, removed: Sequence[str], added: Sequence[PartitionField]) -> None:
        """Remove partition fields, by name, and add others."""
        if removed or added:
            with translated(f"Cannot change the partitions of table {self._table}"):
                update_spec(self._table, self.transaction, removed, added)

    def _take(self, update: Any, step: Step) -> None:
        match step:
            case DropField(name):
                update.deleteColumn(name)
            case RenameField(name, to):
                update.renameColumn(name, to)
            case AddField():
                self._add(update, step)
            case PromoteField(name, kind):
                update.updateColumn(name, self._type(kind))
            case RelaxField(name):
                update.makeColumnOptional(name)
            case DescribeField(name, doc):
                update.updateColumnDoc(name, doc or None)
            case MoveField(name, after):
                update.moveFirst(name) if after is None else update.moveAfter(name, after)
            case SetKey(columns):
                for name in columns:
                    update.requireColumn(name)
                update.setIdentifierFields(self._table.java.texts(columns))

    def _add(self, update: Any, step: AddField) -> None:
        literal = (self._literal(step.type, step.default),) if step.default.is_valid else ()
        # The parent is given, as None, because Iceberg would take a dot in the name for a path otherwise.
        update.addColumn(None, step.name, self._type(step.type), step.doc or None, *literal)

    def _type(self, kind: pa.DataType) -> Any:
        schema = self._table.java.iceberg.SchemaParser.fromJson(schema_json(pa.schema([pa.field("c", kind)])))
        return schema.findType("c")

    def _literal(self, kind: pa.DataType, default: pa.Scalar[Any]) -> Any:
        value = default.as_py()
        jvm = self._table.java.jvm
        if isinstance(value, bytes):
            value = jvm.java.nio.ByteBuffer.wrap(value)
        elif isinstance(value, Decimal):
            value = jvm.java.math.BigDecimal(f"{value:f}")
        elif isinstance(value, int) and not isinstance(value, bool):
            value = jvm.java.lang.Long.valueOf(value)
        elif not isinstance(value, str | bool | float):
            value = single_value(value, kind)
        return self._table.java.iceberg.expressions.Expressions.lit(value)
