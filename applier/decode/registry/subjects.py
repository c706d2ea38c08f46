"""Finds all schemas of the subjects of a topic: what a registry knows beside the schema of a message.

TiCDC registers the values of a topic as subject `<topic>-value`. The decoders ask only where a message leaves something
open, and keep the answer.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from applier.decode.bounded_cache import Bounded
from applier.decode.registry.client import SubjectVersion
from applier.decode.registry.wire_format import AvroSchema
from applier.errors import RegistryError


class SubjectSource(Protocol):
    """Where subjects come from; `registry.SchemaRegistry` in earnest. All methods raise as it does."""

    def subjects_of(self, schema_id: int) -> list[str]:
        """Names of the subjects that hold a schema id."""

    def versions(self, subject: str) -> list[int]:
        """Version numbers of a subject."""

    def version(self, subject: str, version: int) -> SubjectVersion:
        """One version of a subject."""


class Subjects:
    """Schemas of subjects, each asked for once; none without a source, where only ids are known."""

    def __init__(self, source: SubjectSource | None) -> None:
        self._source = source
        self._of_id: Bounded[int, tuple[AvroSchema, ...]] = Bounded()
        self._of_topic: Bounded[str, tuple[AvroSchema, ...]] = Bounded()

    def beside(self, schema_id: int) -> tuple[AvroSchema, ...]:
        """All schemas of the subjects that hold an id, its own included; () where the registry does not say.

        Raises:
            TransientError: The registry could not be reached.
        """
        if schema_id not in self._of_id:
            try:
                subjects = [] if self._source is None else self._source.subjects_of(schema_id)
            except RegistryError:
                subjects = []
            self._of_id[schema_id] = tuple(schema for subject in subjects for schema in self._all(subject))
        return self._of_id[schema_id]

    def of_topic(self, topic: str) -> tuple[AvroSchema, ...]:
        """All schemas of the values of a topic; () where the registry does not say.

        Raises:
            TransientError: The registry could not be reached.
        """
        if topic not in self._of_topic:
            self._of_topic[topic] = self._all(f"{topic}-value")
        return self._of_topic[topic]

    def _all(self, subject: str) -> tuple[AvroSchema, ...]:
        if self._source is None:
            return ()
        try:
            found = [self._source.version(subject, number) for number in self._source.versions(subject)]
            schemas: list[Any] = [json.loads(item.schema.text) for item in found if item.schema.kind == "AVRO"]
        except (RegistryError, ValueError):
            return ()
        return tuple(schemas) if len(schemas) == len(found) else ()
