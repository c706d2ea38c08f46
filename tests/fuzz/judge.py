"""A message in, the verdict out: it was decoded, it was refused by name, or something is wrong with the decoder.

Messages take the way that they take in the job: a decoder that lives on, the row pass with its reduction and Arrow
arrays, and on the driver the findings and the DDL grammar.
"""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from applier.changefeed.event import Bootstrap, Event, Image, Resolved, RowChange, SchemaChange
from applier.changefeed.message import MESSAGE_SCHEMA, TopicPartition
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.ddl.parser import parse
from applier.ddl.schema_tracker import Tables
from applier.decode.columnar import groups
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions
from applier.decode.values.convert import to_array
from applier.errors import DecodeError, SchemaChangeRefused, ValueRefused
from applier.order.reduce import META, BlockGroup
from applier.pipeline.scan.decode_task import DecodeTask, _TaskState
from applier.pipeline.scan.task_result import TaskResult
from applier.pipeline.scan.task_versions import DdlMarks, TaskVersions
from tests.fuzz.corpus import Feed, Message

SLOWEST = 2.0
"""CPU seconds that a message may take: a hundred times what the slowest need, and a ten-thousandth of a hang."""

_EVENTS = (RowChange, SchemaChange, Resolved, Bootstrap)
_EVERY = 4
"""One row in so many has its values converted on their own, where no other row's refusal comes first."""

LIVES = 800
"""Messages after which a judge takes a new decoder, as the job does for each row pass; what a pass may keep has bounds
of its own (`decode/bounded_cache.py`), so from then on memory does not grow."""

COMPARED = 4
"""One row pass in so many is compared with one that reads all messages one by one."""

_KEPT = 20
"""Table versions that a judge remembers of one feed."""


class Fault(AssertionError):
    """A message that is neither decoded nor refused by name.

    Attributes:
        number: Of the message.
    """

    def __init__(self, number: int, feed: Feed, message: Message, what: str) -> None:
        self.number = number
        key, value = (None if data is None else base64.b64encode(data).decode() for data in message)
        super().__init__(f"message {number} of {feed.protocol} ({feed.name}): {what}\nkey {key}\nvalue {value}")


