"""Data files and delete files of an Iceberg table: Iceberg's JSON of them, its Java objects, and its own FileIO."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal

from applier.sink.format.types import Field
from applier.sink.iceberg.java import Java, translated

_PIECE = 8 << 20
"""Bytes that pass between Python and the JVM at once: both hold several copies of them."""


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """One delete file, or one deletion vector inside a Puffin file.

    Attributes:
        content: `position` or `equality`.
        path: Location of the file.
        format: `parquet`, `puffin`, `avro` or `orc`.
        json: Iceberg's JSON of it, from which the same file can be made again.
    """

    content: Literal["position", "equality"]
    path: str
    format: str
    json: Mapping[str, Any]

    @property
    def is_vector(self) -> bool:
        """True for a deletion vector (format version 3)."""
        return self.format == "puffin"

    @property
    def size(self) -> int:
        """Bytes of its file."""
        return int(self.json["file-size-in-bytes"])

    @property
    def blob(self) -> tuple[int, int]:
        """Offset and length of a deletion vector in its file."""
        return int(self.json["content-offset"]), int(self.json["content-size-in-bytes"])

    @staticmethod
    def parse(value: Mapping[str, Any]) -> DeleteFile:
        """Read Iceberg's JSON of a delete file."""
        content: Literal["position", "equality"] = "position" if value["content"] == "position-deletes" else "equality"
        return DeleteFile(content, value["file-path"], value["file-format"].lower(), value)

    @staticmethod
    def vector(path: str, size: int, blob: tuple[int, int], rows: int, of: DataFile) -> DeleteFile:
        """A deletion vector of a data file, written as a blob (offset and length) of a Puffin file of `size` bytes.

        It has a position for each of `rows` rows.
        """
        place = {"referenced-data-file": of.path, "content-offset": blob[0], "content-size-in-bytes": blob[1]}
        return DeleteFile.parse(of.beside("position-deletes", path, "puffin", size, rows) | place)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file.

    Attributes:
        path: Location, as the table's metadata spells it.
        format: `parquet`, `avro` or `orc`.
        records: Rows in it, deleted ones included.
        size: Bytes.
        spec_id: Partition spec it was written with.
        partition: Partition values in the order of the spec, as single-value JSON.
        lower: Lower bounds by field id, in Iceberg's binary form; a missing one is unknown.
        upper: Upper bounds.
        deletes: Delete files that apply to it.
        first_row_id: Row id of its first row (format 3); None where Iceberg has given it none, or none that we know.
        sequence: Data sequence number: that of the commit that added its rows. None where it is not known.
        json: Iceberg's JSON of it where the file is new and waits for its commit, else {}.
    """

    path: str
    format: str
    records: int
    size: int
    spec_id: int = 0
    partition: Sequence[Any] = ()
    lower: Mapping[int, bytes] = field(default_factory=dict)
    upper: Mapping[int, bytes] = field(default_factory=dict)
    deletes: tuple[DeleteFile, ...] = ()
    first_row_id: int | None = None
    sequence: int | None = None
    json: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def place(self) -> dict[str, Any]:
        """Iceberg's JSON of it without metrics: enough to take it out of the table."""
        return self.beside("data", self.path, self.format, self.size, self.records)

    def beside(self, content: str, path: str, form: str, size: int, records: int) -> dict[str, Any]:
        """Iceberg's JSON, without metrics, of a file in the same partition; `size` are its bytes."""
        return {
            "spec-id": self.spec_id,
            "content": content,
            "file-path": path,
            "file-format": form,
            "partition": self.partition,
            "file-size-in-bytes": size,
            "record-count": records,
        }

    @staticmethod
    def parse(
        value: Mapping[str, Any],
        deletes: tuple[DeleteFile, ...] = (),
        sequence: int | None = None,
        *,
        is_new: bool = False,
    ) -> DataFile:
        """Read Iceberg's JSON of a data file; one that is new keeps it for the commit."""
        return DataFile(
            path=value["file-path"],
            format=value["file-format"].lower(),
            records=value["record-count"],
            size=value["file-size-in-bytes"],
            spec_id=value["spec-id"],
            partition=value.get("partition", ()),
            lower=_bounds(value.get("lower-bounds")),
            upper=_bounds(value.get("upper-bounds")),
            deletes=deletes,
            first_row_id=value.get("first-row-id"),
            sequence=sequence,
            json=value if is_new else {},
        )


