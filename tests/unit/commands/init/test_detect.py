"""`applier init` recognises every recorded protocol by its messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from applier.commands.init.look import Findings, decoders, detect
from applier.decode.avro.decoder import AvroDecoder
from applier.decode.debezium.avro_decoder import DebeziumAvroDecoder
from applier.decode.decoder import Decoder
from tests import recordings
from tests.unit.decode.recorded_registry import RecordedRegistry

VARIANTS = [(name, variant) for name in ("ddl", "types", "midstream") for variant in recordings.variants(name)]

WITHOUT_WATERMARK = ("canal-json", "debezium-plain", "avro-plain")
"""Recorded with TiCDC's extension off."""


def protocol_of(variant: str) -> str:
    """The protocol that a variant was recorded in."""
    known = ("debezium-avro", "canal-json", "simple", "open", "avro", "debezium")
    return next(name for name in known if variant.startswith(name))


def ends(scenario: str, variant: str) -> list[Mapping[str, Any]]:
    """The first and the last messages of a recording."""
    found = list(recordings.records(scenario, variant))
    return [*found[:40], *found[-40:]]


def with_registry(scenario: str, variant: str) -> dict[str, Decoder]:
    """All decoders, with the registry as it was recorded."""
    registry = RecordedRegistry(scenario, variant)
    return decoders(None) | {
        "avro": AvroDecoder(registry, "UTC", registry),
        "debezium-avro": DebeziumAvroDecoder(registry),
    }


@pytest.mark.parametrize(("scenario", "variant"), VARIANTS)
def test_a_recorded_protocol_is_recognised(scenario: str, variant: str) -> None:
    """It alone, and whether it has a watermark; of a registry with its help."""
    protocol = protocol_of(variant)
    readers = with_registry(scenario, variant) if "avro" in protocol else decoders(None)

    findings = detect(ends(scenario, variant), readers)

    assert findings.protocols == (protocol,)
    assert findings.has_watermark == (variant not in WITHOUT_WATERMARK)


@pytest.mark.parametrize(
    ("scenario", "variant", "unmade"),
    [
        ("pk", "canal-json-ext", set()),
        ("pk", "open", set()),
        ("pk", "debezium", set()),
        ("pk", "simple-json", set()),
        ("midstream", "canal-json-ext", {"mid.acct", "mid.evt", "mid.tag"}),
    ],
)
def test_tables_without_a_create_table_are_told_apart(scenario: str, variant: str, unmade: set[str]) -> None:
    """Their older rows are in no message."""
    findings = detect(list(recordings.records(scenario, variant)), decoders(None))

    assert findings.tables
    assert {str(name) for name in findings.tables if name not in findings.made} == unmade


@pytest.mark.parametrize(
    ("variant", "protocols"),
    [
        ("avro-before-value", ("avro",)),
        ("avro-plain", ("avro", "debezium-avro")),
        ("debezium-avro", ("avro", "debezium-avro")),
    ],
)
def test_without_a_registry_first_bytes_are_all_there_is(variant: str, protocols: tuple[str, ...]) -> None:
    """What they leave open is not guessed."""
    findings = detect(ends("ddl", variant), decoders(None))

    assert (findings.protocols, findings.has_watermark) == (protocols, None)


def test_rows_in_the_framing_of_glue_are_seen() -> None:
    """Their first byte is that of a delete, which has nine bytes; both protocols can have it."""
    row = {"key": None, "value": b"\3\0" + bytes(16) + b"\2"}
    delete = {"key": b"\3\0" + bytes(16) + b"\2", "value": b"\3" + bytes(8)}

    assert detect([row], decoders(None)).protocols == ("avro", "debezium-avro")
    assert detect([row, delete], decoders(None)).protocols == ("avro",)


def test_rows_in_a_claim_check_storage_are_seen() -> None:
    """Without it they cannot be read."""
    messages = list(recordings.records("types", "simple-json-claimcheck-lz4"))

    assert detect(messages, decoders(None)).has_claim_checks


def test_what_is_of_no_protocol_is_not_guessed() -> None:
    """Nor is an empty topic."""
    noise = [{"key": None, "value": b"hello"}, {"key": b"\x00", "value": None}]

    assert detect(noise, decoders(None)) == Findings(2)
    assert detect([], decoders(None)) == Findings()


@pytest.mark.parametrize("zone", ["Local", "System", ""])
def test_a_zone_that_ticdc_does_not_name_is_seen(zone: str) -> None:
    """`applier run` refuses its values without `changefeed.timezone`, so `check` and `init` say so before."""
    named = list(recordings.records("types", "simple-json"))
    bare = [
        {**message, "value": message["value"].replace(b'"location":"UTC"', f'"location":"{zone}"'.encode())}
        for message in named
    ]

    assert detect(named, decoders(None)).nameless == frozenset()
    assert {name.table for name in detect(bare, decoders(None)).nameless} >= {"t_time", "t_zero"}


def test_tables_whose_rows_leave_types_open_are_seen() -> None:
    """Debezium with TiDB's types names them all; without, strings and wide integers may be of several types."""
    plain = detect(list(recordings.records("types", "debezium-plain")), decoders(None))

    assert detect(list(recordings.records("types", "debezium")), decoders(None)).open == frozenset()
    assert {"t_bin", "t_int", "t_text"} <= {name.table for name in plain.open}
    assert plain.open <= plain.made
