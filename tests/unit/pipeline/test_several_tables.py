"""Several tables are written at a time, and a step ends only when none is being written any more."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from applier.pipeline.tables.target_tables import TargetTables


def _targets(threads: int) -> TargetTables:
    nothing = cast("Any", None)
    return TargetTables(nothing, nothing, nothing, nothing, cast("Any", SimpleNamespace(threads=threads)))


def test_results_come_in_the_order_of_the_items_and_threads_stay() -> None:
    """A thread that is new to the JVM costs it a connection."""
    targets = _targets(2)

    assert targets.side_by_side(lambda item: item * item, range(50)) == [item * item for item in range(50)]
    assert (
        len({thread for _ in range(5) for thread in targets.side_by_side(lambda _: threading.get_ident(), range(20))})
        <= 2
    )


def test_an_error_comes_when_nothing_is_under_way() -> None:
    """The next attempt at the step must not meet a commit of this one."""
    targets, failed, begun, done = _targets(2), threading.Event(), list[int](), list[int]()

    def work(item: int) -> None:
        begun.append(item)
        if item == 1:
            failed.set()
            raise TimeoutError
        assert failed.wait(10)
        done.append(item)

    with pytest.raises(TimeoutError):
        targets.side_by_side(work, range(1_000))

    assert sorted(done) == sorted(item for item in begun if item != 1)
