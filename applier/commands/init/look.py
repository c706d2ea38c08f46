"""Looks at the topics that a first configuration names: partitions, offsets, and some messages of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from applier.changefeed.event import Bootstrap, Event, Resolved, RowChange, SchemaChange
from applier.changefeed.message import TopicPartition, rows_of
from applier.changefeed.table import TableName
from applier.changefeed.types import OPEN
from applier.changefeed.window import OffsetRange, Window
from applier.config.protocols import IN_TOPICS, PROTOCOLS
from applier.config.registry import RegistrySection
from applier.config.settings import parse
from applier.consume.source import Source
from applier.consume.spark import KafkaTopics, topics_alone
from applier.consume.window_size import WindowTooLargeError
from applier.ddl import parser
from applier.ddl.actions import CreateTable
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.decode.registry.framing import GLUE
from applier.decode.values.dates import ZonedText, is_nameless
from applier.errors import (
    BatchRefused,
    ClaimCheckUnset,
    DecodeError,
    IncompleteRow,
    SchemaChangeRefused,
    TransientError,
    ValueRefused,
)

_ROW, _NO_ROW = 0, (1, 2, 3)
"""First bytes of Avro messages: a row in a registry's framing, 3 with Glue, and what TiCDC writes without a schema."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What messages show.

    Attributes:
        messages: How many were looked at.
        protocols: Protocols that they may be of, most likely first: one where it is certain, none where none fits.
        has_watermark: A resolved ts is among them; None while the protocol is not certain.
        has_claim_checks: Rows lie in a claim-check storage.
        tables: Tables of which there are rows; none while the protocol is not certain.
        made: Those whose CREATE TABLE is among the messages: of the others, older rows may be missing from the topic.
        nameless: Those with a TIMESTAMP whose time zone TiCDC does not name.
        open: Those with columns whose type rows leave open.
        columns: Columns of tables of which a row after a change was seen.
    """

    messages: int = 0
    protocols: tuple[str, ...] = ()
    has_watermark: bool | None = None
    has_claim_checks: bool = False
    tables: tuple[TableName, ...] = ()
    made: frozenset[TableName] = frozenset()
    nameless: frozenset[TableName] = frozenset()
    open: frozenset[TableName] = frozenset()
    columns: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)


def decoders(registry: RegistrySection | None, only: str | None = None) -> dict[str, Decoder]:
    """A decoder of each protocol, or of one, that can be read: those of a registry need one."""
    names = [only] if only else list(IN_TOPICS)
    options = DecoderOptions(registry=registry)
    return {
        name: build(name, options)
        for name in names
        if registry is not None or PROTOCOLS[name].carries.schema != "registry"
    }


def detect(messages: Sequence[Mapping[str, Any]], readers: Mapping[str, Decoder]) -> Findings:
    """What messages, each with a `key` and a `value` in bytes, show to the decoders of some protocols.

    It raises TransientError where the schema registry does not answer.
    """
    read = {name: _read(messages, decoder) for name, decoder in readers.items()}
    likely = tuple(sorted((name for name, (count, _) in read.items() if count), key=lambda name: -read[name][0]))
    if len(likely) == 1:
        return replace(read[likely[0]][1], protocols=likely)
    return Findings(len(messages), likely or _of_registry(messages))


def _read(messages: Sequence[Mapping[str, Any]], decoder: Decoder) -> tuple[int, Findings]:
    """How many messages a decoder reads, and what they show by it."""
    count, has_claims, has_watermark = 0, False, False
    columns: dict[TableName, tuple[str, ...]] = {}
    rows, made, nameless, open_ = (set[TableName]() for _ in range(4))
    for message in messages:
        try:
            events = decoder.decode(message["key"], message["value"])
        except DecodeError as error:
            if isinstance(error, TransientError):
                raise
            # Such a message was read so far that it is of the protocol.
            parts = error.events if isinstance(error, BatchRefused) else (error,)
            count += any(isinstance(part, (IncompleteRow, ValueRefused)) for part in parts)
            has_claims |= any(isinstance(part, ClaimCheckUnset) for part in parts)
            continue
        count += bool(events)
        has_watermark |= any(isinstance(event, Resolved) for event in events)
        changes = [event for event in events if isinstance(event, RowChange)]
        rows |= {change.name for change in changes}
        for change in changes:
            columns[change.name] = tuple(dict.fromkeys((*columns.get(change.name, ()), *(change.after or ()))))
        made |= {table for event in events for table in _made(event)}
        nameless |= {change.name for change in changes if _is_nameless(change)}
        open_ |= {event.version.name for event in events if _is_open(event)}
    sets = [frozenset(names) for names in (made, nameless, open_)]
    return count, Findings(
        len(messages), (), has_watermark, has_claims, tuple(sorted(rows)), sets[0], sets[1], sets[2], columns
    )


def _is_nameless(row: RowChange) -> bool:
    values = (value for image in (row.before, row.after) for value in (image or {}).values())
    return any(isinstance(value, ZonedText) and is_nameless(value.location) for value in values)


def _is_open(event: Event) -> TypeGuard[Bootstrap]:
    """Whether rows describe a table, and leave the type of a column open."""
    return isinstance(event, Bootstrap) and any(column.type.name in OPEN for column in event.version.columns)


def _made(event: Event) -> list[TableName]:
    if not isinstance(event, SchemaChange):
        return []
    try:
        actions = parser.parse(event.sql, event.database, None, event.after.name if event.after else None)
    except SchemaChangeRefused:
        return []
    return [action.table for action in actions if isinstance(action, CreateTable)]


def _of_registry(messages: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Protocols of a registry that the first bytes of messages fit; () where they fit none."""
    firsts = {_ROW if GLUE.holds(value) else value[0] for value in (it["value"] for it in messages) if value}
    if not firsts or not firsts <= {_ROW, *_NO_ROW}:
        return ()
    return ("avro",) if firsts & set(_NO_ROW) else ("avro", "debezium-avro")


