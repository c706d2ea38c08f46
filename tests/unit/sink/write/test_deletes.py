from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from applier.errors import TableMismatch, TransientError
from applier.sink.format.storage import LocalStorage
from applier.sink.iceberg.files import DataFile, DeleteFile
from applier.sink.write.deletes import (
    alive,
    decode_vector,
    encode_vector,
    load_deleted,
    puffin,
    read_position_deletes,
    stage_position_deletes,
    stage_vectors,
)
from applier.sink.write.file_index import IndexedFile

STORAGE = LocalStorage()


def indexed(path: str, *deletes: DeleteFile, partition: tuple[int, ...] = ()) -> IndexedFile:
    """A data file of a plan that has not read its deletes yet."""
    return IndexedFile(DataFile(path, "parquet", 100, 1, partition=partition, deletes=deletes), (), (), None)


@given(st.sets(st.integers(0, 2**40), max_size=50))
def test_vector_survives_its_form(positions: set[int]) -> None:
    """A deletion vector reads back as the same positions."""
    assert set(decode_vector(encode_vector(BitMap64(positions)))) == positions


def test_damaged_vector_is_an_error() -> None:
    """A vector whose checksum does not fit is never taken for one."""
    blob = bytearray(encode_vector(BitMap64([1, 2])))
    blob[9] ^= 1

    with pytest.raises(TransientError, match="damaged"):
        decode_vector(bytes(blob))


def test_pyiceberg_reads_our_puffin_file() -> None:
    """Another implementation finds the same positions for the same data files in a file of ours."""
    vectors = {"s3://b/one.parquet": BitMap64([0, 5, 1 << 33]), "s3://b/two.parquet": BitMap64(range(1000))}

    body, _ = puffin(vectors)

    found = deletion_vectors_from_puffin_file(PuffinFile(body))
    assert {vector.referenced_data_file: set(vector.to_vector().to_pylist()) for vector in found} == {
        path: set(positions) for path, positions in vectors.items()
    }


def test_new_vector_holds_the_old_one_and_replaces_it(tmp_path: Path) -> None:
    """There is never a second vector for a data file: the new one has all that was dead before."""
    first = stage_vectors({"a": BitMap64([1, 2])}, {"a": indexed("a")}, STORAGE, lambda name: str(tmp_path / name))
    files = {"a": indexed("a", *first.files)}

    living = alive({"a": np.array([2, 3])}, files, STORAGE)
    second = stage_vectors({"a": BitMap64(living["a"])}, files, STORAGE, lambda name: str(tmp_path / name))

    assert [positions.tolist() for positions in living.values()] == [[3]]
    assert second.replaced == first.files
    assert set(second.state["a"][1]) == {1, 2, 3}
    assert second.files[0].json["record-count"] == 3
    reread = indexed("a", *second.files)
    load_deleted([reread], STORAGE)
    assert set(reread.deleted or ()) == {1, 2, 3}


def test_dead_rows_make_no_vector(tmp_path: Path) -> None:
    """A batch that only finds dead versions of rows writes no delete file."""
    first = stage_vectors({"a": BitMap64([1])}, {"a": indexed("a")}, STORAGE, lambda name: str(tmp_path / name))
    files = {"a": indexed("a", *first.files)}

    assert alive({"a": np.array([1])}, files, STORAGE) == {}
    assert stage_vectors({}, files, STORAGE, lambda name: str(tmp_path / name)).files == []


def test_position_deletes_are_one_file_a_partition(tmp_path: Path) -> None:
    """Format version 2: positions of a partition's files lie in one Parquet file, sorted by file and position."""
    files = {path: indexed(path, partition=(len(path),)) for path in ("a", "b", "cc")}
    hits = {"b": BitMap64([4, 1]), "a": BitMap64([7]), "cc": BitMap64([0])}

    result = stage_position_deletes(hits, files, STORAGE, lambda name: str(tmp_path / name))

    assert [delete.json["partition"] for delete in result.files] == [(1,), (2,)]
    found = read_position_deletes(result.files[0], STORAGE)
    assert {path: positions.tolist() for path, positions in found.items()} == {"a": [7], "b": [1, 4]}
    assert bytes.fromhex(result.files[0].json["upper-bounds"]["values"][0]) == b"b"


def test_position_deletes_of_others_are_read_once_for_all_files(tmp_path: Path) -> None:
    """A delete file that several data files share gives each of them its own positions."""
    hits = {"a": BitMap64([1]), "b": BitMap64([2, 3])}
    blank = {path: indexed(path) for path in hits}
    staged = stage_position_deletes(hits, blank, STORAGE, lambda name: str(tmp_path / name))
    files = [indexed("a", *staged.files), indexed("b", *staged.files)]

    load_deleted(files, STORAGE)

    assert [set(file.deleted or ()) for file in files] == [{1}, {2, 3}]


def test_delete_file_in_another_format_is_refused() -> None:
    """A delete file that cannot be read stops the table, as its rows would come alive again."""
    delete = DeleteFile("position", "x.avro", "avro", json.loads("{}"))

    with pytest.raises(TableMismatch, match="x.avro is in avro format"):
        load_deleted([indexed("a", delete)], STORAGE)


class _FailingOnce(LocalStorage):
    """Reads of one file fail, once."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, location: str, size: int | None = None) -> Any:
        if self.name and location.endswith(self.name):
            self.name = ""
            raise TransientError("No answer came.")
        return super().open(location, size)


@pytest.mark.parametrize("unread", [0, 1])
@pytest.mark.parametrize("stage", [stage_vectors, stage_position_deletes])
def test_deletes_that_cannot_be_read_once_are_read_again(stage: Any, unread: int, tmp_path: Path) -> None:
    """A file of which an error left deletes unread does not count as read: its dead rows would come back."""
    staged = [
        stage({name: BitMap64([1, 2])}, {name: indexed(name)}, STORAGE, lambda file: str(tmp_path / file)).files
        for name in ("a", "b")
    ]
    files = [indexed(name, *deletes) for name, deletes in zip(("a", "b"), staged, strict=True)]
    storage = _FailingOnce(Path(staged[unread][0].path).name)

    with pytest.raises(TransientError):
        load_deleted(files, storage)
    load_deleted(files, storage)

    assert [set(file.deleted or ()) for file in files] == [{1, 2}, {1, 2}]


def test_a_position_delete_file_that_breaks_off_may_be_read_again(tmp_path: Path) -> None:
    """What a storage raises while it is read is an outage, whatever it is."""
    location = tmp_path / "deletes.parquet"
    location.write_bytes(b"PAR1")

    with pytest.raises(TransientError, match="Cannot read"):
        read_position_deletes(DeleteFile("position", str(location), "parquet", {}), STORAGE)
