"""Brings the tables that exist to the layout that the configuration gives them, at a start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from applier.changefeed.history import KEPT_FROM
from applier.changefeed.table import TableName, TableVersion
from applier.config.settings import Config
from applier.config.tables import TablesSection
from applier.errors import TableMismatch
from applier.pipeline.state import State
from applier.pipeline.tables import history_gap
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime.logs import logger
from applier.sink.iceberg.layout import LayoutChange, change_to, evolve
from applier.sink.iceberg.maintenance import data_files
from applier.sink.iceberg.table import Table
from applier.sink.write.table_writer import TableWriter


class LayoutGap(NamedTuple):
    """A table that does not lie as it should: what would change, or why its layout does not fit it."""

    name: TableName
    table: Table
    change: LayoutChange | None = None
    refusal: TableMismatch | None = None


def due(state: State, targets: TargetTables, settings: TablesSection) -> Iterator[LayoutGap]:
    """The tables that do not lie as the configuration says; parked ones, and those without a layout, are left out."""
    rules, left_out = targets.maker.rules, {*state.parked, *state.unsettled, *targets.listed.broken}
    names = [name for name in state.tables if name not in left_out]
    # Tables of changes come first: their tables are parked where they cannot follow.
    for name in [*filter(None, map(rules.changes, names)), *names]:
        owner = rules.owner(name)
        layout = settings.layout_of(name) if owner is None else targets.maker.layout_of(name)
        writer = targets.writer(name) if layout and name not in targets.listed.broken else None
        if layout is None or writer is None:
            continue
        try:
            change = change_to(writer.table, layout)
        except TableMismatch as error:
            yield LayoutGap(name, writer.table, refusal=error)
            continue
        if change is not None:
            yield LayoutGap(name, writer.table, change)


def bring(state: State, targets: TargetTables, settings: TablesSection) -> None:
    """Let every table lie as the configuration says, by a change of its metadata alone; may be called again.

    A layout that does not fit an existing table is reported, and the table stays as it is: its rows are right anyway.

    Raises:
        CheckpointConflict: Another applier holds the changefeed.
        TransientError: The catalog does not answer.
    """
    _note_history(state, targets)
    for name, table, change, refusal in due(state, targets, settings):
        targets.confirm()
        if change is not None:
            refusal = _refusal(table, change)  # noqa: PLW2901 - one reason is reported below
            targets.close(name)
        if refusal is not None:
            logger().warning(
                "layout refused", table=str(name), because=refusal.what, hint=state.ways.of_error(refusal.hint, name)
            )
        else:
            logger().info("layout changed", table=str(name), change=str(change))


def _note_history(state: State, targets: TargetTables) -> None:
    """Note in living tables from which commit ts on their changes are kept: what comes while they are not is a gap."""
    left_out = {*state.parked, *state.unsettled, *targets.listed.broken}
    for name in [name for name in state.tables if name not in left_out]:
        writer, is_kept = targets.writer(name), targets.maker.rules.changes(name) is not None
        if writer is not None and is_kept != bool(writer.table.file_layout.properties.get(KEPT_FROM)):
            targets.confirm()
            applied, version = targets.applied_ts(name) or 0, state.tables.get(name)
            if version is not None:
                history_gap.pass_by(targets, name, applied, version)
            evolve(writer.table, LayoutChange(properties={KEPT_FROM: str(applied) if is_kept else ""}))
            targets.close(name)


def misshapen(state: State, targets: TargetTables, found: Config, former: Config) -> list[str]:
    """Why living tables would be parked under a configuration that gives rows another shape than the `former` one; a
    sentence each.
    """
    shapes = [[(repr(each), shape.record) for each, shape in config.tables.shapes] for config in (found, former)]
    if shapes[0] == shapes[1] or not any(record for every in shapes for _, record in every):
        return []
    maker = replace(targets.maker, settings=found.tables, rules=found.type_rules)
    living = _living(state, targets)
    reasons = ((name, maker.reshaped(writer, version, is_brought=True)) for name, writer, version in living)
    return [f"{why.what} {state.ways.of_error(why.hint, name)}" for name, why in reasons if why is not None]


def unfit(state: State, targets: TargetTables) -> Iterator[LayoutGap]:
    """The living tables whose rows, or a column, are not what the configuration gives them, which no change of metadata
    brings about.
    """
    for name, writer, version in _living(state, targets):
        if (refusal := targets.maker.misfit(writer, version, is_brought=True)) is not None:
            yield LayoutGap(name, writer.table, refusal=refusal)


def _living(state: State, targets: TargetTables) -> Iterator[tuple[TableName, TableWriter, TableVersion]]:
    left_out = {*state.parked, *state.unsettled, *targets.listed.broken}
    for name in state.tables:
        version = None if name in left_out else state.tables.get(name)
        if version is not None and (writer := targets.writer(name)) is not None:
            yield name, writer, version


def misfits(state: State, targets: TargetTables, settings: TablesSection, former: TablesSection) -> list[str]:
    """Why layouts that are other than their `former` ones do not fit existing tables, a sentence each."""
    return [
        f"{gap.refusal.what}. {state.ways.of_error(gap.refusal.hint, gap.name)}"
        for gap in due(state, targets, settings)
        if gap.refusal is not None and settings.layout_of(gap.name) != former.layout_of(gap.name)
    ]


def cost(table: Table, change: LayoutChange, catalog: str) -> str:
    """What a change of the layout does not do, and the command that does it, if there is one."""
    if change.dropped:
        return (
            "It costs a change of metadata: files of now, and older snapshots, hold the values until they are "
            "rewritten and expire."
        )
    if change.is_of_names:
        return "It costs a change of metadata: files stay, and older snapshots keep their names."
    if change.is_of_rows:
        return "It costs a change of metadata, which counts for each row from its next change on."
    name = ".".join(table.identifier)
    call = f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
    return (
        f"It costs a change of metadata: new files follow it, and the {data_files(table):,} data files of now stay as "
        f"they are until you rewrite them: {call}."
    )


def _refusal(table: Table, change: LayoutChange) -> TableMismatch | None:
    try:
        evolve(table, change)
    except TableMismatch as error:
        return error
    return None
