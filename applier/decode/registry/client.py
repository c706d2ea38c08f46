"""Asks a schema registry for schemas and compatibility verdicts, by Confluent's REST interface.

It keeps no answer: `RegistryReader` keeps schemas, and knows when to ask again. Requests come with log-in, fail-over,
retries, and errors in one sentence.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec
import requests
import tenacity
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from urllib3 import HTTPConnectionPool, HTTPResponse, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from applier.errors import RegistryDenied, RegistryError, SchemaUnknown, TransientError
from applier.runtime.logs import logger
from applier.runtime.retry import asked_pause
from applier.runtime.stop_requests import STOPPING

if TYPE_CHECKING:
    from applier.config.registry import Endpoint, RegistrySection

T = TypeVar("T")

MAX_REFERENCES = 1000
"""Schemas that one schema may pull in."""

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""A schema is some kilobytes; an answer beyond this is not a registry's."""

MAX_WAIT_SECONDS = 30.0
"""Longest pause between two rounds, also where `Retry-After` asks for more."""

_MEDIA = "application/vnd.schemaregistry.v1+json"
_HINTS = {
    401: "check user and password (URL-encoded inside a URL) or the bearer token under [registry].",
    403: "the user of [registry] needs the right to read this subject.",
    404: "the registry may be behind the messages; else they were written with another registry, or the schema was "
    "deleted for good.",
    409: "the schema does not fit the earlier versions at the subject's compatibility level.",
    422: "the registry does not accept what was sent; see its message.",
}

_BACKOFF = tenacity.wait_exponential(multiplier=0.5, max=MAX_WAIT_SECONDS) + tenacity.wait_random(0, 0.5)


@dataclass(frozen=True, slots=True)
class RegistrySchema:
    """A schema as registered, of kind `AVRO`, `JSON` or `PROTOBUF`.

    Its references are the schemas of the names that it uses but does not define, those that others need first.
    Its version counts within its subject; 0 where its id shows the order, too.
    """

    text: str
    kind: str = "AVRO"
    references: tuple[RegistrySchema, ...] = ()
    version: int = 0


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """The schema of one version of a subject; versions are numbered from 1 within it."""

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

    def version(self, subject: str, version: int) -> SubjectVersion:
        """One version of a subject."""
        found = self._get(_Version, f"/subjects/{_quoted(subject)}/versions/{version}")
        return SubjectVersion(found.id, self._resolve(found))

    def compatibility_level(self, subject: str) -> str:
        """Level that counts for a subject: its own, else the registry's; `NONE` where neither is set."""
        answer = self._first_of(f"/config/{_quoted(subject)}?defaultToGlobal=true", "/config")
        level = answer.get("compatibilityLevel", answer.get("compatibility"))
        return str(level) if level else "NONE"

    def mode(self, subject: str) -> str:
        """`READWRITE`, `READONLY` or `IMPORT` of a subject, else of the registry; one without modes is writable."""
        answer = self._first_of(f"/mode/{_quoted(subject)}?defaultToGlobal=true", "/mode")
        return str(answer.get("mode") or "READWRITE")

    def check(self, subject: str, text: str, version: int) -> Compatibility:
        """May this schema follow a version of a subject at the subject's own level?"""
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/{version}?verbose=true"
        return _as(Compatibility, self._http.request("POST", path, {"schema": text}))

    def way_to_none(self, subject: str) -> str:
        """How a subject takes every schema."""
        what = f"Set the level of subject {subject} to NONE until TiCDC has registered the new schema, then back"
        return f'{what}: PUT /config/{subject} {{"compatibility": "NONE"}}.'

    def way_to_write(self, subject: str) -> str:
        """How a subject takes new versions again."""
        return f'Make it writable: PUT /mode/{subject} {{"mode": "READWRITE"}}.'

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


class Unavailable(Exception):
    """No endpoint could answer in this round; another round may, after the pause that the endpoint asked for."""

    def __init__(self, what: str, wait_seconds: float | None = None) -> None:
        super().__init__(what)
        self.wait_seconds = wait_seconds


