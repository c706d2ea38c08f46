"""Brings a table to the columns of its rows, in a feed whose DDL do not come, or come late.

What a row shows counts from its commit ts on: which of two versions is newer, their numbers alone need not show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.pipeline.batches.batch import Batch
from applier.pipeline.schema_changes.apply import DdlApplier
from applier.pipeline.state import State
from applier.pipeline.tables.target_tables import TargetTables
from applier.sink.evolve.plan import refuse_renamed
from applier.sink.evolve.row_columns import is_of_rows, proven, refuse_retyped, returned, widened


def is_new_to(batch: Batch, state: State) -> bool:
    """Whether nothing is known of the columns of a batch's table."""
    known = state.tables.get(batch.name)
    return known is None or (known.keys_only and not batch.newest.keys_only)


def made(new: Mapping[TableName, TableVersion], state: State, targets: TargetTables) -> dict[TableName, TableVersion]:
    """What new tables are that a step has made from other columns, and that no checkpoint knows, as it died."""
    found = dict[TableName, TableVersion]()
    for (name, _), version in state.versions.items() if new else ():
        if name in new and version.columns != new[name].columns and not version.keys_only:
            writer = targets.writer(name)
            if writer is not None and writer.known is not None and targets.maker.is_of(writer, version):
                found[name] = version
    return found


def follow(batch: Batch, state: State, targets: TargetTables, handler: DdlApplier, *, is_new: bool) -> None:
    """Bring the table of a batch to its columns; a table that is new has those of its newest row.

    Raises:
        SchemaChangeRefused: The difference is one that could also be a rename, or cannot be applied exactly.
        TableMismatch: The Iceberg table does not fit.
    """
    name, changed_at = batch.name, state.changed_at(batch.name)
    if 0 < batch.newest_ts <= changed_at:
        return  # Rows from before a DDL say what the table was: following them would undo it.
    table = _table(batch, state)
    if not changed_at:
        _refuse_retyped(batch, state, table, targets.maker.rules)
    if not is_new and all(part.version.columns == table.columns for part in batch.parts):
        return
    shape = targets.maker.rules.shape_of(name)
    if not changed_at and (names := [column for column in batch.returned() if not shape.excludes(column)]):
        raise returned(name, names)
    shown = [part.version for part in batch.parts]
    since = max(targets.covered(name).newest, state.loaded.get(name, 0), changed_at)
    # A backfill reads from where it takes the tables to be.
    is_shown = batch.is_dated and bool(since or batch.extent is None)
    for version in () if is_new else batch.followed(since):
        followed = version if is_shown else proven(version, _table(batch, state))
        handler.follow(widened(followed, _table(batch, state), *shown))
    table = _table(batch, state)
    if not is_new and is_of_rows(table) and (wide := widened(table, *shown)) is not table:
        handler.follow(wide)  # No followed version has it: a row that is late, or a DELETE by the key alone.
    if not changed_at:
        for version in batch.late(batch.newest_ts if is_new else since):
            refuse_renamed(version, _table(batch, state))


def _table(batch: Batch, state: State) -> TableVersion:
    return cast("TableVersion", state.tables.get(batch.name))


def _refuse_retyped(batch: Batch, state: State, table: TableVersion, rules: TypeRules) -> None:
    # A batch holds the values in the types that the table had: what the rows themselves show is kept as it came.
    known = state.versions.get((batch.name, table.version))
    for number in {part.version.version for part in batch.parts} - {table.version}:
        shown = state.versions.get((batch.name, number))
        if known is not None and shown is not None and is_of_rows(known) and is_of_rows(shown):
            refuse_retyped(shown, known, rules)
