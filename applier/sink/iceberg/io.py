"""Files of a table through Iceberg's own FileIO, for storage that Python has no way to."""

from __future__ import annotations

import io
from typing import Any

from applier.sink.iceberg.java import translated


class JavaStorage:
    """`Storage` by way of the JVM: whole files at some megabytes a second, so only where nothing else reaches them.

    Args:
        handle: The `org.apache.iceberg.Table`.
    """

    def __init__(self, handle: Any) -> None:
        self._io = handle.io()

    def open(self, location: str) -> Any:
        """See `Storage.open`."""
        with translated(f"Cannot read {location}"):
            source = self._io.newInputFile(location)
            stream = source.newStream()
            try:
                return io.BytesIO(bytes(stream.readNBytes(int(source.getLength()))))
            finally:
                stream.close()

    def create(self, location: str) -> Any:
        """See `Storage.create`."""
        return _JavaFile(self._io, location)


class _JavaFile(io.BytesIO):
    """Keeps what is written and hands it over when it is closed."""

    def __init__(self, file_io: Any, location: str) -> None:
        super().__init__()
        self._io = file_io
        self._location = location

    def close(self) -> None:
        """Create the file; closing again does nothing."""
        if self.closed:
            return
        with translated(f"Cannot write {self._location}"):
            stream = self._io.newOutputFile(self._location).createOrOverwrite()
            stream.write(self.getvalue())
            stream.close()
        super().close()
