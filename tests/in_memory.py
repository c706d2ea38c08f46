"""Sources of messages in memory that run their row passes themselves, as many as a window has partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext

from applier.changefeed.message import Messages, TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.consume.archive import partitions
from applier.consume.runner import Ran, Runner
from applier.consume.source import Blocks, KeepingPass, R
from applier.consume.window_size import Limits
from applier.runtime.places import Placement, Places, Where


class InMemory(Runner):
    """A `Source` and a `Runner`; what inherits it has `bounds` and `collect`."""

    parts_partitions = True
    shares = 1
    places = Places()

    @property
    def source(self) -> InMemory:
        """See `Runner`."""
        return self

    def bounds(self) -> Mapping[TopicPartition, OffsetRange]:
        """See `Source`."""
        raise NotImplementedError

    def collect(self, window: Window) -> Messages:
        """See `Source`."""
        raise NotImplementedError

    def topic_ids(self) -> Mapping[str, str]:
        """See `Source`; nothing tells."""
        return {}

    def resolved(self, read: Mapping[TopicPartition, int], applied: int) -> Mapping[TopicPartition, int] | None:
        """See `Source`; messages show it."""
        del read, applied
        return None

    def offsets_at(self, milliseconds: int) -> Mapping[TopicPartition, int]:
        """See `Source`; no record has a time."""
        del milliseconds
        return {place: span.start for place, span in self.bounds().items()}

    def read(self, window: Window) -> Messages:
        """See `Source` and `Runner`."""
        return self.collect(window)

    def chunks(self, window: Window) -> Iterator[Messages]:
        """See `Source`."""
        return iter([self.collect(window)])

    def blocks(self, window: Window, limits: Limits, slots: int) -> Blocks:
        """See `Source`."""
        raise NotImplementedError

    def show_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `Source`; nothing asks."""

    def reading(self) -> AbstractContextManager[None]:
        """See `Source`."""
        return nullcontext()

    def placement(self, window: Window, size: float, most: int, behind: int) -> Placement:
        """See `Runner`."""
        waiting = window.messages + behind
        return self.places.of_window(window.messages, size, most, waiting, is_started=False)

    def run(self, window: Window, job: KeepingPass[R], where: Where) -> Ran[R]:
        """See `Runner`; one task for each partition, here and now."""
        assert where is not Where.HERE
        return Ran([job(self.collect(part).items()) for part in partitions(window)])
