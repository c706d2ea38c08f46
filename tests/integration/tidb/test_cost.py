"""What `verify` costs in the process that reads: pytest -s -m soak tests/integration/tidb/test_cost.py prints it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.commands.verify.against import Upstream
from applier.commands.verify.memory import Memory
from applier.commands.verify.row_hash import RowHash
from applier.commands.verify.sides import Side, SnapshotReader
from applier.commands.verify.spark import DigestTask
from applier.commands.verify.totals import GroupTask, PartTotals, PieceTask, key_of
from applier.decode.tidb.piece_reader import Piece, PieceReader
from applier.decode.tidb.tidb_export import TidbExport
from applier.sink.format.file_layout import FileLayout
from applier.sink.format.storage import LocalStorage
from applier.sink.format.types import TableSchema, schema_json
from applier.sink.iceberg.files import DataFile
from applier.sink.write.file_index import IndexedFile
from applier.sink.write.file_writer import FileWriter
from tests.integration.tidb import ranged
from tests.integration.tidb.feed import now
from tests.services.tidb import Tidb

NAME = TableName("costs", "big")

COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int32(),
    "a": pa.string(),
    "b": pa.float64(),
    "c": pa.decimal128(20, 4),
    "d": pa.timestamp("us"),
    "e": pa.int64(),
    "f": pa.string(),
}

SCHEMA = TableSchema.parse(schema_json(pa.schema(COLUMNS), ["id"]))

FILE_ROWS = 15_000
"""A hundredth of the table and more: the files are one row group each."""

_ROWS = (
    "INSERT INTO big (a, b, c, d, e, f) SELECT REPEAT(v, 20), id / 7, id / 3, "
    "'2024-01-01 00:00:00.000001', id * 1000003, CONCAT('x', id) FROM numbers"
)

HASHING = RowHash((0,), 7)


class Took(NamedTuple):
    """CPU seconds of this process, and what was found in them."""

    cpu: float
    found: Any


def _took(work: Callable[[], Any]) -> Took:
    begin = time.process_time()
    found = work()
    return Took(time.process_time() - begin, found)


def _upstream(tidb: Tidb) -> Side:
    export = TidbExport.find(ranged.login(tidb), now(tidb), lambda name: name == NAME)
    table: Any = SimpleNamespace(schema=SCHEMA)
    return Upstream(export, export.login, frozenset([NAME])).prepared(NAME, table, [SCHEMA], TypeRules()).side


def _written(side: Side, folder: Path) -> list[DataFile]:
    """The rows of the upstream as data files."""
    rows = pa.concat_tables([part for pieces in side.parts for part in side.reader.read(pieces)])
    spec, order = {"spec-id": 0, "fields": []}, {"order-id": 0, "fields": []}
    writer = FileWriter(FileLayout("costs.big", str(folder), SCHEMA, spec, order, {}, 3), LocalStorage())
    starts = range(0, rows.num_rows, FILE_ROWS)
    return [file for start in starts for file in writer.stage(rows.slice(start, FILE_ROWS), ["id"])]


def _indexed(files: Iterable[DataFile], dead: int = 0) -> list[IndexedFile]:
    """The files, of which the first has some dead rows."""
    return [IndexedFile(file, (), (), BitMap64(range(0 if place else dead))) for place, file in enumerate(files)]


@pytest.mark.soak
def test_what_a_comparison_and_a_second_one_cost(tidb: Tidb, tmp_path: Path) -> None:
    """1.2 million rows of seven columns; a hundredth of them, side by side, change before the second one."""
    ranged.create(tidb, NAME.database)
    tidb.run(
        f"USE {NAME.database}",
        "CREATE TABLE big (id int PRIMARY KEY AUTO_INCREMENT, a varchar(200), b double, c decimal(20,4), "
        "d datetime(6), e bigint, f varchar(60))",
        *[_ROWS] * 400,
    )
    side, reader = _upstream(tidb), SnapshotReader(LocalStorage(), SCHEMA.fields)
    files = _written(side, tmp_path)

    def piece_task(now_side: Side) -> PieceTask:
        read: Any = now_side.reader
        return PieceTask(read, PieceReader(read.reader, HASHING.seed, 0), HASHING)

    def both() -> int:
        upstream = (rows for part in side.parts for rows in side.reader.read(part))
        return sum(rows.num_rows for rows in [*upstream, *reader.read(_indexed(files))])

    plain, task = _took(both), DigestTask((side.reader, reader), HASHING)
    whole = _took(lambda: [*(task((0, part)) for part in side.parts), task((1, _indexed(files)))])
    groups = GroupTask(reader, HASHING)
    first = _took(lambda: (piece_task(side)([(Piece(None, None), None)]), groups([(it, ()) for it in _indexed(files)])))
    changed = plain.found // 2 // 100
    tidb.run(f"UPDATE {NAME.database}.big SET b = b + 1 WHERE id BETWEEN 600001 AND {600_000 + changed}")
    pieces, known = first.found
    memory = Memory(tmp_path / "memory", "", HASHING.seed, pieces.pieces, known.groups)
    later = [(it, memory.groups[key_of(it)]) for it in _indexed(files, changed)]
    second = _took(lambda: (piece_task(_upstream(tidb))(memory.known()), groups(later)))

    read: tuple[PartTotals, PartTotals] = second.found
    print(  # noqa: T201 - the figures are what it is for
        f"\n{plain.found:,} rows of both sides, CPU s: read {plain.cpu:.2f}, compared {whole.cpu:.2f} "
        f"({whole.cpu / plain.cpu:.2f} x); with a memory {first.cpu:.2f}, once more {second.cpu:.2f} "
        f"({second.cpu / first.cpu:.1%}, {read[0].read + read[1].read:,} rows read)"
    )
    assert changed <= read[0].read <= plain.found // 2 // 20
    assert read[1].read == FILE_ROWS - changed
