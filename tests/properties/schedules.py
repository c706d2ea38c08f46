"""A seed in, one schedule out: a database with a past, its changefeed, and appliers that come to grief on the way."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from applier.changefeed.message import TopicPartition
from applier.commands.follower import Follower
from applier.errors import CheckpointConflict, SchemaChangeRefused, TransientError
from applier.pipeline.step import Pipeline
from applier.runtime.threads import Asking
from tests.disasters import FAILURES, Crash, Disasters
from tests.lab import Lab, Memory
from tests.properties.apart import LEFT_OUT, Witness, is_apart
from tests.properties.elements import PLAIN, Elements
from tests.properties.histories import History
from tests.ticdc import Changefeed, Habits
from tests.upkeep import contents, days_later

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TROUBLED_STEPS = 100
"""From then on nothing goes wrong. A step without a new watermark doubles the window of the next one, and a process
that starts begins with the usual size: one that dies every few steps never reads a window that is long enough."""

_UNORDERED = "do not determine the order of the renames"
"""The refusal of a swap of which a table is unknown: a run left it out, and no row of it has come since."""

_MOST_STEPS = 2 * _TROUBLED_STEPS
"""Far more than any schedule needs: one that needs more does not come to its end."""


def feed_of(chance: random.Random, size: int = 15, order: str = "resolved", elements: Elements = PLAIN) -> Changefeed:
    """A changefeed that has sent all that happened to some database.

    Args:
        chance: The draw.
        size: Events of the database, beside its first tables.
        order: As in the configuration. In offset order all is in one partition, raw updates exchange no keys, and a
            restart goes on from what the session before it has sent: docs/guarantees.md says why.
        elements: What happens beside.
    """
    by_offset = order == "offset"
    raw = by_offset and chance.random() < 0.3
    shares = [0.25, 0.4] if elements != PLAIN else [0.0, 0.1, 0.25]
    keyless = 0.7 if elements.keyless else 0.15
    history = History(chance, chance.choice(shares), swaps=not raw, elements=elements, keyless=keyless)
    history.begin(chance.randint(2 if elements.renames else 1, 3))
    history.go_on(size * 2 if elements.filtered else size)
    habits = Habits(
        partitions=1 if by_offset else chance.randint(1, 3),
        dispatcher=chance.choice(["table", "index-value", "ts", "scatter"]),
        raw=raw if by_offset else chance.random() < 0.3,
        twice=chance.choice([0.0, 0.1, 0.3]),
        resolve=chance.choice([0.1, 0.4]),
        restart=chance.choice([0.1, 0.15, 0.2] if elements.keyless else [0.0, 0.05, 0.15]),
        leaps=not by_offset,
        topics=elements.topics,
        shuffled=elements.shuffled,
        grows=elements.keyless,
    )
    feed = Changefeed(history.database, habits, chance.randrange(1 << 30))
    feed.send()
    return feed


@dataclass(slots=True)
class Schedule:
    """One run of a changefeed from its first message to its last.

    Args:
        seed: Decides everything.
        spark: The session.
        disasters: Hands out what goes wrong.
        size: Events of the database.
        order: As in the configuration; in offset order only the end is compared.

    Attributes:
        checkpoints: How many were written.
        tended: How many tables were maintained.
        story: What happened.
    """

    seed: int
    spark: SparkSession
    disasters: Disasters
    size: int = 15
    order: str = "resolved"
    checkpoints: int = 0
    tended: int = 0
    story: list[str] = field(default_factory=list)
    _random: random.Random = field(init=False)
    _lab: Lab = field(init=False)
    _witness: Witness = field(init=False)
    _is_left_out: bool = False
    _must_leave_out: bool = False
    _follower: Follower | None = None
    _ends: dict[TopicPartition, int] = field(default_factory=dict)
    _sent: int = 0
    _elements: Elements = PLAIN

    def __post_init__(self) -> None:
        chance = self._random = random.Random(self.seed)
        elements = self._elements = Elements.drawn(self.seed, self.order)
        feed = feed_of(chance, self.size, self.order, elements)
        self.story.append(str(elements))
        messages = chance.choice([10, 40, 1000])
        if elements.beside:
            messages = 10  # Many steps, and a file of each.
        name = f"{self.order}_{self.seed}"
        self._lab = Lab(self.spark, name, feed.database, feed.records, messages, self.order, self._settings())
        self._witness = Witness(feed.database)
        if elements.include:
            self._lab.may_lack = is_apart

    def run(self) -> None:
        """Run it; raises AssertionError where a table is wrong at a checkpoint."""
        lab = self._lab
        for number in range(_MOST_STEPS):
            if number < _TROUBLED_STEPS:
                self._draw()
            else:
                self.disasters.mend()
            if self._step() and self._follower is not None and self._is_through(self._follower.pipeline):
                break
        self.disasters.mend()
        follower = self._follower or self._start()
        pipeline = follower.pipeline
        assert self._is_through(pipeline), f"it stands still at {pipeline.state.resolved_ts}, not {lab.database.ts}"
        self._compare(pipeline)
        if self._elements.upkeep:
            self._let_days_pass(pipeline)
        assert not follower.turn().moved
        pipeline.state.control.release()

    def _draw(self) -> None:
        """Draw what goes wrong in the next step."""
        self.disasters.mend()
        if self._elements.include and self._random.random() < 0.3:
            self._follower = None
        what = self._random.choice(["", "", "", "crash", "crash", "fail", "fail", "take over", "zombie"])
        turn = self._random.choice([1, 1, 2, 3, 5, 8, 12])
        self.story.append(f"{what} {turn}")
        if what == "crash":
            self.disasters.crash("", turn)
        elif what == "fail":
            failure = self._random.choice(FAILURES)
            self.story.append(failure)
            self.disasters.fail(failure, turn)
        elif what == "take over" and self._follower is not None:
            self.disasters.call(self._take_over, "", turn)
        elif what == "zombie" and self._follower is not None:
            self._wake_a_zombie(self._follower)

    def _step(self) -> bool:
        """Make a step; True if nothing went wrong with it."""
        try:
            follower = self._follower = self._follower or self._start()
            moved = follower.turn(self._ends_now()).moved
        except Crash as crash:
            self.story.append(f"died at {crash}")
            self._follower = None
            return False
        except TransientError as error:
            self.story.append(str(error))
            return False
        except SchemaChangeRefused as error:
            self._leave_out(error)
            return False
        except CheckpointConflict:
            if self._follower is follower:
                raise  # the newest holds the changefeed, and nobody may refuse it anything
            return False
        if moved and self._follower is follower:
            self._must_leave_out = False
            self._check(follower.pipeline)
            if self._elements.upkeep and self._random.random() < 0.4:
                self._let_days_pass(follower.pipeline)
        return True

    def _leave_out(self, error: SchemaChangeRefused) -> None:
        """Take the way out that the refusal of a swap names; any other refusal is raised again."""
        if self._is_left_out or not self._elements.include or _UNORDERED not in str(error):
            raise error
        self.story.append(str(error))
        self._must_leave_out, self._follower = True, None

    def _let_days_pass(self, pipeline: Pipeline) -> None:
        """Maintain every table days later: no table loses a row, and every orphan goes."""
        self.disasters.mend()
        before, days = contents(pipeline), self._random.choice([2, 10, 400])
        self.story.append(f"{days} days later")
        orphans, gone = days_later(pipeline, days)
        assert gone == orphans, f"{orphans - gone} orphans stay"
        assert contents(pipeline) == before, "maintenance changes rows"
        self.tended += orphans
        self._compare(pipeline)

    def _check(self, pipeline: Pipeline) -> None:
        self.checkpoints += 1
        self.story.append(f"checkpoint {pipeline.state.checkpoint.step} at {pipeline.state.resolved_ts}")
        self._compare(pipeline)

    def _compare(self, pipeline: Pipeline) -> None:
        self._lab.check(pipeline)
        if self.order == "offset" or self._lab.is_between(pipeline, pipeline.state.resolved_ts):
            return
        problems = self._witness.problems(self._lab, pipeline)
        assert not problems, "\n".join(problems)

    def _start(self) -> Follower:
        """Another process, with tables left out or taken in again."""
        is_left_out = self._elements.include and (self._random.random() < 0.5 or self._must_leave_out)
        self._lab.more = {**self._settings(), **(LEFT_OUT if is_left_out else {})}
        pipeline = self._lab.start()
        # A unit of work is done before a step, and what it prepared is committed after it.
        pipeline.maintenance.begin = Asking.run
        # What the process before it did last, it may not have lived to see.
        self._witness.see(pipeline.state.resolved_ts, is_left_out=self._is_left_out)
        if self._elements.include:
            self.story.append("start with tables left out" if is_left_out else "start with all tables")
        self._is_left_out = is_left_out
        return Follower(pipeline)

    def _settings(self) -> Mapping[str, Mapping[str, Any]]:
        # No table but one that is left out may be parked: what is refused here is a defect, or has a way out.
        found: dict[str, Mapping[str, Any]] = {"changefeed": {"on_table_error": "stop"}}
        if self._elements.filtered:
            found = {"changefeed": {**found["changefeed"], "filtered": True}, "ddl": {"truncate-table": "ignore"}}
        if self._elements.beside:
            found["maintenance"] = {"small_files": 2, "snapshots": 1 + 3 * (self.seed % 3)}
        return found

    def _take_over(self) -> None:
        """Another applier takes the changefeed in the middle of a step, and gets as far as it gets."""
        other = self._start()
        self._follower = other
        for _ in range(self._random.randint(0, 2)):
            try:
                moved = other.turn(self._ends).moved
            except SchemaChangeRefused as error:
                self._leave_out(error)
                return
            if moved:
                self._check(other.pipeline)

    def _wake_a_zombie(self, zombie: Follower) -> None:
        """Another applier has the changefeed, and the one that had it goes on as if nothing had happened."""
        self._take_over()
        with suppress(CheckpointConflict):
            assert not zombie.turn().moved, "an applier wrote a checkpoint that had lost the changefeed"

    def _ends_now(self) -> Mapping[TopicPartition, int]:
        """How far each partition can be read: each comes at its own pace."""
        if self._elements.topics or self._elements.keyless:
            # A topic or a partition that appears is there before any resolved ts that covers its rows.
            records = self._lab.records
            self._sent = min(len(records), self._sent + self._random.choice([0, 5, 20, 100]))
            self._ends = {place: span.end for place, span in Memory(records[: self._sent]).bounds().items()}
            return dict(self._ends)
        for place, span in self._lab.source().bounds().items():
            known = self._ends.get(place, 0)
            self._ends[place] = min(span.end, known + self._random.choice([0, 5, 20, 100]))
        return dict(self._ends)

    def _is_through(self, pipeline: Pipeline) -> bool:
        """Whether all messages were read, and all that they hold is applied."""
        bounds, state = self._lab.source().bounds(), pipeline.state
        if self.order == "offset":
            return all(state.next_offsets.get(place) == span.end for place, span in bounds.items())
        known = all(self._ends.get(place) == span.end for place, span in bounds.items())
        return known and state.resolved_ts == self._lab.database.ts
