"""A changefeed, and a job beside it, move without a message where all below a higher watermark is read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from applier.changefeed.window import Window
from applier.pipeline.next_step import StepReader


@pytest.mark.parametrize(
    ("upto", "keeps_cut", "moves"), [(9, False, True), (5, False, False), (9, True, True), (5, True, False)]
)
def test_a_higher_watermark_is_enough(upto: int, keeps_cut: bool, moves: bool) -> None:
    """A DDL ends a window below the watermark, and a RENAME may leave a topic without one: no message follows.

    Without a watermark nothing moves without a message.
    """
    state = SimpleNamespace(
        checkpoint=SimpleNamespace(moving=None),
        resolved_ts=5,
        reached=5,
        keeps_cut=keeps_cut,
        is_without_checkpoint=False,
    )
    targets = SimpleNamespace(feed=SimpleNamespace(order=SimpleNamespace(has_watermark=True)))
    reader = SimpleNamespace(state=state, targets=targets, is_longest=False)
    scan: Any = SimpleNamespace(upto=upto, window=Window({}), error=None, ceiling=upto + 1, ddl=())

    assert StepReader.has_news(cast("StepReader", reader), scan) is moves
    targets.feed.order.has_watermark, scan.results = False, SimpleNamespace(held={})
    assert not StepReader.has_news(cast("StepReader", reader), scan)
