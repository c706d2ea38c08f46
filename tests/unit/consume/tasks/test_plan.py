"""How the messages of a window are parted among tasks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.consume.tasks.plan import readings


def window(**sizes: int) -> Window:
    """Partition 0 of each topic, with so many messages."""
    return Window({TopicPartition(topic, 0): OffsetRange(100, 100 + size) for topic, size in sizes.items()})


def topics(found: Sequence[Window]) -> list[str]:
    """The topics of each task."""
    return ["".join(sorted(place.topic for place in task.ranges)) for task in found]


def joined(found: Sequence[Window]) -> dict[TopicPartition, OffsetRange]:
    """What all tasks read; fails where parts of a partition do not follow each other."""
    spans: dict[TopicPartition, list[OffsetRange]] = {}
    for task in found:
        for place, span in task.ranges.items():
            spans.setdefault(place, []).append(span)
    assert all(first.end == then.start for parts in spans.values() for first, then in pairwise(parts))
    return {place: OffsetRange(parts[0].start, parts[-1].end) for place, parts in spans.items()}


def test_thin_partitions_come_together_and_thick_ones_are_parted() -> None:
    """All offsets are read once; what must stay whole does."""
    asked = window(a=10_000, b=40_000, c=1, d=300_000, e=260_000, f=62_501)
    found = readings(asked, 125_000, 2, {"a", "d"})

    assert topics(found) == ["d", "e", "e", "e", "f", "abc"]
    assert [task.messages for task in found] == [300_000, 86_666, 86_667, 86_667, 62_501, 50_001]
    assert joined(found) == asked.ranges


@pytest.mark.parametrize(("at_once", "slots", "tasks"), [(125_000, 16, 16), (125_000, 1_000, 40), (1_000, 16, 800)])
def test_every_slot_gets_a_task_as_long_as_it_pays(at_once: int, slots: int, tasks: int) -> None:
    """A window that is small for its cluster is parted more finely, and not beyond what a task costs."""
    asked = window(a=800_000)
    found = readings(asked, at_once, slots, ())
    assert (len(found), joined(found)) == (tasks, asked.ranges)


def test_many_thin_partitions_are_about_as_many_tasks_as_thick_ones_would_be() -> None:
    """A thousand partitions of a thousand messages are no thousand tasks."""
    many = window(**{f"t{number}": 1_000 for number in range(1_000)})
    assert [len(task.ranges) for task in readings(many, 125_000, 4, ())] == [125] * 8


def test_partitions_without_offsets_are_no_task() -> None:
    """A partition of which nothing is to be read takes none."""
    assert topics(readings(window(a=0, b=5, c=0), 125_000, 4, ())) == ["b"]
    assert readings(window(a=0), 125_000, 4, ()) == []
