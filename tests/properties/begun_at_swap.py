"""A seed in, one changefeed out that begins at an export whose TSO is that of a swap of names, over deaths by place.

In its end every table is live and equals the database: nothing was lost, so nothing may be missing or parked.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from applier import wording
from applier.changefeed.filter import exactly
from applier.changefeed.table import TableName
from applier.commands.follower import Follower
from applier.errors import TransientError
from applier.pipeline.load.begin import begin, is_unstarted
from applier.sink.control.rows import Kind, TableRequest
from tests.disasters import Crash, Disasters
from tests.lab import Lab
from tests.properties.life_loads import Loads, OpenLoad
from tests.properties.lives import Lives
from tests.ticdc import Changefeed, Habits
from tests.upstream import Column, Database, Name, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMES = [Name("shop", "orders"), Name("shop", "items"), Name("shop", "spare"), Name("mart", "orders")]
_BETWEEN = Name("shop", "between")

POINTS = (
    *("request-taken", "request-done", "load-staged", "load-committed", "load-begun", "load-begun"),
    *("resume-begun", "resume-taken-in", "copy-shown", "resume-shown", "resume-shown", "resume-done"),
    *("decoded", "applied", "commit-sent", "commit-done", "ddl-due", "ddl-applied", "ddl-recorded"),
)
_MOST_TURNS = 60


@dataclass(slots=True)
class BegunAtSwap:
    """One changefeed that is begun at an export, as often as deaths need it.

    Args:
        seed: Decides everything.
        spark: The session.
        disasters: Lets processes die, and calls fail.
        folder: Where the export goes.

    Attributes:
        story: What happened.
    """

    seed: int
    spark: SparkSession
    disasters: Disasters
    folder: Path
    story: list[str] = field(default_factory=list)
    _random: random.Random = field(init=False)
    _lab: Lab = field(init=False)
    _load: OpenLoad = field(init=False)
    _loads: Loads = field(init=False)
    _follower: Follower | None = None
    _numbers: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        chance = self._random = random.Random(f"swap of {self.seed}")
        database = Database()
        for number, name in enumerate(_NAMES):
            database.create(name, [Column("id"), Column("v" if number % 2 else "w", "varchar(20)")], ["id"])
        self._write(database)
        moments = [self._swap(database, chance) for _ in range(chance.randint(1, 2))]
        self._write(database)
        database.tick()
        habits = Habits(partitions=chance.randint(1, 2), resolve=chance.choice([0.3, 0.7]))
        feed = Changefeed(database, habits, self.seed)
        feed.send()
        self._lab = Lab(self.spark, f"swap_{self.seed}", database, feed.records, chance.choice([5, 20, 1000]))
        self._loads = Loads(Lives(database), chance, self.folder)
        tso = chance.choice(moments) + chance.choice([0, 0, 0, -1])
        self._load = self._loads.begin(sorted(database.at(tso)), tso)
        self.story.append(f"begin at {tso % 1000}, swaps at {[ts % 1000 for ts in moments]}")

    def _write(self, database: Database) -> None:
        for name, table in database.tables.items():
            column = table.schema.columns[1].name
            rows: list[Row] = [{"id": next(self._numbers), column: name.table} for _ in range(2)]
            database.insert(name, *rows)

    def _swap(self, database: Database, chance: random.Random) -> int:
        one, two, three = chance.sample(_NAMES, 3)
        if chance.random() < 0.7:
            ts = database.rename((one, _BETWEEN), (two, one), (_BETWEEN, two))
        else:
            ts = database.rename((one, _BETWEEN), (two, one), (three, two), (_BETWEEN, three))
        if chance.random() < 0.5:
            self._write(database)
        return ts

    def run(self) -> None:
        """Run it; raises AssertionError where a table is missing, not live, or not the database."""
        for _ in range(self._random.randint(1, 5)):
            self._draw()
            self._try()
            self.disasters.mend()
        for turn in range(_MOST_TURNS):
            if self._try():
                break
            assert turn < _MOST_TURNS - 1, "it does not come to its end"
        problems = self._problems()
        assert not problems, "\n".join(problems)

    def _draw(self) -> None:
        point = self._random.choice(POINTS)
        turn = self._random.choice([1, 1, 1, 2, 3, 4])
        if self._random.random() < 0.7:
            self.story.append(f"die at {point} {turn}")
            self.disasters.crash(point, turn)
        else:
            self.story.append(f"fail at {point} {turn}")
            self.disasters.call(_fail, point, turn)
        if self._random.random() < 0.4:
            turn = int(2 ** self._random.uniform(0, 9))
            self.story.append(f"call {turn} fails")
            self.disasters.fault(turn, self._random.choice(("before", "after")))

    def _try(self) -> bool:
        try:
            return self._go_on()
        except Crash as crash:
            self.story.append(f"died at {crash}")
            self._follower = None
        except TransientError as error:
            self.story.append(f"failed: {error.what}")
            if self._random.random() < 0.5:
                self._follower = None
        return False

    def _go_on(self) -> bool:
        """Begin, if that is yet to be done, and follow to the end; True at the end."""
        if self._follower is None:
            self.story.append("start")
            self._follower = Follower(self._lab.start(is_over=True))
            self._follower.requests.clock = count(step=10).__next__
        pipeline = self._follower.pipeline
        if is_unstarted(pipeline):
            self._ask("load")
            assert not self._loads.bulk(pipeline, self._load)
            self._ask("loaded")
            begin(pipeline, self._load.export.tso)
            while self._follower.piece():
                pass
            self.story.append("begun")
        while True:
            step = self._follower.turn()
            self.story.append(f"{pipeline.state.checkpoint.step} at {pipeline.state.resolved_ts % 1000}")
            if step.complete and not step.moved and not step.resuming:
                return True

    def _ask(self, kind: Kind) -> None:
        assert self._follower is not None
        request = TableRequest(f"request {next(self._numbers)}", kind, exactly(self._load.names), "", "the model")
        assert not self._follower.requests.carry_out(request).is_refused

    def _problems(self) -> Sequence[str]:
        assert self._follower is not None
        pipeline = self._follower.pipeline
        known = pipeline.state.completeness
        found = list(self._lab.problems(pipeline))
        for name in self._lab.database.tables:
            it = known.get(TableName(*name))
            if it is None or not it.is_live:
                found.append(f"{name} is not known" if it is None else wording.sentence(TableName(*name), it))
        if pipeline.state.resolved_ts != self._lab.database.ts:
            found.append(f"it ends at {pipeline.state.resolved_ts % 1000}")
        return found


def _fail() -> None:
    raise TransientError("Something outside did not answer.")
