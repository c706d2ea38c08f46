"""A seed in, the life of some tables out: left out, parked, refused, brought back, over crashes and take-overs.

The model knows why a table may not be live, and what it shows meanwhile. It asks the applier for what it says of a
table, and believes nothing of it that the database, the requests and the configuration do not show.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from applier import wording
from applier.changefeed.checkpoint import RequestOutcome
from applier.changefeed.completeness import Completeness, Why, furthest_back
from applier.changefeed.filter import TableFilter, exactly
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.commands.follower import Follower
from applier.errors import CheckpointConflict, TerminalError, TransientError
from applier.pipeline.load.begin import begin, is_unstarted, refuse_unloaded
from applier.pipeline.requests import Requests
from applier.pipeline.step import Pipeline
from applier.sink.control.control import Control, SchemaDecision
from applier.sink.control.rows import Kind, TableRequest, last_decisions, request_rows
from applier.sink.control.tables import REQUESTS
from tests.disasters import FAILURES, WHENS, Crash, Disasters
from tests.lab import Lab, Memory, bag, own_rows
from tests.properties.elements import Elements
from tests.properties.histories import History
from tests.properties.life_changes import LifeChanges
from tests.properties.life_loads import Loads, OpenLoad, reached
from tests.properties.life_others import LifeOthers
from tests.properties.life_shapes import LifeShape
from tests.properties.lives import Life, Lives
from tests.ticdc import Changefeed, Habits
from tests.upstream import Ddl, Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_STEPS = 150
"""Far more than the feed has: one that needs more does not come to its end."""

_UNORDERED = "do not determine the order of the renames"
"""Why a table may stay parked: names were swapped while both were left out, and the other one came back before."""

_MOST_ROUNDS = 25
"""Statements of one table that are refused come up one after the other, each in a round of its own."""

_BEGIN_POINTS = (
    *("", "", "request-taken", "request-done", "load-staged", "load-committed", "load-begun"),
    *("resume-begun", "resume-taken-in", "copy-shown", "resume-shown", "resume-done"),
)

_POINTS = (
    *("read", "decoded", "applied", "table-ensured", "data-files-staged", "commit-sent", "commit-done"),
    *("ddl-due", "ddl-applied", "ddl-recorded", "half-exchanged", "layout-due", "layout-done"),
    *("request-taken", "request-done", "resume-begun", "resume-taken-in", "resume-range-read"),
    *("resume-shown", "resume-done"),
)
"""Where a process dies in a step, a start or a job."""

_ALL = ("*.*",)
_INCLUDES = (_ALL, _ALL, ("*.*", "!mart.apart*"), ("*.*", "!mart.*"), ("*.*", "!shop.*"))
"""Tables trade names within `mart.apart*` and within the rest; `mart.orders` and `shop.*` are of one group, so that the
latter cases also have tables that are renamed over the border."""


class _Past(History):
    """A history with statements that no parser knows, and without those that its shape refuses."""

    shape: LifeShape = LifeShape()

    def _ddl(self) -> None:
        names = sorted(self.database.tables)
        if names and self.random.random() < 0.15:
            self.database.frobnicate(self.random.choice(names))
        else:
            super()._ddl()

    def _rename_column(self, name: Name) -> None:
        if "_rename_column" not in self.shape.refused_ddl:
            super()._rename_column(name)

    def _modify_column(self, name: Name) -> None:
        if "_modify_column" not in self.shape.refused_ddl:
            super()._modify_column(name)

    def _of_partition(self, name: Name) -> None:
        if "_of_partition" not in self.shape.refused_ddl:
            super()._of_partition(name)


def _feed(chance: random.Random, elements: Elements, size: int, shape: LifeShape) -> Changefeed:
    history = _Past(chance, chance.choice([0.2, 0.35]), elements=elements)
    history.shape = shape
    if shape.is_keyed:
        history.keyless = 0
    history.begin(chance.randint(2, 3))
    history.go_on(size)
    habits = Habits(
        partitions=chance.randint(1, 3),
        dispatcher=chance.choice(["table", "index-value", "ts", "scatter"]),
        raw=chance.random() < 0.3,
        twice=chance.choice([0.0, 0.1]),
        resolve=chance.choice([0.2, 0.5]),
        restart=chance.choice([0.0, 0.0, 0.05]),
        topics=elements.topics,
    )
    feed = Changefeed(history.database, habits, chance.randrange(1 << 30))
    feed.send()
    return feed


@dataclass(slots=True)
class TableLife:
    """One run of a changefeed whose tables come and go.

    Args:
        seed: Decides everything.
        spark: The session.
        disasters: Hands out what goes wrong.
        folder: Where exports go.
        size: Events of the database.
        steps: So many in which things go wrong; then all tables come back.
        wide: Tables are also left out by patterns over whose border they are renamed.
        keeps_changes: Whether every change is kept in a table beside each; None where the seed says that.

    Attributes:
        story: What happened.
        looks: How many checkpoints were compared.
        seen: States in which a table was seen, with their causes.
    """

    seed: int
    spark: SparkSession
    disasters: Disasters
    folder: Path
    size: int = 40
    steps: int = 60
    wide: bool = False
    keeps_changes: bool | None = None
    story: list[str] = field(default_factory=list)
    looks: int = 0
    seen: set[str] = field(default_factory=set)
    _random: random.Random = field(init=False)
    _lab: Lab = field(init=False)
    _lives: Lives = field(init=False)
    _include: tuple[str, ...] = _ALL
    _follower: Follower | None = None
    _ends: dict[TopicPartition, int] = field(default_factory=dict)
    _sent: int = 0
    _asked: dict[str, TableRequest] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=count)
    _by_hand: set[Life] = field(default_factory=set)
    _skipped: set[int] = field(default_factory=set)
    _loads: Loads = field(init=False)
    _outcomes: dict[str, RequestOutcome] = field(default_factory=dict)
    _renames: bool = False
    _is_dead: bool = False
    _faults: random.Random = field(init=False)
    _others: LifeOthers = field(init=False)
    _changes: LifeChanges | None = None
    _damaged: set[Life] = field(default_factory=set)

    def __post_init__(self) -> None:
        chance = self._random = random.Random(f"life of {self.seed}")
        renames = chance.random() < 0.3
        elements = Elements(
            letters=chance.random() < 0.3, renames=renames, topics=renames and chance.random() < 0.5, include=True
        )
        self._renames = elements.renames
        shape = LifeShape.drawn(self.seed, keeps_changes=self.keeps_changes)
        feed = _feed(chance, elements, self.size, shape)
        self.story += [str(elements), str(shape)]
        name = f"life_{self.seed}{'' if self.keeps_changes is None else '_changes'}"
        self._lab = Lab(self.spark, name, feed.database, feed.records, chance.choice([20, 60, 1000]))
        self._faults = random.Random(f"faults of {self.seed}")
        self._lab.has_others, self._lab.shaped = True, shape.rows
        self._others = LifeOthers(self._lab, random.Random(f"others of {self.seed}"), self.story, shape)
        self._changes = LifeChanges(feed.database, feed.records, shape) if shape.history else None
        self._lives = Lives(feed.database)
        self._loads = Loads(self._lives, random.Random(f"loads of {self.seed}"), self.folder)

    @property
    def past(self) -> list[str]:
        """The DDL of the database."""
        return [f"{item.ts}: {item.sql}" for item in self._lab.database.log if isinstance(item, Ddl)]

    # ---- the run

    def run(self) -> None:
        """Run it; raises AssertionError where a table is not what it may be."""
        if self._loads.random.random() < 0.3:
            self._begin_at_an_export()
        for _ in range(self.steps):
            self.disasters.mend()
            self._draw()
            self._draw_fault()
            self._step()
            self._undo()
        self.disasters.mend()
        self._let_all_come_back()
        pipeline = self._running()
        problems = self._final_problems(pipeline)
        assert not problems, "\n".join(problems)
        assert pipeline.state.checkpoint.resuming is None
        pipeline.state.control.release()

    def _draw(self) -> None:
        """Draw what happens in the next step."""
        kinds: dict[str, Callable[[], object]] = {
            "crash": self._crash_later,
            "fail": self._fail_later,
            "take over": self._take_over_later,
            "zombie": self._wake_a_zombie,
            "restart": self._restart,
            "include": self._change_include,
            "park": lambda: self._ask("park"),
            "resume": lambda: self._ask("resume"),
            "skip": self._skip,
            "load": self._load,
            "other": self._others.act,
        }
        weights = {"crash": 3, "include": 2, "park": 2, "resume": 3, "load": 6, "other": 4}
        names = ["", "", "", "", *(name for name in kinds for _ in range(weights.get(name, 1)))]
        if self._is_dead and self._random.random() < 0.4:
            # The repetition dies as well, where the first one did or elsewhere.
            self._crash_later()
        elif what := self._random.choice(names):
            kinds[what]()

    def _step(self) -> None:
        follower, self._is_dead = None, False
        try:
            follower = self._following()
            step = follower.turn(self._ends_now())
        except Crash as crash:
            self.story.append(f"died at {crash}")
            self._follower, self._is_dead = None, True
        except TransientError as error:
            self.story.append(str(error))
        except CheckpointConflict:
            if self._follower is follower:
                raise  # the newest holds the changefeed, and nobody may refuse it anything
        else:
            if self._follower is follower:
                self._look(follower.pipeline, " (resuming)" if step.resuming else "")

    def _running(self) -> Pipeline:
        return self._following().pipeline

    def _following(self) -> Follower:
        if self._follower is None:
            self._follower = self._start(is_over=self._random.random() < 0.6)
        return self._follower

    def _start(self, *, is_over: bool) -> Follower:
        self._lab.more = {"tables": {"include": list(self._include), **self._others.tables_section()}}
        follower = Follower(self._lab.start(is_over=is_over))
        follower.requests.clock = count(step=10).__next__
        self.story.append(f"start with {self._include[1:] or 'all'}")
        self._take_note(follower.pipeline)
        return follower

    # ---- a changefeed that begins at an export

    def _begin_at_an_export(self) -> None:
        """Load all tables, or some, before the changefeed has read anything, as often as a crash needs it."""
        chance = self._loads.random
        self._sent = chance.randint(len(self._lab.records) // 4, len(self._lab.records))
        tso = self._loads.drawn_tso(reached(self._lab.records[: self._sent]), 0)
        if tso is None or not (there := sorted(self._lab.database.at(tso))):
            return
        # A swap with a table that is not known is refused, as docs/limitations.md says.
        is_whole = self._renames or chance.random() < 0.5
        load = self._loads.begin(there if is_whole else chance.sample(there, chance.randint(1, len(there))), tso)
        self.story.append(f"begin at {load}")
        lives = self._lives.at(tso)
        self._loads.lacked = {lives[name] for name in there if TableName(*name) not in load.names}
        self._loads.left_behind = set(self._loads.lacked)
        for point in [chance.choice(_BEGIN_POINTS) for _ in range(3)]:
            self.disasters.crash(point, 1 if point else chance.randint(1, 20))
            self._try_to_begin(load)
            self.disasters.mend()
        self._try_to_begin(load)
        assert self._running().state.resolved_ts >= tso

    def _try_to_begin(self, load: OpenLoad) -> None:
        try:
            pipeline = self._running()
            if not is_unstarted(pipeline):
                return
            if any(known.why.is_loaded for known in pipeline.state.completeness.values()):
                with pytest.raises(TerminalError, match="begins at an export"):
                    refuse_unloaded(pipeline)
            self._begin_now(self._following(), load)
        except Crash as crash:
            self.story.append(f"died at {crash}")
            self._follower = None

    def _begin_now(self, follower: Follower, load: OpenLoad) -> None:
        """Do what the command does, as `applier.commands.load.command.load`."""
        pipeline = follower.pipeline
        self._carry_out(follower.requests, "load", load)
        assert not self._loads.bulk(pipeline, load)
        self._carry_out(follower.requests, "loaded", load)
        begin(pipeline, load.export.tso)
        while follower.piece():
            pass
        self.story.append("begun")
        tables = self._lab.tables()
        for name in map(str, load.names):
            own = Name(*name.split("."))
            wanted = self._lab.shaped(*self._lab.database.at(load.export.tso)[own])
            assert bag(own_rows(tables[own])) == bag(wanted), f"{name} is not as in the export"

    def _carry_out(self, requests: Requests, kind: Kind, load: OpenLoad) -> None:
        request = TableRequest(f"request {next(self._numbers)}", kind, exactly(load.names), "", "the model")
        self._asked[request.id] = request
        assert not requests.carry_out(request).is_refused

    # ---- what happens

    def _draw_fault(self) -> None:
        """Let one call to catalog or storage fail in every other step, at times beside another writer."""
        chance = self._faults
        turn, meanwhile = int(2 ** chance.uniform(0, 9)), self._others.act if chance.random() < 0.2 else None
        when = chance.choice(WHENS if meanwhile else WHENS[:2])
        if chance.random() < 0.5:
            self.story.append(f"fault {when} {turn}{' beside another writer' if meanwhile else ''}")
            self.disasters.fault(turn, when, meanwhile)

    def _undo(self) -> None:
        """Set tables that were rolled back to their heads again; a command resumes what was parked for it."""
        if names := self._others.undo():
            since = self._running().state.resolved_ts if self._follower else 0
            moments = {item.ts for item in self._lab.database.log if item.ts >= since} | {since}
            lives = [self._lives.at(ts) for ts in moments]
            self._damaged |= {found[name] for found in lives for name in names if name in found}

    def _crash_later(self) -> None:
        turn = self._random.choice([1, 1, 2, 3, 5, 8, 12, 20])
        point = self._random.choice(["", "", *_POINTS])
        self.story.append(f"crash {point} {turn}")
        self.disasters.crash(point, self._random.choice([1, 1, 2, 3]) if point else turn)

    def _fail_later(self) -> None:
        failure, turn = self._random.choice(FAILURES), self._random.choice([1, 1, 2, 3, 5, 8])
        self.story.append(f"fail {failure} {turn}")
        self.disasters.fail(failure, turn)

    def _take_over_later(self) -> None:
        self.story.append("take over")
        self.disasters.call(self._take_over, "", self._random.choice([1, 2, 3, 5, 8, 12]))

    def _take_over(self) -> None:
        """Another applier takes the changefeed in the middle of a step, and gets as far as it gets."""
        # One that dies while it starts has taken the changefeed all the same.
        self._follower = None
        other = self._follower = self._start(is_over=False)
        for _ in range(self._random.randint(0, 2)):
            other.turn(self._ends)
            self._look(other.pipeline)

    def _wake_a_zombie(self) -> None:
        """Another applier has the changefeed, and the one that had it goes on as if nothing had happened."""
        zombie = self._following()
        self.story.append("zombie")
        self._take_over()
        with suppress(CheckpointConflict):
            assert not zombie.turn().moved, "an applier wrote a checkpoint that had lost the changefeed"

    def _restart(self) -> None:
        if self._follower is not None:
            self._follower.pipeline.state.control.release()
        self._follower = None

    def _change_include(self) -> None:
        self._restart()
        self._include = self._random.choice(_INCLUDES if self.wide else _INCLUDES[:3])

    def _ask(self, kind: Kind) -> None:
        """Ask as a command does that finds another process at work."""
        pipeline = self._running()
        states = pipeline.state.completeness
        names = sorted(name for name, known in states.items() if kind == "park" or not known.is_live)
        if names:
            chosen = self._random.sample(names, min(len(names), self._random.choice([1, 1, 2, 5])))
            self._send(pipeline, kind, chosen)

    def _send(self, pipeline: Pipeline, kind: Kind, names: Sequence[TableName]) -> str:
        is_load = kind in ("load", "loaded")
        rules = exactly(names) if is_load else tuple(map(str, names))
        # Of a load, a reason says that it has failed.
        why = "" if is_load else "a test"
        request = TableRequest(f"request {next(self._numbers)}", kind, rules, why, "the model")
        control = cast("Control", pipeline.state.control)
        control.write(REQUESTS, request_rows(request))
        self._asked[request.id] = request
        self.story.append(f"ask to {kind} {', '.join(map(str, names))}")
        return request.id

    def _skip(self, *, every: bool = False) -> bool:
        """Let a statement pass as `applier ddl skip` does, in a process of its own; whether there is one."""
        self._restart()
        pipeline = self._running()
        state = pipeline.state
        since = furthest_back(state.resolved_ts, state.completeness.values())
        pending = [item for item in last_decisions(state.control.decisions(since)) if item.decision == "refused"]
        if not every:
            pending = self._random.sample(pending, min(1, len(pending)))
        pending = [item for item in pending if "FROBNICATE" in item.sql]
        said = [
            SchemaDecision(item.commit_ts, item.table, item.sql, item.kind, "to skip", "a test") for item in pending
        ]
        if said:
            state.record(said)
            self.story.append(f"skip {', '.join(str(item.commit_ts) for item in said)}")
            self._skipped |= {item.commit_ts for item in said}
        self._restart()
        return bool(said)

    def _load(self) -> None:
        """Begin to load an export as a command does beside the run, go on with it, or give it up."""
        if not self._loads.open or self._random.random() < 0.15:
            self._begin_load()
        else:
            self._go_on(self._random.choice(self._loads.open))

    def _begin_load(self) -> None:
        pipeline = self._running()
        tso = self._loads.drawn_tso(reached(self._lab.records[: self._sent]), pipeline.state.resolved_ts)
        there = [] if tso is None else sorted(name for name in self._lab.database.at(tso) if self._admits(name))
        if tso is not None and there:
            names = self._random.sample(there, min(len(there), self._random.randint(1, 5)))
            self._ask_to_load(self._loads.begin(names, tso))

    def _ask_to_load(self, load: OpenLoad) -> None:
        self.story.append(f"load {load}")
        load.request = self._send(self._running(), "loaded" if load.is_loaded else "load", load.names)

    def _go_on(self, load: OpenLoad) -> None:
        outcome = self._outcomes.get(load.request)
        if outcome is None:
            return
        if outcome.is_refused or self._random.random() < 0.1:
            self.story.append(f"give up the load of {load}")
            self._loads.open.remove(load)
        elif not load.is_loaded:
            self._load_rows(load)
        if load.is_loaded:
            self._ask_to_load(load)
            self._loads.open.remove(load)

    def _load_rows(self, load: OpenLoad) -> None:
        """Load the rows aside; what goes wrong ends this process alone, and the same load may go on later."""
        point, turn = self._random.choice(["load-staged", "load-committed", ""]), self._random.choice([1, 1, 2, 3])
        self._draw_fault()
        match self._random.choice(["", "", "crash", "crash", "fail", "take over"]):
            case "crash":
                self.disasters.crash(point, turn)
            case "fail":
                self.disasters.fail(self._random.choice(FAILURES), turn)
            case "take over":
                self.disasters.call(self._take_over, point, turn)
        try:
            refused = self._loads.bulk(self._running(), load)
        except (Crash, TransientError, CheckpointConflict) as error:
            self.story.append(f"the load of {load} died: {error}")
        else:
            assert not refused, "\n".join(map(str, refused.values()))
            self.story.append(f"loaded {load}")
        self.disasters.mend()

    def _ends_now(self) -> Mapping[TopicPartition, int]:
        """How far each partition can be read."""
        records = self._lab.records
        self._sent = min(len(records), self._sent + self._random.choice([0, 3, 8, 20, 60]))
        self._ends = {place: span.end for place, span in Memory(records[: self._sent]).bounds().items()}
        return dict(self._ends)

    # ---- the end

    def _let_all_come_back(self) -> None:
        """Admit every table, skip every statement that is refused, resume what is parked, or load it again."""
        self.story.append("all shall come back")
        self._include = _ALL
        self._restart()
        tried: set[TableName] = set()
        for _ in range(_MOST_ROUNDS):
            self._come_to_rest()
            if self._skip(every=True):
                continue
            pipeline = self._running()
            known = pipeline.state.completeness
            parked = sorted(name for name in pipeline.state.parked if _UNORDERED not in known[name].reason.detail)
            there = self._lives.at(pipeline.state.resolved_ts)
            behind = [TableName(*name) for name, life in there.items() if life in self._loads.left_behind]
            if not parked and not behind:
                return
            # What is parked still though it was to come back holds an exchange with a table that was loaded later.
            lost = [
                name for name in parked if name in tried or (known[name].position is None and not known[name].is_due)
            ]
            lost += [name for name in behind if name not in lost]
            tried |= set(parked)
            for name in sorted(set(parked) - set(lost)):
                self._send(pipeline, "resume", [name])
            self._following().turn()
            self._look(pipeline)
            self._load_again(lost)
        raise AssertionError("\n".join(["some tables do not come back", *self._states(self._running())]))

    def _load_again(self, names: Sequence[TableName]) -> None:
        """Load tables that only an export brings back: a new one, or where the name is gone the last one."""
        here = self._lab.database.at(self._lab.database.ts)
        again = [load for load in self._loads.begun if not here.keys() >= {Name(*name) for name in load.names}]
        if found := [Name(*name) for name in names if Name(*name) in here]:
            again.append(self._loads.begin(found, self._lab.database.ts))
        for load in again if names else ():
            self._ask_to_load(load)
            self._come_to_rest()
            load.is_loaded = False
            assert not self._loads.bulk(self._running(), load)
            self._ask_to_load(load)
            self._come_to_rest()

    def _come_to_rest(self) -> None:
        pipeline = self._running()
        for _ in range(_MOST_STEPS):
            step = self._following().turn()
            self._look(pipeline, " (resuming)" if step.resuming else "")
            if not step.resuming and not step.moved and pipeline.state.resolved_ts == self._lab.database.ts:
                return
        raise AssertionError("\n".join(["it does not come to rest", *self._states(pipeline)]))

    def _final_problems(self, pipeline: Pipeline) -> list[str]:
        """Where tables differ from the database at last; one of which a statement was skipped is not in the cut."""
        parked = {Name(name.database, name.table) for name in pipeline.state.parked}
        wanted = {
            name: rows for name, rows in self._lab.database.at(self._lab.database.ts).items() if name not in parked
        }
        here = {name: table for name, table in self._lab.tables().items() if name not in parked}
        found = [f"{name} is there" for name in sorted(here.keys() - wanted.keys())]
        found += [f"{name} is missing" for name in sorted(wanted.keys() - here.keys())]
        for name in sorted(wanted.keys() & here.keys()):
            if bag(own_rows(here[name])) != bag(self._lab.shaped(*wanted[name])):
                found.append(f"{name} is not as in the database at the end")
        found += self._wrong_changes(pipeline)
        return [*found, *(self._states(pipeline) if found else [])]

    # ---- what may be

    def _look(self, pipeline: Pipeline, more: str = "") -> None:
        """Compare with what the model knows."""
        self.disasters.leave_calls()
        self._undo()
        self._take_note(pipeline)
        self.looks += 1
        self.story.append(f"{pipeline.state.checkpoint.step} at {pipeline.state.resolved_ts}{more}")
        # A step in which another applier took over may have left tables beyond the checkpoint.
        is_ahead = pipeline.state.reached > pipeline.state.resolved_ts
        if is_ahead or self._lab.is_between(pipeline, pipeline.state.resolved_ts):
            return
        self._lab.may_lack = lambda name: self._may_lack(pipeline, name)
        listed = [f"{name} is in the cut at {ts}" for name, ts in self._just_parked(pipeline)]
        problems = [line for line in self._lab.problems(pipeline) if line not in listed]
        problems += [*self._wrong_states(pipeline), *self._wrong_changes(pipeline)]
        assert not problems, "\n".join([*problems, *self._states(pipeline)])

    def _just_parked(self, pipeline: Pipeline) -> list[tuple[Name, int]]:
        """Tables that a start has parked at the resolved ts of the cut: they are true there until it moves."""
        ts = pipeline.state.resolved_ts
        return [
            (Name(name.database, name.table), ts)
            for name, known in pipeline.state.completeness.items()
            if known.is_parked and known.since == ts
        ]

    def _may_lack(self, pipeline: Pipeline, name: Name) -> bool:
        known = pipeline.state.completeness.get(TableName(*name))
        return known is not None or not self._admits(name) or self._is_left_behind(pipeline, name)

    def _is_left_behind(self, pipeline: Pipeline, name: Name) -> bool:
        """Whether the load at which the changefeed begins left a table out, and no row of it has come since."""
        return self._lives.at(pipeline.state.resolved_ts).get(name) in self._loads.left_behind

    def _admits(self, name: Name) -> bool:
        return TableFilter(self._include).admits(TableName(*name))

    def _take_note(self, pipeline: Pipeline) -> None:
        """Take note of requests that were carried out."""
        state = pipeline.state
        told = frozenset(ddl.sql for ddl in state.checkpoint.ddl)
        lives = self._lives.at(state.resolved_ts, told)
        for number in [number for number in self._asked if number in state.checkpoint.handled]:
            request, outcome = self._asked.pop(number), state.checkpoint.handled[number]
            self._outcomes[request.id] = outcome
            self.story.append(f"{request.kind}: {wording.outcome(outcome)}")
            found = [Name(*name) for name in outcome.tables]
            if request.kind in ("load", "loaded"):
                self._loads.note(found, lives)
                self._by_hand.difference_update(lives[name] for name in found if name in lives)
                continue
            for name in found:
                if outcome.done == "resumes":
                    self._by_hand.discard(lives.get(name, 0))
                elif self._admits(name) or state.completeness[TableName(*name)].why is Why.BY_HAND:
                    # One that is left out needs no other cause.
                    self._by_hand.add(lives.get(name, 0))

    def _wrong_states(self, pipeline: Pipeline) -> list[str]:
        state, here = pipeline.state, self._lab.tables()
        lives = self._lives.at(state.resolved_ts)
        names = {TableName(*name) for name in lives}
        gone = [name for name in state.completeness if name not in names]
        found = [f"{name} is known, but gone" for name in gone if not self._loads.may_wait(Name(*name), None)]
        for name, life in lives.items():
            known = state.completeness.get(TableName(*name))
            if known is None:
                found += [f"{name} is not known"] if self._admits(name) and life not in self._loads.left_behind else []
                continue
            self.seen.add(f"{known.state} {known.why}")
            problem = self._wrong_state(name, life, known, state.resolved_ts)
            found += [f"{name} {problem}: {wording.sentence(TableName(*name), known)}"] if problem else []
            if known.is_parked and name in here and not self._may_show(name, life, known, here[name]):
                found.append(f"{name} does not show what it was at {known.since}")
        return found

    def _wrong_changes(self, pipeline: Pipeline) -> list[str]:
        """What tables of changes have that the feed did not bring, or lack without showing it."""
        if self._changes is None:
            return []
        state, tables = pipeline.state, self._lab.changes()
        lives = self._lives.at(state.resolved_ts)
        known = {Name(*name) for name in state.completeness}
        found = [f"changes of {name} are there, but it is gone" for name in tables.keys() - lives.keys() - known]
        whole = {name: table for name, table in self._lab.tables().items() if self._lab.is_live(pipeline, name)}
        return [*found, *self._changes.problems(state.resolved_ts, lives, whole, tables)]

    def _wrong_state(self, name: Name, life: Life, known: Completeness, ts: int) -> str:
        """Why a table may not be in the state in which it is; "" if it may."""
        refused = self._lives.refused(life, ts)
        together = [life, *self._lives.exchanged(life, ts)]
        if known.is_parked and life in self._damaged:
            return ""
        match known.state, known.why:
            case "live", _:
                if not self._admits(name):
                    return "is live, but left out"
                if life in self._by_hand:
                    return "is live, but was parked by hand"
                self._loads.loading.discard(life)
                self._loads.left_behind.discard(life)
                self._damaged.discard(life)
                owed = self._loads.owed(life, refused) - self._skipped
                return "is live, but a statement was refused" if owed else ""
            case "parked", Why.LOADING | Why.CATCHING_UP:
                return "" if self._loads.may_wait(name, life) else "is parked, but no load of it was asked for"
            case "incomplete", _:
                return "" if self._may_be_incomplete(life, ts) else "is incomplete without a cause"
            case "parked", Why.LEFT_OUT | Why.LEFT_OUT_BEFORE:
                return "" if not self._admits(name) or known.is_due else "is parked, but not left out"
            case "parked", Why.BY_HAND | Why.REBUILT:
                return "" if life in self._by_hand or known.is_due else "is parked, but not by hand"
            case "parked", Why.DDL:
                # The table of the export had the name before this one, and met a statement of its own.
                is_owed = (
                    refused
                    or len(together) > 1
                    or self._loads.may_wait(name, life)
                    or _UNORDERED in known.reason.detail
                )
                return "" if is_owed else "is parked, but no statement is refused"
        return "is parked without a cause"

    def _may_be_incomplete(self, life: Life, ts: int) -> bool:
        """Whether the load at which the changefeed begins left a table out, or a refused statement was skipped."""
        together = {life, *self._lives.exchanged(life, ts)}
        refused = {at for other in together for at in self._lives.refused(other, ts)}
        return not self._loads.lacked.isdisjoint(together) or not self._skipped.isdisjoint(refused)

    def _may_show(self, name: Name, life: Life, known: Completeness, table: Any) -> bool:
        """Whether a parked table shows what it was, or what had its name in an export from before a rename.

        One that was incomplete when it was parked shows what nothing upstream has.
        """
        lacked = known.lacked is not None or known.why.is_loaded
        if lacked and self._may_be_incomplete(life, known.since):
            return True
        loaded = self._lives.at(known.since).get(name, life)
        lives = {life, loaded} if loaded in self._loads.whole_at else {life}
        return life in self._damaged or any(self._is_true(one, known, table) for one in lives)

    def _is_true(self, life: Life, known: Completeness, table: Any) -> bool:
        """Whether a parked table shows what it was when it was parked, before or after a DDL of that very moment."""
        rows = bag(own_rows(table))
        for ts in (known.since, known.since - 1):
            name = next((name for name, other in self._lives.at(ts).items() if other == life), None)
            if name is None or rows == bag(self._lab.shaped(*self._lab.database.at(ts)[name])):
                return True
        return False

    def _states(self, pipeline: Pipeline) -> list[str]:
        told = sorted(pipeline.state.completeness.items())
        return [f"  {wording.sentence(name, known)} [{known.why}, due {known.is_due}]" for name, known in told]
