"""Opens the registry of a configuration: one that speaks Confluent's interface, or AWS Glue Schema Registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from applier.decode.registry.client import Compatibility, SchemaRegistry
from applier.decode.registry.glue import GlueRegistry
from applier.decode.registry.subjects import SubjectSource
from applier.decode.registry.wire_format import SchemaSource

if TYPE_CHECKING:
    from applier.config.registry import RegistrySection


class RegistryClient(SchemaSource, SubjectSource, Protocol):
    """What decoders and `check` ask. All methods raise as `SchemaRegistry` does, or as they say."""

    def subjects(self) -> list[str]:
        """Names of all subjects."""

    def compatibility_level(self, subject: str) -> str:
        """Level that counts for a subject."""

    def mode(self, subject: str) -> str:
        """`READONLY` for a subject that takes no new version, `READWRITE` for others."""

    def check(self, subject: str, text: str, version: int) -> Compatibility:
        """May this schema follow a version of a subject? Raises RegistryError where the registry cannot answer."""

    def way_to_none(self, subject: str) -> str:
        """How a person makes a subject take every schema, in a sentence."""

    def way_to_write(self, subject: str) -> str:
        """How a person makes a subject take new versions again, in a sentence."""


def open_registry(settings: RegistrySection) -> RegistryClient:
    """A client of a registry; it connects at the first question. One per thread."""
    return GlueRegistry(settings) if settings.type == "glue" else SchemaRegistry(settings)
