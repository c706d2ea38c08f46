"""Parts the messages of a window among tasks: thin partitions together, thick ones by offset where that is allowed."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from applier.changefeed.window import Window

TASK_MESSAGES = 125_000
"""Messages of a task at the most: about a second of work, unless they are large."""

TASK_BYTES = 64 << 20
"""Bytes of them."""

_LEAST = 20_000
"""Messages below which another task costs more than they do."""


class TaskReading(NamedTuple):
    """Partitions that tasks read in one way.

    Attributes:
        window: Their offsets.
        tasks: Tasks that they come together in; None for one a partition, or more.
        most: Messages of a task, where each partition is parted by offset; None where it stays whole.
    """

    window: Window
    tasks: int | None = None
    most: int | None = None


def readings(window: Window, at_once: int, slots: int, whole: Collection[str]) -> list[TaskReading]:
    """How tasks read a window; each partition is in one reading.

    Args:
        window: The window.
        at_once: Messages of a task at the most.
        slots: Tasks that run at once.
        whole: Topics whose partitions must not be parted.
    """
    most = max(1, min(at_once, max(_LEAST, -(-window.messages // slots))))
    thin = Window({place: span for place, span in window.ranges.items() if len(span) <= most // 2})
    thick = {place: span for place, span in window.ranges.items() if place not in thin.ranges}
    kept = Window({place: span for place, span in thick.items() if place.topic in whole})
    parted = Window({place: span for place, span in thick.items() if place.topic not in whole})
    found = [TaskReading(thin, tasks=-(-thin.messages // most)), TaskReading(kept), TaskReading(parted, most=most)]
    return [reading for reading in found if reading.window.ranges]
