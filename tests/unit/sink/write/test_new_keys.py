"""The sample of new keys: a key that is there is found, and the search costs no more than the rows written allow."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from applier.changefeed.change_batch import ChangeBatch
from applier.sink.write.file_index import FileIndex
from applier.sink.write.new_keys import FILE_COST, FIRST_CREDIT, NewKeySample
from tests.unit.sink.write.test_lookup import LONG, STORAGE, numbered, written


def indexed(folder: Path, *files: list[int]) -> FileIndex:
    """A snapshot of some files of keys."""
    found = [written(folder, numbered({"id": keys}, [pa.int64()])) for keys in files]
    return FileIndex(7, (LONG,), {known.file.path: known for known in found})


def inserted(*keys: int, fresh: bool = True) -> ChangeBatch:
    """Upserts of some keys."""
    rows = pa.table({"id": pa.array(keys, pa.int64())})
    return ChangeBatch(rows, pa.array([fresh] * len(keys)), rows.slice(0, 0))


def test_a_key_that_is_there_is_found_among_those_taken_for_new(tmp_path: Path) -> None:
    """Dead rows do not count, nor do keys that are not taken for new."""
    index = indexed(tmp_path, [1, 2], [3, 4])
    sample = NewKeySample("t", STORAGE)

    assert sample.is_there(index, inserted(9, 4))
    assert not sample.is_there(index, inserted(9))
    assert not sample.is_there(index, inserted(4, fresh=False))
    for known in index.files.values():
        if known.deleted is not None:
            known.deleted |= type(known.deleted)([1])
    assert not sample.is_there(index, inserted(4))


def test_the_rows_written_pay_for_the_search(tmp_path: Path) -> None:
    """Once the first credit is used up, a file is opened again only after enough rows were written."""
    keys = list(range(100))
    index = indexed(tmp_path, keys)
    sample = NewKeySample("t", STORAGE)

    first = [sample.is_there(index, inserted(5)) for _ in range(50)]
    later = [sample.is_there(index, inserted(*keys)) for _ in range(FILE_COST // 200)]

    assert FIRST_CREDIT // FILE_COST - 2 <= sum(first) <= FIRST_CREDIT // FILE_COST
    assert 1 <= sum(later) <= 3
