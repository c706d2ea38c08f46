"""Applies DDL to tables that have the columns of now already, in a feed whose rows show columns."""

from __future__ import annotations

from dataclasses import dataclass

from applier.changefeed.table import TableVersion
from applier.errors import RangeRefused
from applier.pipeline.schema_changes.apply import DdlApplier
from applier.sink.evolve.row_columns import is_older

_WAY_OUT = "begin the range after that, or load the table again, with `applier load -c FILE --tables TABLE`."


@dataclass(slots=True)
class FixedColumns(DdlApplier):
    """Applies DDL, and refuses rows that show other columns."""

    def follow(self, version: TableVersion) -> None:
        """Refuse other columns; rows of an older version of the table show none.

        Raises:
            RangeRefused: The table has other columns from here on.
        """
        before = self.state.tables.get(version.name)
        if before is None or version.keys_only or is_older(version, before):
            return
        if before.columns != version.columns:
            raise RangeRefused(f"Table {version.name} has other columns from here on.", _WAY_OUT, [version.name])