@dataclass(slots=True)
class Judge:
    """Judges the messages of one feed, with one decoder for `LIVES` of them.

    Args:
        feed: The feed.
        clock: CPU seconds of this thread.

    Attributes:
        counts: Messages `decoded` and `refused`, and `row pass refused`; `rows`, `values` refused, `ddl` read and
            `ddl refused`; `rows at once`, of damaged and undamaged messages.
        slowest: CPU seconds of the slowest message.
    """

    feed: Feed
    clock: Callable[[], float] = time.thread_time
    counts: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    _decoder: Decoder = field(init=False)
    _versions: dict[tuple[TableName, int], TableVersion] = field(default_factory=dict)
    _left: int = 0
    _passes: int = 0

    def __post_init__(self) -> None:
        self._renew()

    def take(self, numbered: Sequence[tuple[int, Message]], whole: Sequence[Message] = ()) -> None:
        """Judge some messages: each for itself, then all in one row pass, one by one and as many at once as can be.

        Args:
            numbered: The messages.
            whole: Undamaged ones that come in the same row pass, so that there are messages alike.

        Raises:
            Fault: The first that is neither decoded nor refused by name.
        """
        if self._left <= 0:
            self._renew()
        self._left -= len(numbered)
        for number, message in numbered:
            started = self.clock()
            try:
                self._decode(number, message)
            except Exception as error:
                raise self._fault(number, message, f"{type(error).__name__}: {error}") from error
            seconds = self.clock() - started
            self.slowest = max(seconds, self.slowest)
            if seconds > SLOWEST:
                raise self._fault(number, message, f"took {seconds:.1f} CPU seconds")
        self._pass(numbered, whole)

    def _fault(self, number: int, message: Message, what: str) -> Fault:
        return Fault(number, self.feed, message, what)

    def _renew(self) -> None:
        self._decoder, self._left = self.feed.renew(), LIVES
        self._forget()

    def _forget(self) -> None:
        self._versions = {(version.name, version.version): version for version in self.feed.versions}

    def _decode(self, number: int, message: Message) -> None:
        try:
            events = self._decoder.decode(*message)
        except DecodeError as error:
            _named(error)
            self.counts["refused"] += 1
            return
        self.counts["decoded"] += 1
        for event in events:
            self._follow(event, number)

    def _follow(self, event: Event, number: int) -> None:
        if type(event) not in _EVENTS:
            msg = f"is no event: {type(event).__name__}"
            raise TypeError(msg)
        if isinstance(event, Bootstrap):
            self._versions[event.version.name, event.version.version] = event.version
        elif isinstance(event, SchemaChange):
            self._change(event)
        elif isinstance(event, RowChange):
            self.counts["rows"] += 1
            if number % _EVERY == 0:
                self._convert(event)
        if len(self._versions) > _KEPT + len(self.feed.versions):
            self._forget()

    def _convert(self, row: RowChange) -> None:
        version, typed = self._versions.get((row.name, row.version)), self.feed.typed.get(row.name)
        if version is not None and typed is not None:
            version = version.refined(typed)
        images: list[Image] = [image for image in (row.before, row.after) if image is not None]
        for column in version.columns if version is not None else ():
            values = [image[column.name] for image in images if column.name in image]
            try:
                to_array(values, column, self._decoder.wire, TypeRules(), f"{row.name}.{column.name}")
            except ValueRefused as error:
                _named(error)
                self.counts["values"] += 1

    def _change(self, change: SchemaChange) -> None:
        try:
            actions = parse(change.sql, change.database)
        except SchemaChangeRefused as error:
            _named(error)
            self.counts["ddl refused"] += 1
            return
        self.counts["ddl"] += 1
        tables = Tables(self.feed.versions)
        with suppress(SchemaChangeRefused):
            for action in actions:
                tables.apply(action, change.commit_ts)

    def _pass(self, numbered: Sequence[tuple[int, Message]], whole: Sequence[Message]) -> None:
        self._passes += 1
        try:
            difference = self._difference(numbered, whole, compare=self._passes % COMPARED == 0)
        except Exception as error:
            for number, message in numbered:
                try:
                    self._difference([(number, message)], whole, compare=True)
                except Exception as alone:
                    what = f"breaks the row pass, {type(alone).__name__}: {alone}"
                    raise self._fault(number, message, what) from alone
            number, message = numbered[-1]
            numbers = ", ".join(str(number) for number, _ in numbered)
            what = f"messages {numbers} together break the row pass, {type(error).__name__}: {error}"
            raise self._fault(number, message, what) from error
        if difference:
            for number, message in numbered:
                single = self._difference([(number, message)], whole, compare=True)
                if single:
                    raise self._fault(number, message, f"is read otherwise at once: {single}")
            raise self._fault(*numbered[-1], f"or one before it is read otherwise at once: {difference}")

    def _difference(self, numbered: Sequence[tuple[int, Message]], whole: Sequence[Message], *, compare: bool) -> str:
        """What a row pass tells otherwise of messages if it reads as many at once as it can; "" for nothing.

        What is not read is not looked at: a message that is damaged there alone is of use if it is read with others.
        And a value counts only if its row is the last of its key among those that are reduced together. So what either
        way refuses is left out for both, as the job does with bad messages, until nothing is refused.
        """
        placed = [(2 * number, message) for number, message in numbered]
        # Undamaged ones between them, so that there are messages alike: readers are made from the last of them.
        placed += [(2 * number + 1, message) for (number, _), message in zip(numbered, whole, strict=False)]
        quick = self._quick(placed)
        self.counts["row pass refused"] += len(quick.bad)
        self.counts["rows at once"] += quick.at_once
        while compare:
            slow = self._run(placed, _OneByOne(self._decoder))
            only = {offset for offset, error in quick.bad.items() if offset not in slow.bad and not _is_value(error)}
            if only:
                return f"refused only then: {[quick.bad[offset] for offset in only]}"
            refused = slow.bad.keys() | quick.bad.keys()
            if not refused:
                return "" if slow.told is None or quick.told is None else _differing(slow.told, quick.told)
            placed = [(offset, message) for offset, message in placed if offset not in refused]
            quick = self._quick(placed)
        return ""

    def _quick(self, placed: Sequence[tuple[int, Message]]) -> _Pass:
        with patch.object(groups, "FEWEST", 1):
            return self._run(placed, self._decoder)

    def _run(self, placed: Sequence[tuple[int, Message]], decoder: Decoder) -> _Pass:
        rows = [
            {"topic": "fuzz", "partition": 0, "offset": offset, "key": key, "value": value}
            for offset, (key, value) in placed
        ]
        job = replace(row_pass(self.feed), versions=(*self.feed.versions, *self._versions.values()))
        task = _TaskState(job, decoder)
        with (
            patch.object(TaskVersions, "learn", autospec=True, side_effect=TaskVersions.learn) as learnt,
            patch.object(BlockGroup, "add", autospec=True, side_effect=BlockGroup.add) as added,
        ):
            task.read(TopicPartition("fuzz", 0), pa.Table.from_pylist(rows, MESSAGE_SCHEMA))
        brought = [call.args[1] for call in learnt.call_args_list]
        at_once = sum(len(call.args[1].places) for call in added.call_args_list)
        task.rows.finish()
        results = task.found
        # Control tables and stamps hold 64 bits.
        stamps = [*results.resolved.values(), *(barrier.change.commit_ts for barrier in results.barriers)]
        waiting = [number for rows in results.waiting.values() for number in (rows.version, rows.commit_ts)]
        pa.array([*stamps, *waiting, *(number for _, number in results.versions)], pa.int64())
        for bad in results.bad:
            place = f"Cannot decode {self.feed.protocol} message at fuzz/0:{bad.offset}: "
            assert str(bad.error).startswith(place)
        # Rows wait for a version that the decoder announced and this judge has forgotten.
        told = None if results.waiting or self._is_redefined(brought) else _told(results)
        return _Pass({bad.offset: bad.error for bad in results.bad}, at_once, told)

    def _is_redefined(self, brought: Sequence[TableVersion]) -> bool:
        """A version that comes with two contents counts from its place on, which is another one for rows at once."""
        known = {(version.name, version.version): version for version in self.feed.versions}
        met = [*self._versions.values(), *brought]
        return any(known.setdefault((new.name, new.version), new) != new for new in met)


