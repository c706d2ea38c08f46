from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap64

from applier.sink.iceberg.files import DataFile, DeleteFile
from applier.sink.upkeep import Thresholds, Wear, wear
from applier.sink.write.file_index import FileIndex

TARGET = 1000


def _vector(path: str, offset: int, rows: int) -> DeleteFile:
    place = {"content-offset": offset, "content-size-in-bytes": 9}
    value = {"content": "position-deletes", "file-path": path, "file-format": "puffin", "record-count": rows, **place}
    return DeleteFile.parse(value)


def _positions(path: str, rows: int) -> DeleteFile:
    value = {"content": "position-deletes", "file-path": path, "file-format": "parquet", "record-count": rows}
    return DeleteFile.parse(value)


def _plan(*files: DataFile) -> FileIndex:
    plan = FileIndex(1, ())
    for file in files:
        plan.add(file)
        plan.files[file.path].deleted = BitMap64()
    return plan


def _file(name: str, size: int = 10, **others: Any) -> DataFile:
    return DataFile(name, "parquet", 100, size, **others)


def test_small_files_count_by_partition() -> None:
    """Files of different partitions, or specs, can never become one: the partition with most of them counts."""
    files = [_file(f"{part}{number}", partition=[part]) for part in ("a", "b") for number in range(3)]

    found = wear(_plan(*files, _file("c", partition=["a"], spec_id=1), _file("d", TARGET, partition=["a"])), TARGET)

    assert (found.small_files, found.rows) == (3, 800)
    assert found.file_bytes == pytest.approx((70 + TARGET) / 8)


def test_dead_rows_count_once() -> None:
    """Vectors of one Puffin file are several; a position delete file that many data files share is one."""
    vectors = [_file("a", deletes=(_vector("p", 4, 7),)), _file("b", deletes=(_vector("p", 99, 5),))]
    shared = _positions("d", 20)
    positions = [_file("a", deletes=(shared,)), _file("b", deletes=(shared, _positions("e", 1)))]

    by_vector, by_position = wear(_plan(*vectors), TARGET), wear(_plan(*positions), TARGET)

    assert (by_vector.deleted, by_vector.delete_files) == (12, 0)
    assert (by_position.deleted, by_position.delete_files) == (21, 2)


@pytest.mark.parametrize(
    ("found", "pays"),
    [
        (Wear(49, 0, 0, 100, 1.0), False),
        (Wear(50, 0, 0, 100, 1.0), True),
        (Wear(1, 50, 100, 10**6, 1.0), True),
        (Wear(1, 0, 9_999, 10_000, 1.0), False),
        (Wear(1, 0, 10_000, 100_000, 1.0), True),
        (Wear(1, 0, 10_000, 100_001, 1.0), False),
    ],
)
def test_a_compaction_pays_from_the_thresholds_on(found: Wear, *, pays: bool) -> None:
    """Many small files, many delete files, or many dead rows, by share and by number."""
    assert found.needs_compaction(Thresholds()) is pays
