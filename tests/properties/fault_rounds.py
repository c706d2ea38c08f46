"""A seed in, rounds of one changefeed out: in each a call to catalog or storage fails, alone or beside another writer.

A round is a step, a start, or tables that are parked and brought back. Which call fails is drawn among as many as the
last round of that kind made, so that after enough rounds every place has failed in every way.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from applier import wording
from applier.changefeed.table import TableName
from applier.commands.follower import Follower
from applier.errors import TableMismatch, TransientError
from applier.pipeline.step import Pipeline
from applier.sink.control.control import Control
from applier.sink.control.rows import Kind, TableRequest, request_rows
from applier.sink.control.tables import REQUESTS
from tests.disasters import WHENS, Disasters, When
from tests.lab import Lab
from tests.other_writers import OTHER_WRITERS, undo_roll_back
from tests.ticdc import Changefeed, Habits
from tests.upstream import Change, Column, Database, Name, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Round: TypeAlias = Literal["step", "start", "resume"]

_ROUNDS: tuple[Round, ...] = ("step", "step", "step", "start", "resume")

_ORDERS, _BAG = Name("shop", "orders"), Name("shop", "bag")

_MOST_STEPS = 20
"""Far more than a round needs."""

_FIRST_CALLS = {"step": 60, "start": 150, "resume": 200}
"""Calls of a round before one of its kind was counted, about."""


@dataclass(slots=True)
class FaultRounds:
    """Some rounds of a changefeed with a keyed table and one without a key.

    Args:
        seed: Decides everything.
        spark: The session.
        disasters: Lets calls fail.

    Attributes:
        story: What happened.
    """

    seed: int
    spark: SparkSession
    disasters: Disasters
    story: list[str] = field(default_factory=list)
    _random: random.Random = field(init=False)
    _database: Database = field(default_factory=Database)
    _feed: Changefeed = field(init=False)
    _lab: Lab = field(init=False)
    _follower: Follower | None = None
    _calls: dict[str, int] = field(default_factory=lambda: dict(_FIRST_CALLS))
    _numbers: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self._random = random.Random(f"faults of {self.seed}")
        for name, key in ((_ORDERS, ["id"]), (_BAG, [])):
            self._database.create(name, [Column("id"), Column("v", "varchar(20)")], key)
        self._feed = Changefeed(self._database, Habits(partitions=1, resolve=0.2), self.seed)
        more = {"changefeed": {"on_table_error": "stop"}}
        self._lab = Lab(self.spark, f"faults_{self.seed}", self._database, self._feed.records, more=more)
        self._lab.has_others = True

    def run(self, rounds: int) -> None:
        """Run them; raises AssertionError where a table is wrong behind one."""
        self._change()
        self._come_through()
        for _ in range(rounds):
            self._round(self._random.choice(_ROUNDS))
        self._running().state.control.release()

    def _round(self, kind: Round) -> None:
        if kind == "resume":
            self._ask("park")
            self._come_through()
        self._change()
        if kind == "resume":
            self._come_through(kind)
            self._ask("resume")
        elif kind == "start":
            self._running().state.control.release()
            self._follower = None
        turn, when, who = self._draw(self._calls[kind])
        self.story.append(f"{kind}: {when} at {turn}, another writer {who or 'does nothing'}")
        self.disasters.fault(turn, when, self._meanwhile(who) if who else None)
        self._come_through(kind)
        self._calls[kind] = max(self.disasters.calls, 10)
        if who == "rolls back":
            self._undo()
            if self._running().state.parked:
                # It was refused while it was brought back.
                self._ask("resume")
                self._come_through(kind)
        self._compare()

    def _draw(self, calls: int) -> tuple[int, When, str]:
        who = self._random.choice(["", *OTHER_WRITERS])
        return self._random.randint(1, calls), self._random.choice(WHENS if who else WHENS[:2]), who

    def _meanwhile(self, who: str) -> Callable[[], None]:
        identifier = (self._lab.namespace("shop"), self._random.choice([_ORDERS, _BAG]).table)
        catalog = self._running().targets.catalog if self._follower else self._lab.catalog

        def act() -> None:
            self.story.append(f"{identifier[-1]}: it {who}")
            OTHER_WRITERS[who](catalog, identifier)

        return act

    def _undo(self) -> None:
        for name in (_ORDERS, _BAG):
            undo_roll_back(self._lab.catalog, (self._lab.namespace("shop"), name.table))

    # ---- the database

    def _change(self) -> None:
        """Change rows of both tables, at times behind another column."""
        chance, database = self._random, self._database
        columns = [column.name for column in database.tables[_ORDERS].schema.columns]
        if chance.random() < 0.2:
            if "w" in columns:
                database.drop_column(_ORDERS, "w")
            else:
                database.add_column(_ORDERS, Column("w", "int", 7))
        for _ in range(chance.randint(1, 3)):
            database.transact({name: self._changes(name) for name in (_ORDERS, _BAG)})
        database.tick()
        self._feed.send()

    def _changes(self, name: Name) -> list[Change]:
        rows = list(self._database.tables[name].rows.values())
        gone = self._random.sample(rows, min(len(rows) // 2, self._random.randint(0, 3)))
        # In a table without a key the same row may be there twice.
        gone = [row for number, row in enumerate(gone) if row not in gone[:number]]
        kept = self._random.randint(0, len(gone))
        changed = [Change(row, {**row, "v": self._text()}) for row in gone[:kept]]
        new = [Change(None, self._row(name)) for _ in range(self._random.randint(1, 4))]
        return [*changed, *(Change(row, None) for row in gone[kept:]), *new]

    def _row(self, name: Name) -> Row:
        number = next(self._numbers) if name == _ORDERS else self._random.randint(1, 3)
        row: Row = {column.name: 1 for column in self._database.tables[name].schema.columns}
        return {**row, "id": number, "v": self._text() if name == _ORDERS else "same"}

    def _text(self) -> str:
        return f"text {self._random.randint(1, 1000)}"

    # ---- the applier

    def _running(self) -> Pipeline:
        return self._following().pipeline

    def _following(self) -> Follower:
        if self._follower is None:
            follower = Follower(self._lab.start(is_over=True))
            follower.requests.clock = count(step=10).__next__
            follower.pipeline.hold_to_checkpoint()
            self._follower = follower
        return self._follower

    def _come_through(self, kind: Round = "step") -> None:
        """Step until all is applied and nothing is being brought back, as often as it is tried again."""
        for _ in range(_MOST_STEPS):
            try:
                step = self._following().turn()
            except TransientError as error:
                self.story.append(str(error))
                continue
            except TableMismatch as error:
                if "was rolled back by hand" not in str(error):
                    raise
                self.story.append(str(error))
                self._follower = None
                self._undo()
                continue
            if not step.moved and not step.resuming and self._running().state.resolved_ts == self._database.ts:
                self.disasters.leave_calls()
                return
        raise AssertionError(f"the {kind} does not come to its end")

    def _ask(self, kind: Kind) -> None:
        """Ask as a command does that finds another process at work."""
        control = cast("Control", self._running().state.control)
        request = TableRequest(f"request {next(self._numbers)}", kind, (str(TableName(*_ORDERS)),), "a test", "rounds")
        control.write(REQUESTS, request_rows(request))

    def _compare(self) -> None:
        pipeline = self._running()
        problems = self._lab.problems(pipeline)
        states = pipeline.state.completeness.items()
        problems += [wording.sentence(name, known) for name, known in states if not known.is_live]
        assert not problems, "\n".join(problems)
        assert {name.table for name, _ in states} == {_ORDERS.table, _BAG.table}
