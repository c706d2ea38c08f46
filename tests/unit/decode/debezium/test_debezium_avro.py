"""Debezium in Avro with schemas that TiCDC does not write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from applier.decode.debezium.avro_decoder import DebeziumAvroDecoder
from applier.decode.registry.client import RegistrySchema
from applier.errors import DecodeError


class OneSchema:
    """A registry whose schemas are all the same."""

    def __init__(self, schema: Any) -> None:
        self.text = json.dumps(schema)

    def schema(self, schema_id: int) -> RegistrySchema:
        """The schema."""
        return RegistrySchema(self.text)


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    """A record schema."""
    return {"type": "record", "name": "r", "fields": list(fields)}


SOURCE = {
    "name": "source",
    "type": {
        "type": "record",
        "name": "Source",
        "fields": [
            {"name": "db", "type": "string"},
            {"name": "table", "type": "string"},
            {"name": "commit_ts", "type": "long"},
        ],
    },
}
OP = {"name": "op", "type": "string"}


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ("int", b"\x02"),
        (record(OP), b"\x02c"),
        (record(SOURCE), b"\x02a\x02b\x02"),
        (record(SOURCE, {"name": "op", "type": "int"}), b"\x02a\x02b\x02\x02"),
        (record(SOURCE, OP), b"\x02a\x02b\x01\x02m"),
        (record(SOURCE, {"name": "ddl", "type": "int"}), b"\x02a\x02b\x02\x02"),
        (
            record(SOURCE, OP, {"name": "after", "type": {"type": "map", "values": "int"}}),
            b"\x02a\x02b\x02\x02c\x02\x02k\x02\x00",
        ),
    ],
)
def test_a_schema_of_another_writer_is_refused(schema: Any, body: bytes) -> None:
    """Records that lack source, op or rows, or hold them in other types, are not Debezium's."""
    with pytest.raises(DecodeError, match="is not one that TiCDC generates for protocol debezium-avro"):
        DebeziumAvroDecoder(OneSchema(schema)).decode(b"", b"\0\0\0\0\1" + body)
