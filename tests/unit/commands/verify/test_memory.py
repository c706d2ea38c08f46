"""What a folder keeps between two runs of `verify`, and what of the data files is read again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from applier.commands.verify import memory
from applier.commands.verify.memory import (
    KnownGroup,
    KnownPiece,
    Memory,
    Total,
    refuse_unremembered,
    without_counters,
)
from applier.commands.verify.row_hash import RowHash
from applier.commands.verify.sides import SnapshotReader
from applier.commands.verify.totals import GroupTask, total_of
from applier.config import settings
from applier.decode.tidb.piece_reader import Piece, PieceChecksum
from applier.errors import ConfigError
from applier.sink.format.storage import LocalStorage
from applier.sink.format.types import TableSchema, schema_json
from applier.sink.iceberg.files import DataFile
from applier.sink.write.file_index import IndexedFile
from tests.unit.commands.verify.test_verdicts import BASE

PIECES = [
    KnownPiece(None, PieceChecksum(2, 1 << 70), Total(2, (1 << 64) - 1)),
    KnownPiece(("'á'", "x'00'"), None, Total(1, 5)),
    KnownPiece(("'é'", "x''"), PieceChecksum(0, 0), Total()),
]
GROUPS = {"s3://lake/a.parquet": [KnownGroup(10, "ab", Total(9, 7))]}

URL = {**BASE, "upstream": {"url": "mysql://root@127.0.0.1:4000"}}


def test_what_is_kept_is_found_again(tmp_path: Path) -> None:
    """With the seed of its hashes; each piece ends where the next begins."""
    kept = Memory(tmp_path / "x", "", 3, PIECES, GROUPS)
    empty = Memory.of(tmp_path, "shop.orders", ("int", 1))
    Memory(empty.path, empty.meaning, kept.seed, PIECES, GROUPS).save()

    found = Memory.of(tmp_path, "shop.orders", ("int", 1))

    assert (list(found.pieces), found.groups, found.seed) == (PIECES, GROUPS, 3)
    assert [piece for piece, _ in found.known()] == [
        Piece(None, PIECES[1].low),
        Piece(PIECES[1].low, PIECES[2].low),
        Piece(PIECES[2].low, None),
    ]
    assert [file.name for file in tmp_path.iterdir()] == [found.path.name]
    assert Memory.of(tmp_path, "shop.items", ("int", 1)).pieces == ()
    found.forget()
    found.forget()
    assert Memory.of(tmp_path, "shop.orders", ("int", 1)).known() == []


def test_knowledge_of_another_meaning_or_a_damaged_one_is_none(tmp_path: Path) -> None:
    """Of columns that were read otherwise, and of a file in which any byte is another one."""
    own = Memory.of(tmp_path, "t", ("int",))
    Memory(own.path, own.meaning, 3, PIECES, GROUPS).save()
    whole = own.path.read_bytes()

    assert Memory.of(tmp_path, "t", ("bigint",)).pieces == ()
    for at in random.Random(1).sample(range(len(whole)), 60):
        own.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert Memory.of(tmp_path, "t", ("int",)).pieces == ()
        own.path.write_bytes(whole[:at])
        assert Memory.of(tmp_path, "t", ("int",)).pieces == ()


def test_neighbours_of_too_many_pieces_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the sums of both, and no checksum where one has none."""
    monkeypatch.setattr(memory, "MOST_PIECES", 1)
    own = Memory.of(tmp_path, "t", ())
    Memory(own.path, own.meaning, 3, PIECES).save()

    one, other = Memory.of(tmp_path, "t", ()).pieces

    assert one == KnownPiece(None, None, Total(3, 4))
    assert other == PIECES[2]
    Memory(own.path, own.meaning, 3, [PIECES[0], PIECES[0]._replace(low=("1",)), *PIECES[2:]]).save()
    assert Memory.of(tmp_path, "t", ()).pieces[0] == KnownPiece(
        None, PieceChecksum(4, 1 << 71), Total(4, (1 << 64) - 2)
    )


def test_numbers_that_rise_with_each_row_mean_nothing() -> None:
    """As SHOW CREATE TABLE of TiDB has them."""
    text = "CREATE TABLE `t` (\n  `id` int\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4{} COLLATE=utf8mb4_bin{}"
    plain = text.format("", "")

    assert without_counters(text.format("", " AUTO_INCREMENT=30001")) == plain
    assert without_counters(text.format("", " /*T![auto_rand_base] AUTO_RANDOM_BASE=3 */")) == plain
    assert without_counters(text.format("", " COMMENT='3'")) != plain


