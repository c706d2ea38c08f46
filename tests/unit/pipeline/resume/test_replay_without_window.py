"""A job that brings tables back moves without a message where what it has read retires a topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from applier.changefeed.window import Window
from applier.pipeline.next_step import StepReader


@pytest.mark.parametrize(("upto", "keeps_cut", "moves"), [(9, False, True), (5, False, False), (9, True, False)])
def test_a_higher_watermark_is_enough(upto: int, keeps_cut: bool, moves: bool) -> None:
    """The RENAME of its last table may be the last message: the watermarks of the other topics are known then."""
    state = SimpleNamespace(checkpoint=SimpleNamespace(moving=None), resolved_ts=5, reached=0, keeps_cut=keeps_cut)
    targets = SimpleNamespace(feed=SimpleNamespace(order=SimpleNamespace(has_watermark=True)))
    reader = SimpleNamespace(state=state, targets=targets, is_longest=False)
    scan: Any = SimpleNamespace(upto=upto, window=Window({}), error=None, ceiling=upto + 1, ddl=())

    assert StepReader.has_news(cast("StepReader", reader), scan) is moves
