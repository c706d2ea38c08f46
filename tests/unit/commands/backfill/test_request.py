"""The options of `applier backfill`, and the tables that they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease
from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import FeedPosition, Reading
from applier.changefeed.table import TableName
from applier.changefeed.window import OffsetRange
from applier.commands.backfill.command import covered, refuse_alone, refuse_gap
from applier.commands.backfill.held_job import refuse_parked
from applier.commands.backfill.request import REPAIR_BRANCH, Bound, Range, asked
from applier.errors import ConfigError, RangeRefused
from applier.pipeline.state import State
from applier.pipeline.table_selection import selected

A, B = TopicPartition("shop", 0), TopicPartition("shop", 1)
NAMES = [TableName("shop", "a"), TableName("shop", "b"), TableName("x.y", "q`z")]


def test_a_plain_request_is_for_the_tables_that_readers_see() -> None:
    """To the end of the source, with rules separated by commas."""
    request = asked("0:5", None, tables="shop.a, shop.b*")

    assert (request.begin, request.end) == (Bound("0:5", {(None, 0): 5}), Bound("end"))
    assert (request.tables, request.branch, request.builds) == (("shop.a", "shop.b*"), "", False)


def test_a_repair_is_made_in_a_branch_that_is_shown() -> None:
    """So are dead letters, whose range nobody has to give."""
    for request in (asked("beginning", None, repair=True), asked(None, None, dead_letters=True)):
        assert (request.branch, request.publish, request.repair, request.builds) == (REPAIR_BRANCH, True, True, True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"begin": None}, "--from is missing: give offsets, a time, a resolved ts, or beginning"),
        ({"publish": True}, "--publish shows a branch: name it with --branch"),
        ({"repair": True, "branch": "b"}, "--repair shows its result at once, --branch does not: give one of them"),
        ({"branch": "main"}, "--branch 'main': give letters, digits, - and _, and neither main nor applier_repair"),
        ({"branch": "a/b"}, "--branch 'a/b': give letters"),
        ({"dead_letters": True}, "--dead-letters finds its own range: leave out --from"),
        ({"begin": "tomorrow"}, "--from 'tomorrow' is no bound"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], sentence: str) -> None:
    """Each has its sentence."""
    with pytest.raises(ConfigError, match=sentence):
        asked(**{"begin": "0:1", "end": None, **options})


def test_every_problem_is_told_at_once() -> None:
    """Nobody wants to be told one after the other."""
    with pytest.raises(ConfigError) as refused:
        asked("x", "y", publish=True)

    assert len(refused.value.problems) == 3


def test_tables_are_selected_by_rules() -> None:
    """As in tables.include; without rules all are meant."""
    assert selected(("shop.*", "!shop.b"), NAMES) == [NAMES[0]]
    assert selected((), NAMES) == NAMES


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        (("shop.c",), r"--tables shop.c: the changefeed has no such table; its tables are: shop.a, shop.b, x.y.q`z"),
        (("shop",), "--tables: the filter rule 'shop' is not of the form database.table"),
    ],
)
def test_rules_that_mean_nothing(rules: tuple[str, ...], sentence: str) -> None:
    """The tables that there are come with the sentence."""
    with pytest.raises(ConfigError, match=sentence):
        selected(rules, NAMES)


def test_offsets_below_the_checkpoint_are_covered() -> None:
    """The others are not, and there may be none."""
    assert [covered(OffsetRange(10, 50), offset) for offset in (5, 20, 60)] == [0, 10, 40]


@pytest.mark.parametrize(
    ("span", "sentence"),
    [
        (
            Range({A: OffsetRange(5, 9), B: OffsetRange(12, 20)}),
            "Offsets 10 to 11 of shop/1, which no table has applied",
        ),
        (
            Range({A: OffsetRange(0, 9), B: OffsetRange(0, 9)}, above=301),
            "between resolved ts 300, .* and 301 would be",
        ),
    ],
)
def test_a_gap_is_refused(span: Range, sentence: str) -> None:
    """What lies between the checkpoint and the range would never be applied."""
    with pytest.raises(RangeRefused, match=sentence):
        refuse_gap(span, {A: 10, B: 10}, 300)


def test_a_range_that_touches_the_checkpoint_leaves_no_gap() -> None:
    """Nor does one that begins below it, or a partition that is new."""
    refuse_gap(Range({A: OffsetRange(10, 90), B: OffsetRange(40, 41)}), {A: 10}, 300)
    refuse_gap(Range({A: OffsetRange(99, 100)}, above=300), {A: 10}, 300)


def _state(due: Mapping[TopicPartition, int], resolved_ts: int = 0) -> State:
    readings = {place: Reading(offset, None) for place, offset in due.items()}
    return State(mock.MagicMock(), Checkpoint(Lease(1, Holder("", "")), 4, resolved_ts, 0, partitions=readings))


@pytest.mark.parametrize(
    ("span", "due", "resolved_ts"),
    [
        (Range({A: OffsetRange(0, 10), B: OffsetRange(3, 9)}), {A: 10, B: 10}, 0),
        (Range({A: OffsetRange(0, 10), B: OffsetRange(0, 0)}), {A: 10}, 0),  # A partition that is new holds nothing.
        (Range({A: OffsetRange(0, 90)}, above=100, upto=300), {A: 10}, 300),
    ],
)
def test_some_tables_alone_may_have_a_range_that_is_covered(
    span: Range, due: Mapping[TopicPartition, int], resolved_ts: int
) -> None:
    """By offsets or by its last commit ts: nothing is left to apply."""
    refuse_alone(span, _state(due, resolved_ts))


@pytest.mark.parametrize(
    ("span", "due", "resolved_ts"),
    [
        (Range({A: OffsetRange(0, 10), B: OffsetRange(3, 11)}), {A: 10, B: 10}, 0),
        (Range({A: OffsetRange(0, 10), B: OffsetRange(0, 1)}), {A: 10}, 0),
        (Range({A: OffsetRange(0, 90)}, above=100, upto=301), {A: 10}, 300),
        (Range({A: OffsetRange(0, 0)}), {}, 0),  # The range would begin the changefeed.
    ],
)
def test_no_table_goes_ahead_of_the_others(span: Range, due: Mapping[TopicPartition, int], resolved_ts: int) -> None:
    """There is one checkpoint: a table with rows beyond it would have to be told from one that a failed step left."""
    with pytest.raises(RangeRefused) as refused:
        refuse_alone(span, _state(due, resolved_ts))

    assert str(refused.value) == (
        "The range ends beyond the checkpoint, and what lies beyond it is applied to all tables at once. Hint: leave "
        "out --tables, or start `applier run -c FILE`; to apply again what the tables have, give --repair."
    )


def test_a_parked_table_is_not_said_to_have_a_range() -> None:
    """Whatever the checkpoint covers, it lacks the rows since it was parked."""
    state = _state({A: 10})
    state.completeness[NAMES[0]] = Completeness(Reason(Why.BY_HAND), position=FeedPosition(NAMES[0], 5))

    with pytest.raises(RangeRefused, match="Table shop.a is parked: the DDL since then are missing from it"):
        refuse_parked(state, NAMES)
