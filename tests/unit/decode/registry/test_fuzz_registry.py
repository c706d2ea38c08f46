"""Broken bytes and broken schemas against the Avro and Debezium decoders: a named error or an event, nothing else."""

from __future__ import annotations

import contextlib
import random
import re
from typing import Any

import pytest

from applier.changefeed.event import Bootstrap, Image, RowChange, SchemaChange
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.decode.avro.decoder import AvroDecoder
from applier.decode.debezium.avro_decoder import DebeziumAvroDecoder
from applier.decode.debezium.json_decoder import DebeziumDecoder
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions
from applier.decode.registry.client import RegistrySchema
from applier.decode.values.convert import to_array
from applier.errors import DecodeError, ValueRefused
from tests import recordings
from tests.unit.decode.recorded_registry import RecordedRegistry

pytestmark = pytest.mark.slow

ROUNDS = 3000
VARIANTS = (
    "avro-precise",
    "avro-string-checksum",
    "avro-before-value",
    "debezium",
    "debezium-noschema",
    "debezium-avro",
)
PIECES = (
    b"\xff" * 9 + b"\x01",
    b"\x80" * 40,
    b"[" * 3000,
    b'{"a":' * 3000,
    b"9" * 400,
    b"\xc3\x28",
    b"null",
    b"\0",
    b"",
)

Message = tuple[bytes | None, bytes | None]


def decoder(variant: str, registry: Any) -> Decoder:
    """A new decoder of a variant's protocol."""
    if variant == "debezium-avro":
        return DebeziumAvroDecoder(registry)
    return AvroDecoder(registry) if variant.startswith("avro") else DebeziumDecoder(DecoderOptions())


def samples(variant: str) -> list[Message]:
    """Recorded messages of each kind, the large ones left out."""
    found = {
        (r["topic"], (r["value"] or b"")[:70], len(r["value"] or b"") // 50): (r["key"], r["value"])
        for r in recordings.records("types", variant)
    }
    return [(key, value) for key, value in found.values() if len(value or b"") < 20_000]


def damaged(data: bytes | None, dice: random.Random) -> bytes | None:
    """The same bytes with something done to them."""
    if not data:
        return dice.choice((None, b"", b"\0"))
    broken = bytearray(data)
    at = dice.randrange(len(broken))
    match dice.randrange(6):
        case 0:
            broken[at] ^= 1 << dice.randrange(8)
        case 1:
            broken[at] = dice.choice(b"\x00\x01\x02\x03\x22\x7b\x7d\x7f\x80\xfe\xff")
        case 2:
            del broken[at:]
        case 3:
            del broken[at : at + dice.randrange(1, 9)]
        case 4:
            broken[at:at] = dice.choice(PIECES)
        case _:
            broken = bytearray(dice.randbytes(dice.randrange(40)))
    return bytes(broken)


class Outcome:
    """Decodes messages as the row pass would, arrays included, and lets only our errors pass."""

    def __init__(self, tested: Decoder) -> None:
        self.decoder = tested
        self.versions: dict[tuple[TableName, int], TableVersion] = {}
        self.errors = self.rows = 0

    def take(self, message: Message) -> None:
        """Decode one message."""
        try:
            for event in self.decoder.decode(*message):
                if isinstance(event, Bootstrap):
                    self.versions[event.version.name, event.version.version] = event.version
                elif isinstance(event, SchemaChange) and event.after is not None:
                    self.decoder.learn(event.after)
                    self.versions[event.after.name, event.after.version] = event.after
                elif isinstance(event, RowChange):
                    self.rows += 1
                    self.convert(event)
        except DecodeError:
            self.errors += 1

    def convert(self, row: RowChange) -> None:
        """Make arrays of both images; values may be refused, too."""
        version = self.versions.get((row.name, row.version))
        images: list[Image] = [image for image in (row.before, row.after) if image is not None]
        for column in version.columns if version is not None else ():
            for image in images:
                if column.name in image:
                    with contextlib.suppress(ValueRefused):
                        to_array(
                            [image[column.name]], column, self.decoder.wire, TypeRules(), f"{row.name}.{column.name}"
                        )


@pytest.mark.soak
@pytest.mark.parametrize("variant", VARIANTS)
def test_damaged_messages_lead_to_events_or_named_errors(variant: str) -> None:
    """Thousands of flipped, cut, swollen and random keys and values raise nothing but DecodeError."""
    dice, messages = random.Random(variant), samples(variant)
    registry = RecordedRegistry("types", variant) if "avro" in variant else None
    outcome = Outcome(decoder(variant, registry))
    for message in messages:
        outcome.take(message)
    assert outcome.errors == 0
    for _ in range(ROUNDS):
        key, value = dice.choice(messages)
        outcome.take((damaged(key, dice), value) if dice.randrange(4) == 0 else (key, damaged(value, dice)))

    assert outcome.errors > ROUNDS / 10
    assert outcome.rows > 100


class DamagedRegistry(RecordedRegistry):
    """A recorded registry one of whose schemas is broken at each question."""

    def __init__(self, variant: str, dice: random.Random) -> None:
        super().__init__("types", variant)
        self.dice = dice

    def schema(self, schema_id: int) -> RegistrySchema:
        """A schema with words exchanged, or text cut out."""
        text = super().schema(schema_id).text
        words = re.findall(r'"[^"]*"|\d+|null|[\[\]{}]', text)
        old, new = self.dice.choice(words), self.dice.choice([*words, '"x"', "-1", "[]", "{}", "1e9", ""])
        return RegistrySchema(text.replace(old, new, self.dice.choice((1, -1))))


@pytest.mark.parametrize("variant", ["avro-precise", "avro-before-value", "debezium-avro"])
def test_damaged_schemas_lead_to_events_or_named_errors(variant: str) -> None:
    """Whatever schema the registry gives for an id, nothing but a DecodeError comes of it."""
    dice, messages = random.Random(variant), samples(variant)
    errors = 0
    for _ in range(600):
        outcome = Outcome(decoder(variant, DamagedRegistry(variant, dice)))
        outcome.take(dice.choice(messages))
        errors += outcome.errors

    assert errors > 100
