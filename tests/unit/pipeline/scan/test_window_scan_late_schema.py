"""A schema that the registry does not know yet: its messages are waited for, and neither lost nor set aside at once."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from applier.changefeed.message import MESSAGE_SCHEMA, Messages, TopicPartition
from applier.changefeed.types import TypeRules
from applier.changefeed.window import OffsetRange, Window
from applier.config.registry import RegistrySection
from applier.decode.options import DecoderOptions
from applier.errors import SchemaUnknown
from applier.order.feed_order import OffsetOrder
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.scan.window_scan import WindowScan
from applier.runtime.logs import Stopwatch
from applier.runtime.places import Where
from applier.runtime.retry import LATE_SECONDS, Deadline
from tests import recordings
from tests.fake_registry import Answer, FakeRegistry, fake_registry
from tests.known import known_at
from tests.unit.pipeline.scan.test_window_scan_dead_letters import MessageSource

SCENARIO, VARIANT = "pk", "avro-before-value"
NOT_YET = Answer(404, {"error_code": 40403, "message": "Schema not found"})
NO_REGISTRY = Answer(404, b"<html>no such page</html>")


class Recorded(MessageSource):
    """The first recorded rows, in one partition."""

    def __init__(self) -> None:
        records = [record for record in recordings.records(SCENARIO, VARIANT) if record["value"][:1] == b"\0"][:60]
        self.place = TopicPartition("rows", 0)
        rows = [
            {
                **self.place._asdict(),
                "offset": offset,
                "timestamp": None,
                "key": record["key"],
                "value": record["value"],
            }
            for offset, record in enumerate(records)
        ]
        self.passes = 0
        self._rows = pa.Table.from_pylist(rows, schema=MESSAGE_SCHEMA)
        self.window = Window({self.place: OffsetRange(0, len(rows))})
        self.framed = {n: int.from_bytes(row["value"][1:5], "big") for n, row in enumerate(records)}

    def collect(self, window: Window) -> Messages:
        """See `Source`."""
        return super().collect(window) if window.ranges else {}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A registry that is to know the recorded schemas."""
    with fake_registry() as server:
        yield server


class World:
    """A surveyor with a clock that stands still until it is moved."""

    def __init__(self, registry: FakeRegistry, *, keep_bad: bool) -> None:
        self.now = 0.0
        self.source = Recorded()
        self.registry = registry
        options = DecoderOptions(registry=RegistrySection(url=registry.url))
        template = DecodeTask("avro", options, TypeRules(), ("*.*",), (), upto=0, order=OffsetOrder())
        deadline = Deadline(lambda: self.now)
        self.scanner = WindowScanner(
            self.source, template, rows_describe=True, keep_bad=keep_bad, schema_deadline=deadline
        )

    def answers(self, missing: Answer, *ids: int) -> None:
        """Let the registry know every recorded schema but those."""
        for entry in recordings.registry(SCENARIO, VARIANT):
            answer = missing if entry["id"] in ids else Answer(200, {"schema": entry["schema"]})
            self.registry.on(f"/schemas/ids/{entry['id']}", answer)

    def scan(self) -> WindowScan:
        """Survey all messages."""
        ends = {self.source.place: self.source.window.ranges[self.source.place].end}
        known = known_at()
        return self.scanner.scan(self.source.window, known, ends, Stopwatch(), where=Where.TASKS)


@pytest.mark.parametrize("keep_bad", [True, False])
def test_a_message_whose_schema_may_come_ends_the_window(registry: FakeRegistry, *, keep_bad: bool) -> None:
    """All before it is kept, nothing is set aside; with the schema all is read, with the same surveyor."""
    world = World(registry, keep_bad=keep_bad)
    late = world.source.framed[max(world.source.framed)]
    first = min(offset for offset, schema_id in world.source.framed.items() if schema_id == late)
    world.answers(NOT_YET, late)

    found = world.scan()

    assert found.bad == []
    assert isinstance(found.error, SchemaUnknown)
    assert found.error.schema_id == late
    assert f":{first}: Schema registry {registry.url} answers 404 (40403)" in found.error.what
    assert "the registry may be behind the messages; else" in found.error.hint
    assert found.window.ranges == ({world.source.place: OffsetRange(0, first)} if first else {})
    assert world.scanner.may_come(found.error)

    world.answers(NOT_YET)
    found = world.scan()
    assert found.error is None
    assert found.bad == []
    assert found.results.counts["messages"] == 60


def test_patience_ends_for_each_schema_once(registry: FakeRegistry) -> None:
    """After its time it is an error to stop for, or every message of it is set aside, with no more waiting."""
    world, other = World(registry, keep_bad=True), World(registry, keep_bad=False)
    late = world.source.framed[max(world.source.framed)]
    world.answers(NOT_YET, late)
    messages = [offset for offset, schema_id in world.source.framed.items() if schema_id == late]
    for each in (world, other):
        each.now = 0.0
        assert each.scanner.may_come(each.scan().error)
        each.now = LATE_SECONDS - 1
        assert each.scanner.may_come(each.scan().error)
        each.now = LATE_SECONDS

    found = world.scan()
    assert found.error is None
    assert sorted(item.offset for item in found.bad) == messages
    error = other.scan().error
    assert isinstance(error, SchemaUnknown)
    assert not other.scanner.may_come(error)


def test_a_404_that_is_not_of_a_registry_is_not_waited_for(registry: FakeRegistry) -> None:
    """A page that is not there means a wrong address, which no time mends."""
    world = World(registry, keep_bad=False)
    world.answers(NO_REGISTRY, *world.source.framed.values())

    error = world.scan().error

    assert error is not None
    assert "answers 404: no message." in str(error)
    assert not world.scanner.may_come(error)
