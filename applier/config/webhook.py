"""The section `[webhook]` of the configuration: where the running process sends its alerts."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, field_validator

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


def _checked_headers(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, value in headers.items():
        text = value.get_secret_value()
        if not _NAME.fullmatch(name) or not text.isascii() or not text.isprintable() or text != text.strip():
            msg = f"the header {name!r} cannot be sent: names and values are ASCII, without line breaks"
            raise ValueError(msg)
    return headers


SecretHeaders: TypeAlias = Annotated[dict[str, SecretStr], AfterValidator(_checked_headers)]


class WebhookSection(BaseModel):
    """Alerts, sent as JSON to an address; see [alerts](webhook.md)."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    url: SecretStr | None = None
    """Address that takes a POST, `https://` or `http://`. It may hold a token, so no log shows it. Default: no alert is
    sent."""
    events: tuple[AlertKind, ...] = ("verdict", "ddl-refused", "table-parked")
    """What is sent: the verdict changed, a DDL was refused, a table was parked."""
    headers: SecretHeaders = {}
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
