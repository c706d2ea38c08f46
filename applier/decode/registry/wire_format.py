"""Reads framed Avro datums, and keeps the schemas that they name.

The datum is read with the writer's schema, the one of its id, and never with a newer one: a decimal's scale, for
instance, may change without the registry seeing an incompatibility, and `7b` would become another number.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any, Protocol, TypeAlias

import fastavro
from fastavro.schema import parse_schema

from applier.changefeed.table import fingerprint
from applier.decode.bounded_cache import Bounded
from applier.decode.columnar import avro_reader
from applier.decode.registry.client import RegistrySchema
from applier.decode.registry.framing import CONFLUENT, Framing
from applier.errors import DecodeError, RegistryDenied, RegistryError, RegistryReplaced, SchemaUnknown, TransientError
from applier.runtime.figures import counted

AvroSchema: TypeAlias = Any
"""An Avro schema as JSON values: dictionary, list (a union) or name."""

UNKNOWN_FOR_SECONDS = 30.0
"""An id that the registry refuses is not asked for again before this in one pass, however many messages name it."""

_PLAIN = frozenset({"type", "name", "namespace", "items", "values", "symbols", "size"})
"""What the bytes of a datum depend on; logical types, defaults and TiCDC's own attributes are left to our readers."""


SHARE = 0.1
"""The most of the time that it may take to ask again for schemas that are known."""

_REPLACED_HINT = (
    "give the registry its former schemas with their ids back and start again; or begin anew: pause and resume the "
    "changefeed in TiCDC, which then registers its schemas again; then `applier forget -c FILE`, and "
    "`applier load -c FILE --from DIR` with an export made after that."
)


class SchemaSource(Protocol):
    """Where schemas come from; `registry.SchemaRegistry` in earnest."""

    def schema(self, schema_id: int) -> RegistrySchema:
        """The schema of an id; may block. Raises RegistryError or TransientError."""


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """The schema of one id, as registered.

    `read` reads one datum and raises what fastavro raises; `read_many` is None where the schema has types that only
    `read` knows. Equal fingerprints mean equal schemas. The version is that of `RegistrySchema`.
    """

    schema: AvroSchema
    fingerprint: int
    version: int
    read: Callable[[BytesIO], Any]
    read_many: avro_reader.ReadRecords | None


class RegistryReader:
    """Reads framed datums, and keeps each writer's schema parsed. Its clock counts monotonic seconds.

    A registry that was rebuilt gives an id to another schema, and messages show the id alone. So the schema of an id is
    compared with the one that was kept with the table versions, and asked for again in later passes. Asking takes at
    most `SHARE` of the time, however many ids there are and however slowly the registry answers. An id of Glue never
    means another schema: it is asked for once.
    """

    def __init__(
        self, registry: SchemaSource, clock: Callable[[], float] = time.monotonic, framing: Framing = CONFLUENT
    ) -> None:
        self.framing = framing
        self._registry = registry
        self._clock = clock
        self._writers: dict[int, WriterSchema] = {}
        self._kept: dict[int, WriterSchema] = {}
        self._expected: dict[int, int] = {}
        self._asked: dict[int, float] = {}
        self._seconds = float("inf")
        self._rests_until = float("-inf")
        self._refused: Bounded[int, tuple[float, RegistryError]] = Bounded()

    def restart(self) -> None:
        """Begin a pass: ask again for what the registry refused, and for schemas whose turn it is."""
        self._refused.clear()
        if self.framing.are_final:
            return
        self._kept |= self._writers
        self._writers, self._expected = {}, {}

    def expect(self, schemas: Iterable[tuple[int, int]]) -> None:
        """Take the fingerprints of the schemas of ids, as they were when their versions were kept."""
        if self.framing.are_final:
            return
        self._expected.update((number, text) for number, text in schemas if text)

    def fingerprints(self, *ids: int) -> tuple[tuple[int, int], ...]:
        """The numbers of ids but 0, each with the fingerprint of its schema; raises what `writer` raises."""
        return tuple((self.number(each), self.writer(each).fingerprint) for each in ids if each)

    def number(self, schema_id: int) -> int:
        """See `Framing.number`; 0 for no id. Raises what `writer` raises."""
        return self.framing.number(schema_id, self.writer(schema_id).version) if schema_id else 0

    def schema_id(self, data: bytes) -> int:
        """Schema id of a framed datum.

        Raises:
            DecodeError: It does not begin with the header.
        """
        return self.framing.schema_id(data)

    def writer(self, schema_id: int) -> WriterSchema:
        """The parsed schema of an id; asks the registry the first time.

        Raises:
            RegistryReplaced: It was another one before.
            RegistryError: The registry does not know it, or it is no Avro schema.
            TransientError: The registry could not be reached.
        """
        writer = self._writers.get(schema_id)
        if writer is not None:
            return writer
        kept = self._kept.get(schema_id)
        writer = self._fetched(schema_id) if kept is None else self._again(schema_id, kept)
        known = self._expected.get(schema_id, writer.fingerprint)
        if known != writer.fingerprint or (kept is not None and kept.fingerprint != writer.fingerprint):
            raise _replaced(schema_id, writer, kept)
        self._writers[schema_id] = writer
        return writer

    def _again(self, schema_id: int, kept: WriterSchema) -> WriterSchema:
        """The schema of an id that was read before; the registry is asked only when it is the id's turn.

        A registry that is away, or that does not know the id any more, does not show that it means another schema.
        """
        now = self._clock()
        if now < max(self._rests_until, self._asked[schema_id] + self._seconds * len(self._kept) / SHARE):
            return kept
        try:
            return self._asked_for(schema_id)
        except (RegistryError, TransientError):
            self._asked[schema_id] = self._clock()
            self._rests_until = self._clock() + (self._clock() - now) / SHARE
            return kept

    def _asked_for(self, schema_id: int) -> WriterSchema:
        before = self._clock()
        writer = parse_registered(schema_id, self._registry.schema(schema_id))
        self._asked[schema_id] = self._clock()
        # The first answer waits for a connection, too.
        self._seconds = min(self._seconds, self._asked[schema_id] - before)
        return writer

    def _fetched(self, schema_id: int) -> WriterSchema:
        asked, error = self._refused.get(schema_id, (float("-inf"), None))
        if error is not None and self._clock() - asked < UNKNOWN_FOR_SECONDS:
            # A new one each time: a traceback that grew with every message would keep all of them alive.
            raise _refusal(error, schema_id)
        try:
            return self._asked_for(schema_id)
        except RegistryDenied:
            raise
        except RegistryError as refused:
            self._refused[schema_id] = (self._clock(), refused)
            raise _refusal(refused, schema_id) from None

    def read(self, schema_id: int, data: bytes) -> Any:
        """Read the datum behind the header.

        Raises:
            DecodeError: It is not what its schema says.
        """
        writer = self.writer(schema_id)
        stream = BytesIO(data)
        stream.seek(self.framing.header_bytes)
        try:
            datum = writer.read(stream)
        except UnicodeDecodeError as error:
            raise DecodeError(f"A string in it is not UTF-8 (byte {error.start} of that string).") from error
        except Exception as error:  # fastavro raises many types for broken bytes
            raise DecodeError(f"It does not fit the writer's schema {schema_id} ({type(error).__name__}).") from error
        if stream.tell() != len(data):
            raise DecodeError(
                f"It is longer than its schema {schema_id} says, by {counted(len(data) - stream.tell(), 'byte')}."
            )
        return datum