@pytest.mark.parametrize("against", ["/exports", "copies.orders"])
def test_a_memory_of_what_has_no_checksums_is_refused(tmp_path: Path, against: str) -> None:
    """So is one where there is no TiDB."""
    with pytest.raises(ConfigError) as refusal:
        refuse_unremembered(settings.parse(URL), against, tmp_path)
    assert refusal.value.problems == [
        "--memory keeps checksums of TiDB: set upstream.url, and compare with it (--against tidb)."
    ]
    with pytest.raises(ConfigError, match="--memory keeps checksums of TiDB"):
        refuse_unremembered(settings.parse(BASE), "", tmp_path)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """Before any table is compared; one that is not there is made."""
    refuse_unremembered(settings.parse(URL), "tidb", tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as refusal:
        refuse_unremembered(settings.parse(URL), "", tmp_path / "file")
    assert refusal.value.problems == [f"--memory {tmp_path / 'file'}: it cannot be written (File exists)."]
    with pytest.raises(ConfigError, match="it cannot be written"):
        Memory(tmp_path / "gone" / "x.json", "").save()


def test_two_that_write_at_once_do_not_disturb_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As two containers do whose processes have the same id: the folder has what the last of them found."""
    own, write = Memory.of(tmp_path, "t", ()), Path.write_text

    def beside(path: Path, *given: Any) -> int:
        written = write(path, *given)
        monkeypatch.undo()
        Memory(own.path, own.meaning, 4, PIECES[1:]).save()
        return written

    monkeypatch.setattr(Path, "write_text", beside)
    Memory(own.path, own.meaning, 3, PIECES).save()

    assert Memory.of(tmp_path, "t", ()).seed == 3
    assert [file.name for file in tmp_path.iterdir()] == [own.path.name]


def test_what_could_not_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    """A disk that was full has room for what comes next."""
    own = Memory.of(tmp_path, "t", ())
    own.path.mkdir()
    with pytest.raises(ConfigError, match="it cannot be written"):
        own.save()
    assert [*tmp_path.iterdir()] == [own.path]


class Lake:
    """A data file of many row groups, read as a task reads it."""

    def __init__(self, folder: Path) -> None:
        fields: list[pa.Field[Any]] = [pa.field("id", pa.int64()), pa.field("v", pa.string())]
        self.schema = TableSchema.parse(schema_json(pa.schema(fields), ["id"]))
        ids: list[dict[bytes | str, bytes | str]] = [{"PARQUET:field_id": str(own.id)} for own in self.schema.fields]
        marked = [field.with_metadata(own) for field, own in zip(fields, ids, strict=True)]
        numbers, texts = list(range(1000)), [str(number) for number in range(1000)]
        self.rows = pa.table({"id": numbers, "v": texts}, pa.schema(marked))
        self.path = str(folder / "a.parquet")
        pq.write_table(self.rows, self.path, row_group_size=10)
        self.hashing = RowHash((0,), 5)

    def found(self, dead: set[int], known: Any = ()) -> tuple[list[KnownGroup], int]:
        """The groups with these dead rows, and how many rows were read for them."""
        indexed = IndexedFile(DataFile(self.path, "parquet", 1000, Path(self.path).stat().st_size), (), (), None)
        indexed.deleted = BitMap64(sorted(dead))
        reader = SnapshotReader(LocalStorage(), self.schema.fields)
        found = GroupTask(reader, self.hashing)([(indexed, known)])
        ((key, groups),) = found.groups.items()
        assert key == f"{Path(self.path).stat().st_size} {self.path}"
        return list(groups), found.read

    def total(self, dead: set[int]) -> Total:
        """That of the rows that are alive, by all of them at once."""
        alive = np.ones(1000, dtype=bool)
        alive[list(dead)] = False
        return total_of(self.rows.filter(pa.array(alive)), self.hashing)


def _sum(groups: list[KnownGroup]) -> Total:
    total = Total()
    for group in groups:
        total = total.plus(group.total)
    return total


def test_only_row_groups_whose_dead_rows_changed_are_read_again(tmp_path: Path) -> None:
    """More of them, fewer, or as many others: the total is that of the rows that are alive."""
    lake, dice = Lake(tmp_path), random.Random(2)
    dead: set[int] = set()
    groups, read = lake.found(dead)
    assert (read, len(groups), _sum(groups)) == (1000, 100, lake.total(dead))

    for _ in range(30):
        before, dead = dead, set(dead)
        for _ in range(dice.randrange(3)):
            dead ^= {dice.randrange(1000)}
        groups, read = lake.found(dead, groups)
        changed = {row // 10 for row in before ^ dead}
        assert _sum(groups) == lake.total(dead)
        assert read == sum(10 - len([row for row in dead if row // 10 == group]) for group in changed)

    one, other = lake.found({5})[0], lake.found({6})[0]
    assert one[0] != other[0]
    assert lake.found({6}, one) == (other, 9)


def test_groups_that_are_known_of_another_size_are_read_again(tmp_path: Path) -> None:
    """A file is what its footer says."""
    lake = Lake(tmp_path)
    groups, _ = lake.found(set())
    wrong = [KnownGroup(20, group.dead, Total(20, 1)) for group in groups[:50]]
    assert lake.found({999}, wrong)[0][:99] == groups[:99]
