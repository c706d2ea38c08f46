"""Settings of the schema registry: addresses, log-in and secrets, picklable and never printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from applier.errors import ConfigError

ClientCertificate: TypeAlias = str | tuple[str, str] | None
"""PEM file with certificate and key, or one file for each."""


TIMEOUT_SECONDS = 10.0
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of the registry.

    Attributes:
        url: Address without credentials, query and trailing slash; safe to print.
        username: For basic authentication; None to send none.
        password: Its password.
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Everything a worker needs to build its own client. Picklable; `repr` shows no secret.

    Attributes:
        endpoints: Addresses of one registry, asked in turn when one of them fails.
        bearer_token: Sent instead of user and password.
        ca: PEM file of a private certificate authority; None for the machine's own list.
        client_cert: PEM file of the client certificate, for mutual TLS.
        client_key: PEM file of its key; None where `client_cert` holds both.
        timeout_seconds: Longest wait for a connection, and for each read.
        attempts: Rounds over all endpoints before a transient failure is given up.
    """

    endpoints: tuple[Endpoint, ...]
    bearer_token: str | None = field(default=None, repr=False)
    ca: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    timeout_seconds: float = TIMEOUT_SECONDS
    attempts: int = ATTEMPTS

    @property
    def verify(self) -> str | bool:
        """What `requests` calls verify."""
        return self.ca or True

    @property
    def certificate(self) -> ClientCertificate:
        """What `requests` calls cert."""
        if self.client_cert and self.client_key:
            return (self.client_cert, self.client_key)
        return self.client_cert


def registry_settings(  # noqa: PLR0913  # one for each key of the section
    url: str | Sequence[str],
    *,
    username: str | None = None,
    password: str | None = None,
    bearer_token: str | None = None,
    ca: str | None = None,
    client_cert: str | None = None,
    client_key: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    attempts: int = ATTEMPTS,
) -> RegistrySettings:
    """Settings from the keys of `[registry]`.

    Args:
        url: One address, several separated by commas, or a list. User and password may stand in it, URL-encoded, as
            in TiCDC's `schema-registry`.
        username: User for addresses that name none.
        password: Password for addresses that name none.
        bearer_token: Token instead of user and password.
        ca: PEM file of a private certificate authority.
        client_cert: PEM file of the client certificate.
        client_key: PEM file of its key.
        timeout_seconds: See `RegistrySettings`; more than 0.
        attempts: See `RegistrySettings`; at least 1.

    Raises:
        ConfigError: With every problem found.
    """
    addresses = url.split(",") if isinstance(url, str) else list(url)
    texts = [address.strip() for address in addresses if address.strip()]
    problems: list[str] = [] if texts else ["registry.url names no address."]
    endpoints = [_endpoint(text, username, password, problems) for text in texts]
    if bearer_token is not None and any(endpoint.username is not None for endpoint in endpoints):
        problems.append("registry: a bearer token and a user name exclude each other.")
    if password is not None and username is None:
        problems.append("registry.password is set without registry.username.")
    if client_key is not None and client_cert is None:
        problems.append("registry.client_key is set without registry.client_cert.")
    if problems:
        raise ConfigError(problems)
    return RegistrySettings(
        endpoints=tuple(endpoints),
        bearer_token=bearer_token,
        ca=ca,
        client_cert=client_cert,
        client_key=client_key,
        timeout_seconds=timeout_seconds,
        attempts=attempts,
    )


def _endpoint(text: str, username: str | None, password: str | None, problems: list[str]) -> Endpoint:
    parts = _split(text)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        # The text itself is not shown: it may hold a password.
        problems.append("registry.url: an address must look like https://host:port, user and password URL-encoded.")
        return Endpoint(url="")
    host = parts.netloc.rpartition("@")[2]
    bare = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    if parts.username is None:
        return Endpoint(bare, username, password if username is not None else None)
    return Endpoint(bare, unquote(parts.username), unquote(parts.password or ""))


def _split(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises ValueError for a port that is no number
    except ValueError:
        return None
    return parts
