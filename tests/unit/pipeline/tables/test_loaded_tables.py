"""How tables come back that were left out, or parked by hand, after an export was loaded into them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from applier.changefeed.checkpoint import Cut
from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.filter import TableFilter
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName
from applier.config import own_namespaces
from applier.errors import TableMismatch, TerminalError
from applier.pipeline.jobs import resumption
from applier.pipeline.requests import bring_back
from applier.pipeline.tables.completeness import judge
from applier.pipeline.tables.loads import place_of
from applier.pipeline.tables.parking import follow_include, give_up
from applier.ways_out import WaysOut

NAME = TableName("shop", "items")
CATCHING_UP = Reason(Why.CATCHING_UP)


def _main(known: Completeness) -> Any:
    """A changefeed whose catalog lacks the table, which readers see only once it has caught up."""
    lost = TableMismatch("Table shop.items is not in the catalog any more", "")
    targets = SimpleNamespace(
        identifier=str,
        damage=lambda name, *, is_listed=False, **_: lost if is_listed else None,
        feed=SimpleNamespace(order=SimpleNamespace(parts_at_ddl=False)),
    )
    state = SimpleNamespace(
        completeness={NAME: known},
        versions={},
        resolved_ts=9,
        tables={},
        unsettled={},
        unsaid={},
        control=SimpleNamespace(decisions=list, letters=list),
        checkpoint=SimpleNamespace(cut=Cut(), is_lost=False),
    )
    config = SimpleNamespace(filter=TableFilter(("*.*",)), path="applier.toml")
    return SimpleNamespace(state=state, targets=targets, config=config)


WAYS: dict[str, tuple[Why, Callable[[Any], object]]] = {
    "admitted again": (Why.LEFT_OUT, lambda main: judge(main.state, main.targets, main.config)),
    "renamed to a name that is admitted": (
        Why.LEFT_OUT,
        lambda main: follow_include(main.state, main.targets, NAME, is_wanted=True),
    ),
    "resumed": (Why.BY_HAND, lambda main: bring_back(main, [NAME])),
}


@pytest.mark.parametrize(("why", "admit"), WAYS.values(), ids=WAYS)
def test_a_loaded_table_that_was_held_up_catches_up_without_a_table_that_readers_see(
    why: Why, admit: Callable[[Any], object]
) -> None:
    """It was taken for one that others had dropped, and stayed parked though what the export brought was there."""
    main = _main(Completeness(Reason(why), position=FeedPosition(NAME, 7, version=7, is_loaded=True)))

    admit(main)

    known = main.state.completeness[NAME]
    assert (known.reason, known.is_due) == (CATCHING_UP, True)


def test_a_table_that_could_not_be_brought_back_is_no_longer_parked_on_purpose() -> None:
    """It needs a look: a person had it brought back, and it is still not there."""
    main = _main(Completeness(Reason(Why.BY_HAND, "a look"), 7, FeedPosition(NAME, 7), is_due=True))
    main.state.ways = WaysOut()

    give_up(main.state, NAME, TerminalError("It does not fit."))

    known = main.state.completeness[NAME]
    assert (known.reason, known.is_due) == (Reason(Why.ROW, "It does not fit"), False)


def test_a_table_that_left_the_feed_itself_stays_parked_while_it_is_not_there() -> None:
    """The attempt would only fail again."""
    main = _main(Completeness(Reason(Why.LEFT_OUT), position=FeedPosition(NAME, 7, version=7)))

    judge(main.state, main.targets, main.config)

    assert not main.state.completeness[NAME].is_due


def test_a_table_that_was_whole_up_to_nothing_when_it_was_parked_is_not_said_to_be_whole_up_to_now() -> None:
    """Readers would take what it shows for all that it was when it was resumed."""
    main = _main(Completeness(Reason(Why.BY_HAND), position=FeedPosition(NAME, 7, version=7, is_loaded=True)))

    bring_back(main, [NAME])

    assert main.state.completeness[NAME].since == 0


def test_what_was_loaded_of_a_table_that_was_renamed_while_it_was_parked_is_kept() -> None:
    """A start removed it as that of no table: the resumption found it gone, and all rows had to be exported again."""
    renamed, place = TableName("shop", "things"), FeedPosition(NAME, 7, version=7, is_loaded=True)
    main = _main(Completeness(Reason(Why.LOADING)))
    main.state.completeness = {renamed: Completeness(Reason(Why.BY_HAND), position=place)}
    main.state.checkpoint.resuming = None
    made = [place_of("cf", name) for name in (NAME, TableName("shop", "gone"))]
    catalog, dropped = {own_namespaces.loads("cf"): made, own_namespaces.resumes("cf"): []}, list[tuple[str, ...]]()
    main.targets.catalog = SimpleNamespace(list=lambda place: catalog[place[0]], drop=dropped.append)
    main.targets.feed.name, main.targets.confirm = "cf", lambda: None

    resumption.Resumption(main).advance(is_busy=False)

    assert dropped == made[1:]
