"""The value of a message as TiCDC sent it in, the same value without `large-message-handle-compression` out.

TiCDC compresses every message of a changefeed, watermarks too, and no message says how: lz4 is LZ4's frame format,
known by its magic number; snappy is the raw block format, known by nothing but its fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import cramjam
import lz4.frame

from applier.changefeed.message import MAX_MESSAGE_BYTES
from applier.errors import DecodeError

Compression: TypeAlias = Literal["none", "lz4", "snappy"]

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_SNAPPY_RATIO = 64
"""More than snappy's format can reach; keeps a forged length from allocating memory."""
_HINT = "Check changefeed.compression and changefeed.protocol."


LIMIT_HINT = "Raise source.max_message_bytes, if the memory is there."


def decompress(
    value: bytes, compression: Compression | None, is_plain: Callable[[bytes], bool], max_bytes: int = MAX_MESSAGE_BYTES
) -> bytes:
    """Undo the compression of a message.

    Args:
        value: The bytes as they came.
        compression: What the changefeed is configured to use; None detects it from the bytes.
        is_plain: True for bytes that begin as an uncompressed message of the protocol does. Such bytes are never
            decompressed, so that a changefeed may turn compression on half-way.
        max_bytes: Size of the result beyond which the message is refused, before more of it is decompressed.

    Raises:
        DecodeError: The bytes are neither plain nor compressed in that way, or hold more than `max_bytes`.
    """
    if is_plain(value):
        return value
    if compression == "none":
        what = "The message does not begin as one of the protocol does, and changefeed.compression is none."
        raise DecodeError(what, _HINT)
    if compression == "lz4" or (compression is None and value.startswith(_LZ4_MAGIC)):
        return _lz4(value, max_bytes)
    return _snappy(value, max_bytes)


def _lz4(value: bytes, max_bytes: int) -> bytes:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    try:
        plain: bytes = decompressor.decompress(value, max_length=max_bytes + 1)
    except (RuntimeError, ValueError, EOFError, MemoryError) as error:
        raise DecodeError("The message is not a whole lz4 frame.", _HINT) from error
    if len(plain) > max_bytes:
        raise _too_large(max_bytes)
    if decompressor.eof:
        return plain
    raise DecodeError("The message is not a whole lz4 frame.", _HINT)


def _snappy(value: bytes, max_bytes: int) -> bytes:
    unknown = DecodeError("The message is neither plain nor compressed by lz4 or snappy.", _HINT)
    try:
        size = cramjam.snappy.decompress_raw_len(value)
        if size > len(value) * _SNAPPY_RATIO:
            raise unknown
        if size > max_bytes:
            raise _too_large(max_bytes, size)
        return bytes(cramjam.snappy.decompress_raw(value))
    except cramjam.DecompressionError as error:
        raise unknown from error


def _too_large(limit: int, size: int | None = None) -> DecodeError:
    found = f"more than {limit:,}" if size is None else f"{size:,}"
    return DecodeError(
        f"The message holds {found} bytes once it is decompressed; source.max_message_bytes is {limit:,}.", LIMIT_HINT
    )
