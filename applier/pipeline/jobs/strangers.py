"""Drops a table from its job if another upstream table has taken its name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from applier.changefeed.table import TableName
from applier.errors import BY_HAND, TableMismatch
from applier.pipeline.state import State
from applier.pipeline.tables import parking

if TYPE_CHECKING:
    from applier.pipeline.step import Pipeline


def dropped(main: Pipeline, names: Iterable[TableName]) -> None:
    """Drop tables from a job that has read their DROP TABLE: it would read the range again and again."""
    for name in names:
        _let_go(main.state, name, f"Table {name} of the export was dropped since")


def renamed(main: Pipeline, job: State, own: TableName, name: TableName) -> bool:
    """Drop a table from its job if the feed has renamed it. Returns whether it has.

    Readers would see its rows in place of those of the table that has the name. The changefeed may have refused the
    rename, or an export may be older than it.
    """
    origin = job.completeness[own].origin
    if own == name or origin is None:
        return False
    of_what = " of the export" if origin.is_loaded else ""
    _let_go(main.state, name, f"Table {name}{of_what} was renamed to {own} since")
    return True


def _let_go(state: State, name: TableName, what: str) -> None:
    if name in state.tables:
        parking.give_up(state, name, TableMismatch(f"{what}.", BY_HAND), is_lost=True)
    else:
        # The changefeed has no table of the name.
        state.completeness.pop(name, None)
