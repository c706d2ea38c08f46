"""Applies DDL to tables that have the columns of now already, in a feed whose rows show columns."""

from __future__ import annotations

from dataclasses import dataclass

from applier.changefeed.table import TableVersion
from applier.errors import RangeRefused
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.schema_changes.apply import DdlApplier
from applier.pipeline.state import State
from applier.sink.evolve.row_columns import is_older


@dataclass(frozen=True, slots=True)
class FixedColumns:
    """Applies DDL, and refuses rows that show other columns.

    Args:
        applier: Applies DDL.
        state: What the tables are.
        way_out: What to do about other columns.
    """

    applier: DdlApplier
    state: State
    way_out: str

    def is_begun(self, ddl: Ddl) -> bool:
        """See `DdlApplier`."""
        return self.applier.is_begun(ddl)

    def leaves_rows(self, ddl: Ddl) -> bool:
        """See `DdlApplier`."""
        return self.applier.leaves_rows(ddl)

    def apply(self, ddl: Ddl) -> None:
        """See `DdlApplier`."""
        self.applier.apply(ddl)

    def follow(self, version: TableVersion) -> None:
        """Refuse other columns; rows of an older version of the table show none.

        Raises:
            RangeRefused: The table has other columns from here on.
        """
        before = self.state.tables.get(version.name)
        if before is None or version.keys_only or is_older(version, before):
            return
        if before.columns != version.columns:
            raise RangeRefused(f"Table {version.name} has other columns from here on.", self.way_out, [version.name])
