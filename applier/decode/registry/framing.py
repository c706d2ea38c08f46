"""The framings of Avro messages: what stands before each datum, and names its schema."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from applier.changefeed.table import fingerprint
from applier.errors import DecodeError, RegistryError

if TYPE_CHECKING:
    from applier.config.registry import RegistrySection

_MARKER_BYTES = 9
"""TiCDC's watermarks and deletes: a kind and a commit ts. One kind is the first byte of Glue's header, too."""


class GlueId(int):
    """A schema version id of AWS Glue; its text is the UUID."""

    def __str__(self) -> str:
        return str(uuid.UUID(int=self))


class Framing(Protocol):
    """How the serializers of one kind of registry write."""

    @property
    def header_bytes(self) -> int:
        """Bytes before each datum."""

    @property
    def are_final(self) -> bool:
        """Whether an id never means another schema, in any registry."""

    def holds(self, data: bytes) -> bool:
        """Whether a message is framed so; it may yet be damaged."""

    def schema_id(self, data: bytes) -> int:
        """Schema id of a framed datum. Raises DecodeError if it does not begin with the header."""

    def number(self, schema_id: int, version: int) -> int:
        """A number of 31 bits for a schema, higher for newer ones of a subject; it has a version there."""


@dataclass(frozen=True, slots=True)
class _Confluent:
    """Magic byte 0, four bytes of schema id. Newer schemas have higher ids."""

    header_bytes: int = 5
    are_final: bool = False

    def holds(self, data: bytes) -> bool:
        return data[:1] == b"\0"

    def schema_id(self, data: bytes) -> int:
        if len(data) >= self.header_bytes and data[0] == 0:
            return int.from_bytes(data[1:5], "big")
        if GLUE.holds(data) and len(data) >= GLUE.header_bytes:
            what = 'It begins with the header of AWS Glue Schema Registry, but [registry] type is "confluent".'
            raise DecodeError(what, 'set [registry] type = "glue", with region and registry_name.')
        start = data[:2].hex() or "nothing"
        what = f"It does not begin with the header of a Confluent schema registry, but with {start}."
        raise DecodeError(what, "is the protocol right?")

    def number(self, schema_id: int, version: int) -> int:  # noqa: ARG002 - the id is such a number
        return schema_id


@dataclass(frozen=True, slots=True)
class _Glue:
    """Version byte 3, a byte for the compression, a UUID. Ids are drawn at random, and show no order;
    versions of a schema do.
    """

    header_bytes: int = 18
    are_final: bool = True

    def holds(self, data: bytes) -> bool:
        return data[:1] == b"\3" and len(data) != _MARKER_BYTES

    def schema_id(self, data: bytes) -> int:
        if len(data) >= self.header_bytes and data[:2] == b"\3\0":
            return GlueId.from_bytes(data[2:18], "big")
        if len(data) >= self.header_bytes and data[:2] == b"\3\5":
            what = "Its Avro is compressed, as AWS's serializer for Java can write it and TiCDC never does."
            raise DecodeError(what, "keep other writers out of the topics of the changefeed.")
        if CONFLUENT.holds(data) and len(data) >= CONFLUENT.header_bytes:
            what = 'It begins with the header of a Confluent schema registry, but [registry] type is "glue".'
            raise DecodeError(what, 'set [registry] type = "confluent", with url.')
        start = data[:2].hex() or "nothing"
        what = f"It does not begin with the header of AWS Glue Schema Registry, but with {start}."
        raise DecodeError(what, "is the protocol right?")

    def number(self, schema_id: int, version: int) -> int:
        if not 0 < version < 1 << 15:
            raise RegistryError(f"Schema id {schema_id} is version {version} of its schema, which is beyond 32767.")
        # A schema that was deleted and made anew begins with version 1 again.
        return version << 16 | fingerprint(schema_id.to_bytes(16, "big")) & 0xFFFF


CONFLUENT, GLUE = _Confluent(), _Glue()


def framing_of(settings: RegistrySection | None) -> Framing:
    """The framing of the messages whose schemas a registry has."""
    return GLUE if settings is not None and settings.type == "glue" else CONFLUENT
