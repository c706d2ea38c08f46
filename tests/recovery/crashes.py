"""A seed in, crashes at the kill points of a pipeline out: many more than processes could be started for.

A crash is an exception that nothing but the test catches. The pipeline is thrown away, what it held in memory with it,
and the changefeed stays held, as after a power cut; `test_kill.py` has the real thing.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from applier import faults
from applier.pipeline import Pipeline
from applier.state import State


class Crash(BaseException):
    """The process is dead; not an `Exception`, so that nothing handles it."""


@dataclass(slots=True)
class Crashes:
    """Lets the pipeline die, again and again, at points drawn by a seed.

    Args:
        seed: Seed of the draw.
        often: A crash comes after about half as many points; the more often one step dies, the longer it lives.

    Attributes:
        at: How often it died at each point.
    """

    seed: int
    often: int
    at: Counter[str] = field(default_factory=Counter)
    _random: random.Random = field(init=False)
    _left: int = field(default=0, init=False)
    _streak: int = field(default=0, init=False)
    _is_dead: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._draw()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take the place of the kill points."""
        release = State.release
        monkeypatch.setattr(faults, "reach", self._reach)
        monkeypatch.setattr(State, "release", lambda state: None if self._is_dead else release(state))

    def revive(self) -> None:
        """A new process starts: points are passed from here on. Until then threads of the dead one die at them."""
        self._is_dead = False

    def moved(self) -> None:
        """A step was finished."""
        self._streak = 0

    def _reach(self, point: str) -> None:
        with self._lock:
            self._left -= 1
            if self._left <= 0 and not self._is_dead:
                self._is_dead = True
                self.at[point] += 1
                self._streak += 1
                self._draw()
        if self._is_dead:
            raise Crash(point)

    def _draw(self) -> None:
        self._left = self._random.randint(1, int(self.often * 1.3**self._streak))


def finish(start: Callable[[], Pipeline], crashes: Crashes) -> Iterator[Pipeline]:
    """Run to the end of the source, with a new pipeline after each crash.

    Args:
        start: Gives a new pipeline.
        crashes: The crashes.

    Yields:
        The pipeline after each step that moved.
    """
    complete = False
    while not complete:
        with suppress(Crash):
            pipeline = start()
            while not complete:
                step = pipeline.step()
                complete = step.complete and not step.moved
                if step.moved:
                    crashes.moved()
                    yield pipeline
