"""Schemas and bytes that are not TiCDC's Avro, and schemas that need others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from applier.decode.avro.decoder import AvroDecoder
from applier.decode.registry.client import RegistrySchema
from applier.decode.registry.wire_format import RegistryReader
from applier.errors import DecodeError, RegistryError, TransientError
from tests.unit.decode.avro_messages import EXTENSION, ID, Schemas, column, record


def broken_schemas() -> list[tuple[str, Any]]:
    """Schemas that TiCDC does not write for the avro protocol."""
    return [
        ("no record", "int"),
        ("no namespace", {"type": "record", "name": "t", "fields": []}),
        ("no database", record(ID, namespace="default")),
        ("foreign field", record(ID, {"name": "x", "type": "string"})),
        ("unknown type", record(ID, column("c", "GEOMETRY", "bytes"))),
        ("bit without length", record(ID, column("c", "BIT", "bytes"))),
        ("decimal without precision", record(ID, column("c", "DECIMAL", "bytes"))),
        ("no column", record(*EXTENSION)),
        ("no op beside the commit ts", record(ID, *EXTENSION[1:])),
        ("no commit ts beside the physical time", record(ID, EXTENSION[0], EXTENSION[2])),
        ("debezium", record({"name": "before", "type": ["null", "string"]})),
    ]


@pytest.mark.parametrize(("what", "schema"), broken_schemas())
def test_a_schema_of_another_writer_is_refused(what: str, schema: Any) -> None:
    """The error names the schema id and asks whether the protocol is right."""
    schemas = Schemas(key=record(ID), value=schema)

    with pytest.raises(RegistryError, match="Schema id 2 is not one that TiCDC generates for protocol avro") as caught:
        AvroDecoder(schemas).decode(schemas.message("key", id=1), b"\0\0\0\0\2" + bytes(20))

    assert "protocol" in caught.value.hint, what


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (b"", "It begins with nothing and has 0 bytes"),
        (b"\0\0\0", "does not begin with the header"),
        (b"\x01", "begins with the mark of a DDL"),
        (b"\x01{}", "begins with the mark of a DDL"),
        (b'\x01{"query":1,"commitTs":2}', "begins with the mark of a DDL"),
        (b"\x02\0", "It begins with 0200 and has 2 bytes"),
        (b"\x02" + b"\xff" * 8, "Its resolved ts is no TSO"),
        (b"\x03" + b"\xff" * 8, "Its commit ts is no TSO"),
        (b"\x03\x00" + bytes(16) + b"row", "It begins with the header of AWS Glue Schema Registry"),
        (b"{}", "It begins with 7b7d"),
        (b"\0\0\0\0\x09", "It is unknown"),
        (b"\0\0\0\0\2", r"does not fit the writer's schema 2 \(EOFError\)"),
        (b"\0\0\0\0\2\x02\x02\xff", "A string in it is not UTF-8"),
        (b"\0\0\0\0\2\x02\x02a\x00", "longer than its schema 2 says, by 1 byte"),
    ],
)
def test_bytes_that_are_no_message_are_refused(value: bytes, what: str) -> None:
    """Each kind of broken message has its own sentence, none shows what the message holds."""
    schemas = Schemas(key=record(ID), value=record(ID, column("c", "TEXT", "string")))

    with pytest.raises(DecodeError, match=what):
        AvroDecoder(schemas).decode(schemas.message("key", id=1), value)


def test_a_registry_that_is_down_stops_the_message_only_for_now() -> None:
    """A TransientError of the registry passes through, so that the message is tried again."""

    class Down:
        """A registry that nobody reaches."""

        def schema(self, schema_id: int) -> RegistrySchema:
            """Fail."""
            raise TransientError("The schema registry could not be reached.")

    with pytest.raises(TransientError):
        AvroDecoder(Down()).decode(b"\0\0\0\0\1", b"\0\0\0\0\2")


@pytest.mark.parametrize("kind", ["default.shop.t", ["null", "default.shop.t"], {"type": "array", "items": "t"}])
def test_a_schema_that_holds_itself_is_refused(kind: Any) -> None:
    """Its reader would go ever deeper, as the bytes tell it, and take the process down with it."""
    schemas = Schemas(key=record(ID), value=record(ID))
    schemas.schemas[2] = record(ID, {"name": "_ticdc_before", "type": kind})

    with pytest.raises(RegistryError, match=r"Schema id 2 is not a valid Avro schema \(ValueError\)"):
        AvroDecoder(schemas).decode(schemas.message("key", id=1), b"\0\0\0\0\2" + b"\2" * 100_000)


def test_named_types_of_references_are_found() -> None:
    """A schema that uses a type of another subject is read with both."""

    class Referring:
        """One schema that refers to another."""

        def schema(self, schema_id: int) -> RegistrySchema:
            """Both schemas, the needed one first."""
            outer = record(ID, {"name": "other", "type": ["null", "default.shop.inner"], "default": None})
            inner = record(ID, name="inner")
            return RegistrySchema(json.dumps(outer), references=(RegistrySchema(json.dumps(inner)),))

    assert RegistryReader(Referring()).read(2, b"\0\0\0\0\2\x02\x02\x04") == {"id": 1, "other": {"id": 2}}


def test_a_schema_of_another_kind_is_refused() -> None:
    """A registry may hold JSON and Protobuf schemas; an id of one is named as what it is."""

    class Foreign:
        """A JSON schema."""

        def schema(self, schema_id: int) -> RegistrySchema:
            """The schema."""
            return RegistrySchema("{}", kind="JSON")

    with pytest.raises(RegistryError, match="Schema id 2 is of type JSON, not AVRO"):
        RegistryReader(Foreign()).writer(2)
