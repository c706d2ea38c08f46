"""Reads the files of a storage sink's folder as messages: each file is one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from applier.changefeed.message import MESSAGE_SCHEMA, Messages, PartitionMessages, TopicPartition
from applier.changefeed.schema_key import SCHEMA_KEY
from applier.changefeed.window import OffsetRange, Window
from applier.consume.storage.folder import StorageFolder, changed
from applier.consume.storage.layout import METADATA, WHOLE_HINT, Listing, StoredFile
from applier.consume.window_size import WindowTooLargeError
from applier.errors import SourceLost

_MARK = TopicPartition(METADATA, 0)

_AT_ONCE = 8
"""Files that are fetched side by side."""

_LISTINGS = 4
"""Listings that are remembered: a step looks twice, and commands beside it once."""


class FileMessage(NamedTuple):
    """A message that is to be read: where it is in the feed, its file, and the schema file that its rows need."""

    place: TopicPartition
    offset: int
    file: StoredFile
    schema: StoredFile | None = None

    @property
    def is_schema(self) -> bool:
        """Whether it is a schema file, whose DDL it stands for."""
        return self.place.topic.endswith("/meta")


def in_files(folder: StorageFolder, groups: Iterable[Iterable[FileMessage]]) -> Iterator[PartitionMessages]:
    """The messages of some files, one at a time, as a task of Spark reads them."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="files") as threads:
        coming = deque[tuple[FileMessage, Future[pa.Table]]]()
        waiting = (message for group in groups for message in group)
        for message in waiting:
            coming.append((message, threads.submit(_table, folder, message)))
            if len(coming) > _AT_ONCE:
                yield _taken(coming)
        while coming:
            yield _taken(coming)


def _taken(coming: deque[tuple[FileMessage, Future[pa.Table]]]) -> PartitionMessages:
    message, future = coming.popleft()
    return message.place, future.result()


def _table(folder: StorageFolder, message: FileMessage) -> pa.Table:
    row = {
        "topic": message.place.topic,
        "partition": message.place.partition,
        "offset": message.offset,
        "timestamp": None if message.file.written_ms is None else message.file.written_ms * 1000,
        "key": SCHEMA_KEY if message.is_schema else message.schema and _schema(folder, message.schema),
        "value": folder.read(message.file),
    }
    return pa.Table.from_pylist([row], schema=MESSAGE_SCHEMA)


@lru_cache(maxsize=1024)
def _schema(folder: StorageFolder, file: StoredFile) -> bytes:
    return folder.read(file)


