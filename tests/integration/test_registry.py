"""The schema registry client against a real registry that speaks Confluent's interface."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from applier.changefeed.event import RowChange
from applier.config.registry import RegistrySection
from applier.decode.avro.decoder import AvroDecoder
from applier.decode.registry.client import SchemaRegistry
from applier.errors import RegistryError
from tests import recordings
from tests.services.registry import Registry
from tests.unit.decode.recorded_registry import RecordedRegistry


def _client(registry: Registry) -> SchemaRegistry:
    return SchemaRegistry(RegistrySection(url=registry.url))


def _record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "t", "namespace": "default.shop", "fields": list(fields)})


ID: dict[str, Any] = {"name": "id", "type": "long"}
NEW: dict[str, Any] = {"name": "new", "type": "long"}


def test_subjects_versions_and_schemas_come_back(registry: Registry) -> None:
    """What was registered is found by subject, by version and by id; the same text keeps its id."""
    first = registry.register("live_versions-value", _record(ID))
    second = registry.register("live_versions-value", _record(ID, {**NEW, "default": 0}))
    assert registry.register("live_versions-value", _record(ID)) == first
    client = _client(registry)

    assert "live_versions-value" in client.subjects()
    assert client.versions("live_versions-value") == [1, 2]
    assert client.version("live_versions-value", 2).schema_id == second
    assert client.version("live_versions-value", 1).schema_id == first
    assert json.loads(client.schema(first).text) == json.loads(_record(ID))


_ASK: dict[str, Callable[[SchemaRegistry], object]] = {
    "schema": lambda client: client.schema(2_000_000_000),
    "versions": lambda client: client.versions("live_nowhere-value"),
    "version": lambda client: client.version("live_nowhere-value", 1),
}


@pytest.mark.parametrize("ask", _ASK)
def test_what_is_unknown_is_a_named_error(registry: Registry, ask: str) -> None:
    """404 of the real registry, whatever its code, becomes one sentence."""
    client = _client(registry)

    with pytest.raises(RegistryError, match=r"answers 404 \(404\d\d\): "):
        _ASK[ask](client)


def test_a_level_and_a_mode_are_always_told(registry: Registry) -> None:
    """Apicurio answers for a subject without a level of its own, or not at all: the client says NONE and READWRITE."""
    registry.register("live_level-value", _record(ID))
    client = _client(registry)

    assert client.compatibility_level("live_level-value") == "NONE"
    assert client.mode("live_level-value") == "READWRITE"
    assert client.check("live_level-value", _record(ID, NEW), 1).is_compatible


def test_recorded_messages_are_decoded_with_its_schemas(registry: Registry) -> None:
    """A recorded feed, its ids exchanged for those that the registry gives, is decoded to the same rows."""
    recorded = RecordedRegistry("pk", "avro-before-value")
    ids = {
        entry["id"]: registry.register(f"live_{entry['subject']}", entry["schema"])
        for entry in recordings.registry("pk", "avro-before-value")
    }
    live, still = AvroDecoder(_client(registry)), AvroDecoder(recorded)
    for record in recordings.records("pk", "avro-before-value"):
        pair = record["key"], record["value"]
        found, wanted = (
            [(e.name, e.op, e.before, e.after) for e in events if isinstance(e, RowChange)]
            for events in (live.decode(*(_framed(data, ids) for data in pair)), still.decode(*pair))
        )

        assert found == wanted


def _framed(data: bytes | None, ids: dict[int, int]) -> bytes | None:
    """The datum under the id of another registry."""
    if not data or data[0] != 0:
        return data
    return b"\0" + ids[int.from_bytes(data[1:5], "big")].to_bytes(4, "big") + data[5:]
