"""One decoder serves all passes of a thread, and each pass reads what a new decoder would."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from applier.changefeed.event import Bootstrap, Event, SchemaChange
from applier.config.registry import RegistrySection
from applier.decode.columnar import groups
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions
from applier.decode.protocols import decoder_of_thread
from applier.errors import DecodeError
from tests import recordings
from tests.fake_registry import Answer, fake_registry
from tests.unit.decode.contract import recorded_decoder

VARIANTS = (
    "simple-json",
    "simple-avro",
    "open",
    "canal-json-ext",
    "avro-precise",
    "avro-string-checksum",
    "debezium",
    "debezium-noschema",
    "debezium-avro",
)


def _read(decoder: Decoder, messages: Sequence[tuple[bytes | None, bytes | None]]) -> list[Event]:
    """What a pass finds in messages; like the row pass it makes versions known that a message describes."""
    found: list[Event] = []
    for key, value in messages:
        with suppress(DecodeError):
            for event in decoder.decode(key, value):
                found.append(event)
                version = event.version if isinstance(event, Bootstrap) else getattr(event, "after", None)
                if version is not None and isinstance(event, Bootstrap | SchemaChange):
                    decoder.learn(version)
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pass_reads_what_a_new_decoder_reads(variant: str, tmp_path: Path) -> None:
    """Behind `restart` a decoder announces each version again, and gives the same rows."""
    decoder = recorded_decoder("ddl", variant, tmp_path)
    messages = [(record["key"], record["value"]) for record in recordings.records("ddl", variant)]

    first = _read(decoder, messages)
    decoder.restart()

    assert _read(decoder, messages) == first
    assert _read(recorded_decoder("ddl", variant, tmp_path), messages) == first


def test_a_pass_reads_at_once_what_an_earlier_one_has_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a known version need no other one before them that is read by itself."""
    monkeypatch.setattr(groups, "FEWEST", 1)
    decoder = recorded_decoder("pk", "canal-json-ext", tmp_path)
    messages = [(record["key"], record["value"]) for record in recordings.records("pk", "canal-json-ext")][:200]
    versions = [event.version for event in _read(decoder, messages) if isinstance(event, Bootstrap)]
    assert decoder.bulk is not None
    keys, values = [key for key, _ in messages], [value for _, value in messages]
    blocks, rest = decoder.bulk.read(keys, values)

    decoder.restart()
    for version in versions:
        decoder.learn(version)
    again, left = decoder.bulk.read(keys, values)

    assert left == rest
    assert [len(block.places) for block in again] == [len(block.places) for block in blocks] != []


def test_a_thread_keeps_the_decoder_of_its_changefeed() -> None:
    """Another thread has a decoder of its own, and so has another changefeed."""
    mine = decoder_of_thread("simple", DecoderOptions())
    others: list[Decoder] = []
    thread = threading.Thread(target=lambda: others.append(decoder_of_thread("simple", DecoderOptions())))
    thread.start()
    thread.join()

    assert decoder_of_thread("simple", DecoderOptions()) is mine
    assert others != [mine]
    assert decoder_of_thread("simple", DecoderOptions(timezone="Asia/Shanghai")) is not mine
    assert type(decoder_of_thread("open", DecoderOptions())) is not type(mine)


def test_passes_ask_the_registry_for_a_schema_once() -> None:
    """A schema id never changes its meaning."""
    schema = '{"type":"record","name":"t","namespace":"default.shop","fields":[]}'
    with fake_registry() as registry:
        registry.on("/schemas/ids/1", Answer(200, {"schema": schema}))
        for _ in range(2):
            decoder = decoder_of_thread("debezium-avro", DecoderOptions(registry=RegistrySection(url=registry.url)))
            with pytest.raises(DecodeError):
                decoder.decode(None, b"\0\0\0\0\1")

    assert [request.path for request in registry.requests] == ["/schemas/ids/1"]
