"""The value of a message as TiCDC sent it in, the same value without `large-message-handle-compression` out.

TiCDC compresses every message of a changefeed, watermarks too, and no message says how: lz4 is LZ4's frame format,
known by its magic number; snappy is the raw block format, known by nothing but its fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import cramjam
import lz4.frame

from applier.errors import DecodeError

Compression: TypeAlias = Literal["none", "lz4", "snappy"]

MAX_BYTES = 256 << 20
"""Size of a decompressed message beyond which it is refused; TiDB's own limit of a row is 120 MiB."""

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_SNAPPY_RATIO = 64
"""More than snappy's format can reach; keeps a forged length from allocating memory."""
_HINT = "Check changefeed.compression and changefeed.protocol."


def decompress(value: bytes, compression: Compression | None, is_plain: Callable[[bytes], bool]) -> bytes:
    """Undo the compression of a message.

    Args:
        value: The bytes as they came.
        compression: What the changefeed is configured to use; None tells it from the bytes.
        is_plain: True for bytes that begin as an uncompressed message of the protocol does. Such bytes are never
            decompressed, so that a changefeed may turn compression on half-way.

    Raises:
        DecodeError: The bytes are neither plain nor compressed in that way, or hold more than `MAX_BYTES`.
    """
    if is_plain(value):
        return value
    if compression == "none":
        what = "The message does not begin as one of the protocol does, and changefeed.compression is none."
        raise DecodeError(what, _HINT)
    if compression == "lz4" or (compression is None and value.startswith(_LZ4_MAGIC)):
        return _lz4(value)
    return _snappy(value)


def _lz4(value: bytes) -> bytes:
    decompressor = lz4.frame.LZ4FrameDecompressor()
    try:
        plain: bytes = decompressor.decompress(value, max_length=MAX_BYTES)
    except (RuntimeError, ValueError, EOFError, MemoryError) as error:
        raise DecodeError("The message is not a whole lz4 frame.", _HINT) from error
    if decompressor.eof:
        return plain
    raise _too_large() if len(plain) >= MAX_BYTES else DecodeError("The message is not a whole lz4 frame.", _HINT)


def _snappy(value: bytes) -> bytes:
    unknown = DecodeError("The message is neither plain nor compressed by lz4 or snappy.", _HINT)
    try:
        size = cramjam.snappy.decompress_raw_len(value)
        if size > len(value) * _SNAPPY_RATIO:
            raise unknown
        if size > MAX_BYTES:
            raise _too_large()
        return bytes(cramjam.snappy.decompress_raw(value))
    except cramjam.DecompressionError as error:
        raise unknown from error


def _too_large() -> DecodeError:
    return DecodeError(f"The message holds more than {MAX_BYTES >> 20} MiB once it is decompressed.")
