"""Files by way of the JVM, where the storage refuses them."""

from __future__ import annotations

import gc

import pytest
from py4j.protocol import Py4JError

from applier.sink.format.storage import read_ranges, write_bytes
from applier.sink.iceberg.files import JavaStorage
from applier.sink.iceberg.java import JavaError


class _Refusing:
    """A Java table whose FileIO refuses every file."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def io(self) -> _Refusing:
        """Itself."""
        return self

    def newInputFile(self, location: str) -> _Refusing:  # noqa: N802 - the name of the library
        """A file that is not there."""
        self.asked.append(location)
        return self

    newOutputFile = newInputFile  # noqa: N815 - the name of the library

    def getLength(self) -> int:  # noqa: N802 - the name of the library
        """No answer."""
        message = "no"
        raise Py4JError(message)

    createOrOverwrite = getLength  # noqa: N815 - the name of the library


def test_a_file_that_is_refused_is_asked_for_once() -> None:
    """Python closes what it frees, which wrote the file a second time, and printed what went wrong with that."""
    table = _Refusing()
    storage = JavaStorage(table)

    with pytest.raises(JavaError, match=r"^Cannot write s3://b/out"):
        write_bytes(storage, "s3://b/out", b"x")
    with pytest.raises(JavaError, match=r"^Cannot read s3://b/in"):
        read_ranges(storage, "s3://b/in", [(0, 1)])
    gc.collect()

    assert table.asked == ["s3://b/out", "s3://b/in"]
