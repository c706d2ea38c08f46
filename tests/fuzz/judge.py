"""A message in, the verdict out: it was decoded, it was refused by name, or something is wrong with the decoder.

Messages take the way that they take in the job: a decoder that lives on, the row pass with its reduction and Arrow
arrays, and on the driver the findings and the DDL grammar.
"""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from applier.changefeed.event import Bootstrap, Event, Image, Resolved, RowChange, SchemaChange
from applier.changefeed.message import MESSAGE_SCHEMA
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.tracker import Tables
from applier.changefeed.types import TypeRules
from applier.decode.ddl import parse
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions
from applier.decode.values import to_array
from applier.errors import DecodeError, SchemaChangeRefused, ValueRefused
from applier.findings import FINDING_SCHEMA, collect
from applier.rowpass import RowPass, _Task
from tests.fuzz.corpus import Feed, Message

SLOWEST = 2.0
"""CPU seconds that a message may take: a hundred times what the slowest need, and a ten-thousandth of a hang."""

_EVENTS = (RowChange, SchemaChange, Resolved, Bootstrap)
_EVERY = 4
"""One row in so many has its values converted on their own, where no other row's refusal comes first."""

LIVES = 2000
"""Messages after which a judge takes a new decoder, as the job does for each row pass; what a pass may keep has bounds
of its own (`decode/bounded.py`), so from then on memory does not grow."""

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
            `ddl refused`.
        slowest: CPU seconds of the slowest message.
    """

    feed: Feed
    clock: Callable[[], float] = time.thread_time
    counts: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    _decoder: Decoder = field(init=False)
    _versions: dict[tuple[TableName, int], TableVersion] = field(default_factory=dict)
    _left: int = 0

    def __post_init__(self) -> None:
        self._renew()

    def take(self, numbered: Sequence[tuple[int, Message]]) -> None:
        """Judge some messages: each for itself, then all in one row pass.

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
        self._pass(numbered)

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

    def _pass(self, numbered: Sequence[tuple[int, Message]]) -> None:
        try:
            self._run(numbered)
        except Exception as error:
            for number, message in numbered:
                try:
                    self._run([(number, message)])
                except Exception as alone:
                    what = f"breaks the row pass, {type(alone).__name__}: {alone}"
                    raise self._fault(number, message, what) from alone
            number, message = numbered[-1]
            numbers = ", ".join(str(number) for number, _ in numbered)
            what = f"messages {numbers} together break the row pass, {type(error).__name__}: {error}"
            raise self._fault(number, message, what) from error

    def _run(self, numbered: Sequence[tuple[int, Message]]) -> None:
        rows = [
            {"topic": "fuzz", "partition": 0, "offset": number, "key": key, "value": value}
            for number, (key, value) in numbered
        ]
        task = _Task(row_pass(self.feed), self._decoder)
        task.read(pa.RecordBatch.from_pylist(rows, MESSAGE_SCHEMA))
        found = pa.Table.from_pylist(list(task.findings()), FINDING_SCHEMA)
        findings = collect(found)
        self.counts["row pass refused"] += len(findings.bad)
        for bad in findings.bad:
            place = f"Cannot decode {self.feed.protocol} message at fuzz/0 offset {bad.offset}: "
            assert str(bad.error).startswith(place)


def row_pass(feed: Feed) -> RowPass:
    """The row pass of a feed: everything is to be applied, and all its tables are known."""
    return RowPass(
        protocol=feed.protocol,
        options=DecoderOptions(),
        rules=TypeRules(),
        include=(),
        versions=tuple(feed.versions),
        applied=0,
        applied_of={},
        upto=(1 << 63) - 1,
        typed={name: [version] for name, version in feed.typed.items()},
    )


def _named(error: DecodeError | SchemaChangeRefused) -> None:
    """A refusal is a sentence that can be printed, logged and kept."""
    assert error.what
    str(error).encode()