def retrying(settings: RegistrySection, sleep: Callable[[float], None]) -> tenacity.Retrying:
    """Calls again after `Unavailable`, which it raises after the last attempt; `sleep` gets the seconds between."""
    return tenacity.Retrying(
        stop=tenacity.stop_after_attempt(settings.attempts),
        wait=_wait,
        retry=tenacity.retry_if_exception_type(Unavailable),
        sleep=sleep,
        reraise=True,
    )


class RegistryHttp:
    """Requests to one registry, over its endpoints in turn. Not thread-safe; build one per thread.

    Between two rounds it calls `sleep` with the seconds to wait.
    """

    def __init__(self, settings: RegistrySection, sleep: Callable[[float], None]) -> None:
        self._settings = settings
        self._sleep = sleep
        self._session = requests.Session()
        # Compressed, a few bytes of an answer could fill the memory.
        media = {"Accept": f"{_MEDIA}, application/json", "Content-Type": _MEDIA, "Accept-Encoding": "identity"}
        self._session.headers.update(media)
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _BoundedAdapter())
        self._first = 0
        self._is_down = False

    def request(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, missing: dict[str, Any] | None = None
    ) -> Any:
        """Send one request and return the parsed JSON of the answer; {} where it is successful and empty.

        The path begins below the registry's address, and its parts are quoted. Where the registry does not know what
        was asked for, `missing` is returned, unless it is None.

        Raises:
            RegistryError: The answer is another one that is no success, or cannot be read.
            TransientError: Connection errors, timeouts, 429 or 5xx to the end of all attempts.
        """
        try:
            url, status, content = retrying(self._settings, self._sleep)(self._round, method, path, body)
        except Unavailable as down:
            rounds = self._settings.attempts
            what = f"The schema registry could not be reached in {rounds} attempts: {down}."
            raise TransientError(what, "check that the registry runs and that [registry] url is right.") from down
        self._is_down = False
        return missing if status == 404 and missing is not None else _answer(url, status, content)

    def _round(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[str, int, bytes]:
        """Ask each endpoint until one answers, beginning with the one that answered last; its URL, status and body."""
        endpoints, failures = self._settings.endpoints, []
        for turn in range(len(endpoints)):
            at = (self._first + turn) % len(endpoints)
            try:
                status, content = self._ask(endpoints[at], method, path, body)
            except Unavailable as failure:
                if not self._is_down:  # One line per outage, whatever the number of attempts.
                    logger().warning("registry_unavailable", reason=str(failure))
                self._is_down = True
                failures.append(failure)
                continue
            self._first = at
            return endpoints[at].url, status, content
        waits = [failure.wait_seconds for failure in failures if failure.wait_seconds is not None]
        raise Unavailable(str(failures[-1]), min(waits) if waits else None)

    def _ask(self, endpoint: Endpoint, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, bytes]:
        settings = self._settings
        try:
            response = self._session.request(
                method,
                endpoint.url + path,
                json=body,
                auth=_log_in(endpoint, settings.bearer_token),
                timeout=settings.timeout_seconds,
                # Set here and not on the session, whose own value REQUESTS_CA_BUNDLE of the environment would replace.
                verify=settings.ca or True,
                cert=settings.certificate,
                # The log-in is for this server and no other.
                allow_redirects=False,
                stream=True,
            )
            with response:
                content = _read(response, endpoint, settings.timeout_seconds)
        except requests.exceptions.SSLError as error:
            raise _tls_error(endpoint, error) from error
        except (requests.ConnectionError, requests.Timeout, HTTPError) as error:
            raise Unavailable(f"{endpoint.url} gives {type(error).__name__}") from error
        except (requests.RequestException, OSError) as error:
            what = f"Schema registry {endpoint.url} cannot be asked: {type(error).__name__}."
            raise RegistryError(what, "check url, ca, client_cert and client_key under [registry].") from error
        if response.status_code == 429 or response.status_code >= 500:
            wait = asked_pause(response.headers.get("Retry-After"))
            raise Unavailable(f"{endpoint.url} answers {response.status_code}", wait)
        return response.status_code, content


class _Connection(HTTPConnection):
    """Waits for the head of an answer as long as for one of its bytes: each byte would renew that wait."""

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3 has it
        """See urllib3."""
        is_late = threading.Event()
        end = threading.Timer(float(self.timeout or MAX_WAIT_SECONDS), _shut, [self.sock, is_late])
        end.daemon = True
        end.start()
        try:
            answer = super().getresponse()
        finally:
            end.cancel()
        if is_late.is_set():
            # What came until then passes for a whole head.
            answer.close()
            raise TimeoutError
        return answer


class _TlsConnection(_Connection, HTTPSConnection):
    """The same over TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _BoundedAdapter(HTTPAdapter):
    """Makes connections that wait for no head of an answer for ever."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """See `requests`."""
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}


def _shut(connection: socket.socket, is_late: threading.Event) -> None:
    is_late.set()
    with suppress(OSError):  # The other side may have ended it.
        # Of an encrypted one too: its own method would take from the thread that reads what it reads with.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _log_in(endpoint: Endpoint, token: str | None) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    """Sends a bearer token, user and password, or nothing, where `requests` itself would look into ~/.netrc."""

    def bear(request: requests.PreparedRequest) -> requests.PreparedRequest:
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    if endpoint.username is None or token is not None:
        return bear
    # Bytes, because requests would encode text as latin-1.
    return HTTPBasicAuth(endpoint.username.encode(), endpoint.password.encode())


def _wait(state: tenacity.RetryCallState) -> float:
    """What the registry asked for, else an exponential pause with jitter."""
    failure = state.outcome.exception() if state.outcome else None
    asked = failure.wait_seconds if isinstance(failure, Unavailable) else None
    return min(asked if asked is not None else _BACKOFF(state), MAX_WAIT_SECONDS)


def _read(response: requests.Response, endpoint: Endpoint, seconds: float) -> bytes:
    """The body. A server that sends a byte now and then renews the wait for the next one, but not the one for all."""
    content, deadline = bytearray(), time.monotonic() + seconds
    while chunk := response.raw.read1(64 * 1024, decode_content=False):
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            what = f"Schema registry {endpoint.url} answers with more than {MAX_ANSWER_BYTES} bytes."
            raise RegistryError(what, "check that [registry] url is a schema registry's.")
        if time.monotonic() > deadline:
            raise Unavailable(f"{endpoint.url} has not answered whole after {seconds:g} s")
    return bytes(content)


def _answer(url: str, status: int, content: bytes) -> Any:
    if status == 204:
        return {}
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        parsed = None
    if 200 <= status < 300:
        if parsed is None:
            what = f"Schema registry {url} answers {status} with something that is not JSON."
            raise RegistryError(what, "check that [registry] url has the registry's path, such as /apis/ccompat/v7.")
        return parsed
    if 300 <= status < 400:
        what = f"Schema registry {url} answers {status}, which leads to another address."
        raise RegistryError(what, "set [registry] url to the address of the registry itself; no log-in goes elsewhere.")
    code, message = _error_body(parsed, status)
    what = f"Schema registry {url} answers {status}{f' ({code})' if code != status else ''}: {message}"
    # A 404 without a code of its own comes from something that is no registry.
    unknown = SchemaUnknown if status == 404 and code != status else RegistryError
    kind = RegistryDenied if status in (401, 403) else unknown
    raise kind(what, _HINTS.get(status, ""))


def _error_body(parsed: Any, status: int) -> tuple[int, str]:
    """`error_code` and `message`, as far as the answer has them."""
    body = parsed if isinstance(parsed, dict) else {}
    code, message = body.get("error_code"), body.get("message")
    text = " ".join(str(message).split())[:300].rstrip(".") if message else "no message"
    return (code if isinstance(code, int) else status), f"{text}."


def _tls_error(endpoint: Endpoint, error: requests.exceptions.SSLError) -> Exception:
    """A certificate that is not trusted stays so; a handshake that broke off may succeed later."""
    said = str(error).lower()
    if "certificate" not in said and "alert handshake failure" not in said:
        return Unavailable(f"{endpoint.url} gives {type(error).__name__}")
    what = f"The certificate of schema registry {endpoint.url} is not accepted, or it does not accept ours."
    return RegistryError(what, "set [registry] ca to the authority's PEM file, and client_cert and client_key.")
