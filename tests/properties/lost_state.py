"""A seed in, one changefeed out that loses what it knows: control tables, messages, and what a process has in memory.

The model asks one thing: no table is called true, by the state and by `applier status`, that differs from the database.
A run may be refused with a hint, and a table may be parked or incomplete, for whatever reason.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from applier import wording
from applier.changefeed.filter import TableFilter, exactly
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.commands.backfill.command import make_up
from applier.commands.backfill.request import asked
from applier.commands.follower import Driver, Follower, refusal
from applier.errors import ApplierError, CheckpointConflict, ConfigError, TransientError
from applier.pipeline.stall import refuse_stall
from applier.pipeline.step import Pipeline, Step
from applier.pipeline.tables import completeness
from applier.sink.control.control import Control
from applier.sink.control.rows import Kind, TableRequest, request_rows
from applier.sink.control.tables import (
    CHECKPOINTS,
    CONTROL_TABLES,
    DEAD_LETTERS,
    REQUESTS,
    SCHEMA_CHANGES,
    ControlTable,
    namespace,
)
from applier.watch.report import TableProgress
from tests.disasters import Crash, Disasters
from tests.lab import Lab, Memory
from tests.lost_tables import LOSSES
from tests.properties.life_loads import Loads, reached
from tests.properties.lives import Life
from tests.properties.lost_feeds import LostFeed
from tests.upstream import Ddl, Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = (
    *("", "", "read", "decoded", "applied", "table-ensured", "table-made", "data-files-staged"),
    *("commit-sent", "commit-done", "commit-done", "ddl-due", "ddl-applied", "ddl-recorded", "half-exchanged"),
    *("request-taken", "request-done", "resume-begun", "resume-taken-in", "resume-range-read"),
    *("copy-shown", "resume-shown", "resume-done", "load-staged", "load-committed", "range-built"),
)
"""Where a process dies, or fails and tries again: between any two writes."""

_ONCE = ("decoded", "applied")
"""Those that a step comes to once: what is to happen at a second time never does."""

_COMMITS = ("commit-done", "commit-done", "ddl-applied", "ddl-recorded", *["applied"] * 4)
"""Those between the rows of a step and its checkpoint."""

_INCLUDES = (("*.*",), ("*.*",), ("*.*",), ("*.*", "!mart.apart*"), ("*.*", "!shop.spare"), ("*.*", "!mart.*"))

_WEIGHTS: Mapping[str, Sequence[int]] = {
    "nothing": (2, 4),
    "die": (2, 4, 8),
    "fail": (0, 4, 8),
    "lose": (2, 4, 8),
    "lose a table": (0, 1, 2),
    "restart": (0, 1, 2),
    "park": (0, 1, 2),
    "resume": (0, 2),
    # What is given up is excused from then on.
    "give up": (0, 0, 0, 1),
    "make up": (0, 0, 1),
    "load": (0, 0, 2),
}
"""How often each thing happens in a feed: one that has all of them comes to few that take several of the same."""

_MOST_STEPS = 240
_MOST_REFUSALS = 3

_Settings: TypeAlias = Mapping[str, Mapping[str, Any]]

_CALM: _Settings = {
    "changefeed": {"on_bad_message": "dead_letter", "on_table_error": "park"},
    "tables": {"include": ["*.*"], "incomplete": "allow"},
}
"""With it, a run ends at the end of the feed, whatever was lost."""


@dataclass(slots=True)
class LostState:
    """One changefeed from its first message to its last, or to a refusal.

    Args:
        seed: Decides everything.
        spark: The session.
        disasters: Lets processes die and writes fail.
        folder: Where exports go, and rows that are too large for a message.
        size: Events of the database.
        steps: So many in which something is lost.

    Attributes:
        story: What happened.
        looks: How many checkpoints were compared.
        seen: What tables were said to be, and how often.
    """

    seed: int
    spark: SparkSession
    disasters: Disasters
    folder: Path
    size: int = 24
    steps: int = 20
    story: list[str] = field(default_factory=list)
    looks: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    _random: random.Random = field(init=False)
    _lab: Lab = field(init=False)
    _feed: LostFeed = field(init=False)
    _loads: Loads = field(init=False)
    _follower: Follower | None = None
    _settings: _Settings = field(default_factory=dict)
    _drop: str = "keep"
    _sent: int = 0
    _lost: bool = False
    _rules: list[Sequence[str]] = field(default_factory=list)
    _unheard: set[str] = field(default_factory=set)
    _again: int = 0
    _is_calm: bool = False
    _weights: Mapping[str, int] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=count)
    _given_up: bool = False
    _shown_from: int = 0

    def __post_init__(self) -> None:
        chance = self._random = random.Random(f"lost state of {self.seed}")
        found = self._feed = LostFeed(chance, self.size, self.folder)
        feed = found.feed
        self.story += found.story
        size = chance.choice([2, 5, 15, 60, 1000])
        self._lab = Lab(self.spark, f"lost_{self.seed}", feed.database, feed.records, size, found.order)
        self._loads = Loads(found.lives, chance, self.folder)
        self._drop = chance.choice(["keep", "keep", "drop"])
        self._weights = {kind: chance.choice(weights) for kind, weights in _WEIGHTS.items()}
        if self._feed.order == "offset":
            # No resolved ts shows what a table has, nor where an export belongs.
            self._weights |= {"lose a table": 0, "load": 0}
        self._draw_settings()

    @property
    def past(self) -> list[str]:
        """The DDL of the database."""
        return [f"{item.ts % 1000}: {item.sql}" for item in self._lab.database.log if isinstance(item, Ddl)]

    # ---- the run

    def run(self) -> None:
        """Run it; raises AssertionError where a table is called true and is not."""
        for _ in range(self.steps):
            self.disasters.mend()
            self._draw()
            self._turn()
        self.disasters.mend()
        self.story.append("calm")
        self._is_calm, self._settings = True, _CALM
        self._stop()
        self._sent = len(self._lab.records)
        refusals = 0
        for _ in range(_MOST_STEPS):
            step = self._turn()
            refusals += step is None
            if refusals == _MOST_REFUSALS:
                return
            if step is not None and step.complete and not step.moved and not step.resuming:
                return
        raise AssertionError("it does not come to its end")

    def _turn(self) -> Step | None:
        """Make a step; None where it came to nothing."""
        try:
            follower = self._follower = self._follower or self._start()
            step = follower.turn(self._ends_now())
        except Crash as crash:
            self._end(f"died at {crash}")
        except TransientError as error:
            self.story.append(f"failed: {error.what}")
        except ApplierError as error:
            self._refused(error)
        else:
            self._look(follower.pipeline)
            try:
                if step.error is not None and not step.moved:
                    raise refusal(step.error, step)
                if self._is_calm and step.complete and not step.moved and not step.resuming:
                    refuse_stall(step)
            except ApplierError as error:
                self._refused(error)
                return None
            return step
        return None

    def _refused(self, error: ApplierError) -> None:
        assert error.hint or isinstance(error, ConfigError), f"{type(error).__name__} without a hint: {error}"
        assert self._lost or not isinstance(error, CheckpointConflict), f"refused by itself: {error}"
        self._end(f"refused: {error.what}")
        if not self._is_calm and self._random.random() < 0.7:
            self._settings = _CALM

    def _end(self, why: str) -> None:
        self.story.append(why)
        self._follower = None
        self.disasters.mend()

    def _stop(self) -> None:
        """End the process as a user does."""
        if self._follower is not None:
            try:
                self._follower.pipeline.state.control.release()
            except ApplierError as error:
                self.story.append(f"not released: {error.what}")
        self._follower = None

    def _start(self) -> Follower:
        tables = {**self._settings["tables"], "on_drop": self._drop}
        changefeed = {**self._settings["changefeed"], "protocol": self._feed.protocol}
        self._lab.more = {"changefeed": changefeed, "tables": tables}
        self._rules.append(tables["include"])
        self.story.append(f"start {dict(self._settings['changefeed'])} {tables}")
        follower = Follower(self._lab.start(is_over=True))
        follower.requests.clock = count(step=10).__next__
        return follower

    def _ends_now(self) -> Mapping[TopicPartition, int]:
        records = self._lab.records
        self._sent = min(len(records), self._sent + self._random.choice([0, 3, 6, 12, 12]))
        return {place: span.end for place, span in Memory(records[: self._sent]).bounds().items()}

    # ---- what happens

    def _draw(self) -> None:
        if self._again:
            self._again -= 1
            if not self._again:
                # Behind another loss, tables alone may know what they lack.
                self._lose([CHECKPOINTS, CHECKPOINTS, DEAD_LETTERS, *CONTROL_TABLES])
                return
        if self._is_bad_next() and self._random.random() < 0.6:
            fail = self._random.random() < 0.5
            self._strike(self._fail if fail else self.disasters.crash, _COMMITS)
            return
        kinds: dict[str, Callable[[], None]] = {
            "nothing": lambda: None,
            "die": lambda: self._strike(self.disasters.crash),
            "fail": lambda: self._strike(self._fail),
            "lose": self._lose_some,
            "lose a table": self._lose_table,
            "restart": self._restart,
            "park": lambda: self._ask("park"),
            "resume": lambda: self._ask("resume"),
            "give up": self._give_up,
            "make up": self._make_up,
            "load": self._load,
        }
        kind = self._random.choices(list(kinds), [self._weights[kind] for kind in kinds])[0]
        try:
            kinds[kind]()
        except Crash as crash:
            self._end(f"died at {crash} of {kind}")
        except TransientError as error:
            self._end(f"{kind} failed: {error.what}")
        except ApplierError as error:
            self._refused(error)

    def _is_bad_next(self) -> bool:
        """Whether the next step may meet a bad message: what it knows of that is in memory until its commits."""
        if self._follower is None:
            return False
        done, there = self._follower.pipeline.state.next_offsets, Memory(self._lab.records[: self._sent + 12]).bounds()
        return any(place in there and done.get(place, 0) <= at < there[place].end for place, at in self._feed.places)

    def _fail(self, point: str, turn: int) -> None:
        self.disasters.call(_fail, point, turn)

    def _strike(self, strike: Callable[[str, int], None], points: Sequence[str] = POINTS) -> None:
        point = self._random.choice(points)
        turns = [1] if point in _ONCE else [1, 1, 2, 3] if point else [1, 2, 3, 5, 8, 12, 20]
        turn = self._random.choice(turns)
        self.story.append(f"{strike.__name__.strip('_')} {point} {turn}")
        strike(point, turn)

    def _lose_some(self) -> None:
        self._lose([*CONTROL_TABLES, CHECKPOINTS, *[DEAD_LETTERS] * (3 if self._feed.bad else 0)])
        self._again = self._random.choice([0, 0, 1, 2, 4])
        if self._random.random() < 0.3:
            self._lose([CHECKPOINTS, CHECKPOINTS, SCHEMA_CHANGES])

    def _lose_table(self) -> None:
        """Lose a table between two runs, most times together with the checkpoints, which list what it was."""
        self._stop()
        there = sorted(self._lab.tables())
        if not there:
            return
        name, how = self._random.choice(there), self._random.choice(["dropped", "restored", "restored", "rolled back"])
        self.story.append(f"{_short(name)} {how}")
        LOSSES[how](self._lab.catalog, (self._lab.namespace(name.database), name.table), self._random)
        if self._random.random() < 0.7:
            self._lose([CHECKPOINTS], "dropped")

    def _lose(self, kinds: Sequence[ControlTable], how: str = "") -> None:
        """Lose one of some control tables, most times between two runs."""
        if self._random.random() < 0.8:
            self._stop()
        kind = self._random.choice(kinds)
        # What is older in these two is not noticed, as docs/runbook.md says.
        ways = [] if kind in (SCHEMA_CHANGES, DEAD_LETTERS) else LOSSES
        how = how or self._random.choice(["dropped", "dropped", *ways])
        self.story.append(f"{kind.name} {how}{'' if self._follower is None else ' while it runs'}")
        LOSSES[how](self._lab.catalog, (namespace(self._lab.name), kind.name), self._random)
        self._lost = True
        if kind is CHECKPOINTS and self._follower is not None:
            # `status` shows what it finds, as of then, until this process writes its next one.
            self._shown_from = self._follower.pipeline.state.checkpoint.step + 1
        if kind is SCHEMA_CHANGES:
            # The audit alone lists tables that were left out since their CREATE TABLE; `status` notes its loss.
            self._unheard.update(rule for rules in self._rules for rule in rules)

    def _restart(self) -> None:
        self._stop()
        self._draw_settings()

    def _draw_settings(self) -> None:
        chance = self._random
        self._settings = {
            "changefeed": {
                "on_bad_message": chance.choice(["stop", "dead_letter", "dead_letter", "dead_letter"]),
                "on_table_error": chance.choice(["park", "park", "park", "stop"]),
                "claim_check": chance.choice([None, None, str(self.folder)]),
            },
            "tables": {
                "include": list(chance.choice(_INCLUDES)),
                "incomplete": chance.choice(["allow", "allow", "refuse"]),
            },
        }

    def _ask(self, kind: Kind) -> None:
        if self._follower is None:
            return
        states = self._follower.pipeline.state.completeness
        names = sorted(name for name, known in states.items() if kind == "park" or not known.is_live)
        if names:
            name = str(self._random.choice(names))
            self.story.append(f"ask to {kind} {name}")
            request = TableRequest(f"request {next(self._numbers)}", kind, (name,), "a test", "the model")
            cast("Control", self._follower.pipeline.state.control).write(REQUESTS, request_rows(request))

    def _give_up(self) -> None:
        """Give all dead letters up, as `applier dead-letters discard` does: the user says that no row matters."""
        self._stop()
        follower = self._follower = self._start()
        control = cast("Control", follower.pipeline.state.control)
        letters = control.letters()
        if letters:
            self.story.append(f"give {len(letters)} letters up")
            self._given_up = True
            control.bury([replace(item, key=None, value=b"discarded", error="") for item in letters])
            completeness.end_letters(follower.pipeline.state, follower.pipeline.targets)

    def _make_up(self) -> None:
        """Make up for dead letters, as `applier backfill --dead-letters` does, now that rows of claims can be read."""
        self._stop()
        self._settings = {**self._settings, "changefeed": {**self._settings["changefeed"], **self._claims}}
        self._follower = self._start()
        if self._random.random() < 0.4:
            self._strike(self.disasters.crash)
        driver = Driver(threading.Event(), lambda _: None)
        outcome = make_up(self._follower.pipeline, asked(None, None, dead_letters=True), driver)
        self.story.append(f"made up: {' '.join(outcome.sentences)}")
        self._stop()

    @property
    def _claims(self) -> Mapping[str, str]:
        return {"claim_check": str(self.folder)}

    def _load(self) -> None:
        """Begin to load an export as a command does beside the run, or go on with it."""
        self._follower = self._follower or self._start()
        pipeline = self._follower.pipeline
        if not self._loads.open:
            tso = self._loads.drawn_tso(reached(self._lab.records[: self._sent]), pipeline.state.resolved_ts)
            there = [] if tso is None else sorted(self._lab.database.at(tso))
            if tso is not None and there:
                chosen = self._random.sample(there, min(len(there), self._random.randint(1, 3)))
                load = self._loads.begin(chosen, tso)
                self.story.append(f"load {load}")
                self._carry_out("load", exactly(load.names))
            return
        load = self._loads.open[0]
        if self._random.random() < 0.4:
            self._strike(self.disasters.crash)
        refused = self._loads.bulk(pipeline, load)
        self.story.append(f"loaded {load}{''.join(f', not {name}: {error}' for name, error in refused.items())}")
        self._loads.open.remove(load)
        self._carry_out("loaded", exactly(load.names))

    def _carry_out(self, kind: Kind, rules: tuple[str, ...]) -> None:
        assert self._follower is not None
        request = TableRequest(f"request {next(self._numbers)}", kind, rules, "", "the model")
        self.story.append(wording.outcome(self._follower.requests.carry_out(request)))

    # ---- what may be

    def _look(self, pipeline: Pipeline) -> None:
        state = pipeline.state
        ts = self._feed.as_of(state.resolved_ts, sum(state.next_offsets.values()))
        self.story.append(f"{state.checkpoint.step} at {ts % 1000}")
        self.disasters.mend()
        is_set_back = state.checkpoint.step < self._shown_from
        if not ts or is_set_back or state.covered or self._lab.is_between(pipeline, ts):
            return
        self.looks += 1
        shown = {Name(*line.table.split(".")): line for line in self._lab.status().tables if line.state != "dropped"}
        problems = list(self._problems(pipeline, shown, ts))
        assert not problems, "\n".join([f"WRONG at {ts % 1000}", *problems, *self._states(pipeline, shown)])

    def _problems(self, pipeline: Pipeline, shown: Mapping[Name, TableProgress], ts: int) -> Iterator[str]:
        state, wanted = pipeline.state, self._lab.database.at(ts)
        lives, here = self._feed.lives.at(ts), self._lab.tables()
        yield from self._unknown(pipeline, lives)
        for name, line in shown.items():
            self.seen[line.state] += 1
            known = state.completeness.get(TableName(*name))
            is_true = line.state in ("in step", "empty") and not line.because
            if is_true and (known is None or not known.is_live):
                yield f"{name} is true to status alone: {line.state}"
            elif not is_true or self._is_excused(lives.get(name)):
                continue
            elif name not in wanted:
                is_unseen = self._feed.is_left_unseen(name, ts)
                yield from [] if is_unseen else [f"{name} is called true, and no such table is upstream"]
            elif line.state == "empty":
                yield from [f"{name} is called empty, and is not"] if wanted[name][1] else []
            elif name not in here:
                yield f"{name} is called true, and is not there"
            else:
                for head in {line.cut_snapshot_id, line.snapshot_id}:
                    yield from self._lab._differing(name, here[name], head, wanted[name][1])

    def _unknown(self, pipeline: Pipeline, lives: Mapping[Name, Life]) -> Iterator[str]:
        """Tables that nothing lists, though the feed shows them and no loss of `schema_changes` hides them."""
        if 0 < pipeline.state.resolved_ts < pipeline.state.reached:
            return  # A step that stopped half-way may know them by their next names.
        if any("the order of the renames" in known.reason.detail for known in pipeline.state.completeness.values()):
            return  # The parked tables stand under names that they have within the statement.
        admits = TableFilter(pipeline.config.tables.include).admits
        out = [TableFilter(("*.*", rule)).admits for rule in self._unheard if rule[0] == "!"]
        for name, life in lives.items():
            table = TableName(*name)
            if table in pipeline.state.completeness or not admits(table) or self._is_one_of(self._feed.hidden, life):
                continue
            if all(admitted(table) for admitted in out):
                yield f"{name} is not known"

    def _is_excused(self, life: Life | None) -> bool:
        """Whether a user gave up a message of the table, or of one with which it exchanged rows."""
        return self._is_one_of(self._feed.blurred | (self._feed.bad if self._given_up else set()), life)

    def _is_one_of(self, lives: AbstractSet[Life], life: Life | None) -> bool:
        together = set() if life is None else {life, *self._feed.lives.exchanged(life, self._lab.database.ts)}
        return not lives.isdisjoint(together)

    def _states(self, pipeline: Pipeline, shown: Mapping[Name, TableProgress]) -> list[str]:
        told = sorted(pipeline.state.completeness.items())
        lines = [f"  status: {_short(name)} {line.state} {line.because or ''}" for name, line in sorted(shown.items())]
        return [f"  {wording.sentence(name, known)} [{known.why}]" for name, known in told] + lines


def _fail() -> None:
    raise TransientError("Something outside did not answer.")


def _short(name: Name) -> str:
    return f"{name.database}.{name.table}"