class _OneByOne:
    """A decoder without its quick way."""

    bulk = None

    def __init__(self, decoder: Decoder) -> None:
        self.wire = decoder.wire
        self.learn, self.decode = decoder.learn, decoder.decode

    def restart(self) -> None:
        """See `Decoder`."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """What one row pass found: bad messages by offset, rows read at once, and all else, if it can be compared."""

    bad: dict[int, DecodeError]
    at_once: int
    told: set[str] | None


def _is_value(error: DecodeError) -> bool:
    return " cannot be read as " in error.what


def _told(results: TaskResult) -> set[str]:
    told = {f"{name} {count}" for name, count in results.counts.items() if name != "zero_dates"}
    for (name, segment), parts in results.parts.items():
        bags = [part.here["\0run"].to_pylist() for part in parts if not part.version.key]
        runs: list[Any] = sorted({run for numbers in bags for run in numbers})
        rows = [(part.version.key, row) for part in parts for row in _plain(part.here).to_pylist()]
        keyed = [row for row in rows if row[0]]
        told |= {f"{name} {segment} {row}" for row in _last(keyed)}
        ranked = [row | {"\0run": runs.index(row["\0run"])} for key, row in rows if not key]
        told |= {f"{name} {segment} {sorted(row.items())}" for row in ranked}
    return told


def _plain(rows: pa.Table) -> pa.Table:
    """Rows with dates as numbers: Arrow has dates that Python has not."""
    kinds = [pa.int32() if pa.types.is_date(kind) else pa.int64() if pa.types.is_timestamp(kind) else kind
             for kind in rows.schema.types]  # fmt: skip
    return rows.cast(pa.schema(list(zip(rows.column_names, kinds, strict=True))))


def _last(rows: Sequence[tuple[tuple[str, ...], dict[str, Any]]]) -> Iterator[str]:
    """The last change of each key over all versions, and what the first one knew."""
    by_key: dict[str, list[dict[str, Any]]] = {}
    for key, row in rows:
        by_key.setdefault(repr([row[name] for name in key]), []).append(row)
    for key_text, changes in by_key.items():
        last = max(changes, key=lambda row: (row["\0ts"], row["\0present"], row["\0offset"], row["\0index"]))
        first = min(changes, key=lambda row: (row["\0first_ts"], row["\0first_op"]))
        data = sorted((name, value) for name, value in last.items() if not name.startswith(META) and value is not None)
        place = [last[name] for name in ("\0ts", "\0present", "\0offset", "\0index")]
        began = f"{first[META + 'first_ts']} {first[META + 'first_op']}"
        yield f"{key_text} {place} {began} {data if last[META + 'present'] else ''}"


def _differing(slow: set[str], quick: set[str]) -> str:
    if slow == quick:
        return ""
    return f"{sorted(slow - quick)!r:.1500} but {sorted(quick - slow)!r:.1500}"


def row_pass(feed: Feed) -> DecodeTask:
    """The row pass of a feed: everything is to be applied, and all its tables are known."""
    return DecodeTask(
        protocol=feed.protocol,
        options=DecoderOptions(),
        rules=TypeRules(),
        include=("*.*",),
        versions=tuple(feed.versions),
        upto=(1 << 63) - 1,
        marks=DdlMarks(typed={name: [version] for name, version in feed.typed.items()}),
    )


def _named(error: DecodeError | SchemaChangeRefused) -> None:
    """A refusal is a sentence that can be printed, logged and kept."""
    assert error.what
    str(error).encode()
