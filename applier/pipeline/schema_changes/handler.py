"""What a step does with the DDL of its window."""

from __future__ import annotations

from typing import Protocol

from applier.changefeed.table import TableVersion
from applier.pipeline.scan.statements import Ddl


class DdlHandler(Protocol):
    """Takes each DDL of a window in its place. `DdlApplier` applies them to the tables; backfills do otherwise."""

    def is_begun(self, ddl: Ddl) -> bool:
        """True if a step that did not reach its checkpoint came as far as the DDL."""

    def leaves_rows(self, ddl: Ddl) -> bool:
        """True if rows that lie before a DDL can follow it."""

    def apply(self, ddl: Ddl) -> None:
        """Take one DDL. All rows at or below its commit ts are in the tables.

        Raises:
            SchemaChangeRefused: It cannot be applied exactly, or the configuration says to stop.
            RangeRefused: A backfill cannot pass it.
        """

    def follow(self, version: TableVersion) -> None:
        """Take a table version that rows show, in a feed whose DDL do not come.

        Raises:
            SchemaChangeRefused: The difference is one that could also be a rename, or cannot be applied exactly.
            RangeRefused: A backfill cannot pass it.
        """
