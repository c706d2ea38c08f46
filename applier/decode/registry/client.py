"""Asks a schema registry for schemas and compatibility verdicts, by Confluent's REST interface.

It keeps no answer: `ConfluentReader` keeps schemas, and knows when to ask again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from applier.decode.registry.http import RegistryHttp
from applier.errors import RegistryError
from applier.runtime.stop_requests import STOPPING

if TYPE_CHECKING:
    from applier.config.registry import RegistrySection

T = TypeVar("T")

MAX_REFERENCES = 1000
"""Schemas that one schema may pull in."""


@dataclass(frozen=True, slots=True)
class RegistrySchema:
    """A schema as registered, of kind `AVRO`, `JSON` or `PROTOBUF`.

    Its references are the schemas of the names that it uses but does not define, those that others need first.
    """

    text: str
    kind: str = "AVRO"
    references: tuple[RegistrySchema, ...] = ()


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """One version of a subject; versions are numbered from 1 within it."""

    subject: str
    version: int
    schema_id: int
    schema: RegistrySchema


class Compatibility(msgspec.Struct, frozen=True):
    """The registry's verdict, whether a schema may become the next version of a subject.

    The messages say in the registry's words why not; some registries give none.
    """

    is_compatible: bool
    messages: tuple[str, ...] | None = None


class _Reference(msgspec.Struct, frozen=True):
    subject: str
    version: int


class _Registered(msgspec.Struct):
    text: str = msgspec.field(name="schema")
    kind: str | None = msgspec.field(name="schemaType", default=None)
    references: list[_Reference] | None = None


class _Version(_Registered, kw_only=True):
    id: int
    version: int


class _Subject(msgspec.Struct):
    subject: str


class SchemaRegistry:
    """A client. It connects at the first question, so building one costs nothing. One per thread.

    All methods raise RegistryError where the registry refuses or does not know, and TransientError where it could
    not be reached. Between two attempts it calls `sleep` with the seconds to wait.
    """

    def __init__(self, settings: RegistrySection, *, sleep: Callable[[float], None] = STOPPING.pause) -> None:
        self._http = RegistryHttp(settings, sleep)

    def schema(self, schema_id: int) -> RegistrySchema:
        """The schema of an id."""
        return self._resolve(self._get(_Registered, f"/schemas/ids/{schema_id}"))

    def subjects(self) -> list[str]:
        """Names of all subjects."""
        return self._get(list[str], "/subjects")

    def subjects_of(self, schema_id: int) -> list[str]:
        """Names of the subjects that hold a schema id."""
        return [found.subject for found in self._get(list[_Subject], f"/schemas/ids/{schema_id}/versions")]

    def versions(self, subject: str) -> list[int]:
        """Version numbers of a subject, ascending."""
        return sorted(self._get(list[int], f"/subjects/{_quoted(subject)}/versions"))

    def version(self, subject: str, version: int | None = None) -> SubjectVersion:
        """One version of a subject; None for the latest."""
        found = self._get(_Version, f"/subjects/{_quoted(subject)}/versions/{version or 'latest'}")
        return SubjectVersion(subject, found.version, found.id, self._resolve(found))

    def compatibility_level(self, subject: str) -> str:
        """Level that counts for a subject: its own, else the registry's; `NONE` where neither is set."""
        answer = self._first_of(f"/config/{_quoted(subject)}?defaultToGlobal=true", "/config")
        level = answer.get("compatibilityLevel", answer.get("compatibility"))
        return str(level) if level else "NONE"

    def mode(self, subject: str | None = None) -> str:
        """`READWRITE`, `READONLY` or `IMPORT` of a subject or the registry; a registry without modes is writable."""
        paths = ["/mode"] if subject is None else [f"/mode/{_quoted(subject)}?defaultToGlobal=true", "/mode"]
        return str(self._first_of(*paths).get("mode") or "READWRITE")

    def check(self, subject: str, text: str, version: int | None = None) -> Compatibility:
        """May this schema follow a version of a subject, None for the latest, at the subject's own level?"""
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/{version or 'latest'}?verbose=true"
        return _as(Compatibility, self._http.request("POST", path, {"schema": text}))

    def _first_of(self, *paths: str) -> dict[str, Any]:
        """The first answer that is not "not found"; {} where there is none."""
        answers = (_as(dict[str, Any], self._http.request("GET", path, missing={})) for path in paths)
        return next(filter(None, answers), {})

    def _get(self, kind: type[T], path: str) -> T:
        return _as(kind, self._http.request("GET", path))

    def _resolve(self, schema: _Registered) -> RegistrySchema:
        """A schema with everything it refers to, each name once, needed ones first."""
        found: dict[_Reference, RegistrySchema] = {}
        self._collect(schema.references, found, set())
        return RegistrySchema(schema.text, schema.kind or "AVRO", tuple(found.values()))

    def _collect(
        self, references: list[_Reference] | None, found: dict[_Reference, RegistrySchema], open_: set[_Reference]
    ) -> None:
        for place in references or ():
            if place in found:
                continue
            if place in open_ or len(open_) + len(found) >= MAX_REFERENCES:
                where = f"subject {place.subject} version {place.version}"
                raise RegistryError(f"The references of a schema run in a circle or are too many, at {where}.")
            needed = self._get(_Registered, f"/subjects/{_quoted(place.subject)}/versions/{place.version}")
            self._collect(needed.references, found, open_ | {place})
            found[place] = RegistrySchema(needed.text, needed.kind or "AVRO")


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _as(kind: type[T], answer: Any) -> T:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        what = f"The schema registry's answer is none of Confluent's interface: {error}."
        raise RegistryError(what, "check that [registry] url is that of the Confluent-compatible interface.") from error
