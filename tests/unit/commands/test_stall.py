"""A watermark that stands still has its reason in one sentence."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast
from unittest import mock

import pytest
from structlog.testing import capture_logs

from applier import wording
from applier.changefeed.checkpoint import Checkpoint, Holder, Lease
from applier.changefeed.completeness import LIVE, Why, incomplete
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.table import TableName
from applier.changefeed.ts import from_unix_ms
from applier.changefeed.window import OffsetRange
from applier.commands.follower import Follower
from applier.commands.run import Reports, follow, run_once
from applier.config.settings import RunSection
from applier.consume.window_size import LONGEST, WindowTooLargeError
from applier.errors import IncompleteRow, WatermarkStalled
from applier.order.feed_order import ORDERS
from applier.pipeline.next_step import NextStep, StepReader
from applier.pipeline.scan.task_result import Waiting
from applier.pipeline.stall import behind, stall
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline, Step
from applier.runtime.logs import StatusLine, Stopwatch

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
EARLY, LATE = from_unix_ms(1_795_250_000_000), from_unix_ms(1_795_250_060_000)
NOTHING: dict[TopicPartition, int] = {}
STATUS = StatusLine(1, EARLY, 0, 0, 0, 0, 0, 0, {}, {})


def test_a_partition_that_stopped_sending_is_named() -> None:
    """With where it stands, and how far the others are."""
    assert behind({P0: LATE, P1: EARLY, P2: LATE - 1}, EARLY) == (
        f"The watermark is held at {EARLY} (2026-11-21T08:33:20+00:00) by t/1; "
        f"others have come to {LATE} (2026-11-21T08:34:20+00:00)."
    )


def test_a_feed_that_stopped_as_a_whole_is_named() -> None:
    """All partitions stand at the watermark."""
    assert behind({P0: EARLY, P1: EARLY}, EARLY) == (
        "The feed stands still since 2026-11-21 08:33:20 UTC: the source answers, but no watermark above "
        f"{EARLY} has come."
    )


def test_topics_that_are_given_up_are_not_blamed() -> None:
    """A topic without tables stands below the watermark for ever, and does not count."""
    assert " by t/1;" in behind({P0: LATE, P1: EARLY, P2: EARLY - 5}, EARLY)


def test_nothing_is_said_of_a_feed_without_watermarks() -> None:
    """There is nothing that could stand still."""
    assert behind({}, None) == ""
    assert stall(Step(moved=False, complete=True, status=STATUS)) == ""


def test_rows_that_wait_come_before_partitions_that_are_late() -> None:
    """They hold the watermark themselves."""
    waiting = [Waiting(TableName("d", "t"), 7, EARLY, 3, P0)]
    step = Step(moved=False, complete=True, status=STATUS, waiting=waiting, resolved={P0: LATE, P1: EARLY}, mark=EARLY)

    assert stall(step).startswith("Rows wait for a schema that has not come: 3 of table d.t from t/0")
    assert (
        stall(Step(moved=False, complete=True, status=STATUS, silent=[P1]))
        == "No watermark has ever come from t/1, so no table advances."
    )


class Feed:
    """A follower that finds the same in every turn, and tells how often it was asked."""

    def __init__(self, *steps: Step) -> None:
        run = RunSection(interval_seconds=1e-6, freshness_seconds=0, stall_seconds=60)
        self.state = State(mock.MagicMock(), Checkpoint(Lease(1, Holder("", "")), 4, EARLY, 0, counts={"backlog": 0}))
        config = SimpleNamespace(run=run, source=SimpleNamespace(archive=None, is_bounded=False))
        self.pipeline = SimpleNamespace(config=config, state=self.state, source=mock.MagicMock())
        self.requests = SimpleNamespace(reloaded=None)
        self.steps = list(steps)
        self.asked = 0

    def turn(self) -> Step:
        """The next step; the last one for ever."""
        self.asked += 1
        return self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]


def _follow(feed: Feed, seconds: int, stop: threading.Event) -> list[StatusLine]:
    """Follow with a clock that moves by so much at every look, and stops the run after ten."""
    reports: list[StatusLine] = []
    now = itertools.count(0, seconds)

    def clock() -> float:
        if feed.asked >= 10:
            stop.set()
        return next(now)

    follow(cast("Follower", feed), stop, Reports(reports.append), clock)
    return reports


def test_a_feed_with_rows_and_never_a_watermark_ends_with_both_ways_out() -> None:
    """No row of it could ever be shown; a restart finds all of them again."""
    stop = threading.Event()
    feed = Feed(Step(moved=False, complete=True, status=replace(STATUS, messages=3), silent=[P0, P1]))

    with pytest.raises(WatermarkStalled) as refusal:
        _follow(feed, 20, stop)

    assert refusal.value.what == "No watermark has ever come from t/0 and t/1, so no table advances."
    for way_out in ("`enable-tidb-extension=true`", "`avro-enable-watermark=true`", 'changefeed.order = "offset"'):
        assert way_out in refusal.value.hint
    assert feed.asked == 4


def test_a_bad_message_before_any_watermark_names_the_ways_out_of_a_feed_without_any() -> None:
    """The message alone would send a reader after it; with a watermark, or the other order, it may not matter."""
    error = IncompleteRow("Cannot decode avro message at t/0:0: A delete has no Kafka key.", "Give it a key.")
    lost = Step(moved=False, complete=True, status=replace(STATUS, messages=3), silent=[P0], error=error)

    with pytest.raises(IncompleteRow) as refusal:
        _follow(Feed(lost), 1, threading.Event())

    assert refusal.value.what == error.what
    assert refusal.value.hint.startswith("Give it a key. No watermark came before it: if the feed carries none, turn")
    for way_out in ("`avro-enable-watermark=true`", 'changefeed.order = "offset"'):
        assert way_out in refusal.value.hint
    with pytest.raises(IncompleteRow) as plain:
        _follow(Feed(replace(lost, silent=[], resolved={P0: EARLY})), 1, threading.Event())
    assert plain.value.hint.startswith(
        "Give it a key. To go on without it, until `applier backfill -c FILE --dead-letters`: "
    )
    assert plain.value.hint.endswith('changefeed.on_bad_message = "dead_letter".')


def test_a_topic_without_messages_is_waited_for() -> None:
    """It says nothing about watermarks; once messages come, their time begins."""
    empty = Step(moved=False, complete=True, status=STATUS, silent=[P0])
    some = Step(moved=False, complete=True, status=replace(STATUS, messages=3), silent=[P0])
    feed = Feed(*[empty] * 5, some)

    with pytest.raises(WatermarkStalled):
        _follow(feed, 20, threading.Event())

    assert feed.asked == 9


def test_a_run_that_is_to_stop_does_not_wait_for_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not say so."""
    said: list[str] = []
    monkeypatch.setattr("applier.runtime.terminal.say", said.append)
    stop, up_to_date = threading.Event(), Step(moved=False, complete=True, status=STATUS, resolved={P0: EARLY})

    def stopped(_: Pipeline, make: Callable[[], Step]) -> Step:
        stop.set()
        return make()

    follow(cast("Follower", Feed(up_to_date)), stop, Reports(lambda _: None, attempt=stopped), lambda: 0.0)

    assert said == []