class StoredMessages:
    """The messages of a folder that TiCDC goes on writing to.

    A window that has more than `most_bytes` is not read at once. Every method raises what `StorageFolder` does.
    """

    parts_partitions = False

    def __init__(self, folder: StorageFolder, most_bytes: int) -> None:
        self.folder = folder
        self._most_bytes = most_bytes
        self._listings = deque[Listing](maxlen=_LISTINGS)
        self._read: dict[str, int] = {}
        self._passed: Mapping[TopicPartition, int] = {}
        self._lacked: dict[TopicPartition, int] = {}

    def bounds(self) -> Mapping[TopicPartition, OffsetRange]:
        """See `Source`; looks at the folder anew."""
        found = self.folder.look()
        if self._listings and found.checkpoint_ts < self._listings[-1].checkpoint_ts:
            raise went_back(found.checkpoint_ts, self._listings[-1].checkpoint_ts)
        for place, files in found.rows.items():
            for offset, file in files.items():
                is_done = offset < self._passed.get(place, 0)
                if is_done and file.size != (before := self._read.get(file.path, file.size)):
                    raise changed(file.path, before, file.size)
        if self._listings:
            last = self._listings[-1]
            _refuse_lost_schemas(last, found)
            self._lacked |= dict.fromkeys(found.bounds.keys() - last.bounds.keys(), last.checkpoint_ts)
        self._listings.append(found)
        return found.bounds

    def topic_ids(self) -> Mapping[str, str]:
        """See `Source`: the first schema file of each table, as schema files have no numbers."""
        return {place.topic: files[0].path.rsplit("/", 1)[-1] for place, files in self._last.schemas.items()}

    def resolved(self, read: Mapping[TopicPartition, int], applied: int) -> Mapping[TopicPartition, int]:
        """See `Source`: of a partition that was read as far as a listing showed it, that listing's checkpoint-ts.

        The partition of the checkpoint-ts itself stands for all partitions that the reader does not know yet.
        """
        if self._last.checkpoint_ts < applied:
            raise went_back(self._last.checkpoint_ts, applied)
        found: dict[TopicPartition, int] = {}
        for listing in self._listings:
            bounds = listing.bounds
            for place, offset in read.items():
                if offset >= (bounds[place].end if place in bounds else 0):
                    found[place] = listing.checkpoint_ts
        if _MARK in found:
            unknown = self._last.bounds.keys() - read.keys()
            found[_MARK] = min([found[_MARK], *(self._lacked.get(place, 0) for place in unknown)])
        return found

    def offsets_at(self, milliseconds: int) -> Mapping[TopicPartition, int]:
        """See `Source`; a file is written after the commits of its rows. DDL are read from the first on."""
        late = {place: span.start for place, span in self.bounds().items()}
        for place, files in self._last.rows.items():
            early = [n for n, file in files.items() if file.written_ms is not None and file.written_ms < milliseconds]
            late[place] = max(early, default=-1) + 1
        return late

    def collect(self, window: Window) -> Messages:
        """See `Source`."""
        chosen = [message for group in self.groups(window) for message in group]
        if (size := sum(message.file.size for message in chosen)) > self._most_bytes and len(chosen) > 1:
            raise WindowTooLargeError(size, len(chosen))
        tables: dict[TopicPartition, list[pa.Table]] = {}
        for place, table in in_files(self.folder, [chosen]):
            tables.setdefault(place, []).append(table)
        return {place: pa.concat_tables(found) for place, found in sorted(tables.items())}

    read = collect

    def chunks(self, window: Window) -> Iterator[Messages]:
        """See `Source`; a file at a time."""
        return ({place: table} for place, table in in_files(self.folder, self.groups(window)))

    def groups(self, window: Window) -> list[list[FileMessage]]:
        """The files of a window, by partition."""
        return [self._files(place, span) for place, span in sorted(window.ranges.items()) if len(span)]

    def show_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """See `Source`; a file below them may not change any more."""
        self._passed = dict(offsets)

    def _files(self, place: TopicPartition, span: OffsetRange) -> list[FileMessage]:
        is_bare = self.folder.ending == "csv" and place not in self._last.schemas
        schema = self._last.schema_of(place) if is_bare else None
        found = [FileMessage(place, offset, self._last.at(place, offset), schema) for offset in range(*span)]
        self._read |= {message.file.path: message.file.size for message in found if not message.is_schema}
        return found

    @property
    def _last(self) -> Listing:
        if not self._listings:
            self.bounds()
        return self._listings[-1]


def _refuse_lost_schemas(before: Listing, now: Listing) -> None:
    """Their offsets are their places among the others, so that no number shows that one is gone."""
    there = {file.path for files in now.schemas.values() for file in files}
    gone = next((file for files in before.schemas.values() for file in files if file.path not in there), None)
    if gone is not None:
        raise SourceLost(f"Schema file {gone.path} is gone from the folder of the storage sink.", WHOLE_HINT)


def went_back(now: int, before: int) -> SourceLost:
    """The refusal of a folder whose checkpoint-ts is lower than it was."""
    what = f"The checkpoint-ts of the storage sink went back: file {METADATA} holds {now}, and {before} was read."
    hint = (
        "if TiCDC was restarted, start again once it has passed that; if another changefeed writes to the folder, give "
        "each a folder and a changefeed.name of its own."
    )
    return SourceLost(what, hint)
