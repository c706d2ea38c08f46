"""A recorded message in Avro in, the same message without one of its members out.

In Confluent's framing a schema names the members: one that is left out is missing from the schema, and from the datum.
Simple-Avro has one schema for all messages, in which optional members are unions with null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from importlib.resources import files
from io import BytesIO
from typing import Any, TypeAlias

import fastavro

from applier.decode.avro.decoder import AvroDecoder
from applier.decode.debezium.avro_decoder import DebeziumAvroDecoder
from applier.decode.registry.client import RegistrySchema
from applier.decode.registry.framing import CONFLUENT
from tests import recordings
from tests.fuzz.corpus import Feed, Message
from tests.properties.left_out import Path, members, named, without
from tests.unit.decode.recorded_registry import RecordedRegistry

HEADER_BYTES = CONFLUENT.header_bytes

Changed: TypeAlias = tuple[str, Callable[[], Message]]
"""The name of what is left out, and the message without it."""

_SIMPLE = fastavro.parse_schema(json.loads(files("applier.decode.simple").joinpath("message.avsc").read_text("utf-8")))


def registered(feed: Feed) -> RecordedRegistry:
    """The registry of a feed, which its decoders ask from here on: schemas may be added to it."""
    registry = RecordedRegistry(feed.scenario, feed.variant)
    zone = recordings.config(feed.scenario, feed.variant)["server_time_zone"]
    is_avro = feed.protocol == "avro"
    feed.renew = lambda: AvroDecoder(registry, zone) if is_avro else DebeziumAvroDecoder(registry)
    # What the schemas say of types counts, not what DDL said.
    feed.typed = {}
    return registry


def framed_changes(feed: Feed, registry: RecordedRegistry, message: Message) -> Iterator[Changed]:
    """A message without each attribute of its schemas, and without each field."""
    for number, where in enumerate(("key", "value")):
        data = message[number]
        if not data or len(data) < HEADER_BYTES or data[0] != 0:
            continue
        schema = json.loads(registry.schema(int.from_bytes(data[1:HEADER_BYTES], "big")).text)
        for path in members(schema):
            changed = without(schema, [path])
            yield (
                f"{where} schema {_words(path)}",
                _put(registry, message, number, changed, data[HEADER_BYTES:]),
            )
        datum = fastavro.schemaless_reader(BytesIO(data[HEADER_BYTES:]), schema, None)
        for path, place in _fields(schema):
            changed = deepcopy(schema)
            fields = _at(changed, path)
            name = fields.pop(place)["name"]
            words = _field(feed, where, [*_names_on(schema, path), name])
            try:
                body = BytesIO()
                fastavro.schemaless_writer(body, changed, datum)
            except Exception:  # noqa: BLE001, S112  # a type that others refer to went with the field
                continue
            yield words, _put(registry, message, number, changed, body.getvalue())


def _field(feed: Feed, where: str, names: list[str]) -> str:
    """A field in words; names of columns are `*`."""
    if where == "key" or (feed.protocol == "avro" and len(names) == 1 and not names[0].startswith("_ti")):
        names = ["*"]
    elif names[0] in ("before", "after", "_ticdc_before") and len(names) > 1:
        names = [names[0], "*"]
    return f"{where} field {'.'.join(names)}"


def _put(registry: RecordedRegistry, message: Message, number: int, schema: Any, body: bytes) -> Callable[[], Message]:
    def put() -> Message:
        schema_id = max(registry.schemas) + 1
        registry.schemas[schema_id] = RegistrySchema(json.dumps(schema))
        data = b"\0" + schema_id.to_bytes(4, "big") + body
        return (data, message[1]) if number == 0 else (message[0], data)

    return put


def _words(path: Path) -> str:
    return ".".join("#" if isinstance(name, int) else name for name in path)


def _fields(schema: Any, path: Path = ()) -> Iterator[tuple[Path, int]]:
    """Paths of the lists of fields of all records, with each place in them."""
    pairs = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for name, inner in pairs:
        if name == "fields" and isinstance(inner, list):
            yield from (((*path, name), place) for place in range(len(inner)))
        yield from _fields(inner, (*path, name))


def _at(schema: Any, path: Path) -> Any:
    for name in path:
        schema = schema[name]
    return schema


def _names_on(schema: Any, path: Path) -> Iterator[str]:
    """Names of the fields on the way to a list of fields."""
    for end in range(2, len(path)):
        if path[end - 2] == "fields" and isinstance(path[end - 1], int):
            yield _at(schema, path[:end])["name"]


def simple_changes(message: Message) -> Iterator[Changed]:
    """A message of Simple-Avro without each optional member and each column."""
    key, value = message
    datum: Any = fastavro.schemaless_reader(
        BytesIO(value or b""), _SIMPLE, None, return_record_name_override=True, return_record_name=True
    )
    _, document = datum
    _, payload = document["payload"]
    if _written(datum, payload) != value:
        return
    for path in members(payload):
        try:
            changed = _written(datum, without(payload, [path]))
        except Exception:  # noqa: BLE001, S112  # the schema does not let the member be left out
            continue
        yield f"value {named(path)}", lambda changed=changed: (key, changed)  # type: ignore[misc]


def _written(datum: Any, payload: Any) -> bytes:
    """The bytes of a message with another payload."""
    name, document = datum
    kind, _ = document["payload"]
    body = BytesIO()
    fastavro.schemaless_writer(body, _SIMPLE, (name, {**document, "payload": (kind, payload)}))
    return body.getvalue()
