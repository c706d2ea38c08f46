"""Chooses the DDL of the tables of a job from those of all tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from applier.changefeed.table import TableName
from applier.ddl.actions import Action, effect, kind, touches
from applier.errors import BY_HAND, RangeRefused
from applier.order.feed_order import FeedOrder, ResolvedOrder
from applier.pipeline.scan.statements import Ddl


@dataclass(frozen=True, slots=True)
class OwnDdl:
    """The DDL of some tables, through their renames. Other tables may have had their names before, or take them later.

    Args:
        tables: The tables, by the names that they have before the first DDL.
        begun: Tables that begin with a CREATE TABLE, and its commit ts.
        order: What places their rows.
        again: Tables that have taken these DDL before, and the commit ts above which their rows are applied again.
    """

    tables: frozenset[TableName]
    begun: Mapping[TableName, int]
    order: FeedOrder = field(default_factory=ResolvedOrder)
    again: Mapping[TableName, int] = field(default_factory=dict)

    def __call__(self, ddl: Sequence[Ddl]) -> list[Ddl]:
        """The DDL that concern these tables, each with the actions that do; to be called with all DDL in order.

        Raises:
            RangeRefused: One of them has no place among the rows.
        """
        self._refuse_unplaced(ddl)
        found: list[Ddl] = []
        names = set(self.tables)
        for _, same in groupby(ddl, key=lambda item: item.commit_ts):
            parts = [(item, self._part(item, names)) for item in same]
            if any(part is not None for _, part in parts):
                # Read again without these, another part could pass for one of them: its table has left the name.
                found += [part or replace(item, actions=(), swept=(), refused=None) for item, part in parts]
        return found

    def _again(self, action: Action) -> Iterator[TableName]:
        """The tables that have taken an action before."""
        return (name for name in self.again if name in (*touches(action), *effect(action).leaving([name])))

    def _refuse_unplaced(self, ddl: Sequence[Ddl]) -> None:
        """Refuse DDL that tables have taken before where nothing places them; names the last in each partition."""
        if self.order.parts_at_ddl:
            return
        found = [(item.barrier, name) for item in ddl for action in item.actions for name in self._again(action)]
        if found:
            name = found[0][1]
            after: dict[str, int] = {}
            for barrier, _ in found:
                place = f"{barrier.topic}:{barrier.position.partition}"
                after[place] = max(after.get(place, 0), barrier.position.offset + 1)
            begin = ",".join(f"{place}:{offset}" for place, offset in after.items())
            what = f"The range holds a DDL of table {name}, and offset order does not show which rows lie before it."
            way_out = f"begin the range after it, with --from {begin} and an offset for each other partition"
            raise RangeRefused(what, f"{way_out}; or leave the table out in --tables.", [name])

    def _part(self, item: Ddl, names: set[TableName]) -> Ddl | None:
        """A DDL with the actions that concern tables of these names, which follow them; None if none does."""
        swept = [name for name in item.swept if name in names]
        actions = []
        # One after the other: a part of a swap may move what the part before it has moved.
        for action in item.actions:
            if self._is_before(action, item) or not self._is_own(action, item.commit_ts, names):
                continue
            self._refuse_loose(action, item.commit_ts, names)
            actions.append(action)
            done = effect(action)
            names.difference_update(done.leaving(names))
            names.update(done.created, (to for _, to in done.moved))
        if item.refused is not None and swept:
            return replace(item, swept=swept)
        return replace(item, actions=actions, swept=swept) if actions else None

    def _is_before(self, action: Action, item: Ddl) -> bool:
        """Whether a DDL lies before all rows that are applied again to its table.

        Raises:
            RangeRefused: It lies among them, and the table has other columns or places of rows since.
        """
        name = next(self._again(action), None)
        if name is None:
            return False
        if item.commit_ts <= self.again[name]:
            return True
        if not effect(action).emptied:
            when = item.commit_ts
            what = f"The offsets begin before a DDL of table {name} at commit ts {when}, older than their records."
            hint = f"give --from as a resolved ts: {when} to begin after it, or a lower one."
            raise RangeRefused(what, hint, [name])
        return False

    def _refuse_loose(self, action: Action, commit_ts: int, names: Collection[TableName]) -> None:
        done = effect(action)
        if not self.order.parts_at_ddl and (done.moved or done.restored or done.exchanged):
            table = touches(action)[0]
            what = (
                f"What table {table} misses holds a DDL of kind {kind(action)} at commit ts {commit_ts}, and "
                "offset order does not show which rows lie before it."
            )
            raise RangeRefused(what, BY_HAND, [name for name in touches(action) if name in names])

    def _is_own(self, action: Action, commit_ts: int, names: set[TableName]) -> bool:
        done = effect(action)
        if done.created:
            return self.begun.get(done.created[0]) == commit_ts
        named = touches(action)
        # A table that takes the name of one of these is another one.
        return not names.isdisjoint([*(named[:1] if done.brought else named), *done.leaving(names)])
