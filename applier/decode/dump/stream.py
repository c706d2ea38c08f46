"""Opens files of an export, and unpacks them as they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec
import pyarrow as pa

from applier.decode.dump.export import File


@contextmanager
def opened(address: str, file: File) -> Iterator[Any]:
    """The bytes of a file, unpacked, from its start on.

    Args:
        address: Folder of the export.
        file: The file.
    """
    system, _ = fsspec.core.url_to_fs(address)
    with system.open(file.path, "rb") as raw:
        if file.packed:
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
