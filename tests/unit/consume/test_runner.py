"""How many processes run, and what is read ahead: the same items in order, one at most too early."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from applier.consume import runner
from applier.consume.runner import Runner, ahead
from applier.runtime.places import Places


@pytest.mark.parametrize(("slots", "processors", "size"), [(1, 8, 1), (8, 2, 2), (8, None, 1), (64, 64, 4)])
def test_no_more_processes_decode_than_there_are_processors(
    monkeypatch: pytest.MonkeyPatch, slots: int, processors: int | None, size: int
) -> None:
    """Each of them takes memory, and a second of CPU to start: `local[1]` and a small container have one."""
    pool = Mock()
    monkeypatch.setattr(runner, "WorkerPool", pool)
    monkeypatch.setattr("os.cpu_count", lambda: processors)

    Runner(cast("Any", None), cast("Any", SimpleNamespace(slots=slots)), Places())

    pool.assert_called_once_with(size)


def test_items_come_in_order() -> None:
    """None and False are items, too."""
    assert list(ahead(iter([None, 1, False, 2]))) == [None, 1, False, 2]


def test_an_error_comes_after_the_items_before_it() -> None:
    """As it does from the iterator itself."""

    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("gone")

    items = ahead(failing())

    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(ValueError, match="gone"):
        next(items)


def test_only_one_item_is_made_ahead() -> None:
    """Memory holds two of them."""
    made: list[int] = []

    def counted() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number

    items = ahead(counted())
    next(items)
    next(items)
    items.close()  # type: ignore[attr-defined]  # it is a generator

    assert len(made) <= 3
