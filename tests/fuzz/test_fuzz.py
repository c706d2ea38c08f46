"""Some thousand damaged messages of every protocol; `make fuzz` judges a million, and here is what it would notice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from applier.changefeed.event import Event, Resolved, SchemaChange
from applier.changefeed.table import TableVersion
from applier.ddl import parser as ddl
from applier.ddl.actions import kind
from applier.decode.columnar.json_columns import JsonRows
from applier.decode.decoder import Decoder, WireForm
from applier.errors import DecodeError
from tests.fuzz import judge, run
from tests.fuzz.corpus import Feed, Message, feeds, protocol_of
from tests.fuzz.judge import SLOWEST, Fault, Judge
from tests.fuzz.mutants import Mutants
from tests.fuzz.respell import respell

pytestmark = pytest.mark.slow

MESSAGES = 6000
VARIANTS = (
    "simple-json-checksum-shanghai",
    "simple-avro",
    "open",
    "open-updated-columns",
    "canal-json-ext",
    "canal-json-content-compatible",
    "avro-before-value",
    "avro-string-checksum",
    "debezium",
    "debezium-noschema",
    "debezium-avro",
)


@pytest.fixture(scope="module")
def sources() -> list[Feed]:
    """Feeds of all protocols, with messages of every kind and type."""
    return feeds(("types", "ddl"), VARIANTS)


@pytest.mark.timeout(120)
def test_damaged_messages_are_decoded_or_refused_by_name(sources: list[Feed]) -> None:
    """Of thousands of damaged messages none raises anything but a named error, here or in the row pass."""
    outcome = run.fuzz(sources, MESSAGES, seed=0)

    assert {feed.protocol for feed in sources} == {protocol_of(variant) for variant in VARIANTS}
    assert outcome.counts["decoded"] + outcome.counts["refused"] == MESSAGES
    assert min(outcome.counts[what] for what in ("decoded", "refused", "rows", "rows at once")) > MESSAGES / 10
    assert min(outcome.counts[what] for what in ("values", "ddl", "ddl refused")) > 0
    assert outcome.slowest < SLOWEST


def test_undamaged_messages_are_decoded(sources: list[Feed]) -> None:
    """The messages that mutants are made of are whole, so a refusal is the work of the damage."""
    for feed in sources:
        one = Judge(feed)
        one.take(list(enumerate(feed.messages)))

        refused = [one.counts[what] for what in ("refused", "row pass refused", "values", "ddl refused")]
        assert (feed.name, refused) == (feed.name, [0, 0, 0, 0])
        assert one.counts["decoded"] == len(feed.messages) > 50


def test_a_mutant_is_the_same_whenever_it_is_made(sources: list[Feed]) -> None:
    """A failure names seed and number, and these lead to the same bytes again; another seed leads to others."""
    feed, message = Mutants(sources, 7).make(41)
    for number in range(41):
        Mutants(sources, 7).make(number)

    assert Mutants(sources, 7).make(41) == (feed, message)
    assert Mutants(sources, 8).make(41) != (feed, message)


def test_a_quick_way_that_reads_otherwise_is_found(sources: list[Feed], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are read together must be the rows that are read one by one, down to the commit ts."""
    feed = next(feed for feed in sources if feed.variant == "open")
    read = JsonRows.read

    def late(*args: Any) -> Any:
        blocks, odd = read(*args)
        return [replace(block, commit_ts=block.commit_ts + 1) for block in blocks], odd

    monkeypatch.setattr(judge, "COMPARED", 1)
    monkeypatch.setattr(JsonRows, "read", late)

    with pytest.raises(Fault, match="is read otherwise at once"):
        Judge(feed).take(list(enumerate(feed.messages)))


class Broken:
    """A decoder with a defect, which it shows at one message."""

    def __init__(self, defect: Callable[[], Sequence[Event]]) -> None:
        self.wire = WireForm(binary="bytes", members="index")
        self.bulk = None
        self.defect = defect

    def learn(self, version: TableVersion) -> None:
        """Nothing to know."""

    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Event]:
        """Show the defect."""
        return self.defect() if value == b"bad" else ()