class TableFiles:
    """Describes files of a table, which is named for messages, by its specs as of the last `refresh`."""

    def __init__(self, java: Java, handle: Any, name: str) -> None:
        self._java = java
        self._handle = handle
        self._name = name
        self._spec_of: dict[int, Any] = {}

    def staged(self, java_file: Any) -> DataFile:
        """Describe a Java `DataFile` of any spec of the table, such as one that Spark staged."""
        number = int(java_file.specId())
        if number not in self._spec_of:
            self._spec_of[number] = self._handle.specs().get(number)
        text = self._java.iceberg.ContentFileParser.toJson(java_file, self._spec_of[number])
        return DataFile.parse(json.loads(text), is_new=True)

    def all(self) -> list[DataFile]:
        """The data files of the head, as `staged` describes them."""
        with translated(f"Cannot plan table {self._name}"):
            tasks = self._handle.newScan().includeColumnStats().planFiles()
            found = [self.staged(task.file()) for task in self._java.items(tasks)]
            tasks.close()
        return found

    def copied(self, files: Iterable[DataFile]) -> list[DataFile]:
        """Data files of another table of the same columns and partition fields, to be added here."""
        # The same fields may have another number in each table.
        number = int(self._handle.spec().specId())
        return [DataFile.parse({**file.json, "spec-id": number}, is_new=True) for file in files]

    def null_count(self, snapshot_id: int, field: Field) -> int | None:
        """NULLs in a column of a snapshot by the files' metrics, dead rows included; None if a file does not show."""
        java = self._java
        with translated(f"Cannot plan table {self._name}"):
            # Of all columns, as this one may have had another name when the snapshot was made.
            scan = self._handle.newScan().useSnapshot(snapshot_id).includeColumnStats()
            tasks = scan.planFiles()
            found = [java.plain(task.file().nullValueCounts() or {}) for task in java.items(tasks)]
            tasks.close()
        nulls = [{int(number): int(count) for number, count in counts.items()}.get(field.id) for counts in found]
        return None if None in nulls else sum(filter(None, nulls))


class JavaStorage:
    """`Storage` by way of the JVM: some megabytes a second, so only where nothing else reaches the files."""

    def __init__(self, handle: Any) -> None:
        self._io = handle.io()

    def open(self, location: str, size: int | None = None) -> Any:
        """See `Storage.open`."""
        del size
        with translated(f"Cannot read {location}"):
            source = self._io.newInputFile(location)
            return _JavaReader(int(source.getLength()), source.newStream(), location)

    def create(self, location: str) -> Any:
        """See `Storage.create`."""
        return _JavaFile(self._io, location)


class _JavaReader(io.RawIOBase):
    """Moves the ranges that are asked for, and no whole file."""

    def __init__(self, size: int, stream: Any, location: str) -> None:
        super().__init__()
        self._size, self._stream, self._location = size, stream, location
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = (0, self._place, self._size)[whence] + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        wanted = max(0, min(len(buffer), self._size - self._place))
        with translated(f"Cannot read {self._location}"):
            self._stream.seek(self._place)
            for start in range(0, wanted, _PIECE):  # Arrow takes a short read for the end of the file.
                end = min(start + _PIECE, wanted)
                buffer[start:end] = bytes(self._stream.readNBytes(end - start))
        self._place += wanted
        return wanted

    def close(self) -> None:
        if not self.closed:
            super().close()
            with translated(f"Cannot read {self._location}"):
                self._stream.close()


class _JavaFile(io.BytesIO):
    """Keeps what is written and hands it over when it is closed."""

    def __init__(self, file_io: Any, location: str) -> None:
        super().__init__()
        self._io = file_io
        self._location = location

    def close(self) -> None:
        """Create the file; closing again does nothing, also after an error: Python does so as it frees the memory."""
        if self.closed:
            return
        body = self.getvalue()
        super().close()
        with translated(f"Cannot write {self._location}"):
            stream = self._io.newOutputFile(self._location).createOrOverwrite()
            for start in range(0, len(body), _PIECE):
                stream.write(body[start : start + _PIECE])
            stream.close()


def parse_plan(value: Mapping[str, Any]) -> list[DataFile]:
    """Read a planned scan, as `TableText.files` writes it: data files that refer to delete files by index."""
    deletes = [DeleteFile.parse(delete) for delete in value.get("delete-files", ())]
    numbers = value.get("data-sequence-numbers", ())
    return [
        DataFile.parse(
            task["data-file"], tuple(deletes[index] for index in task.get("delete-file-references", ())), number
        )
        for task, number in zip_longest(value.get("file-scan-tasks", ()), numbers)
    ]


def _bounds(value: Mapping[str, Any] | None) -> dict[int, bytes]:
    if value is None:
        return {}
    return {number: bytes.fromhex(text) for number, text in zip(value["keys"], value["values"], strict=True)}
