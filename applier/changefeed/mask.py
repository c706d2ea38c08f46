"""Masks values of columns that a user hides: NULL stays NULL, every other value becomes text."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, TypeAlias, get_args

import pyarrow as pa

Mask: TypeAlias = Literal["hash", "last4", "redact"]
"""What becomes of a value: its HMAC-SHA-256 in hex, all but its last four characters `*`, or `***`."""

MASKS: tuple[Mask, ...] = get_args(Mask)

_SHOWN = 4


def fingerprint_of(secret: bytes) -> str:
    """What a table keeps of a key, so that another one is noticed; it does not show the key."""
    return _hex(secret, b"applier mask key")[:16]


def masked(values: pa.Array[Any], mask: Mask, secret: bytes) -> pa.Array[Any]:
    """Values of any type as text that a mask leaves; the secret is the key of `hash`."""
    convert = _CONVERT[mask]
    encoded: Any = values.dictionary_encode() if not pa.types.is_nested(values.type) else None
    plain = (values if encoded is None else encoded.dictionary).to_pylist()
    found = pa.array([None if value is None else convert(_content(value), secret) for value in plain], pa.string())
    return found if encoded is None else found.take(encoded.indices)


def _content(value: Any) -> str | bytes:
    """A value as text, the same in every protocol."""
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return moment.isoformat(" ")
    if isinstance(value, date):
        return value.isoformat()
    return str(int(value)) if isinstance(value, bool) else str(value)


def _hash(content: str | bytes, secret: bytes) -> str:
    return _hex(secret, content.encode() if isinstance(content, str) else content)


def _hex(secret: bytes, content: bytes) -> str:
    return hmac.new(secret, content, hashlib.sha256).hexdigest()


def _last4(content: str | bytes, _secret: bytes) -> str:
    # Half a character of a text in bytes would be no text: each byte counts as one.
    text = content.decode("latin-1") if isinstance(content, bytes) else content
    hidden = len(text) - _SHOWN if len(text) > _SHOWN else len(text)
    return "*" * hidden + text[hidden:]


def _redact(_content: str | bytes, _secret: bytes) -> str:
    return "***"


_CONVERT: Mapping[Mask, Callable[[str | bytes, bytes], str]] = {"hash": _hash, "last4": _last4, "redact": _redact}
