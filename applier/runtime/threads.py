"""Does something in threads of its own: beside a block, or side by side for some seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def beside(name: str, work: Callable[[threading.Event], object], wait_seconds: float | None = None) -> Iterator[None]:
    """Do work in a thread while the block runs; the event that it is given is set when the block ends.

    The thread never outlives the process, and its end is waited for: for at most `wait_seconds`, or for ever.
    """
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(wait_seconds)


class Asking(threading.Thread):
    """Asks one system outside, part by part; a daemon, as no process waits for one that never answers.

    The parts have names, and what asks them, in the thread; the first error ends them.

    Attributes:
        at: The part that is asked now, or was asked last; the system before the first.
        answers: The parts that have answered, with what they said.
        error: What the part `at` raised.
    """

    def __init__(self, name: str, parts: Iterable[tuple[str, Callable[[], Any]]]) -> None:
        super().__init__(name=f"ask {name}", daemon=True)
        self.at, self._parts = name, parts
        self.answers: list[tuple[str, Any]] = []
        self.error: Exception | None = None

    def run(self) -> None:
        """Ask until all is known, or something is in the way."""
        try:
            for at, look in self._parts:
                self.at = at
                self.answers.append((at, look()))
        except Exception as error:  # noqa: BLE001 - a library may raise anything, and no other answer is lost for it
            self.error = error
        finally:
            # The error holds on to it, and it may hold on to a JVM.
            if isinstance(self._parts, Generator):
                self._parts.close()


def ask_all(asked: Sequence[Asking], seconds: float, is_enough: Callable[[Asking], bool] = lambda _: False) -> None:
    """Ask systems at the same time, until each has ended, or what one has is enough, or the seconds are over."""
    for one in asked:
        one.start()
    deadline = time.monotonic() + seconds
    while any(one.is_alive() for one in asked) and not any(map(is_enough, asked)) and time.monotonic() < deadline:
        time.sleep(0.05)
