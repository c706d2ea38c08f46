"""Asks a schema registry for schemas and compatibility verdicts, by Confluent's REST interface.

A schema id never changes its meaning, so a schema is asked for once and kept; no message causes traffic of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from applier.decode.registry.http import NotFound, RegistryHttp
from applier.decode.registry.settings import Endpoint, RegistrySettings, registry_settings
from applier.errors import RegistryError
from applier.runtime.stop_requests import STOPPING

__all__ = [
    "Compatibility",
    "Endpoint",
    "RegistrySchema",
    "RegistrySettings",
    "SchemaRegistry",
    "SubjectVersion",
    "registry_settings",
]

MAX_REFERENCES = 1000
"""Schemas that one schema may pull in."""


@dataclass(frozen=True, slots=True)
class RegistrySchema:
    """A schema, with the schemas it refers to.

    Attributes:
        text: The schema as registered.
        kind: `AVRO`, `JSON` or `PROTOBUF`.
        references: Schemas of the names it uses but does not define, those that others need first.
    """

    text: str
    kind: str = "AVRO"
    references: tuple[RegistrySchema, ...] = ()


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """One version of a subject.

    Attributes:
        subject: Name of the subject.
        version: Its number within the subject, from 1.
        schema_id: Id of its schema.
        schema: The schema.
    """

    subject: str
    version: int
    schema_id: int
    schema: RegistrySchema


@dataclass(frozen=True, slots=True)
class Compatibility:
    """Verdict of the registry on a schema that is not registered.

    Attributes:
        is_compatible: It may become the next version.
        messages: Why not, in the registry's words; some registries give none.
    """

    is_compatible: bool
    messages: tuple[str, ...] = ()


class SchemaRegistry:
    """A client with a cache. It connects at the first question, so building one costs nothing. One per thread.

    Args:
        settings: Addresses and log-in.
        sleep: Called with the seconds between two attempts.

    All methods raise RegistryError where the registry refuses or does not know, and TransientError where it could
    not be reached.
    """

    def __init__(self, settings: RegistrySettings, *, sleep: Callable[[float], None] = STOPPING.pause) -> None:
        self._http = RegistryHttp(settings, sleep)
        self._by_id: dict[int, RegistrySchema] = {}

    def schema(self, schema_id: int) -> RegistrySchema:
        """The schema of an id, from the cache after the first time."""
        known = self._by_id.get(schema_id)
        if known is not None:
            return known
        schema = self._by_id[schema_id] = self._resolve(_mapping(self._get(f"/schemas/ids/{schema_id}")))
        return schema

    def subjects(self) -> list[str]:
        """Names of all subjects."""
        return [str(name) for name in _sequence(self._get("/subjects"))]

    def subjects_of(self, schema_id: int) -> list[str]:
        """Names of the subjects that hold a schema id."""
        return [_text(_mapping(item), "subject") for item in _sequence(self._get(f"/schemas/ids/{schema_id}/versions"))]

    def versions(self, subject: str) -> list[int]:
        """Version numbers of a subject, ascending."""
        return sorted(int(number) for number in _sequence(self._get(f"/subjects/{_quoted(subject)}/versions")))

    def version(self, subject: str, version: int | None = None) -> SubjectVersion:
        """One version of a subject; None for the latest."""
        answer = _mapping(self._get(f"/subjects/{_quoted(subject)}/versions/{version or 'latest'}"))
        schema = self._resolve(answer)
        schema_id = _number(answer, "id")
        self._by_id.setdefault(schema_id, schema)
        return SubjectVersion(subject, _number(answer, "version"), schema_id, schema)

    def compatibility_level(self, subject: str) -> str:
        """Level that counts for a subject: its own, else the registry's; `NONE` where neither is set."""
        answer = self._first_of(f"/config/{_quoted(subject)}?defaultToGlobal=true", "/config")
        level = answer.get("compatibilityLevel", answer.get("compatibility"))
        return str(level) if level else "NONE"

    def mode(self, subject: str | None = None) -> str:
        """`READWRITE`, `READONLY` or `IMPORT` of a subject or the registry; a registry without modes is writable."""
        paths = ["/mode"] if subject is None else [f"/mode/{_quoted(subject)}?defaultToGlobal=true", "/mode"]
        return str(self._first_of(*paths).get("mode") or "READWRITE")

    def check(self, subject: str, text: str, version: int | None = None, *, kind: str = "AVRO") -> Compatibility:
        """May this schema become the next version of a subject, at the subject's own level?

        Args:
            subject: Name of the subject.
            text: The coming schema.
            version: Version to compare with; None for the latest.
            kind: `AVRO`, `JSON` or `PROTOBUF`.
        """
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/{version or 'latest'}?verbose=true"
        body = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        answer = _mapping(self._call("POST", path, body))
        verdict = answer.get("is_compatible")
        if not isinstance(verdict, bool):
            msg = f"The schema registry gives no verdict on a schema for subject {subject}."
            raise RegistryError(msg)
        messages = answer.get("messages")
        return Compatibility(verdict, tuple(str(text) for text in messages) if isinstance(messages, list) else ())

    def _first_of(self, *paths: str) -> dict[str, Any]:
        """The first answer that is not "not found"; {} where there is none."""
        for path in paths:
            try:
                return _mapping(self._http.request("GET", path))
            except NotFound:
                continue
        return {}

    def _get(self, path: str) -> Any:
        return self._call("GET", path)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        try:
            return self._http.request(method, path, body)
        except NotFound as missing:
            raise missing.error from None

    def _resolve(self, answer: dict[str, Any]) -> RegistrySchema:
        """A schema with everything it refers to, each name once, needed ones first."""
        found: dict[tuple[str, int], RegistrySchema] = {}
        self._collect(answer.get("references"), found, set())
        return RegistrySchema(_text(answer, "schema"), str(answer.get("schemaType") or "AVRO"), tuple(found.values()))

    def _collect(
        self, references: Any, found: dict[tuple[str, int], RegistrySchema], open_: set[tuple[str, int]]
    ) -> None:
        for reference in _sequence(references or []):
            place = (_text(_mapping(reference), "subject"), _number(reference, "version"))
            if place in found:
                continue
            if place in open_ or len(open_) + len(found) >= MAX_REFERENCES:
                where = f"subject {place[0]} version {place[1]}"
                msg = f"The references of a schema run in a circle or are too many, at {where}."
                raise RegistryError(msg)
            answer = _mapping(self._get(f"/subjects/{_quoted(place[0])}/versions/{place[1]}"))
            self._collect(answer.get("references"), found, open_ | {place})
            found[place] = RegistrySchema(_text(answer, "schema"), str(answer.get("schemaType") or "AVRO"))


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _mapping(answer: Any) -> dict[str, Any]:
    if isinstance(answer, dict):
        return answer
    raise _unexpected("no JSON object")


def _sequence(answer: Any) -> list[Any]:
    if isinstance(answer, list):
        return answer
    raise _unexpected("no JSON list")


def _text(answer: dict[str, Any], name: str) -> str:
    value = answer.get(name)
    if isinstance(value, str):
        return value
    raise _unexpected(f"no text {name!r}")


def _number(answer: dict[str, Any], name: str) -> int:
    value = answer.get(name)
    if isinstance(value, int):
        return value
    raise _unexpected(f"no number {name!r}")


def _unexpected(what: str) -> RegistryError:
    return RegistryError(
        f"The schema registry's answer has {what} where Confluent's interface has one.",
        "check that [registry] url is that of the Confluent-compatible interface.",
    )