def test_a_feed_with_some_watermarks_is_only_warned_of() -> None:
    """One partition is late, or TiCDC is paused: it may go on at any moment."""
    feed = Feed(
        Step(moved=False, complete=True, status=replace(STATUS, messages=3), silent=[P1], resolved={P0: EARLY}),
    )

    with capture_logs() as said:
        assert len(_follow(feed, 20, threading.Event())) == 1
    assert feed.asked == 10
    assert said[0]["reason"].startswith(
        "No watermark has ever come from t/1, so no table advances. Hint: if TiCDC does not use"
    )
    assert "set changefeed.partitions to the number" in said[0]["reason"]


def test_a_feed_that_stands_still_is_warned_of_and_kept_for_others_to_see() -> None:
    """The log says it in the words of `status` and the page; an archive that is read to its end stands for ever."""
    still = Step(moved=False, complete=True, status=STATUS, resolved={P0: EARLY, P1: EARLY}, mark=EARLY)
    feed, late, over = Feed(still), Feed(replace(still, resolved={P0: EARLY, P1: LATE})), Feed(still)
    over.pipeline.config.source.archive, over.pipeline.config.source.is_bounded = "feed", True

    with capture_logs() as said:
        for one in (feed, late, over):
            _follow(one, 20, threading.Event())

    assert [line["reason"] for line in said if line["log_level"] == "warning"] == [
        f"{wording.stands_still(EARLY)} Hint: {wording.WAY_TO_A_LIVING_FEED}",
        behind({P0: EARLY, P1: LATE}, EARLY),
    ]
    assert [dict(one.state.checkpoint.counts) for one in (feed, late, over)] == [
        {"backlog": 0, "still": 1},
        {"backlog": 0},
        {"backlog": 0},
    ]


