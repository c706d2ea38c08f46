"""Rows that are read many at a time are the rows that are read one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.applied_offsets import AppliedOffsets, Reach
from applier.changefeed.event import RowChange, SchemaChange
from applier.changefeed.fate import Fate
from applier.changefeed.filter import TablePattern
from applier.changefeed.history import changes_of
from applier.changefeed.message import MESSAGE_ORDER, MESSAGE_SCHEMA, Messages, TopicPartition, by_place
from applier.changefeed.row_block import ColumnBlock
from applier.changefeed.shape import Shape
from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.changefeed.window import OffsetRange, Window
from applier.decode.avro import decoder as avro
from applier.decode.columnar import groups
from applier.decode.debezium import avro_decoder
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.errors import IncompleteRow
from applier.order import feed_order
from applier.order.changes import ChangeBlocks
from applier.order.feed_order import ORDERS
from applier.order.latest import last_per_key
from applier.pipeline.scan import decode_task
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.scan.task_result import Part
from applier.pipeline.scan.window_scan import WindowScan
from applier.runtime.logs import Stopwatch
from applier.runtime.places import Where
from tests import recordings
from tests.in_memory import InMemory
from tests.known import known_at
from tests.unit.decode.recorded_registry import RecordedRegistry

pytestmark = pytest.mark.slow

NEVER = 2**63 - 1
ENOUGH = 1_500
"""Messages of a recording that show all that there is to show."""
PROTOCOLS = {"simple-json": "simple", "simple-avro": "simple"} | {
    name: name for name in ("canal-json", "avro", "debezium-avro", "debezium", "open")
}
WITHOUT_WATERMARKS = ("canal-json", "avro-plain", "debezium-plain")
FEEDS = [
    (scenario, variant)
    for scenario in ("pk", "types", "workload", "ddl")
    for prefix in PROTOCOLS
    for variant in recordings.variants(scenario, prefix)
    if next(name for name in PROTOCOLS if variant.startswith(name)) == prefix
    # Without DDL nothing brings the versions of a table that is altered to one form.
    if "claim" not in variant and (scenario, variant) != ("ddl", "avro-plain")
]


class MessageSource(InMemory):
    """A recording as a `Source` that holds it in memory."""

    def __init__(self, scenario: str, variant: str) -> None:
        self.scenario = scenario
        rows = [{**record, "timestamp": None} for record in islice(recordings.records(scenario, variant), ENOUGH)]
        self._rows = pa.Table.from_pylist(rows, schema=MESSAGE_SCHEMA)

    def column(self, name: str) -> list[Any]:
        """All values of a column."""
        return self._rows[name].to_pylist()

    def set_column(self, name: str, values: list[Any]) -> None:
        """Put others in their place."""
        number = self._rows.schema.get_field_index(name)
        self._rows = self._rows.set_column(number, self._rows.schema.field(number), pa.array(values, pa.binary()))

    def bounds(self) -> Mapping[TopicPartition, OffsetRange]:
        """See `Source`."""
        ends: dict[TopicPartition, OffsetRange] = {}
        for row in self._rows.select(["topic", "partition", "offset"]).to_pylist():
            place = TopicPartition(row["topic"], row["partition"])
            ends[place] = OffsetRange(0, max(row["offset"] + 1, ends.get(place, OffsetRange(0, 0)).end))
        return ends

    def collect(self, window: Window) -> Messages:
        """See `Source`; every window here is the whole of it."""
        del window
        return dict(by_place(self._rows.sort_by(MESSAGE_ORDER)))


def scan(source: MessageSource, variant: str, rules: TypeRules | None = None, **known: Any) -> WindowScan:
    """What the whole recording holds, bad messages set aside."""
    protocol = next(name for prefix, name in PROTOCOLS.items() if variant.startswith(prefix))
    options = DecoderOptions(timezone="Asia/Shanghai" if "shanghai" in variant else "UTC", by_offset=True)
    by_offset = variant in WITHOUT_WATERMARKS or not {"covered", "passed"}.isdisjoint(known)
    order = ORDERS["offset" if by_offset else "resolved"]
    template = DecodeTask(protocol, options, rules or TypeRules(), ("*.*",), (), 0, order)
    describes = protocol != "simple"
    scanner = WindowScanner(source, template, describes, keep_bad=True)
    bounds = source.bounds()
    ends = {place: span.end for place, span in bounds.items()}
    return scanner.scan(Window(dict(bounds)), known_at(**known), ends, Stopwatch(), where=Where.HERE)


def rows(parts: list[Part]) -> list[dict[str, Any]]:
    """The last change of each key of a table, in the order of their places."""
    if not parts:
        return []
    together = pa.concat_tables([part.here for part in parts], promote_options="permissive").combine_chunks()
    key = list(parts[0].version.key)
    together = last_per_key(together, key) if key else together
    listed = together.select(sorted(together.column_names)).to_pylist()
    return sorted(listed, key=lambda row: (row["\0partition"], row["\0offset"], row["\0index"], row["\0present"]))


def summary(found: WindowScan) -> dict[str, Any]:
    """All that was found."""
    return {
        "upto": found.upto,
        "resolved": found.resolved,
        # A zero date counts once for each group of rows that survives a task, and these are not the same.
        "counts": {**found.results.counts, "zero_dates": None},
        "held": found.results.held,
        "topics": found.topics,
        "versions": found.versions,
        "waiting": sorted(map(repr, found.waiting)),
        "bad": sorted((bad.partition, bad.offset, str(bad.error)) for bad in found.bad),
        "ddl": found.ddl,
        "rows": {key: rows(_of(parts, key[0])) for key, parts in found.results.parts.items()},
        "changes": {
            key: rows(changes)
            for key, parts in found.results.parts.items()
            if (changes := _of(parts, changes_of(key[0])))
        },
    }


def _of(parts: Sequence[Part], name: TableName) -> list[Part]:
    return [part for part in parts if part.version.name == name]


def use_recorded_registry(monkeypatch: pytest.MonkeyPatch, scenario: str, variant: str) -> None:
    """Let decoders ask the schemas of a recording."""
    if variant.startswith(("avro", "debezium-avro")):
        registry = RecordedRegistry(scenario, variant)
        for module in (avro, avro_decoder):
            monkeypatch.setattr(module, "open_registry", lambda _: registry)


def both_ways(
    monkeypatch: pytest.MonkeyPatch,
    source: MessageSource,
    variant: str,
    rules: TypeRules | None = None,
    **known: Any,
) -> tuple[Any, Any]:
    """What is found if all rows are read one by one, and if as many as can be are read at once."""
    use_recorded_registry(monkeypatch, source.scenario, variant)
    monkeypatch.setattr(decode_task, "FIRST_ROWS", 16)
    monkeypatch.setattr(decode_task, "SLICE_ROWS", 16)
    monkeypatch.setattr(groups, "FEWEST", NEVER)
    slow = scan(source, variant, rules, **known)
    monkeypatch.setattr(groups, "FEWEST", 1)
    return summary(slow), summary(scan(source, variant, rules, **known))


@pytest.mark.parametrize(
    ("scenario", "variant"),
    [pytest.param(*feed, marks=() if feed[0] in ("types", "ddl") else pytest.mark.soak) for feed in FEEDS],
)
def test_rows_at_once_are_the_rows_one_by_one(scenario: str, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, places, counts, versions, DDL and errors of every recorded feed are the same either way."""
    slow, quick = both_ways(monkeypatch, MessageSource(scenario, variant), variant)
    assert slow["rows"]
    assert quick == slow


