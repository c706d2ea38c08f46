"""Where the schema registry is and how to log in; picklable, and nothing secret is printed."""

from __future__ import annotations

from typing import Annotated, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import ConfigDict, Field, field_validator, model_validator

from applier.config.section import Section
from applier.config.watch import is_address


class Endpoint(NamedTuple):
    """One address of the registry, without credentials, query and trailing slash, so that it is safe to print.

    User name and password are for basic authentication; None to send none.
    """

    url: str
    username: str | None
    password: str


class RegistrySection(Section):
    """The Confluent schema registry of Avro feeds."""

    model_config = ConfigDict(hide_input_in_errors=True)

    url: Annotated[str, Field(repr=False)]
    """Address of the registry, `https://host:port`; several, separated by commas, are asked in turn when one fails."""
    username: str | None = None
    """User name for basic authentication; addresses may have their own, `https://user:password@host`."""
    password: Annotated[str | None, Field(repr=False)] = None
    """Password of `username`; write it as `${NAME}`."""
    bearer_token: Annotated[str | None, Field(repr=False)] = None
    """Token that is sent instead of user and password; write it as `${NAME}`."""
    ca: str | None = None
    """PEM file of the certificate authority, where the registry's certificate is of a private one."""
    client_cert: str | None = None
    """PEM file of the client certificate, where the registry asks for one; it may hold the key as well."""
    client_key: str | None = None
    """PEM file of the key of `client_cert`, where that file does not hold it."""
    timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 10.0
    """Longest wait for a connection, and for an answer; both together are bounded."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """Rounds over all addresses before an outage is logged; `run` goes on to ask."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Addresses of one registry, asked in turn when one of them fails."""
        return tuple(_endpoint(text.strip(), self) for text in self.url.split(",") if text.strip())

    @property
    def certificate(self) -> str | tuple[str, str] | None:
        """PEM file with certificate and key, or one file for each."""
        return (self.client_cert, self.client_key) if self.client_cert and self.client_key else self.client_cert

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        texts = [text.strip() for text in url.split(",") if text.strip()]
        if not texts:
            msg = "names no address"
            raise ValueError(msg)
        if not all(map(is_address, texts)):
            # The text itself is not shown: it may hold a password.
            msg = "an address must look like https://host:port, user and password URL-encoded"
            raise ValueError(msg)
        return url

    @model_validator(mode="after")
    def _check(self) -> RegistrySection:
        wrong = {
            "a bearer token and a user name exclude each other": self.bearer_token is not None
            and any(endpoint.username is not None for endpoint in self.endpoints),
            "password is set without username": self.password is not None and self.username is None,
            "client_key is set without client_cert": self.client_key is not None and self.client_cert is None,
        }
        if problems := [problem for problem, is_there in wrong.items() if is_there]:
            raise ValueError("; ".join(problems))
        return self


def _endpoint(text: str, section: RegistrySection) -> Endpoint:
    parts = urlsplit(text)
    host = parts.netloc.rpartition("@")[2]
    bare = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
    if parts.username is None:
        return Endpoint(bare, section.username, section.password or "")
    return Endpoint(bare, unquote(parts.username), unquote(parts.password or ""))
