"""What the protocols in JSON have in common."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from applier.errors import DecodeError

PROTOCOL_HINT = "Check that changefeed.protocol names the protocol of the sink."

Tso = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

JSON_START = b'{"'

MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Raised by msgspec for bytes that are not what its decoder reads."""

_Message = TypeVar("_Message")


def begins_as_json(value: bytes) -> bool:
    """Whether bytes are JSON. No snappy block begins so: `"` as its first tag would copy from before the block."""
    return value[:2] == JSON_START


def read_json(decoder: msgspec.json.Decoder[_Message], data: bytes, what: str) -> _Message:
    """Read a message, or a part of one, in JSON. `what` it must be ends the sentence of the error.

    Raises:
        DecodeError: It is not that.
    """
    try:
        return decoder.decode(data)
    except UnicodeDecodeError as error:
        raise DecodeError("The message holds bytes that are not UTF-8.") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DecodeError(f"The message is not {what}: {error}.", PROTOCOL_HINT) from error
