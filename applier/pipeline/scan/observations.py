"""What a decode task finds beside rows: counts, offsets, watermarks, DDL and bad messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pyarrow as pa

from applier.changefeed.event import SchemaChange
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName, TableVersion
from applier.consume.window_size import WindowTooLargeError
from applier.errors import DecodeError, IncompleteRow
from applier.pipeline.scan.task_result import ddl_payload, error_payload, finding


class Observations:
    """What a task has seen so far.

    Attributes:
        counts: `bytes`, `rows`, `replayed`, `left`, `excluded` and `zero_dates`.
        read: Messages by partition.
        resolved: The highest resolved ts of each partition.

    Args:
        protocol: TiCDC's name of the protocol, for errors.
        admits: Whether the configuration replicates a table.
    """

    def __init__(self, protocol: str, admits: Callable[[TableName], bool]) -> None:
        self.counts = dict.fromkeys(("bytes", "rows", "replayed", "left", "excluded", "zero_dates"), 0)
        self.read: dict[TopicPartition, int] = {}
        self.resolved: dict[TopicPartition, int] = {}
        self._control: list[dict[str, Any]] = []
        self._protocol = protocol
        self._admits = admits
        self._held: dict[TopicPartition, int] = {}
        self._waiting: dict[tuple[TableName, int, TopicPartition], list[int]] = {}

    def receive(self, batch: pa.RecordBatch, most_bytes: int) -> None:
        """Count the bytes of the next messages.

        Raises:
            WindowTooLargeError: They are more than `most_bytes` in all.
        """
        self.counts["bytes"] += batch.nbytes
        if self.counts["bytes"] > most_bytes:
            raise WindowTooLargeError(self.counts["bytes"], sum(self.read.values()) + batch.num_rows)

    def wait(self, name: TableName, version: int, ts: int, place: TopicPartition, count: int = 1) -> None:
        """Note rows whose table version has not come."""
        entry = self._waiting.setdefault((name, version, place), [ts, 0])
        entry[0] = min(entry[0], ts)
        entry[1] += count

    def hold(self, place: TopicPartition, offset: int) -> None:
        """Note an offset whose message a later step must read again."""
        self._held[place] = min(offset, self._held.get(place, offset))

    def note_version(self, version: TableVersion, place: TopicPartition, *, announced: bool) -> None:
        """Note a table version; `announced` if its message came to the topic of the table."""
        name, number, payload = version.name, version.version, version.to_json().encode()
        self._control.append(
            finding("version", name=name, version=number, place=place, count=int(announced), payload=payload)
        )

    def note_ddl(self, change: SchemaChange, place: TopicPartition, offset: int, index: int) -> None:
        """Note a DDL; `index` is its number among the events of its message."""
        payload = ddl_payload(change, index)
        self._control.append(finding("ddl", place=place, offset=offset, ts=change.commit_ts, payload=payload))

    def reject(self, place: TopicPartition, offset: int, error: DecodeError, found: Collection[TableName] = ()) -> None:
        """Note a message that cannot be used, unless it concerns tables alone that are left out.

        Args:
            place: Its partition.
            offset: Its offset.
            error: Why.
            found: Tables that it may concern; empty if nothing shows them.
        """
        table = error.table if isinstance(error, IncompleteRow) else None
        names = found if table is None else [TableName(*table)]
        if names and not any(map(self._admits, names)):
            self.counts["excluded"] += 1
            return
        payload = error_payload(error.at(*place, offset, self._protocol), names)
        self._control.append(finding("bad", place=place, offset=offset, payload=payload))

    def findings(self) -> Iterator[dict[str, Any]]:
        """All of it: one dictionary per row of `RESULT_SCHEMA`."""
        yield from self._control
        for place, count in self.read.items():
            yield finding("count", name=TableName("", "messages"), place=place, count=count)
        for place, ts in self.resolved.items():
            yield finding("resolved", place=place, ts=ts)
        for place, offset in self._held.items():
            yield finding("held", place=place, offset=offset)
        for (name, version, place), (ts, count) in self._waiting.items():
            yield finding("waiting", name=name, version=version, place=place, ts=ts, count=count)
        for what, count in self.counts.items():
            yield finding("count", name=TableName("", what), count=count)
