"""Keeps Kafka's consumer at its place: it fetches ahead, and throws that away if it has to seek elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from applier.changefeed.message import TopicPartition
from applier.consume.kafka import java

FETCH_SIZE = "max.partition.fetch.bytes"

_AHEAD_BYTES = 64 * 2**20
_LARGEST_BYTES = 4 * 2**20
_SMALLEST_BYTES = 64 * 2**10

_MOST_RECORDS = 100_000
"""Records that a poll may give: all that was fetched, and not 500 of them."""


class ForwardConsumer:
    """A consumer whose reads each begin where the last one ended, as a rule. Options are those of Kafka's clients.

    Attributes:
        java: Kafka's own consumer, once a read has begun.

    Every method raises Py4JJavaError with what Kafka's client raised.
    """

    def __init__(self, jvm: Any, options: Mapping[str, str]) -> None:
        self._jvm = jvm
        self._options = options
        self.java: Any = None
        self._fetch_size = 0
        self._places: dict[TopicPartition, Any] = {}
        self._at: dict[TopicPartition, int] = {}
        self._others: dict[TopicPartition, int] = {}

    def begin(self, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        """Go to an offset of each of some partitions, and read no others; returns Java's names of these.

        Others stay assigned: what was fetched of them would be lost.
        """
        # A read that does not come to its end leaves no position that is certain.
        at, self._at = self._at, {}
        places = self._places if at else {}
        new = java.places(self._jvm, (place for place in starts if place not in places))
        self._places = places | new
        if self._grow():
            at = {}
        self._others = at
        if new or not at:
            self.java.assign(java.listed(self._jvm, self._places.values()))
        chosen = {place: self._places[place] for place in starts}
        self.java.pause(self.java.assignment())
        self.java.resume(java.listed(self._jvm, chosen.values()))
        for place, offset in starts.items():
            if place in new or at.get(place) != offset:
                self.java.seek(chosen[place], offset)
        return chosen

    def end(self, positions: Mapping[TopicPartition, int]) -> None:
        """Record that a read ended, with the offset to read next of each partition."""
        self._at = {**self._others, **positions}

    def close(self) -> None:
        """End the connections; the next read makes new ones."""
        if self.java is not None:
            self.java.close(java.duration(self._jvm, java.CLOSE_MS))
        self.java = None

    def _grow(self) -> bool:
        """Make sure that the consumer fits so many partitions; True if it is a new one."""
        size = fetch_size(len(self._places))
        if self.java is not None and size == self._fetch_size:
            return False
        self.close()
        self.java, self._fetch_size = java.consumer(self._jvm, in_bulk(self._options, len(self._places))), size
        return True


def in_bulk(options: Mapping[str, str], partitions: int, records: int = _MOST_RECORDS) -> dict[str, str]:
    """Options of a consumer that reads so many partitions as fast as it can, and gives so many records at once."""
    return {FETCH_SIZE: str(fetch_size(partitions)), **options, "max.poll.records": str(records)}


def fetch_size(partitions: int) -> int:
    """Bytes that a broker may send of a partition at once, so that those of all fit into memory.

    With Kafka's 1 MiB and few partitions, requests take a third of the reading time.
    """
    share = _AHEAD_BYTES >> max(0, partitions - 1).bit_length()
    return min(_LARGEST_BYTES, max(_SMALLEST_BYTES, share))
