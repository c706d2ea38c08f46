"""Recorded messages in Avro in, the same in the framing of AWS Glue Schema Registry out, and a registry with theirs.

The registry is moto's. Messages and schemas are as TiCDC's `glue_schema_registry.go` writes and registers them.
"""

from __future__ import annotations

import base64
import gzip
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from tests import recordings
from tests.services.glue import GlueServer, glue_server
from tests.services.s3 import ACCESS_KEY, REGION, SECRET_KEY, s3_server

_NAME = "ticdc-test"


@dataclass(frozen=True, slots=True)
class RegistryInGlue:
    """A running registry, empty at first.

    Attributes:
        glue: What answers, and what it refuses.
        section: The section `registry` of a configuration that names it.
        client: A client of it with all rights.
    """

    glue: GlueServer
    section: dict[str, Any]
    client: Any

    def register(self, name: str, schema: str, level: str = "NONE") -> uuid.UUID:
        """Make a schema the next version of a name, unless it is one already; its id."""
        place = {"RegistryName": _NAME, "SchemaName": name}
        try:
            answer = self.client.register_schema_version(SchemaId=place, SchemaDefinition=schema)
        except self.client.exceptions.EntityNotFoundException:
            answer = self.client.create_schema(
                RegistryId={"RegistryName": _NAME},
                SchemaName=name,
                DataFormat="AVRO",
                Compatibility=level,
                SchemaDefinition=schema,
            )
        return uuid.UUID(answer["SchemaVersionId"])

    def reframed(self, scenario: str, variant: str) -> Iterator[dict[str, Any]]:
        """The records of a variant, once its schemas are registered here."""
        entries = sorted(recordings.registry(scenario, variant), key=lambda entry: int(entry["id"]))
        ids = {(entry["subject"], entry["id"]): self.register(entry["subject"], entry["schema"]) for entry in entries}
        any_of = {number: name for (_, number), name in reversed(ids.items())}
        for record in recordings.records(scenario, variant):
            for part in ("key", "value"):
                data, stem = record[part], record["topic"].replace(".", "_" if variant != "debezium-avro" else ".")
                if data and data[0] == 0:
                    number = int.from_bytes(data[1:5], "big")
                    name = ids.get((f"{stem}-{part}", number)) or any_of[number]
                    record[part] = b"\3\0" + name.bytes + data[5:]
            yield record

    def archive(self, scenario: str, variant: str, folder: Path) -> Path:
        """The same as a file of recorded messages."""
        path = folder / f"{variant}-glue.jsonl.gz"
        with gzip.open(path, "wt", encoding="utf-8") as lines:
            for record in self.reframed(scenario, variant):
                for part in ("key", "value"):
                    record[part] = None if record[part] is None else base64.b64encode(record[part]).decode()
                lines.write(json.dumps(record) + "\n")
        return path


@contextmanager
def glue_registry() -> Iterator[RegistryInGlue]:
    """A running registry that is stopped at the end."""
    keys = {"region": REGION, "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
    with s3_server() as store, glue_server(store, "none") as glue:
        client = boto3.client(
            "glue",
            endpoint_url=store.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name=REGION,
        )
        client.create_registry(RegistryName=_NAME)
        try:
            yield RegistryInGlue(
                glue, {"type": "glue", "registry_name": _NAME, "endpoint": store.endpoint, **keys}, client
            )
        finally:
            client.delete_registry(RegistryId={"RegistryName": _NAME})
            client.close()
