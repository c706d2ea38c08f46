"""What a job knows of a table that it takes in."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease
from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName
from applier.pipeline.jobs.resumption import Replay
from applier.pipeline.state import State
from tests.builders import ACCOUNT, version


def test_a_table_that_was_loaded_once_is_known_to_be_in_the_job() -> None:
    """Rows of a version from before the export come later: they would wait for a schema that never comes again."""
    parked = Completeness(Reason(Why.BY_HAND, "a test"), is_due=True)
    known = {(ACCOUNT, 10): version(("id", "bigint"), number=10)}
    main = SimpleNamespace(completeness={ACCOUNT: parked}, versions=known, topics={}, loaded={ACCOUNT: 10})
    state = SimpleNamespace(
        completeness={}, versions={}, tables=mock.MagicMock(), topics={}, loaded={}, ddl=SimpleNamespace(applied=set())
    )
    job: Any = SimpleNamespace(main=SimpleNamespace(state=main), state=state, copies=mock.MagicMock())

    Replay._begin(cast("Replay", job), ACCOUNT, FeedPosition(ACCOUNT, 12, version=10))

    assert state.loaded == {ACCOUNT: 10}


def test_tables_that_are_said_to_have_left_at_one_place_are_given_up() -> None:
    """A job would take the second one in for ever, as it finds its members by their places."""
    place, other = FeedPosition(ACCOUNT, 29), FeedPosition(ACCOUNT, 30)
    known = Completeness(Reason(Why.REBUILT), position=place, is_due=True)
    names = [TableName("shop", name) for name in ("a", "b", "c")]
    found = {name: replace(known, position=at) for name, at in zip(names, (place, place, other), strict=True)}
    main = State(mock.Mock(), Checkpoint(Lease(1, Holder("t", "h")), 1, 40, 0))
    main.completeness = dict(found)

    Replay._give_up_doubled(cast("Replay", SimpleNamespace(main=SimpleNamespace(state=main))))

    assert [main.completeness[name].is_due for name in names] == [False, False, True]
    assert main.completeness[names[0]].position is None
    said = f"Tables shop.a and shop.b cannot all have left the feed at one place, as {ACCOUNT}"
    assert [main.completeness[name].reason.detail for name in names] == [said, said, ""]
