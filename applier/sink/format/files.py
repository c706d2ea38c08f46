"""Data files and delete files of an Iceberg table, as Iceberg's own JSON describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


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
    def data_file(self) -> str | None:
        """The one data file it belongs to; None if it may hold positions of several."""
        found = self.json.get("referenced-data-file")
        return str(found) if found is not None else None

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
        """A deletion vector that was written as a blob of a Puffin file.

        Args:
            path: The Puffin file.
            size: Its bytes.
            blob: Offset and length of the vector.
            rows: Positions in the vector.
            of: The data file whose rows it deletes.
        """
        return DeleteFile.parse(
            {
                "spec-id": of.spec_id,
                "content": "position-deletes",
                "file-path": path,
                "file-format": "puffin",
                "partition": of.partition,
                "file-size-in-bytes": size,
                "record-count": rows,
                "referenced-data-file": of.path,
                "content-offset": blob[0],
                "content-size-in-bytes": blob[1],
            }
        )


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
        java: The library's own object where the file is new and waits for its commit.
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
    java: Any = field(default=None, compare=False, repr=False)

    @staticmethod
    def parse(value: Mapping[str, Any], deletes: tuple[DeleteFile, ...] = (), java: Any = None) -> DataFile:
        """Read Iceberg's JSON of a data file."""
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
            java=java,
        )


def parse_plan(value: Mapping[str, Any]) -> list[DataFile]:
    """Read a planned scan, as Iceberg's REST protocol writes it: data files that refer to delete files by index."""
    deletes = [DeleteFile.parse(delete) for delete in value.get("delete-files", ())]
    return [
        DataFile.parse(task["data-file"], tuple(deletes[index] for index in task.get("delete-file-references", ())))
        for task in value.get("file-scan-tasks", ())
    ]


def _bounds(value: Mapping[str, Any] | None) -> dict[int, bytes]:
    if value is None:
        return {}
    return {number: bytes.fromhex(text) for number, text in zip(value["keys"], value["values"], strict=True)}
