"""Reading ahead: the same items in the same order, one at most made too early, and errors where they belong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from applier.consume.kafka.prefetch import ahead


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