def test_a_run_that_came_to_the_ends_keeps_that() -> None:
    """One that was stopped before does not; `status` tells the one from the other."""
    over = Step(moved=False, complete=True, status=STATUS)
    for is_stopped in (False, True):
        stop, feed = threading.Event(), Bounded(over)
        if is_stopped:
            stop.set()
        run_once(cast("Follower", feed), stop, Reports(lambda _: None))
        last = feed.pipeline.state.checkpoint
        last = replace(last, lease=replace(last.lease, released=True))
        assert last.is_through is not is_stopped


def test_a_run_to_the_ends_says_what_it_reached() -> None:
    """A script, or a person, sees that it is over and not cut off; one that was stopped says nothing of ends."""
    step = Step(moved=True, complete=True, status=replace(STATUS, rows=3))
    feed, stop = Bounded(step, step, replace(step, moved=False, status=STATUS)), threading.Event()

    with capture_logs() as said:
        run_once(cast("Follower", feed), stop, Reports(lambda _: None))
        stop.set()
        run_once(cast("Follower", Bounded(step)), stop, Reports(lambda _: None))

    assert said == [
        {
            "event": "ends reached",
            "log_level": "info",
            "resolved_ts": EARLY,
            "tables": 1,
            "not_live": 1,
            "steps": 2,
            "rows": 6,
        }
    ]


def test_an_archive_that_is_followed_to_its_end_says_how_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: it waits for ever, and reads no file that comes later."""
    shown: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr("applier.commands.run.announce", lambda event, **fields: shown.append((event, fields)))
    feed = Feed(Step(moved=False, complete=True, status=STATUS, resolved={P0: EARLY}, mark=EARLY))
    feed.pipeline.config.source.archive, feed.pipeline.config.source.is_bounded = "feed", True

    _follow(feed, 1, threading.Event())

    assert shown == [("archive is read to its end", {"archive": "feed", "hint": wording.WAY_FROM_AN_ARCHIVE})]


class Bounded:
    """A follower with more to read than its steps reach."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        state = State(mock.MagicMock(), Checkpoint(Lease(1, Holder("", "")), 4, EARLY, 0))
        state.completeness = {TableName("d", "a"): LIVE, TableName("d", "b"): incomplete(Why.UNMET)}
        targets = SimpleNamespace(feed=SimpleNamespace(order=ORDERS["resolved"]))
        finish = mock.MagicMock()
        self.pipeline = SimpleNamespace(
            ends=lambda: {P0: 100}, state=state, targets=targets, finish_maintenance=finish, source=mock.MagicMock()
        )

    def turn(self, _ends: object) -> Step:
        """The next step."""
        return self.steps.pop(0)


