"""Schemas as TiCDC declares them for Avro, and messages written with them."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro

from applier.decode.registry.client import RegistrySchema, SubjectVersion
from applier.errors import RegistryError, SchemaUnknown

EXTENSION: list[dict[str, Any]] = [
    {"name": "_tidb_op", "type": "string", "default": ""},
    {"name": "_tidb_commit_ts", "type": "long", "default": 0},
    {"name": "_tidb_commit_physical_time", "type": "long", "default": 0},
]
TS = 470606910877335552


def column(name: str, tidb: str, avro: str, *, null: str = "", **more: Any) -> dict[str, Any]:
    """A field as TiCDC declares it; `null` puts NULL `first` or `last` into a union."""
    parameters = {"tidb_type": tidb} | {k: more.pop(k) for k in ("length", "allowed") if k in more}
    field_default = {k: more.pop(k) for k in ("default",) if k in more}
    kind: Any = {"type": avro, "connect.parameters": parameters, **more}
    unions: dict[str, Any] = {"": kind, "first": ["null", kind], "last": [kind, "null"]}
    return {"name": name, "type": unions[null], **field_default}


def record(*fields: dict[str, Any], name: str = "t", namespace: str = "default.shop") -> dict[str, Any]:
    """A record schema."""
    return {"type": "record", "name": name, "namespace": namespace, "fields": list(fields)}


class Schemas:
    """Schemas by id, and messages written with them by fastavro's own writer."""

    def __init__(self, **schemas: Any) -> None:
        self.schemas = dict(enumerate(schemas.values(), 1))
        self.ids = {name: number for number, name in enumerate(schemas, 1)}
        self.subjects: dict[str, list[str]] = {}

    def schema(self, schema_id: int) -> RegistrySchema:
        """The schema of an id."""
        if schema_id not in self.schemas:
            raise SchemaUnknown("It is unknown.", schema_id=schema_id)
        return RegistrySchema(json.dumps(self.schemas[schema_id]))

    def subjects_of(self, schema_id: int) -> list[str]:
        """Subjects that hold a schema id."""
        return [subject for subject, names in self.subjects.items() if schema_id in map(self.ids.get, names)]

    def versions(self, subject: str) -> list[int]:
        """Versions of a subject, one for each of its schemas."""
        if subject not in self.subjects:
            raise RegistryError("It is unknown.")
        return [number for number, _ in enumerate(self.subjects[subject], 1)]

    def version(self, subject: str, version: int) -> SubjectVersion:
        """One version of a subject."""
        schema_id = self.ids[self.subjects[subject][version - 1]]
        return SubjectVersion(schema_id, self.schema(schema_id))

    def message(self, name: str, **values: Any) -> bytes:
        """A framed datum."""
        number, body = self.ids[name], BytesIO()
        fastavro.schemaless_writer(body, self.schemas[number], values)
        return b"\0" + number.to_bytes(4, "big") + body.getvalue()


ID = column("id", "BIGINT", "long")