IMAGES = TypeRules(shapes=((TablePattern("*.*"), Shape(history=True, keeps_old=True)),))
"""Every change, with its old row."""
WITH_OLD_ROWS = {
    ("types", variant)
    for variant in (
        "simple-json",
        "simple-avro",
        "canal-json-updated-columns",
        "avro-before-value",
        "debezium-avro",
        "debezium",
        "open-updated-columns",
    )
}
"""One feed of each protocol, where there is one with old rows that lack what did not change."""


@pytest.mark.parametrize(
    ("scenario", "variant"),
    [
        pytest.param(*feed, marks=() if feed in WITH_OLD_ROWS else pytest.mark.soak)
        for feed in FEEDS
        if feed[1] not in WITHOUT_WATERMARKS
    ],
)
def test_changes_with_old_rows_are_those_of_rows_one_by_one(
    scenario: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both images of each update and the whole row of each delete, also what an old image leaves out."""
    before: list[int] = []
    add = ChangeBlocks.add

    def counted(self: ChangeBlocks, block: ColumnBlock, *args: Any) -> None:
        before.append(0 if block.before is None else len(block.places))
        add(self, block, *args)

    monkeypatch.setattr(ChangeBlocks, "add", counted)
    slow, quick = both_ways(monkeypatch, MessageSource(scenario, variant), variant, IMAGES)
    assert slow["changes"]
    assert quick == slow
    # Without them, the slow way would be compared with itself.
    assert sum(before) or (scenario, variant) not in WITH_OLD_ROWS


def test_rows_with_the_key_of_another_table_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage that leaves key and value whole, but of two tables: the row lacks the columns that the key names."""
    variant = "debezium"
    source = MessageSource("pk", variant)
    keys = source.column("key")
    rows = [n for n, key in enumerate(keys) if key and n and keys[n - 1] and key[:30] != keys[n - 1][:30]]
    for number in rows:
        keys[number] = keys[number - 1]
    source.set_column("key", keys)
    slow, quick = both_ways(monkeypatch, source, variant)
    assert slow["bad"]
    assert quick == slow


@pytest.mark.parametrize("ahead_of", [2, 4])
@pytest.mark.parametrize("variant", ["simple-json", "canal-json-ext"])
def test_rows_above_the_watermark_and_sent_again_are_told(
    variant: str, ahead_of: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows above the watermark are held back and rows at or below the applied ts are dropped, as single rows are.

    Each has one fate, also where its table is ahead of the watermark.
    """
    source = MessageSource("workload", variant)
    first = scan(source, variant)
    columns = [part.here["\0ts"] for parts in first.results.parts.values() for part in parts]
    stamps = sorted(int(str(ts)) for column in columns for ts in column)
    name = next(iter(first.results.parts))[0]
    ahead = {name: stamps[ahead_of * (len(stamps) - 1) // 4]}
    monkeypatch.setattr(WindowScanner, "_upto", lambda *_: stamps[3 * len(stamps) // 4])
    known: dict[str, Any] = {"versions": first.versions, "applied": stamps[len(stamps) // 4], "applied_of": ahead}
    slow, quick = both_ways(monkeypatch, source, variant, **known)
    assert slow["counts"]["held"]
    assert slow["counts"]["had"]
    assert slow["held"]
    assert quick == slow
    assert quick["counts"]["entries"] == sum(quick["counts"][fate] for fate in Fate)


@pytest.mark.parametrize("variant", ["simple-json", "canal-json-ext"])
def test_rows_that_a_table_has_by_its_stamp_are_dropped(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those below an offset of their partition, or those of them up to a commit ts: in blocks as one by one."""
    source = MessageSource("workload", variant)
    first = scan(source, variant)
    (name, _), parts = next(iter(first.results.parts.items()))
    stamps = sorted(int(str(ts)) for part in parts for ts in part.here["\0ts"])
    middle = {place: (span.start + span.end) // 2 for place, span in source.bounds().items()}
    reaches = {
        place: (Reach(end // 2), Reach(end + end // 2, stamps[len(stamps) // 2])) for place, end in middle.items()
    }
    slow, quick = both_ways(monkeypatch, source, variant, covered={name: AppliedOffsets(reaches)})
    assert 0 < slow["counts"]["had"] < slow["counts"]["applied"]
    assert not any(
        AppliedOffsets(reaches).holds(TopicPartition(parts[0].topic, row["\0partition"]), row["\0offset"], row["\0ts"])
        for (owner, _), rest in slow["rows"].items()
        for row in rest
        if owner == name
    )
    assert quick == slow


@pytest.mark.parametrize("variant", ["simple-json", "canal-json-ext"])
@pytest.mark.parametrize("is_exact", [True, False])
def test_rows_behind_a_ddl_that_came_before_it_are_dropped(
    variant: str, monkeypatch: pytest.MonkeyPatch, *, is_exact: bool
) -> None:
    """What a partition sends at or below the commit ts of a DDL that it has had, in blocks as one by one.

    Not where the commit ts is only a millisecond: the row may be newer than the DDL. In the recordings some look so.
    """
    monkeypatch.setattr(feed_order, "LOGICAL", -1 if is_exact else 0)
    source = MessageSource("workload", variant)
    first = scan(source, variant)
    (name, _), parts = next(iter(first.results.parts.items()))
    stamps = sorted(int(str(ts)) for part in parts for ts in part.here["\0ts"])
    half = stamps[len(stamps) // 2]
    slow, quick = both_ways(monkeypatch, source, variant, passed={name: dict.fromkeys(source.bounds(), half)})
    left = [row["\0ts"] for (owner, _), rest in slow["rows"].items() for row in rest if owner == name]
    assert bool(slow["counts"]["had"]) is is_exact
    assert (min(left) > half) is is_exact
    assert quick == slow


@pytest.mark.parametrize(
    ("scenario", "variant"),
    [
        ("workload", "simple-json"),
        pytest.param("workload", "canal-json-ext", marks=pytest.mark.soak),
        ("pk", "avro-precise"),
        ("pk", "debezium-avro"),
        ("pk", "debezium"),
    ],
)
def test_most_rows_are_read_at_once(scenario: str, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick way is taken: without it the tests above would compare the slow way with itself."""
    use_recorded_registry(monkeypatch, scenario, variant)
    monkeypatch.setattr(groups, "FEWEST", 1)
    protocol = next(name for prefix, name in PROTOCOLS.items() if variant.startswith(prefix))
    decoder = build(protocol, DecoderOptions())
    records = list(recordings.records(scenario, variant))
    keys, values = [record["key"] for record in records], [record["value"] for record in records]
    count = 0
    for key, value in zip(keys, values, strict=True):
        with suppress(IncompleteRow):  # of a table without a primary key
            for event in decoder.decode(key, value):
                count += isinstance(event, RowChange)
                if isinstance(event, SchemaChange) and event.after is not None:
                    decoder.learn(event.after)
    assert decoder.bulk is not None
    blocks, rest = decoder.bulk.read(keys, values)
    assert sum(len(block.places) for block in blocks) > 0.8 * count
    assert sorted([*rest, *(place for block in blocks for place in block.places)]) == list(range(len(values)))
