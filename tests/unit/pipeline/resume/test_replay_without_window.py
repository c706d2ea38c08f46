"""A job that brings tables back moves without a message where what it has read retires a topic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from applier.changefeed.window import Window
from applier.pipeline.next_step import StepReader


@pytest.mark.parametrize(("upto", "is_copy", "moves"), [(9, True, True), (5, True, False), (9, False, False)])
def test_a_higher_watermark_is_enough(upto: int, is_copy: bool, moves: bool) -> None:
    """The RENAME of its last table may be the last message: the watermarks of the other topics are known then."""
    state = SimpleNamespace(checkpoint=SimpleNamespace(moving=None), resolved_ts=5)
    targets = SimpleNamespace(feed=SimpleNamespace(order=SimpleNamespace(has_watermark=True)))
    reader = SimpleNamespace(state=state, targets=targets, is_copy=is_copy, is_longest=False)
    scan: Any = SimpleNamespace(upto=upto, window=Window({}), error=None)

    assert StepReader.has_news(cast("StepReader", reader), scan) is moves
