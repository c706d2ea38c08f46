"""Branches of an Iceberg table beside the one that is read and written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from applier.sink.iceberg.java import translated
from applier.sink.iceberg.snapshot import Snapshot

if TYPE_CHECKING:
    from applier.sink.iceberg.table import Table


class TableBranches:
    """Creates, publishes and drops branches.

    Args:
        table: The table, with the branch that others start from or are published to.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def head(self, name: str) -> Snapshot | None:
        """Newest snapshot of a branch; None if there is no such branch."""
        return next(self._table.history(name), None)

    def create(self, name: str) -> None:
        """Start a branch at the head of the table's own; nothing if it is there already.

        Raises:
            JavaError: The table's own branch has no snapshot yet, or the catalog does not answer.
        """
        table = self._table
        with translated(f"Cannot create branch {name} of table {table}"):
            if table.handle.snapshot(name) is None:
                table.handle.manageSnapshots().createBranch(name, table.snapshot_id).commit()

    def fast_forward(self, name: str) -> None:
        """Let the table's own branch show what another one shows.

        Raises:
            JavaError: The table's own branch has snapshots that the other one does not have.
        """
        table = self._table
        with translated(f"Cannot fast-forward branch {table.branch} of table {table} to {name}"):
            table.handle.manageSnapshots().fastForwardBranch(table.branch, name).commit()

    def drop(self, name: str) -> None:
        """Forget a branch; its snapshots stay until they expire."""
        with translated(f"Cannot drop branch {name} of table {self._table}"):
            self._table.handle.manageSnapshots().removeBranch(name).commit()
