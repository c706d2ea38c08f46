from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from applier.consume import runner
from applier.consume.runner import SourceRunner
from applier.runtime.places import Places


@pytest.mark.parametrize(("slots", "processors", "size"), [(1, 8, 1), (8, 2, 2), (8, None, 1), (64, 64, 4)])
def test_no_more_processes_decode_than_there_are_processors(
    monkeypatch: pytest.MonkeyPatch, slots: int, processors: int | None, size: int
) -> None:
    """Each of them takes memory, and a second of CPU to start: `local[1]` and a small container have one."""
    pool = Mock()
    monkeypatch.setattr(runner, "WorkerPool", pool)
    monkeypatch.setattr("os.cpu_count", lambda: processors)

    SourceRunner(cast("Any", None), cast("Any", SimpleNamespace(slots=slots)), Places())

    pool.assert_called_once_with(size)
