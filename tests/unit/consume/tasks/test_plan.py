"""How the messages of a window are parted among tasks."""

from __future__ import annotations

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.consume.tasks.plan import readings


def window(**sizes: int) -> Window:
    """Partition 0 of each topic, with so many messages."""
    return Window({TopicPartition(topic, 0): OffsetRange(100, 100 + size) for topic, size in sizes.items()})


def topics(found: Window) -> set[str]:
    """Its topics."""
    return {place.topic for place in found.ranges}


def test_thin_partitions_come_together_and_thick_ones_are_parted() -> None:
    """Each in one way, with all of its offsets; what must stay whole does."""
    asked = window(a=10_000, b=40_000, c=1, d=300_000, e=900_000, f=62_501)
    thin, whole, parted = readings(asked, 125_000, 2, {"a", "d"})

    assert (topics(thin.window), thin.tasks, thin.most) == ({"a", "b", "c"}, 1, None)
    assert (topics(whole.window), whole.tasks, whole.most) == ({"d"}, None, None)
    assert (topics(parted.window), parted.tasks, parted.most) == ({"e", "f"}, None, 125_000)
    assert {**thin.window.ranges, **whole.window.ranges, **parted.window.ranges} == asked.ranges


def test_every_slot_gets_a_task_as_long_as_it_pays() -> None:
    """A window that is small for its cluster is parted more finely, and not beyond what a task costs."""
    assert [reading.most for reading in readings(window(a=800_000), 125_000, 16, ())] == [50_000]
    assert [reading.most for reading in readings(window(a=800_000), 125_000, 1_000, ())] == [20_000]
    assert [reading.most for reading in readings(window(a=800_000), 1_000, 16, ())] == [1_000]


def test_many_thin_partitions_are_about_as_many_tasks_as_thick_ones_would_be() -> None:
    """A thousand partitions of a thousand messages are no thousand tasks."""
    many = window(**{f"t{number}": 1_000 for number in range(1_000)})
    (reading,) = readings(many, 125_000, 4, ())
    assert reading.tasks == 8
