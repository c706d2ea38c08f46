"""Partitions that several tasks read, each a part of the offsets: what they find is what one task finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from _pytest.mark.structures import ParameterSet

from applier.changefeed.filter import exactly
from applier.changefeed.message import PartitionMessages
from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.changefeed.window import Window
from applier.consume.runner import Ran
from applier.consume.source import KeepingPass, R
from applier.decode.options import DecoderOptions
from applier.order.feed_order import ORDERS
from applier.order.merge import merge
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.scan.task_result import Part
from applier.pipeline.scan.window_scan import WindowScan
from applier.runtime.logs import Stopwatch
from applier.runtime.places import Where
from tests.known import known_at
from tests.unit.pipeline.scan.test_decode_task_bulk import (
    FEEDS,
    PROTOCOLS,
    WITHOUT_WATERMARKS,
    MessageSource,
    summary,
    use_recorded_registry,
)

pytestmark = pytest.mark.slow


class Tasks(MessageSource):
    """A source whose tasks read some messages of a partition each, unless it is to stay whole."""

    def __init__(self, scenario: str, variant: str, messages: int | None) -> None:
        super().__init__(scenario, variant)
        self.messages = messages
        self.tears = 0

    def run(self, window: Window, job: KeepingPass[R], where: Where) -> Ran[R]:
        """See `Runner`."""
        del where
        parts = list(self._parts(window, job))
        self.tears += len(parts) - len(window.ranges)
        return Ran([job([part]) for part in parts])

    def _parts(self, window: Window, job: KeepingPass[R]) -> Iterator[PartitionMessages]:
        for place, rows in self.collect(window).items():
            size = rows.num_rows if self.messages is None or place.topic in job.limits.unsplit else self.messages
            for start in range(0, rows.num_rows, size):
                yield place, rows.slice(start, size)


def scan(source: Tasks, variant: str, *left_out: str) -> tuple[WindowScan, WindowScanner]:
    """What tasks find in a recording, bad messages set aside."""
    protocol = next(name for prefix, name in PROTOCOLS.items() if variant.startswith(prefix))
    options = DecoderOptions(timezone="Asia/Shanghai" if "shanghai" in variant else "UTC", by_offset=True)
    order = ORDERS["offset" if variant in WITHOUT_WATERMARKS else "resolved"]
    job = DecodeTask(protocol, options, TypeRules(), ("*.*", *left_out), (), 0, order)
    scanner = WindowScanner(source, job, rows_describe=protocol != "simple", keep_bad=True)
    bounds = source.bounds()
    ends = {place: span.end for place, span in bounds.items()}
    known = known_at()
    return scanner.scan(Window(dict(bounds)), known, ends, Stopwatch(), where=Where.TASKS), scanner


def changes(found: WindowScan) -> dict[Any, Any]:
    """What the rows of each table come to."""
    by_place = found.job.order.by_place
    return {
        where: _sorted(merge([part.here for part in parts], parts[0].version.shape, by_place=by_place), parts)
        for where, parts in found.results.parts.items()
    }


def _sorted(changed: Any, parts: list[Part]) -> list[list[str]]:
    is_keyed = parts[0].version.shape.is_idempotent
    tables: list[pa.Table] = [changed.upserts if is_keyed else changed.inserts, changed.deletes]
    return [sorted(map(repr, table.to_pylist())) for table in tables]


def in_runs(found: WindowScan) -> set[TableName]:
    """Tables whose rows count by what came before them in their partition."""
    return {
        name
        for (name, _), parts in found.results.parts.items()
        for part in parts
        if not part.first_ts or not part.version.shape.is_idempotent
    }


def compared(found: WindowScan) -> dict[str, Any]:
    """All that was found, beside the rows of single tasks and what their messages weigh in memory."""
    told = summary(found)
    return {**told, "counts": {**told["counts"], "bytes": None}, "rows": changes(found)}


def drawn() -> Iterator[ParameterSet]:
    """One variant of each protocol always, with DDL; `make test-recorded` takes them all."""
    met = set[str]()
    for scenario, variant in FEEDS:
        protocol = next(name for prefix, name in PROTOCOLS.items() if variant.startswith(prefix))
        is_first = scenario == "ddl" and protocol not in met
        met |= {protocol} if is_first else set()
        yield pytest.param(scenario, variant, marks=() if is_first else pytest.mark.soak)


@pytest.mark.parametrize(("scenario", "variant"), list(drawn()))
def test_parts_of_a_partition_are_the_whole(scenario: str, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DDL, versions, watermarks, bad messages and what becomes of the rows, wherever the cuts are."""
    use_recorded_registry(monkeypatch, scenario, variant)
    every, _ = scan(Tasks(scenario, variant, None), variant)
    left_out = [f"!{rule}" for rule in exactly(in_runs(every))]
    whole, _ = scan(Tasks(scenario, variant, None), variant, *left_out)
    for size in (7, 60):
        torn, scanner = scan(Tasks(scenario, variant, size), variant, *left_out)
        assert torn.results.torn or size > 7
        assert not scanner.unsplit
        # Rows that begin with NULL do not show the scale of a decimal: a part that begins with them has its own form.
        assert whole.versions.items() <= torn.versions.items()
        assert compared(torn) == {**compared(whole), "versions": torn.versions}
    # Deletes of older TiCDC carry no commit ts in Avro, and each of these tables has some.
    assert whole.results.parts or variant == "avro-plain"


@pytest.mark.parametrize("variant", ["simple-json", "canal-json", "debezium-plain"])
def test_a_topic_whose_rows_count_in_runs_is_read_whole(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of equal rows that is torn would count half; the next window knows from the start."""
    use_recorded_registry(monkeypatch, "pk", variant)
    whole, _ = scan(Tasks("pk", variant, None), variant)
    assert in_runs(whole)
    source = Tasks("pk", variant, 7)
    torn, scanner = scan(source, variant)
    assert compared(torn) == compared(whole)
    assert not torn.results.torn

    tears = source.tears
    ends = {place: span.end for place, span in source.bounds().items()}
    known = known_at(topics=torn.topics, versions=torn.versions)
    again = replace(scanner, unsplit=set()).scan(torn.window, known, ends, Stopwatch(), where=Where.TASKS)
    assert source.tears == tears > 0
    assert not again.results.torn