def _judge(defect: Callable[[], Sequence[Event]], clock: Callable[[], float] = lambda: 0.0) -> Judge:
    def renew() -> Decoder:
        return Broken(defect)  # type: ignore[return-value]  # it lacks what is of no interest here

    return Judge(Feed("simple", "none", "none", renew), clock)


def _raises(error: BaseException) -> Callable[[], Sequence[Event]]:
    def defect() -> Sequence[Event]:
        raise error

    return defect


MESSAGES_WITH_ONE: Sequence[tuple[int, Message]] = [(3, (None, b"good")), (4, (b"key", b"bad")), (5, (None, None))]


@pytest.mark.parametrize(
    ("defect", "what"),
    [
        (_raises(IndexError("list index out of range")), "IndexError: list index out of range"),
        (_raises(RecursionError("too deep")), "RecursionError: too deep"),
        (_raises(MemoryError()), "MemoryError"),
        (_raises(DecodeError("")), "AssertionError"),
        (_raises(DecodeError("\udcff")), "UnicodeEncodeError"),
        (lambda: ["no event"], "is no event: str"),
        (lambda: [Resolved(1 << 63)], "breaks the row pass, OverflowError"),
    ],
)
def test_a_defect_is_found_and_its_message_named(defect: Callable[[], Sequence[Event]], what: str) -> None:
    """Whatever is neither an event nor a named error is a fault, with all that is needed to see it again."""
    with pytest.raises(Fault, match=what) as caught:
        _judge(defect).take(MESSAGES_WITH_ONE)

    assert caught.value.number == 4
    assert "message 4 of simple (none/none)" in str(caught.value)
    assert "key a2V5\nvalue YmFk" in str(caught.value)


def test_a_message_that_takes_seconds_is_found() -> None:
    """CPU seconds of each message are measured, and many are a fault."""
    times: Iterator[float] = iter([0.0, 0.1, 0.1, SLOWEST + 0.2])

    with pytest.raises(Fault, match=r"message 4 .*took 2.1 CPU seconds"):
        _judge(lambda: (), lambda: next(times)).take(MESSAGES_WITH_ONE)


def _run_with_memory(sources: list[Feed], monkeypatch: pytest.MonkeyPatch, sizes: Sequence[int]) -> None:
    measured = iter(sizes)
    monkeypatch.setattr(run, "resident", lambda: next(measured))
    run.fuzz(sources, 40, seed=0)


def test_memory_that_grows_is_found(sources: list[Feed], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process gains in the second half of a run is measured."""
    monkeypatch.setattr(run, "LONG_ENOUGH", 40)

    with pytest.raises(MemoryError, match="the process grew: .* memory 100 → 200 → 210 → 242 → 243 MiB"):
        _run_with_memory(sources, monkeypatch, [100, 200, 210, 210 + run.GROWTH_MIB, 211 + run.GROWTH_MIB])


def test_memory_that_fills_caches_is_no_growth(sources: list[Feed], monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches fill in the first half, and a short run has no other half."""
    _run_with_memory(sources, monkeypatch, [100, 200, 300, 400, 500])
    monkeypatch.setattr(run, "LONG_ENOUGH", 40)
    _run_with_memory(sources, monkeypatch, [100, 200, 300, 301, 300 + run.GROWTH_MIB])


def test_a_statement_is_spelt_otherwise_and_means_the_same(sources: list[Feed]) -> None:
    """Letters, quotes and spaces change, and the actions of the statement are the same but for the letters of names."""
    dice = random.Random(0)
    texts = {
        event.sql
        for feed in sources
        if feed.scenario == "ddl" and feed.variant == "open"
        for message in feed.messages
        for event in feed.renew().decode(*message)
        if isinstance(event, SchemaChange)
    }
    assert len(texts) > 40
    for text in sorted(texts):
        kinds = [kind(action) for action in ddl.parse(text, "d")]
        assert [kind(action) for action in ddl.parse(respell(text, dice), "d")] == kinds
