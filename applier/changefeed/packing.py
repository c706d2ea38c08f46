"""Puts work together by size, so that a task, a job or a commit has about as much as another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def packed(items: Iterable[T], size: Callable[[T], float], most: float) -> list[list[T]]:
    """Items in their order, in packs that have at most so much together; one that alone has more is a pack."""
    packs, held = list[list[T]](), most
    for item in items:
        if held + size(item) > most or not packs:
            packs.append([])
            held = 0
        packs[-1].append(item)
        held += size(item)
    return packs
