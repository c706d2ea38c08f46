"""What a job knows of a table that it takes in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.position import FeedPosition
from applier.pipeline.jobs.replay import Replay
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
