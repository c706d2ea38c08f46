"""A seed in, one changefeed out whose names, versions and schema ids alone say whose rows are which.

Databases and tables are made again in other letters, names are alike in Avro, tables are left out for a while, and
registries are late, away or built anew. A third of the feeds shows no DDL: there partitions lag behind each other by
several versions of a table. At every checkpoint each table that `applier status` shows as whole is compared cell by
cell, and each other one needs a cause.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import pytest

from applier import wording
from applier.changefeed.filter import TableFilter
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.commands.follower import Follower
from applier.decode import protocols
from applier.decode.avro.decoder import AvroDecoder
from applier.decode.debezium.avro_decoder import DebeziumAvroDecoder
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions
from applier.errors import RegistryReplaced, TransientError
from applier.pipeline.scan import decode_task, scanner
from applier.pipeline.step import Pipeline
from tests.disasters import Crash, Disasters
from tests.lab import Lab, Memory
from tests.properties.elements import Elements
from tests.properties.histories import History
from tests.properties.lives import Life, Lives
from tests.properties.told_by_rows import TYPES, RowsHistory, ToldByRows
from tests.ticdc import Changefeed, Habits
from tests.upstream import Ddl, Name, Rows
from tests.wires import PROTOCOLS, Registry, messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Kind = Literal["resolved", "offset", "rows"]
"""With DDL, in resolved order or in offset order; or in offset order without DDL."""

TWINS = [Name("my-db", "t"), Name("my_db", "t"), Name("my_db", "u-1"), Name("my_db", "u_1")]
"""Tables whose names are alike in Avro."""

NAMES = [Name("Shop", "orders"), Name("shop_2", "Items"), Name("Shop", "Spare"), Name("shop_2", "orders")]

_WITH_REGISTRY = {"avro": AvroDecoder, "debezium-avro": DebeziumAvroDecoder}
_MOST_STEPS = 150
_ROUNDS = 3


@dataclass(slots=True)
class Identity:
    """One changefeed from its first message to its last, or to the refusal of its registry.

    Args:
        seed: Decides everything.
        spark: The session.
        disasters: Lets the process die.
        patch: Gives decoders the registry of the run.
        size: Events of the database.

    Attributes:
        story: What happened.
        looks: How many checkpoints were compared.
        kind: What the feed shows.
        protocol: Its protocol.
    """

    seed: int
    spark: SparkSession
    disasters: Disasters
    patch: pytest.MonkeyPatch
    size: int = 30
    story: list[str] = field(default_factory=list)
    looks: int = 0
    kind: Kind = field(init=False)
    protocol: str = field(init=False)
    _random: random.Random = field(init=False)
    _registry: Registry = field(default_factory=Registry)
    _history: History = field(init=False)
    _feed: Changefeed = field(init=False)
    _lab: Lab = field(init=False)
    _lives: Lives = field(init=False)
    _told: ToldByRows = field(init=False)
    _follower: Follower | None = None
    _decoder: Decoder | None = None
    _include: tuple[str, ...] = ("*.*",)
    _ends: dict[TopicPartition, int] = field(default_factory=dict)
    _sent: int = 0
    _is_rebuilt: bool = False
    _doubted: set[Life] = field(default_factory=set)
    _reached: int = 0
    _held: set[TableName] = field(default_factory=set)

    def __post_init__(self) -> None:
        chance = self._random = random.Random(f"identity of {self.seed}")
        self.kind = chance.choice(["resolved", "resolved", "resolved", "offset", "rows", "rows"])
        of_rows = self.kind == "rows"
        self.protocol = chance.choice(
            ["debezium", "debezium-avro", "avro", "avro"] if of_rows else [*PROTOCOLS, "avro"]
        )
        with_names = not of_rows
        elements = Elements(
            letters=with_names and chance.random() < 0.7,
            renames=with_names and chance.random() < 0.3,
            databases=with_names and chance.random() < 0.6,
            topics=self.kind == "resolved" and chance.random() < 0.2,
        )
        names = TWINS if with_names and chance.random() < 0.4 else NAMES
        kind = RowsHistory if of_rows else History
        self._history = kind(chance, 0.3, swaps=not of_rows, elements=elements, keyless=0.0, names=names, types=TYPES)
        self._history.database.tells_former = "debezium" in self.protocol or self.protocol == "simple"
        registry_chance = random.Random(f"registry of {self.seed}")
        self._registry.delay = lambda: registry_chance.choice([0, 0, 0, 1, 3])
        by_offset = self.kind == "offset"
        self._history.begin(chance.randint(2, 4))
        habits = Habits(
            partitions=1 if by_offset else chance.randint(1, 3),
            dispatcher=chance.choice(
                ["table", "index-value"] if of_rows else ["table", "index-value", "ts", "scatter"]
            ),
            twice=chance.choice([0.0, 0.1]),
            resolve=chance.choice([0.2, 0.5]),
            restart=0.0 if of_rows else chance.choice([0.0, 0.1]),
            leaps=not by_offset,
            topics=elements.topics,
        )
        wire = messages(self.protocol, self._registry, has_ddl=not of_rows)
        self._feed = Changefeed(self._history.database, habits, chance.randrange(1 << 30), wire)
        self.story.append(f"{self.kind} {self.protocol} {elements} {habits}")
        order = "resolved" if self.kind == "resolved" else "offset"
        size = chance.choice([10, 40, 1000])
        self._lab = Lab(self.spark, f"identity_{self.seed}", self._feed.database, self._feed.records, size, order)
        self._lab.may_lack = lambda _: True
        self._lives = Lives(self._feed.database)
        self._told = ToldByRows(
            self._feed, has_defaults=self.protocol != "debezium-avro", by_key=self.protocol == "avro"
        )
        for module in (decode_task, scanner):
            self.patch.setattr(module, "decoder_of_thread", self._decoder_of)

    @property
    def past(self) -> list[str]:
        """The DDL of the database."""
        return [f"{item.ts % 1000000}: {item.sql}" for item in self._lab.database.log if isinstance(item, Ddl)]

    def run(self) -> None:
        """Run it; raises AssertionError where a table is not what `status` says of it."""
        for number in range(_ROUNDS):
            self._history.go_on(self.size // _ROUNDS)
            if number and self._random.random() < 0.3:
                self._rebuild()
            if getattr(self._history.database.log[-1], "kind", "") == "RENAME":
                # One that may lack a part of its statement waits for a watermark above it.
                self._history.database.tick()
            self._feed.send()
            try:
                self._come_through()
            except RegistryReplaced as error:
                self.story.append(str(error))
                assert self._is_rebuilt, "the registry was not replaced"
                self._follower = None
                self._look(self._start(), " after the refusal")
                break
        if self._follower is not None:
            self._follower.pipeline.state.control.release()

    def _come_through(self) -> None:
        """Step until all is applied, as often as it is tried again."""
        for turn in range(_MOST_STEPS):
            self.disasters.mend()
            if turn < _MOST_STEPS // 2:
                # Each process begins with small windows: one that dies again and again may never read far enough.
                self._draw()
            try:
                follower = self._follower = self._follower or Follower(self._start())
                pipeline, step = follower.pipeline, follower.turn(self._ends_now())
            except Crash as crash:
                self.story.append(f"died at {crash}")
                self._follower = None
                continue
            except TransientError as error:
                self.story.append(str(error))
                continue
            if step.moved:
                self._look(pipeline)
            is_read = self._ends == {place: span.end for place, span in self._lab.source().bounds().items()}
            if is_read and step.complete and not step.moved and not step.resuming:
                assert self.kind != "resolved" or pipeline.state.resolved_ts == self._lab.database.ts
                self.disasters.mend()
                self._look(pipeline, " at its end", is_end=True)
                return
        raise AssertionError("it does not come to its end")

    def _draw(self) -> None:
        chance = self._random
        if chance.random() < 0.15:
            self._follower = None
            if self.kind == "resolved" and chance.random() < 0.6:
                out = chance.choice(self._history.names)
                self._include = chance.choice([("*.*",), ("*.*",), ("*.*", f"!{out.database}.{out.table}")])
        if chance.random() < 0.1:
            self.disasters.crash("", chance.choice([1, 2, 3, 5, 8, 12]))
        if chance.random() < 0.1:
            self._registry.away = chance.randint(1, 3)

    def _ends_now(self) -> Mapping[TopicPartition, int]:
        """How far each partition can be read: without DDL, some stand still while others go on."""
        if self.kind != "rows":
            self._sent = min(len(self._feed.records), self._sent + self._random.choice([0, 3, 10, 40]))
            self._ends = {place: span.end for place, span in Memory(self._feed.records[: self._sent]).bounds().items()}
            return dict(self._ends)
        for place, span in self._lab.source().bounds().items():
            pace = self._random.choice([0, 0, 0, 1, 3, 10])
            self._ends[place] = min(span.end, self._ends.get(place, 0) + pace)
        return dict(self._ends)

    def _rebuild(self) -> None:
        """The registry is lost, and gives ids anew: the same, lower ones or higher ones. All was read until then."""
        if self.protocol in _WITH_REGISTRY:
            known = max(self._registry.texts, default=1)
            first = self._random.choice([1, 1, 2, max(1, known // 2), known, known + 1])
            self.story.append(f"the registry is built anew, from id {first} on")
            self._registry.rebuild(first)
            self._is_rebuilt = True
            if random.Random(f"stop of {self.seed}").random() < 0.5:
                self.story.append("while the applier is stopped")
                self._follower = None

    # ---- the applier

    def _raw(self) -> dict[str, dict[str, Any]]:
        changefeed = {"protocol": self.protocol, **({"start": "midstream"} if self.kind == "rows" else {})}
        more: dict[str, dict[str, Any]] = {"changefeed": changefeed, "tables": {"include": list(self._include)}}
        return more | ({"registry": {"url": "http://127.0.0.1"}} if self.protocol in _WITH_REGISTRY else {})

    def _start(self) -> Pipeline:
        self._decoder = None
        self._lab.more = {section: dict(keys) for section, keys in self._raw().items()}
        self.story.append(f"start with {self._include[1:] or 'all'}")
        return self._lab.start(is_over=True)

    def _decoder_of(self, protocol: str, options: DecoderOptions) -> Decoder:
        """The decoder of the process that runs, at the beginning of a pass."""
        if protocol not in _WITH_REGISTRY:
            return protocols.decoder_of_thread(protocol, options)
        if self._decoder is None:
            is_avro = protocol == "avro"
            self._decoder = AvroDecoder(self._registry) if is_avro else DebeziumAvroDecoder(self._registry)
        self._decoder.restart()
        return self._decoder

    # ---- what it says, and what it has

    def _look(self, pipeline: Pipeline, when: str = "", *, is_end: bool = False) -> None:
        resolved_ts = pipeline.state.resolved_ts
        shown = self._shown()
        if self.kind == "rows":
            # No feed without DDL shows where a table began: what came of it is compared all the same.
            shown = {name: TableName(*name) not in pipeline.state.parked for name in shown}
        self._doubt(resolved_ts if self.kind == "resolved" else self._lab.database.ts)
        if self.kind == "rows":
            wrong = self._told.problems(self._lab, pipeline, shown, is_end=is_end)
        else:
            told = [f"{name} is whole to status, not to the state" for name in self._differing(pipeline, shown)]
            wrong = [*told, *self._lab.problems(pipeline)]
        assert not wrong, "\n".join([f"WRONG at {resolved_ts}{when}", *wrong, *self._states(pipeline)])
        needless = self._needless(pipeline, shown, is_end=is_end)
        assert not needless, "\n".join([f"NEEDLESS at {resolved_ts}{when}", *needless, *self._states(pipeline)])
        self.looks += 1

    def _shown(self) -> dict[Name, bool]:
        """The tables of `applier status`, and which of them it shows as whole."""
        report = self._lab.status()
        lines = [line for line in report.tables if line.state != "dropped"]
        return {
            Name(*line.table.split(".")): line.state in ("in step", "empty", "ahead") and not line.because
            for line in lines
        }

    def _differing(self, pipeline: Pipeline, shown: Mapping[Name, bool]) -> Iterator[Name]:
        for name, is_whole in shown.items():
            known = pipeline.state.completeness.get(TableName(*name))
            if is_whole and (known is None or not known.is_live):
                yield name

    def _states(self, pipeline: Pipeline) -> list[str]:
        told = sorted(pipeline.state.completeness.items())
        return [f"  {wording.sentence(name, known)} [{known.why}]" for name, known in told if not known.is_live]

    # ---- why a table may not be whole

    def _doubt(self, ts: int) -> None:
        """Take note of tables that may not be whole from here on: left out, alike in Avro, or mixed with such."""
        admits = TableFilter(self._include).admits
        moments = sorted(
            {self._reached, ts, *(item.ts for item in self._lab.database.log if self._reached <= item.ts <= ts)}
        )
        for at in moments:
            lives = self._lives.at(at)
            if self.kind == "offset":
                # Nothing orders the rows of a window by a DDL that gives a name of a parked table to another one.
                self._doubted |= {life for name, life in lives.items() if TableName(*name) in self._held}
            self._doubted |= {life for name, life in lives.items() if not admits(TableName(*name))}
            if self.protocol == "avro" and not self._history.elements.topics:
                for (one, life), (two, other) in combinations(lives.items(), 2):
                    self._doubted |= {life, other} if _sanitised(one) == _sanitised(two) else set()
            # Statements that name several tables: what one of them lacks, the others may get.
            for group in self._lives.together(at):
                self._doubted |= set() if self._doubted.isdisjoint(group) and not self._is_open(at) else group
            held = [name for name, life in lives.items() if life in self._doubted]
            if self._is_open(at):
                held += [name for item in self._lab.database.log if item.ts == at for name in _names(item)]
            self._held |= {TableName(*name) for name in held}
        self._reached = max(self._reached, ts)

    def _is_open(self, ts: int) -> bool:
        """Whether the names of a statement leave open which table goes where: `a TO b, b TO c`, and no table is b.

        Its parts may come in any order, and another table that nothing shows could be b: such a statement is refused.
        """
        found = [item for item in self._lab.database.log if isinstance(item, Ddl) and item.ts == ts and item.before]
        goes_to = {item.before.name: item.schema.name for item in found if item.before and item.schema}
        for middle in (goes_to.keys() & set(goes_to.values())) - self._lives.at(ts - 1).keys():
            at = goes_to[middle]
            while at in goes_to and at != middle:
                at = goes_to[at]
            if at != middle:
                return True
        return False

    def _needless(self, pipeline: Pipeline, shown: Mapping[Name, bool], *, is_end: bool) -> list[str]:
        resolved_ts = pipeline.state.resolved_ts
        if self.kind == "offset" and not is_end:
            return []
        if self._lab.is_between(pipeline, resolved_ts):
            return []
        lives = self._lives.at(resolved_ts if self.kind == "resolved" else self._lab.database.ts)
        if self.kind == "rows":
            lives = {name: life for name, life in lives.items() if name in shown}
        found = []
        for name, life in sorted(lives.items()):
            if not shown.get(name, False) and life not in self._doubted and not self._may_park(name):
                found.append(f"{name} is {'not whole' if name in shown else 'not there'} without a cause")
        return found

    def _may_park(self, name: Name) -> bool:
        """Without DDL, a column that goes and another one that comes may be one that was renamed."""
        if self.kind != "rows":
            return False
        texts = [item.sql for item in self._lab.database.log if isinstance(item, Ddl) and name in item.names]
        return any(" DROP " in text for text in texts) and any(" ADD " in text for text in texts)


def _names(item: Rows | Ddl) -> tuple[Name, ...]:
    return item.names if isinstance(item, Ddl) else ()


def _sanitised(name: Name) -> tuple[str, ...]:
    return tuple(re.sub(r"[^a-z0-9_]", "_", part.lower()) for part in name)
