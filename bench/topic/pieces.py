"""Columns in, their bytes on the wire out, many rows at a time: the parts that message bodies are joined from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.topic.events import Ints

Piece: TypeAlias = Any
"""Part of a message body: an Arrow array with one element per message, or a constant, `str` or `bytes`.

Any, because the stubs of pyarrow do not know that its functions broadcast constants.
"""


def join(*pieces: Piece) -> Piece:
    """Join parts row by row; all are text, or all are bytes."""
    empty: Any = b"" if any(_is_binary(piece) for piece in pieces) else ""
    return pc.binary_join_element_wise(*(_flat(piece) for piece in pieces), empty)


def each(values: Sequence[Any], index: Ints) -> Piece:
    """For each message the element of `values` that its index names."""
    return pa.array(values).take(pa.array(index.tolist(), pa.int64()))


def text(values: Piece) -> Piece:
    """Numbers, decimals and timestamps as the text that MySQL prints."""
    return _flat(values).cast(pa.string())


def clock(values: Piece, unit: str) -> Piece:
    """Timestamps as `YYYY-MM-DD hh:mm:ss`, with the fraction digits of an Arrow unit (`s`, `ms`)."""
    return _flat(values).cast(pa.int64()).cast(pa.timestamp("us")).cast(f"timestamp[{unit}]").cast(pa.string())


def quoted(values: Piece, *, escape_html: bool) -> Piece:
    """Text as JSON strings, NULL as null; TiCDC's encoders differ in whether they escape `&`."""
    escaped = pc.replace_substring(pc.replace_substring(_flat(values), "\\", "\\\\"), '"', '\\"')
    if escape_html:
        escaped = pc.replace_substring(escaped, "&", "\\u0026")
    return pc.fill_null(pc.binary_join_element_wise('"', escaped, '"', ""), "null")


def code(status: Piece) -> Piece:
    """Enum members as TiDB numbers them, from 1."""
    return pc.add(_flat(status).indices.cast(pa.int64()), 1)


def integers(values: Piece) -> Ints:
    """An integer column as numpy."""
    return np.asarray(_flat(values).cast(pa.int64()))


def cents(price: Piece) -> Ints:
    """Unscaled values of a decimal column."""
    array = _flat(price)
    return np.frombuffer(array.buffers()[1], dtype=np.int64)[::2][array.offset : array.offset + len(array)]


def avro_long(values: Ints) -> Piece:
    """Avro's int and long: zigzag, seven bits a byte."""
    zigzag = ((values << 1) ^ (values >> 63)).astype(np.uint64)
    shifted = zigzag[:, None] >> (np.arange(10, dtype=np.uint64) * np.uint64(7))
    length = np.maximum(1, (shifted != 0).sum(axis=1))
    place = np.arange(10)
    parts = (shifted & np.uint64(0x7F)).astype(np.uint8)
    parts[place < length[:, None] - 1] |= 0x80
    return _ragged(parts[place < length[:, None]], length)


def avro_string(values: Piece) -> Piece:
    """Avro's string and bytes: length and content; NULL stays NULL."""
    content = _flat(values)
    length: Piece = pc.binary_length(content)
    return join(avro_long(integers(pc.fill_null(length, 0))), content.cast(pa.binary()))


def avro_decimal(unscaled: Ints) -> Piece:
    """Avro's decimal over bytes: big-endian two's complement of numbers from 0 up, as short as possible."""
    limits = np.int64(1) << np.arange(7, 63, 8, dtype=np.int64)
    width = 1 + (unscaled[:, None] >= limits).sum(axis=1)
    whole = np.frombuffer(unscaled.astype(">i8").tobytes(), np.uint8).reshape(-1, 8)
    return join(avro_long(width), _ragged(whole[np.arange(8) >= 8 - width[:, None]], width))


def or_else(values: Piece, constant: bytes) -> Piece:
    """Put a constant in the place of NULL."""
    return pc.fill_null(values, pa.scalar(constant))


def big_endian(values: Ints) -> Piece:
    """Eight bytes a number, the highest first."""
    return _ragged(np.frombuffer(values.astype(">u8").tobytes(), np.uint8), np.full(len(values), 8))


def scalar_long(value: int) -> bytes:
    """Avro's long, of one number."""
    return bytes(avro_long(np.array([value]))[0].as_py())


def scalar_string(value: str) -> bytes:
    """Avro's string, of one text."""
    content = value.encode()
    return scalar_long(len(content)) + content


def _ragged(content: Any, length: Any) -> Piece:
    offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(content.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(length), buffers)


def _is_binary(piece: Piece) -> bool:
    return isinstance(piece, bytes) or (not isinstance(piece, str) and pa.types.is_binary(piece.type))


def _flat(piece: Piece) -> Piece:
    return piece.combine_chunks() if isinstance(piece, pa.ChunkedArray) else piece
