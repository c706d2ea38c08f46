"""The sections `[http]`, `[webhook]` and `[traces]`: what the running process shows of itself, and to whom."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, field_validator, model_validator

from applier.config.section import Section, refuse

AlertKind: TypeAlias = Literal["verdict", "ddl-refused", "table-parked"]

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def is_address(text: str) -> bool:
    """Whether a text is an address of HTTP or HTTPS."""
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises ValueError for a port that is no number
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and text.isprintable() and " " not in text


def is_loopback(host: str) -> bool:
    """Whether a host, a name or an IP address, can be reached by this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_headers(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, value in headers.items():
        text = value.get_secret_value()
        if not _NAME.fullmatch(name) or not text.isascii() or not text.isprintable() or text != text.strip():
            msg = f"the header {name!r} cannot be sent: names and values are ASCII, without line breaks"
            raise ValueError(msg)
    return headers


SecretHeaders: TypeAlias = Annotated[dict[str, SecretStr], AfterValidator(_checked_headers)]


class HttpSection(Section):
    """The page of the running process, its health, and its metrics."""

    port: Annotated[int | None, Field(ge=1, le=65535)] = None
    """Port of the page `/`, of `/metrics`, `/status.json`, `/history.json`, `/healthz` and `/readyz`. Default: none."""
    address: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` in a container. Any but a loopback address needs a token."""
    token: SecretStr | None = None
    """What a client must show for all but `/healthz` and `/readyz`: as bearer token, or as the password that a browser
    asks for."""
    certificate: str | None = None
    """File (PEM) with the certificate for TLS, and those that lead to its authority. Default: plain HTTP."""
    key: str | None = None
    """File (PEM) with the private key of the certificate."""
    max_lag_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 300.0
    """Lag from which on the tables are stale: the page says so, and `/readyz` answers 503."""
    stuck_seconds: Annotated[float, Field(ge=60)] = 1800.0
    """Time without any progress, of Spark's tasks neither, after which `/healthz` answers 503."""

    @model_validator(mode="after")
    def _check(self) -> HttpSection:
        problems = {}
        if (self.certificate is None) != (self.key is None):
            problems["certificate"] = "certificate and key are needed together"
        if self.token is not None and not re.fullmatch(r"[!-~]+", self.token.get_secret_value()):
            problems["token"] = "must be printable ASCII without spaces, and not empty"  # noqa: S105 - a sentence
        if self.token is None and not is_loopback(self.address):
            problems["address"] = (
                f"address {self.address} lets others in, and the page shows names and DDL of your database: "
                'set token = "${APPLIER_HTTP_TOKEN}", or listen on 127.0.0.1'
            )
        refuse(problems)
        return self


class WebhookSection(Section):
    """Alerts, sent as JSON to an address; see [alerts](watching.md#alerts)."""

    model_config = ConfigDict(hide_input_in_errors=True)

    url: SecretStr | None = None
    """Address that takes a POST, `https://` or `http://`. It may hold a token, so no log shows it. Default: no alert is
    sent."""
    events: tuple[AlertKind, ...] = ("verdict", "ddl-refused", "table-parked")
    """What is sent: the verdict changed, a DDL was refused, a table was parked."""
    headers: SecretHeaders = Field(default={})
    """Further headers of the request, such as `Authorization`."""
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 10.0
    """Longest wait for a connection, and for the answer."""

    @field_validator("url")
    @classmethod
    def _check(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not is_address(url.get_secret_value()):
            # The text itself is not shown: it may hold a token.
            msg = "must look like https://host/path"
            raise ValueError(msg)
        return url


class TracesSection(Section):
    """Traces of the steps, sent to an OpenTelemetry collector; see [traces](watching.md#traces)."""

    model_config = ConfigDict(hide_input_in_errors=True)

    endpoint: str | None = None
    """Whole address for OTLP over HTTP, such as `http://collector:4318/v1/traces`. Default: no trace is made."""
    headers: SecretHeaders = Field(default={})
    """Further headers of the request, such as `Authorization`."""
    sample: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the steps that are traced."""

    @field_validator("endpoint")
    @classmethod
    def _check(cls, endpoint: str | None) -> str | None:
        if endpoint is None:
            return None
        if not is_address(endpoint):
            msg = "must look like http://collector:4318/v1/traces"
            raise ValueError(msg)
        if urlsplit(endpoint).username is not None:
            msg = "must hold no password: give it in traces.headers"
            raise ValueError(msg)
        return endpoint
