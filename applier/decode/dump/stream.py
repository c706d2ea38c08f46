"""Opens files of an export, and unpacks them as they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cramjam
import fsspec
import pyarrow as pa

from applier.decode.dump.export import File

_SNAPPY = b"\xff\x06\x00\x00sNaPpY"
"""Begins a stream of Snappy frames."""


@contextmanager
def opened(address: str, file: File) -> Iterator[Any]:
    """The bytes of a file, unpacked, from its start on.

    Args:
        address: Folder of the export.
        file: The file.
    """
    system, _ = fsspec.core.url_to_fs(address)
    with system.open(file.path, "rb") as raw:
        if file.packed == "snappy":  # Arrow does not read it as a stream.
            yield _Frames(raw)
        elif file.packed:
            with pa.CompressedInputStream(raw, file.packed) as unpacking:
                yield unpacking
        else:
            raw.seek(file.start)
            yield raw


def beginning(address: str, file: File, size: int) -> bytes:
    """The first bytes of a file: some more than `size` where it has more."""
    data = b""
    with opened(address, file._replace(start=0)) as stream:
        while len(data) <= size and (read := stream.read(size + 1)):
            data += read
    return data


class _Frames:
    """Unpacks Snappy frame by frame, each of which holds up to 64 KiB."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._left = b""

    def read(self, size: int) -> bytes:
        parts, count = [self._left], len(self._left)
        while count < size and (frame := self._frame()) is not None:
            parts.append(frame)
            count += len(frame)
        data = b"".join(parts)
        self._left = data[size:]
        return data[:size]

    def _frame(self) -> bytes | None:
        head = self._raw.read(4)
        if not head:
            return None
        body = self._raw.read(int.from_bytes(head[1:], "little"))
        if len(head) < 4 or len(body) < int.from_bytes(head[1:], "little"):
            raise ValueError("it ends within a frame of Snappy")
        try:
            return bytes(cramjam.snappy.decompress(_SNAPPY + head + body)) if head[0] in (0, 1) else b""
        except cramjam.DecompressionError:
            raise ValueError("a frame of Snappy is damaged") from None
