"""Tables of recorded changefeeds that are parked and come back are equal to TiDB's, and no other table notices."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.mark.structures import ParameterSet

from applier import wording
from applier.changefeed.checkpoint import RequestOutcome
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.commands.follower import Follower
from applier.config import settings
from applier.decode.protocols import build
from applier.pipeline.build import decoder_options
from applier.pipeline.step import Step
from applier.sink.control.rows import Kind, TableRequest
from tests import expected, recordings
from tests.recorded.test_protocols import FAMILIES, as_plain, replaying, unexplained
from tests.replay import Replay, ends_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ends = Mapping[TopicPartition, int]

ALL = "all"
"""All tables are parked at once, and come back while the others go on."""

PARKED = {
    "workload": (("1/3", "2/3", "load.users"), ("1/3", "2/3", "load.sales"), ("1/3", "2/3", "load.metrics")),
    "ddl": (("33", "66", "shop.orders"), ("33", "66", "mirror.orders")),
}
"""By scenario where a table is parked, where it resumes, and the table that is alone in that: it comes back at once."""

TOGETHER = {
    "workload": (("1/3", "2/3"),),
    # Columns; RENAME, CREATE LIKE and DROP; tables that trade databases; DROP, CREATE and DROP DATABASE.
    "ddl": (("33", "66"), ("64", "88"), ("73", "85"), ("87", "97")),
    "partition": (("1/3", "2/3"),),
    "pk": (("1/3", "2/3"),),
    "txns": (("1/3", "2/3"),),
}
"""The same for all tables at once. A place is the number of a recorded state, or a share of the feed."""

EVERY_TIME = {
    ("partition", "canal-json-ext", "1/3", ALL),
}
"""What `make test` runs; `make test-recorded` runs every case."""

MESSAGES = (10_000, 40)
"""Messages a step: a range that is missed fits into one window, or takes several."""


def cases() -> Iterator[ParameterSet]:
    """Scenario, protocol, variant, places, tables and messages a step of every recording with watermarks."""
    for protocol, prefix in (("simple", "simple-"), *FAMILIES):
        for scenario, places in TOGETHER.items():
            for variant in recordings.variants(scenario, prefix):
                is_other = protocol == "debezium" and variant == "debezium-avro"
                if is_other or re.search("handlekey|plain|no-old-value", variant):
                    continue
                if (scenario, protocol) in KEYLESS:
                    continue
                for begin, end, table in (*((*place, ALL) for place in places), *PARKED.get(scenario, ())):
                    case = (scenario, protocol, variant, begin, end, table, _messages(scenario, table))
                    often = (scenario, variant, begin, table) in EVERY_TIME
                    yield pytest.param(*case, marks=() if often else pytest.mark.soak)


KEYLESS = {("pk", "avro"), ("txns", "avro")}
"""Feeds that stop at a row that they do not hold, whatever is parked."""


def _messages(scenario: str, table: str) -> int:
    if scenario == "workload":
        return 20_000 if table == ALL else 100_000
    return 40 if table == ALL else 10_000


@dataclass(slots=True)
class Absence:
    """Tables that are parked, and what readers see of them meanwhile.

    Args:
        found: The replay.
        follower: Follows its changefeed.
        protocol: TiCDC's name of the protocol.
    """

    found: Replay
    follower: Follower
    protocol: str
    _rows: dict[TableName, list[str]] = field(default_factory=dict)
    _number: Iterator[int] = field(default_factory=itertools.count)

    def ask(self, kind: Kind, names: Sequence[TableName]) -> RequestOutcome:
        """What a command asks for."""
        request = TableRequest(f"{kind}-{next(self._number)}", kind, tuple(map(str, names)), "a look", "me")
        return self.follower.requests.carry_out(request)

    def park(self, names: Sequence[TableName]) -> None:
        """Park tables; their rows are noted."""
        assert self.ask("park", names) == RequestOutcome("parked", tuple(names))
        self._rows = {name: expected.bag(self.found.contents(name) or []) for name in names}
        assert set(names) <= set(self.parked)

    @property
    def parked(self) -> dict[TableName, TableName]:
        """Tables that are parked, with the names that they had then."""
        known = self.follower.pipeline.state.completeness
        return {
            name: item.position.name for name, item in known.items() if item.is_parked and item.position is not None
        }

    def go_to(self, state: Mapping[str, Any] | None, ends: Ends) -> None:
        """Step as far as the ends allow, and compare with the recorded state."""
        # A window without a watermark moves nothing, and the next one is longer.
        while (step := self._step(ends)).moved or not step.complete:
            pass
        self._compare(state)

    def finish(self, state: Mapping[str, Any] | None, ends: Ends) -> None:
        """Step on until nothing is being brought back."""
        while (step := self._step(ends)).moved or step.resuming or not step.complete:
            pass
        self._compare(state)

    def _step(self, ends: Ends) -> Step:
        step = self.follower.turn(ends)
        assert step.error is None
        self.see_parked()
        return step

    def _compare(self, state: Mapping[str, Any] | None) -> None:
        if state is not None:
            assert self.problems(state) == [], f"at resolved ts {state['resolved_ts']}"

    def see_parked(self) -> None:
        """Readers see each parked table as it was."""
        for name, before in self.parked.items():
            rows = self.found.contents(name)
            assert rows is not None, f"{name} is gone"
            assert expected.bag(rows) == self._rows[before], f"{name} changed while it was parked"
            assert self.found.identifier(name) not in self.follower.pipeline.state.checkpoint.cut.heads

    def problems(self, state: Mapping[str, Any]) -> list[str]:
        """What differs from a recorded state, in tables that are not parked."""
        parked = {str(name) for name in self.parked}
        return [
            line for line in unexplained(self.found, state, self.protocol) if re.split(r":?\s", line)[0] not in parked
        ]

    def see_all_back(self) -> None:
        """Every table is live and in the cut, and no copy is left."""
        known, catalog = self.follower.pipeline.state.completeness, self.found.catalog
        here = self.found.tables()
        assert {name: wording.sentence(name, known[name]) for name in here if not known[name].is_live} == {}
        heads = {self.found.identifier(name): self._head(name) for name in here}
        cut = self.follower.pipeline.state.checkpoint.cut.heads
        assert {at: cut.get(at) for at in heads} == heads
        left = (f"applier_{self.found.raw['changefeed']['name']}__resume",)
        assert not catalog.namespace_exists(left) or catalog.list_tables(left) == []

    def _head(self, name: TableName) -> int | None:
        head = self.found.catalog.load_table(self.found.identifier(name)).current_snapshot()
        return None if head is None else head.snapshot_id


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("scenario", "protocol", "variant", "begin", "end", "table", "messages"), list(cases()))
def test_a_table_that_was_parked_is_as_if_it_never_was(
    scenario: str,
    protocol: str,
    variant: str,
    begin: str,
    end: str,
    table: str,
    messages: int,
    spark: SparkSession,
    lake: dict[str, str],
    tmp_path: Path,
) -> None:
    """Readers see it as it was or up to date; each other table is exact at each recorded resolved ts meanwhile."""
    with replaying(scenario, protocol, variant, lake, tmp_path) as found:
        renamed(found, f"{scenario}-{variant}-{begin}-{table}")
        found.raw["source"]["messages_per_step"] = messages
        places = stops(found, protocol)
        first, last = _place(begin, len(places)), _place(end, len(places))
        gone, back, rest = places[first], places[first + 1 : last + 1], places[last + 1 :]
        with found.running(spark) as pipeline:
            absence = Absence(found, Follower(pipeline), protocol)
            absence.go_to(*gone)
            live = sorted(name for name, known in pipeline.state.completeness.items() if known.is_live)
            absence.park([name for name in live if table in (ALL, str(name))])
            for place in back:
                absence.go_to(*place)
            if absence.parked:
                assert absence.ask("resume", sorted(absence.parked)).done == "resumes"
            if table != ALL:
                absence.finish(*back[-1])
            for place in rest if table == ALL else rest[-1:]:
                absence.go_to(*place)
            absence.finish(*places[-1])
            assert absence.parked == {}
            absence.see_all_back()
        assert unexplained(found, recordings.expected(scenario)[-1], protocol) == []


def renamed(found: Replay, name: str) -> None:
    """Give a replay a name of its own."""
    name = re.sub(r"\W", "-", f"back-{name}")
    found.raw["changefeed"]["name"], found.prefix = name, name.replace("-", "_")
    found.raw["tables"]["route"] = f"{found.prefix}__{{database}}.{{table}}"


def stops(found: Replay, protocol: str) -> list[tuple[Mapping[str, Any] | None, Ends]]:
    """Where a feed is looked at: at each recorded state, or where there is only the last one also in between."""
    decoder = build(protocol, decoder_options(settings.parse(found.raw)))
    states: list[tuple[Mapping[str, Any] | None, Ends]] = [*ends_at(found.scenario, found.variant, decoder)]
    if len(states) > 3:
        return states
    return [*((None, ends) for ends in shares(found.scenario, found.variant)), *states[-1:]]


def shares(scenario: str, variant: str) -> list[Ends]:
    """Where a third and two thirds of the messages are read."""
    records = [
        (TopicPartition(record["topic"], record["partition"]), record["offset"])
        for record in recordings.records(scenario, variant)
    ]
    return [{place: offset + 1 for place, offset in records[: len(records) * share // 3]} for share in (1, 2)]


def _place(text: str, length: int) -> int:
    above, _, below = text.partition("/")
    return int(above) if not below else max(1, length * int(above) // int(below)) - 1


BY_OFFSET = (
    ("ddl", "canal-json", "canal-json", "shop.orders"),
    ("ddl", "debezium", "debezium-plain", "shop.orders"),
    ("txns", "canal-json", "canal-json", ALL),
    ("txns", "debezium", "debezium-plain", ALL),
    ("pk", "canal-json", "canal-json", ALL),
    ("types", "avro", "avro-plain", ALL),
)
"""Feeds without watermarks, and tables that no RENAME, CREATE or EXCHANGE concerns while they are parked."""


@pytest.mark.parametrize("messages", [10_000, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("scenario", "protocol", "variant", "table"),
    [pytest.param(*case, marks=() if case == BY_OFFSET[2] else pytest.mark.soak) for case in BY_OFFSET],
)
def test_a_table_that_was_parked_in_offset_order(
    scenario: str,
    protocol: str,
    variant: str,
    table: str,
    messages: int,
    spark: SparkSession,
    lake: dict[str, str],
    tmp_path: Path,
) -> None:
    """Readers see it as it was or up to date, and all tables have the contents of the end of the feed."""
    with replaying(scenario, protocol, variant, lake, tmp_path) as found:
        renamed(found, f"offset-{scenario}-{variant}-{messages}")
        found.raw["changefeed"]["order"] = "offset"
        found.raw["source"]["messages_per_step"] = messages
        first, second = shares(scenario, variant)
        with found.running(spark) as pipeline:
            absence = Absence(found, Follower(pipeline), protocol)
            absence.go_to(None, first)
            names = sorted(name for name in pipeline.state.completeness if table in (ALL, str(name)))
            absence.park(names)
            absence.go_to(None, second)
            assert absence.ask("resume", names).done == "resumes"
            absence.finish(None, second)
            assert absence.parked == {}
            absence.finish(None, pipeline.ends())
            if variant != "avro-plain":
                absence.see_all_back()
        state = recordings.expected(scenario)[-1]
        assert unexplained(found, as_plain(state) if variant == "avro-plain" else state, protocol) == []
