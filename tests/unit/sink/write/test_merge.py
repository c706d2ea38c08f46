from __future__ import annotations

from typing import Any

from applier.sink.iceberg.files import DataFile, parse_plan
from applier.sink.write import merge
from applier.sink.write.file_index import FileIndex

MB = 1 << 20


def _plan(*files: DataFile) -> FileIndex:
    plan = FileIndex(1, ())
    for file in files:
        plan.add(file)
    return plan


def _files(part: str, number: int, rows: int = 100, size: int = 10, **others: Any) -> list[DataFile]:
    return [DataFile(f"{part}{each}", "parquet", rows, size, partition=[part], **others) for each in range(number)]


def _chosen(*files: DataFile, most_bytes: int = 64 * MB) -> list[list[str]]:
    found = merge.groups(_plan(*files), 0, 1000, 5, most_bytes)
    return [sorted(indexed.file.path for indexed in part) for part in found]


def test_partitions_with_enough_small_files_are_merged() -> None:
    """Large files, files of another spec and partitions with few small files stay."""
    wanted = _files("a", 5)

    found = _chosen(*wanted, *_files("b", 4), *_files("c", 5, spec_id=1), *_files("d", 5, size=1000))

    assert found == [[file.path for file in wanted]]


def test_what_is_too_much_at_once_is_left() -> None:
    """Partitions of few rows come first, and those beyond the limits of rows or bytes wait."""
    few, many = _files("few", 5), _files("many", 5, rows=merge.MOST_ROWS // 5)

    assert _chosen(*many, *few) == [[file.path for file in few]]
    assert _chosen(*many) == [[file.path for file in many]]
    assert _chosen(*_files("more", 5, rows=merge.MOST_ROWS // 5 + 1)) == []
    assert _chosen(*few, most_bytes=49) == []


def test_files_of_a_plan_know_their_numbers() -> None:
    """Row ids and sequence numbers are read with the plan; a table of format 2 has no row ids."""
    bare = {"spec-id": 0, "content": "data", "file-format": "PARQUET", "record-count": 1, "file-size-in-bytes": 1}
    tasks = [{"data-file": {**bare, "file-path": "a", "first-row-id": 7}}, {"data-file": {**bare, "file-path": "b"}}]

    found = parse_plan({"file-scan-tasks": tasks, "data-sequence-numbers": [3, None]})

    assert [(file.first_row_id, file.sequence) for file in found] == [(7, 3), (None, None)]
    assert found[0].place["file-path"] == "a"