def test_a_run_up_to_the_ends_ends_when_no_window_is_long_enough_for_the_next_watermark() -> None:
    """The same window would be read for ever; the sentence names its size and the keys that allow a longer one."""
    short = Step(moved=False, complete=False, status=STATUS, resolved={P0: EARLY}, mark=EARLY)
    longest = replace(short, is_longest=True, status=replace(STATUS, messages=32_000_000))

    with pytest.raises(WatermarkStalled) as refusal:
        run_once(cast("Follower", Bounded(short, longest)), threading.Event(), Reports(lambda _: None))

    assert refusal.value.what == (
        "No newer watermark comes within 32,000,000 messages, the most that a step may read. The backlog is longer."
    )
    assert refusal.value.hint == (
        "raise source.messages_per_step and source.bytes_per_step: a step may read 64 times as much."
    )


def test_a_long_backlog_without_any_watermark_names_the_partitions_and_the_ways_out() -> None:
    """A longer window would not help: the feed carries none."""
    silent = Step(moved=False, complete=False, status=replace(STATUS, messages=9), silent=[P0, P1], is_longest=True)

    with pytest.raises(WatermarkStalled) as refusal:
        run_once(cast("Follower", Bounded(silent)), threading.Event(), Reports(lambda _: None))

    assert refusal.value.what == "No watermark has ever come from t/0 and t/1, so no table advances."


def test_a_partition_that_is_new_to_a_topic_comes_into_the_checkpoint() -> None:
    """Nothing moves, so that no step would bring it there, and `status` could not name it."""
    first = Checkpoint(Lease(1, Holder("", "")), 4, EARLY, 0, partitions={P0: Reading(9, EARLY)})
    state = State(mock.MagicMock(), first)
    reader = cast("StepReader", SimpleNamespace(state=state))
    found = cast("NextStep", SimpleNamespace(bounds={P0: OffsetRange(0, 20), P1: OffsetRange(0, 3)}))

    for _ in range(3):
        StepReader.show(reader, [P1], found)

    assert state.checkpoint.partitions == {P0: Reading(9, EARLY), P1: Reading(0, None)}
    assert (state.checkpoint.step, state.checkpoint.resolved_ts, state.checkpoint.resolved) == (5, EARLY, {P0: EARLY})


def test_before_the_first_watermark_nothing_counts_as_read() -> None:
    """A checkpoint without partitions is that of a changefeed that has not begun."""
    state = State(mock.MagicMock(), Checkpoint(Lease(1, Holder("", "")), 4, 0, 0))
    reader = cast("StepReader", SimpleNamespace(state=state))

    StepReader.show(reader, [P1], cast("NextStep", SimpleNamespace(bounds={P1: OffsetRange(0, 3)})))

    assert state.checkpoint.partitions == {}


@pytest.mark.parametrize("is_too_large", [True, False])
def test_a_window_that_one_process_of_many_could_not_take_is_not_the_longest(*, is_too_large: bool) -> None:
    """Many processes make a window the longest from the start; its bytes, or a topic that is read whole, cut it short.

    A run up to the ends would stop, as if no longer one could be read.
    """
    config, targets, scanner = mock.MagicMock(), mock.MagicMock(), mock.MagicMock(unsplit=set())
    config.source = SimpleNamespace(messages_per_step=1_000, bytes_per_step=1 << 20, engine="auto")
    targets.feed.order = ORDERS["resolved"]
    scanner.scan.side_effect = [
        *[WindowTooLargeError(2_000_000, 500)] * is_too_large,
        mock.MagicMock(error=None, upto=None),
    ]
    state = State(
        mock.MagicMock(), Checkpoint(Lease(1, Holder("", "")), 4, EARLY, 0, partitions={P0: Reading(0, EARLY)})
    )
    reader = StepReader(config, mock.MagicMock(), scanner, targets, state)
    reader._size.shares = LONGEST
    bounds = {P0: OffsetRange(0, 1_000_000)}

    window, scan = reader._scan(reader._next_window(bounds), bounds, NOTHING, Stopwatch())

    assert reader.is_longest == (not is_too_large)
    assert (window.messages < LONGEST * 1_000) == is_too_large
    reader.adapt(NextStep(scan, bounds, {}), moved=False)
    assert reader._size.stretch == (2 if is_too_large else 1)