_EACH = 200
"""Messages at either end of a partition that are looked at."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What the topics show: the offsets that each partition holds, and what their messages are."""

    bounds: Mapping[TopicPartition, OffsetRange]
    findings: Findings


def look(kafka: Mapping[str, Any], registry: str | None, protocol: str | None) -> Sight:
    """Look at topics, for the address of a registry and a protocol that the user may name; changes nothing.

    The section `[source.kafka]` has `${NAME}` where a value is not to be shown.

    Raises:
        ConfigError: The section is not right, or there is no Java.
        SourceLost: There is no such topic.
        OutsideRefused: The topic may not be read.
        TransientError: The source or the registry does not answer.
    """
    raw: dict[str, Any] = {
        # The name of a consumer group, and what else a configuration needs; none of it has an effect here.
        "changefeed": {"name": "init", "protocol": "simple"},
        "source": {"kafka": dict(kafka)},
        "catalog": {"name": "lake", "type": "hadoop", "warehouse": "none"},
    }
    config = parse(raw | ({"registry": {"url": registry}} if registry else {}))
    with topics_alone(config) as source:
        bounds = source.bounds()
        return Sight(bounds, shown(source, bounds, config.registry, protocol))


def shown(
    source: Source | KafkaTopics,
    bounds: Mapping[TopicPartition, OffsetRange],
    registry: RegistrySection | None,
    protocol: str | None,
) -> Findings:
    """What the messages at both ends of each partition are; those of a protocol that is named, if it reads any."""
    messages: list[Mapping[str, Any]] = []
    for place, span in bounds.items():
        middle = min(span.end, span.start + _EACH)
        for part in (OffsetRange(span.start, middle), OffsetRange(max(middle, span.end - _EACH), span.end)):
            if part.end > part.start:
                messages += _messages(source, place, part)
    found = detect(messages, decoders(registry, protocol))
    # What the messages are instead is worth a second reading of them.
    return detect(messages, decoders(registry)) if protocol and protocol not in found.protocols else found


def _messages(source: Source | KafkaTopics, place: TopicPartition, part: OffsetRange) -> Sequence[Mapping[str, Any]]:
    """Messages of a part of a partition, from its end; fewer where they are too large for memory."""
    while True:
        try:
            return rows_of(source.collect(Window({place: part})))
        except WindowTooLargeError:
            if part.end - part.start == 1:
                return []
            part = OffsetRange((part.start + part.end) // 2, part.end)
