"""What the protocols in JSON have in common."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from applier.errors import DecodeError

PROTOCOL_HINT = "Check that changefeed.protocol names the protocol of the sink."

Tso = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

_Message = TypeVar("_Message")


def read_json(decoder: msgspec.json.Decoder[_Message], data: bytes, what: str) -> _Message:
    """Read a message, or a part of one, in JSON.

    Args:
        decoder: Of what it must be.
        data: The message.
        what: What an error says that it is not, to end a sentence.

    Raises:
        DecodeError: It is not that.
    """
    try:
        return decoder.decode(data)
    except UnicodeDecodeError as error:
        raise DecodeError("The message holds bytes that are not UTF-8.") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DecodeError(f"The message is not {what}: {error}.", PROTOCOL_HINT) from error
