"""Converts rows of an old segment of the feed to the columns that the table has now.

A branch has the columns of its table, which lie beyond all DDL of a covered range. TiDB changed the rows before
along with each DDL, and so does this, with the very steps that the table took.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.event import SchemaChange
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.ddl.actions import Action, by_table, effect, kind, touches
from applier.ddl.schema_tracker import Tables
from applier.errors import RangeRefused
from applier.order.merge import DATA
from applier.pipeline.scan.task_result import Part
from applier.pipeline.schema_changes.decision import decided
from applier.sink.control.rows import SchemaDecision
from applier.sink.evolve.casts.cast import CastRefused
from applier.sink.evolve.plan import Evolution, plan
from applier.sink.evolve.rewrite import cast_chunks
from applier.sink.evolve.steps import AddField, ConvertField, DropField, PromoteField, RenameField, SetKey

Left: TypeAlias = frozenset[tuple[int, str, TableName, str]]
"""Parts of DDL that the tables did not take: commit ts, text, table and kinds."""


def left_by(decisions: Iterable[SchemaDecision]) -> Left:
    """The parts of DDL that were ignored or skipped; a table that came back may have taken them after all."""
    items = [item for item in decisions if item.decision not in ("refused", "to skip")]
    over = {_part(item) for item in items if item.decision in ("ignored", "skipped")}
    return frozenset(over - {_part(item) for item in items if item.decision not in ("ignored", "skipped")})


def left_of(change: SchemaChange, actions: Sequence[Action], left: Left) -> list[Action]:
    """Those actions of a statement that the tables did not take."""
    groups = [group for group in by_table(actions) if _part(decided(change, group, "applied")) in left]
    return [action for group in groups for action in group]


def _part(item: SchemaDecision) -> tuple[int, str, TableName, str]:
    # Of a DDL on a database the name alone is the table's.
    return item.commit_ts, item.sql, item.table, item.kind


@dataclass(frozen=True, slots=True)
class Passed:
    """A DDL that the changefeed has passed: what it did upstream, and those parts that the tables did not take."""

    commit_ts: int
    actions: Sequence[Action]
    left: Sequence[Action] = ()

    def on(self, name: TableName) -> list[Action]:
        """What it did to a table."""
        return [action for action in self.actions if concerns(action, name) and action not in self.left]

    def leaves(self, name: TableName) -> bool:
        """Whether a table lacks what it did upstream."""
        return any(concerns(action, name) for action in self.left)


def concerns(action: Action, name: TableName) -> bool:
    """Whether an action changes what a table is or holds."""
    return name in [*touches(action), *effect(action).leaving([name])]


@dataclass(frozen=True, slots=True)
class DdlReplay:
    """What becomes of the rows of a covered range, by the DDL that the changefeed has applied, in order.

    Attributes:
        ddl: Those DDL.
        live: Each table as they left it upstream.
        rules: How types map.
        left: Parts of them that were ignored or skipped, and stay so.
    """

    ddl: Sequence[Passed]
    live: Tables
    rules: TypeRules
    left: Left = frozenset()

    def coming(self, name: TableName, at: int) -> list[tuple[int, list[Action]]]:
        """DDL of a table that rows of some commit ts lie before, by commit ts."""
        due = [item for item in self.ddl if item.commit_ts >= at]
        return [(item.commit_ts, actions) for item in due if (actions := item.on(name))]

    def forward(self, name: TableName, part: Part, tracked: TableVersion | None) -> Part | None:
        """Rows in the columns that the table has now; None if a DDL that comes removed them all.

        The part has them as of this point of the feed; `tracked` is the table as the DDL so far left it, where known.

        Raises:
            RangeRefused: What a DDL made of such rows cannot be determined.
        """
        live = self.live.get(name)
        at = pc.max(part.rows["m.ts"]).as_py() or 0
        coming = self.coming(name, at)
        if live is None or any(effect(action).empties for _, actions in coming for action in actions):
            return None
        version = tracked if tracked is not None and _holds(tracked, part.version) else part.version
        rows = part.rows
        for commit_ts, actions in coming:
            _refuse_moves(name, commit_ts, actions)
            version, rows = self._past(name, version, rows, commit_ts, actions)
        if any(item.commit_ts >= at and item.leaves(name) for item in self.ddl):
            # The table has kept what upstream has not.
            live = version
        elif not coming and not part.version.keys_only and _differ(part.version, live):
            rows = self._stepped(name, rows, plan(part.version, live, (), self.rules), 0)
        return Part(live, rows, part.topic)

    def _past(
        self, name: TableName, before: TableVersion, rows: pa.Table, commit_ts: int, actions: Sequence[Action]
    ) -> tuple[TableVersion, pa.Table]:
        later = Tables([before])
        for action in actions:
            later.apply(action, commit_ts)
        after = later.get(name) or before
        return after, self._stepped(name, rows, plan(before, after, actions, self.rules), commit_ts)

    def _stepped(self, name: TableName, rows: pa.Table, evolution: Evolution, commit_ts: int) -> pa.Table:
        doubt = evolution.refused or next(iter(evolution.only_empty), None)
        if doubt is not None:
            raise _refusal(name, commit_ts, doubt.reason)
        if any(isinstance(step, SetKey) for step in evolution.steps):
            raise _refusal(name, commit_ts, "It changes the key, which distinguishes rows.")
        try:
            return moved(rows, evolution.steps)
        except CastRefused as error:
            raise _refusal(name, commit_ts, f"A value cannot be cast exactly: {error}.") from None


def refuse_moved(name: TableName, commit_ts: int, action: Action) -> None:
    """Refuse a DDL that moves rows without row events.

    Raises:
        RangeRefused: Always.
    """
    raise _refusal(name, commit_ts, f"{kind(action)} moves rows without a message in the feed.")


def _refuse_moves(name: TableName, commit_ts: int, actions: Iterable[Action]) -> None:
    for action in actions:
        if effect(action).is_silent:
            refuse_moved(name, commit_ts, action)


def _refusal(name: TableName, commit_ts: int, reason: str) -> RangeRefused:
    what = f"Rows of table {name} lie before a DDL at commit ts {commit_ts} that cannot be made up for: {reason}"
    return RangeRefused(what, f"begin the range after it, with --from {commit_ts}, or leave the table out in --tables.")


def moved(rows: pa.Table, steps: Iterable[Any]) -> pa.Table:
    """Rows of a part after the steps of an `Evolution` that its table took; the table's columns are behind `DATA`.

    Raises:
        CastRefused: A value cannot be cast exactly.
    """
    for step in steps:
        match step:
            case DropField(name) if _has(rows, name):
                rows = rows.drop_columns([DATA + name])
            case RenameField(name, to) if _has(rows, name):
                rows = rows.rename_columns([DATA + to if own == DATA + name else own for own in rows.column_names])
            case AddField() if not _has(rows, step.name):
                rows = rows.append_column(DATA + step.name, pa.array([step.default.as_py()] * rows.num_rows, step.type))
            case PromoteField(name, kind_of) if _has(rows, name):
                index = rows.schema.get_field_index(DATA + name)
                rows = rows.set_column(index, DATA + name, rows[DATA + name].cast(kind_of))
            case ConvertField() if _has(rows, step.name):
                rows = _converted(rows, step)
    return rows


def _has(rows: pa.Table, name: str) -> bool:
    return DATA + name in rows.column_names


def _converted(rows: pa.Table, step: ConvertField) -> pa.Table:
    """Cast a column; of deleted rows only the key counts, and an absent value is no NULL to be cast."""
    column = DATA + step.name
    index = rows.schema.get_field_index(column)
    if "m.first_ts" not in rows.column_names:
        return rows.set_column(index, column, cast_chunks(rows[column], step))
    absent = pc.and_(pc.invert(rows["m.present"]), pc.is_null(rows[column]))
    here, gone = rows.filter(pc.invert(absent)), rows.filter(absent)
    here = here.set_column(index, column, cast_chunks(here[column], step))
    gone = gone.set_column(index, column, pa.array([None] * gone.num_rows, step.new_arrow))
    return pa.concat_tables([here, gone])


def _holds(known: TableVersion, of_rows: TableVersion) -> bool:
    return all(known.column(column.name) is not None for column in of_rows.columns)


def _differ(version: TableVersion, live: TableVersion) -> bool:
    return any(live.column(column.name) is None for column in version.columns)
