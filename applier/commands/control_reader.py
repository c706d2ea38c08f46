"""Reads the control tables of a changefeed with PyIceberg, without Spark; writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.table import TableName, TableVersion
from applier.commands.catalog_reader import Lake, open_lake
from applier.config.settings import Config
from applier.errors import NeverRan
from applier.sink.control import checkpoints, rows
from applier.sink.control.checkpoint_form import from_json
from applier.sink.control.rows import DeadLetter, SchemaDecision
from applier.sink.control.tables import (
    CHECKPOINTS,
    DEAD_LETTERS,
    SCHEMA_CHANGES,
    STEP,
    TABLE_VERSIONS,
    ControlTable,
    namespace,
)
from applier.sink.control.whereabouts import CATALOG_FILE, refuse_foreign, refuse_outside

RECENT = 32
"""Checkpoints that are read for the newest steps: ten minutes of heartbeats, or as many steps."""

_FOLD_BYTES = 4 << 20
"""Size from which on a file of checkpoints is left alone: it holds thousands of old ones."""


def newest_checkpoint(config: Config) -> Checkpoint | None:
    """The newest checkpoint of a changefeed, for which its catalog is opened; None where it never ran.

    Raises what `open_lake` and `ControlView.checkpoint` do.
    """
    with open_lake(config.catalog) as lake:
        return ControlView(lake, config.changefeed.name).checkpoint()


@dataclass(frozen=True, slots=True)
class ControlView:
    """What the control tables of one changefeed say now. No method writes anything.

    Every method raises TransientError if the catalog or its storage does not answer, and TableMismatch where a control
    table, or what it holds, is of another form.
    """

    lake: Lake
    changefeed: str

    def name(self, kind: ControlTable) -> tuple[str, str]:
        """Identifier of a control table."""
        return namespace(self.changefeed), kind.name

    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint; None for a changefeed that never ran.

        Raises TerminalError for a damaged one, and ForeignLake where the catalog is a copy.
        """
        section, metadata = self.lake.section, self.lake.recorded(self.name(CHECKPOINTS))
        if metadata and section is not None:
            # A copy may name a file that the original has removed since.
            refuse_outside(section, ".".join(self.name(CHECKPOINTS)), metadata.rpartition("/metadata/")[0])
        table = self.lake.table(self.name(CHECKPOINTS))
        if table is not None and section is not None:
            place = (str(table), table.location, table.metadata)
            refuse_foreign(section, *place, table.properties.get(CATALOG_FILE))
        newest = table.properties.get(STEP, "") if table else ""
        return rows.newest_checkpoint(self._rows(CHECKPOINTS, f"step = {newest}" if newest.isdecimal() else "true"))

    def recent(self, newest: Checkpoint) -> Iterator[Checkpoint]:
        """The newest checkpoints that can be read without the old ones, newest first; heartbeats are among them.

        Raises TerminalError for a damaged one.
        """
        only = f"step > {newest.step - RECENT} AND step < {newest.step}"
        found = self.lake.rows(self.name(CHECKPOINTS), ("step", "checkpoint"), only, most_bytes=_FOLD_BYTES)
        yield newest
        for row in sorted(found, key=lambda row: row["step"], reverse=True):
            yield from_json(row["checkpoint"])

    def refuse_unknown(self) -> None:
        """Raise NeverRan unless the catalog holds something of the changefeed."""
        if self.checkpoint() is None and not self.lost_epoch():
            what = f"Changefeed {self.changefeed} has never run: there is no checkpoint of it in {self.lake}."
            raise NeverRan(what, "check changefeed.name and [catalog].")

    def lost_epoch(self) -> int:
        """The highest epoch that is known where the checkpoints are lost; else 0."""
        return checkpoints.lost_epoch(self.lake.table, self.changefeed)

    def versions(self) -> list[TableVersion]:
        """All table versions, those seen last at the end; raises what `rows.table_versions` does."""
        return rows.table_versions(self._rows(TABLE_VERSIONS))

    def names(self) -> set[TableName]:
        """The names of all tables that there were, as far as a version of theirs is known."""
        others = tuple(name for name in TABLE_VERSIONS.columns.names if name not in ("database", "table"))
        return {TableName(row["database"], row["table"]) for row in self._rows(TABLE_VERSIONS, without=others)}

    def decisions(self) -> list[SchemaDecision]:
        """The last decision on each DDL, in order of commit ts."""
        return rows.last_decisions(rows.decisions(self._rows(SCHEMA_CHANGES)))

    def letters(self, *, whole: bool = False) -> list[DeadLetter]:
        """The dead letters that are not made up for, newest first; `whole` ones have the bytes of their messages."""
        found = rows.dead_letters(self._rows(DEAD_LETTERS, without=() if whole else ("key", "value")))
        return rows.newest_first(found)

    def _rows(self, kind: ControlTable, only: str = "true", without: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        table = self.lake.table(self.name(kind))
        if table is None:
            return []
        kind.check(table, table.schema)
        columns = tuple(name for name in kind.columns.names if name not in without)
        return self.lake.rows(self.name(kind), columns, only)
