"""Does something in a thread of its own for as long as a block runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
