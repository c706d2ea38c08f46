"""Command `adopt`: the user says that a table is whole, and the checkpoint records who may trust it and why."""

from __future__ import annotations

from collections.abc import Sequence

from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.completeness import Why, incomplete
from applier.changefeed.table import TableName
from applier.commands.before_spark import refuse
from applier.commands.control_reader import newest_checkpoint
from applier.config.settings import Config
from applier.errors import CheckpointConflict, ConfigError
from applier.pipeline.build import assembled
from applier.pipeline.schema_changes import moved_names
from applier.pipeline.state import State
from applier.pipeline.table_selection import selected
from applier.pipeline.tables import completeness
from applier.runtime.logs import announce, logger

_UNRECORDED = incomplete(Why.UNRECORDED)


def adopt(config: Config, rules: Sequence[str], why: str, *, take_over: bool = False) -> list[TableName]:
    """Mark the tables of some filter rules as complete, without a proof; the checkpoint keeps the reason.

    Returns the tables that were not live before. Where none is, another holder of the changefeed keeps it.

    Raises:
        ConfigError: No reason is given, no table matches, or a step that stopped half-way must be finished first.
        TableMismatch: One of the tables is not in the catalog, or holds no rows.
        CheckpointConflict: Another applier holds the changefeed.
    """
    if not why.strip():
        raise ConfigError(["--why is empty: say how the rows of the table came to be complete."])

    try:
        refuse(config, reads=False)
    except CheckpointConflict:
        # A holder that is at work need not end for nothing.
        if not _lacking(newest_checkpoint(config), rules):
            return []
        if not take_over:
            raise
    announce("starting Spark …")

    def meant(state: State, _: object = None) -> list[TableName]:
        return selected(rules, state.tables)

    with assembled(config, take_over=take_over, look=meant) as pipeline:
        state, targets = pipeline.state, pipeline.targets
        moved_names.refuse_unfinished(state)
        names = meant(state)
        lacking = [name for name in names if not state.completeness[name].is_live]
        for name in lacking:
            completeness.adopt(state, targets, name, why)
            logger().info("table adopted", table=str(name), state="live", because=why)
        if lacking:
            cut = completeness.kept(state, targets)
            state.advance(state.resolved_ts, {}, cut, {"tables": len(lacking)}, state.ddl.applied)
    return lacking


def _lacking(last: Checkpoint | None, rules: Sequence[str]) -> list[TableName]:
    tables = {} if last is None else last.tables
    return [name for name in selected(rules, tables) if not (tables[name].completeness or _UNRECORDED).is_live]