def _replaced(schema_id: int, now: WriterSchema, before: WriterSchema | None) -> RegistryReplaced:
    """The refusal of an id that means another schema: messages from before and after cannot be distinguished."""
    names = _record_name(now) + ("" if before is None else f", before of {_record_name(before)}")
    what = (
        f"The schema registry gives another schema for id {schema_id} than when it was first read: now it is of "
        f"{names}. It was rebuilt, or is another one, and no id shows what its messages mean."
    )
    return RegistryReplaced(what, _REPLACED_HINT)


def _record_name(writer: WriterSchema) -> str:
    schema = writer.schema if isinstance(writer.schema, dict) else {}
    return f"{str(schema.get('namespace', '')).partition('.')[2]}.{schema.get('name', '')}".strip(".") or "no record"


def _refusal(error: RegistryError, schema_id: int) -> RegistryError:
    """The refusal of an id that the registry refused; that it is not there may change."""
    if isinstance(error, SchemaUnknown):
        return SchemaUnknown(error.what, error.hint, schema_id)
    return RegistryError(error.what, error.hint)


def parse_registered(schema_id: int, registered: RegistrySchema) -> WriterSchema:
    """The schema of an id, as the registry gives it.

    Raises:
        RegistryError: It is no Avro schema.
    """
    if registered.kind != "AVRO":
        raise RegistryError(f"Schema id {schema_id} is of type {registered.kind}, not AVRO.")
    texts = (registered.text, *(reference.text for reference in registered.references))
    try:
        schema, *references = (json.loads(text) for text in texts)
        named: dict[str, Any] = {}
        for reference in references:
            parse_schema(_plain(reference), named_schemas=named)
        parsed = parse_schema(_plain(schema), named_schemas=named)
        _refuse_recursion(parsed, frozenset())
    except Exception as error:  # fastavro raises many types for a schema that is none
        raise RegistryError(f"Schema id {schema_id} is not a valid Avro schema ({type(error).__name__}).") from error
    # Registries may write the same schema with other spaces, and its members in another order.
    shape = json.dumps([schema, *references], sort_keys=True)
    read_many = None
    with suppress(avro_reader.Unsupported):
        read_many = avro_reader.reader(parsed)
    read = partial(fastavro.schemaless_reader, writer_schema=parsed, reader_schema=None)
    return WriterSchema(schema, fingerprint(shape.encode()), registered.version, read, read_many)


def _refuse_recursion(schema: AvroSchema, open_names: frozenset[str]) -> None:
    """TiCDC's types never hold themselves, and fastavro would follow such a type until the process dies."""
    if isinstance(schema, str):
        if schema in open_names:
            raise ValueError(f"type {schema} holds itself")
    elif isinstance(schema, list):
        for branch in schema:
            _refuse_recursion(branch, open_names)
    else:
        inside = open_names | {schema["name"]} if "name" in schema else open_names
        for field in schema.get("fields", ()):
            _refuse_recursion(field["type"], inside)
        for part in ("type", "items", "values"):
            _refuse_recursion(schema.get(part, "null"), inside)


def _plain(schema: AvroSchema) -> AvroSchema:
    """The schema without what only readers of the values need."""
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        name: _plain(value) if name in ("type", "items", "values") else value
        for name, value in schema.items()
        if name in _PLAIN
    }
    if "fields" in schema:
        plain["fields"] = [{"name": field["name"], "type": _plain(field["type"])} for field in schema["fields"]]
    return plain
