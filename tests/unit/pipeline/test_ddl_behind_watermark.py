"""A DDL that ends a window may follow the watermark of its own commit ts, which a checkpoint has already."""

from __future__ import annotations

from typing import Any, cast
from unittest import mock

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease
from applier.changefeed.position import DdlId
from applier.order.feed_order import ORDERS
from applier.pipeline.ddl_progress import DdlProgress
from applier.pipeline.next_step import StepReader
from applier.pipeline.state import State

TS = 470_000_000_000_000_000


@pytest.mark.parametrize(
    ("upto", "ddl", "has_news"),
    [(TS, ["a DDL"], True), (TS, [], False), (TS - 1, ["a DDL"], False), (TS + 1, [], True)],
)
def test_a_window_that_such_a_ddl_ends_is_applied(upto: int, ddl: list[Any], *, has_news: bool) -> None:
    """Each later window would end there, too, and the feed would stand still."""
    state = State(cast("Any", None), Checkpoint(Lease(1, Holder("t", "h")), 1, TS, 0))
    targets, config = mock.MagicMock(), mock.MagicMock()
    targets.feed.order = ORDERS["resolved"]
    scan = mock.MagicMock(upto=upto, ceiling=upto, ddl=ddl, error=None)

    assert StepReader(config, mock.MagicMock(), mock.MagicMock(), targets, state).has_news(scan) is has_news


def test_a_checkpoint_lists_all_ddl_of_its_commit_ts() -> None:
    """Those that an earlier checkpoint of that ts had may come again, and are not to be applied twice."""
    first, second, past = DdlId("1", "a", TS), DdlId("2", "a", TS), DdlId("0", "a", TS - 1)

    assert DdlProgress(applied={past, first}).at(TS, [second]) == {first, second}
