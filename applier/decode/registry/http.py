"""Sends requests to the schema registry: log-in, fail-over, retries, errors in one sentence."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import requests
import tenacity
from requests.auth import HTTPBasicAuth
from urllib3.exceptions import HTTPError

from applier.errors import RegistryDenied, RegistryError, SchemaUnknown, TransientError
from applier.runtime.logs import logger
from applier.runtime.retry import asked_pause
from applier.runtime.stop_requests import STOPPING

if TYPE_CHECKING:
    from applier.config.registry import Endpoint, RegistrySection

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


class _Unavailable(Exception):
    """No endpoint could answer in this round; another round may, after the pause that the endpoint asked for."""

    def __init__(self, what: str, wait_seconds: float | None = None) -> None:
        super().__init__(what)
        self.wait_seconds = wait_seconds


class RegistryHttp:
    """Requests to one registry, over its endpoints in turn. Not thread-safe; build one per thread.

    Between two rounds it calls `sleep` with the seconds to wait.
    """

    def __init__(self, settings: RegistrySection, sleep: Callable[[float], None] = STOPPING.pause) -> None:
        self._settings = settings
        self._sleep = sleep
        self._session = requests.Session()
        self._session.headers.update({"Accept": f"{_MEDIA}, application/json", "Content-Type": _MEDIA})
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
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self._settings.attempts),
            wait=_wait,
            retry=tenacity.retry_if_exception_type(_Unavailable),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            url, status, content = retrying(self._round, method, path, body)
        except _Unavailable as down:
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
            except _Unavailable as failure:
                if not self._is_down:  # One line per outage, whatever the number of attempts.
                    logger().warning("registry_unavailable", reason=str(failure))
                self._is_down = True
                failures.append(failure)
                continue
            self._first = at
            return endpoints[at].url, status, content
        waits = [failure.wait_seconds for failure in failures if failure.wait_seconds is not None]
        raise _Unavailable(str(failures[-1]), min(waits) if waits else None)

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
                stream=True,
            )
            with response:
                content = _read(response, endpoint, settings.timeout_seconds)
        except requests.exceptions.SSLError as error:
            raise _tls_error(endpoint, error) from error
        except (requests.ConnectionError, requests.Timeout, HTTPError) as error:
            raise _Unavailable(f"{endpoint.url} gives {type(error).__name__}") from error
        except (requests.RequestException, OSError) as error:
            what = f"Schema registry {endpoint.url} cannot be asked: {type(error).__name__}."
            raise RegistryError(what, "check url, ca, client_cert and client_key under [registry].") from error
        if response.status_code == 429 or response.status_code >= 500:
            wait = asked_pause(response.headers.get("Retry-After"))
            raise _Unavailable(f"{endpoint.url} answers {response.status_code}", wait)
        return response.status_code, content


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
    asked = failure.wait_seconds if isinstance(failure, _Unavailable) else None
    return min(asked if asked is not None else _BACKOFF(state), MAX_WAIT_SECONDS)


def _read(response: requests.Response, endpoint: Endpoint, seconds: float) -> bytes:
    """The body. A server that sends a byte now and then renews the wait for the next one, but not the one for all."""
    content, deadline = bytearray(), time.monotonic() + seconds
    while chunk := response.raw.read1(64 * 1024, decode_content=True):
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            what = f"Schema registry {endpoint.url} answers with more than {MAX_ANSWER_BYTES} bytes."
            raise RegistryError(what, "check that [registry] url is a schema registry's.")
        if time.monotonic() > deadline:
            raise _Unavailable(f"{endpoint.url} has not answered whole after {seconds:g} s")
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
    if "certificate" not in str(error).lower():
        return _Unavailable(f"{endpoint.url} gives {type(error).__name__}")
    what = f"The certificate of schema registry {endpoint.url} is not accepted, or it does not accept ours."
    return RegistryError(what, "set [registry] ca to the authority's PEM file, and client_cert and client_key.")
