"""Prepares schema updates of an Iceberg table, which a change then commits together with new files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from applier.config.table_layout import PartitionField, SortField
from applier.sink.evolve.steps import EvolutionStep
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
        return Table(self._table.java, self.transaction.table(), self._table.identifier)

    def update(self, steps: Sequence[EvolutionStep]) -> None:
        """Prepare one schema update. As in Iceberg, names are those before it, save that added fields go by their own.

        `SetKey` makes its columns required; that the rows keep to it is the caller's promise.
        """
        update = self.transaction.updateSchema().allowIncompatibleChanges()
        for step in steps:
            step.update(update, self._table.java)
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
