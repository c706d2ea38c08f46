"""Does work on several tables at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class SideBySide:
    """Does work on several items at a time, in so many threads at the most."""

    def __init__(self, threads: Callable[[], int]) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def __call__(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """The results; what the work raises first comes once no other is under way."""
        # One pool for all steps: a new thread is a new connection to the JVM, which costs as much as a commit.
        self._pool = self._pool or ThreadPoolExecutor(self._threads(), thread_name_prefix="tables")
        under_way = [self._pool.submit(work, item) for item in items]
        try:
            wait(under_way, return_when=FIRST_EXCEPTION)
        finally:
            for each in under_way:
                each.cancel()
            wait(under_way)
        return [each.result() for each in under_way]
