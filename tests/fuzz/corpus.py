"""Recorded messages to damage: name of a feed in, its decoder and one message of each kind out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from applier.changefeed.event import Bootstrap, SchemaChange
from applier.changefeed.table import TableName, TableVersion
from applier.decode.avro.decoder import AvroDecoder
from applier.decode.debezium.avro_decoder import DebeziumAvroDecoder
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.errors import DecodeError
from tests import expected, recordings
from tests.unit.decode.recorded_registry import RecordedRegistry

Message: TypeAlias = tuple[bytes | None, bytes | None]
"""Key and value."""

LARGEST = 20_000
"""Bytes of a message beyond which it is left out: time is better spent on many small ones."""

_PROTOCOLS = ("canal-json", "debezium-avro", "debezium", "avro", "open", "simple")
"""Longer names before those that they begin with."""


@dataclass(slots=True)
class Feed:
    """One recorded changefeed.

    Attributes:
        protocol: TiCDC's name of its protocol.
        scenario: Name of the scenario.
        variant: Name of the variant.
        messages: One of each kind and size.
        versions: Table versions that they bring or refer to.
        typed: Types and key of each table, as its DDL told them, where rows tell less.
        renew: Makes its decoder.
    """

    protocol: str
    scenario: str
    variant: str
    renew: Callable[[], Decoder]
    messages: list[Message] = field(default_factory=list)
    versions: list[TableVersion] = field(default_factory=list)
    typed: dict[TableName, TableVersion] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Scenario and variant."""
        return f"{self.scenario}/{self.variant}"


def protocol_of(variant: str) -> str:
    """TiCDC's name of a variant's protocol."""
    return next(name for name in _PROTOCOLS if variant.startswith(name))


def feeds(scenarios: Sequence[str], chosen: Sequence[str] = ()) -> list[Feed]:
    """The recorded feeds of some scenarios; of all variants, or of those that are named."""
    return [
        _feed(scenario, variant)
        for scenario in scenarios
        for variant in recordings.variants(scenario)
        if not chosen or variant in chosen
    ]


def _feed(scenario: str, variant: str) -> Feed:
    protocol = protocol_of(variant)
    feed = Feed(protocol, scenario, variant, _renew(protocol, scenario, variant))
    if protocol != "simple":
        feed.typed = expected.tables(recordings.expected(scenario))
    # What differs in its beginning or much in its length is another kind.
    found: dict[object, Message] = {}
    versions: dict[object, TableVersion] = {}
    decoder = feed.renew()
    for record in recordings.records(scenario, variant):
        key, value = record["key"], record["value"]
        for version in _versions(decoder, key, value):
            versions[version.name, version.version] = version
        if len(value or b"") < LARGEST:
            kind = record["topic"], (key or b"")[:60], (value or b"")[:70], len(value or b"") // 20
            found.setdefault(kind, (key, value))
    feed.messages, feed.versions = list(found.values()), list(versions.values())
    return feed


def _versions(decoder: Decoder, key: bytes | None, value: bytes | None) -> Iterator[TableVersion]:
    try:
        events = decoder.decode(key, value)
    except DecodeError:
        return  # Reduced to key columns, or in a claim check that nobody unpacked.
    for event in events:
        version = event.version if isinstance(event, Bootstrap) else None
        if isinstance(event, SchemaChange):
            version = event.after
        if version is not None:
            decoder.learn(version)
            yield version


def _renew(protocol: str, scenario: str, variant: str) -> Callable[[], Decoder]:
    zone = recordings.config(scenario, variant)["server_time_zone"]
    if protocol in ("avro", "debezium-avro"):
        registry = RecordedRegistry(scenario, variant)
        return lambda: AvroDecoder(registry, zone) if protocol == "avro" else DebeziumAvroDecoder(registry)
    folder = str(Path(tempfile.gettempdir()) / "no-claim-checks")
    return lambda: build(protocol, DecoderOptions(timezone=zone, claim_check=folder))
