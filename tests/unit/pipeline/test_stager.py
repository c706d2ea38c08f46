"""Batches whose rows are in tasks: what the shares of one make is never less than what one process makes of it all."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from applier.changefeed.event import Op
from applier.changefeed.shape import Shape
from applier.changefeed.table import TableName, TableVersion
from applier.consume.source import PieceId, StageWork
from applier.errors import ApplierError, OutsideRefused, TableMismatch, TransientError
from applier.order.merge import IMAGE
from applier.order.pieces import Pieces
from applier.order.reduce import KEYED_SCHEMA
from applier.pipeline.batches import stager
from applier.pipeline.batches.batch import Batch
from applier.pipeline.batches.stager import RowsHere, RowsInTasks, StagerHere, StagerInTasks
from applier.pipeline.scan import task_result
from applier.pipeline.scan.task_result import Part, TaskResult
from applier.sink.format.file_layout import FileLayout
from applier.sink.format.storage import LocalStorage
from applier.sink.format.types import TableSchema, schema_json
from applier.sink.iceberg.files import JavaStorage
from applier.sink.iceberg.table import Table
from applier.sink.write.file_index import read_index
from applier.sink.write.file_writer import FileWriter
from applier.sink.write.new_keys import NewKeySample
from applier.sink.write.stage import Stage, StagedBatch
from tests.builders import ACCOUNT, added, version

SCHEMA = TableSchema.parse(schema_json(pa.schema({"id": pa.int64(), "v": pa.int32()}), ["id"]))
STORAGE = LocalStorage()
OTHER = TableName("shop", "other")


@dataclass
class Kept:
    """The rows of one task, which stay where they are."""

    bodies: Mapping[PieceId, pa.Buffer]
    slots: int = 1

    def collect(self) -> Mapping[PieceId, pa.Buffer]:
        """See `KeptRows`."""
        return self.bodies

    def stage(self, routes: npt.NDArray[np.int32], work: StageWork) -> dict[int, Any]:
        """See `KeptRows`."""
        return {target: work(target, self.bodies) for target in range(len(set(routes[:, -1])))}


def changed(ids: list[int], *, first: Op, of: TableVersion, offset: int = 0) -> Part:
    """A part of rows without the column `v`."""
    count = len(ids)
    meta: list[Any] = [
        [5] * count,
        [first] * count,
        [5] * count,
        [True] * count,
        [0] * count,
        range(offset, offset + count),
    ]
    columns = [
        pa.array(values, kind)
        for values, kind in zip([*meta, [0] * count, [first] * count], KEYED_SCHEMA.types, strict=True)
    ]
    rows = pa.Table.from_arrays(columns, schema=KEYED_SCHEMA)
    return Part.of(of, rows.append_column("id", pa.array(ids, pa.int64())), "shop")


def kept(result: TaskResult) -> Kept:
    """The rows of a task, which its result tells no more."""
    found = {}
    for part, pieces in enumerate(result.apart(0, {}, 8)):
        for piece, rows in enumerate(pieces):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_table(rows)
            found[0, part, piece] = sink.getvalue()
    return Kept(found)


def batch(result: TaskResult, rows: Kept, folder: Path, schema: TableSchema = SCHEMA) -> RowsInTasks:
    """The batch of the table, which has two rows."""
    layout = FileLayout(
        "shop.t", str(folder), schema, {"spec-id": 0, "fields": []}, {"order-id": 0, "fields": []}, {}, 3
    )
    others = [pa.array([10, 20])] * (len(schema.fields) - 1)
    held = pa.Table.from_arrays([pa.array([1, 2]), *others], names=schema.arrow.names).cast(schema.arrow)
    files = FileWriter(layout, STORAGE).stage(held, held.column_names[:1])
    plan = Stage(layout, read_index("shop.t", 1, schema.fields[:1], lambda *_: files), STORAGE, True, True)
    parts = result.parts[ACCOUNT, 0]
    found = Batch(ACCOUNT, parts, 9)
    fits = found.fits(parts[0].version, cast("Table", _Named(schema)), None)
    merging = found.merging(Shape(), by_place=False, exact=True)
    return RowsInTasks(StagerInTasks(rows, {}, result.size), found, fits, merging, plan)


def plan_of(changes: RowsInTasks) -> Stage:
    """How a batch is staged."""
    assert changes.plan is not None
    return changes.plan


@dataclass
class _Named:
    schema: TableSchema


def test_rows_of_every_share_are_written_again_where_another_writer_was_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only some shares take values over from rows that they replace: those of the others would be lost."""
    monkeypatch.setattr(stager, "LEAST_SHARE_BYTES", 200)
    monkeypatch.setattr(stager, "SHARE_BYTES", 1_000)
    of = version(("id", "bigint"))
    old, new = changed([2], first=Op.UPDATE, of=of), changed([*range(100, 300)], first=Op.INSERT, of=of, offset=1)
    result = TaskResult(parts={(ACCOUNT, 0): [Part.of(of, pa.concat_tables([old.here, new.here]), "shop")]})
    changes = batch(result, kept(result), tmp_path)
    assert len(list(changes.shares(1_000))) > 2
    changes.stager.stage_ahead([changes])
    index = replace(plan_of(changes).index, snapshot_id=2)

    staged = changes.staged(replace(plan_of(changes), index=index, needs_rows=False))

    found = [row for file in staged.rows or () for row in pq.read_table(file.path).to_pylist()]
    assert sorted(row["id"] for row in found) == [2, *range(100, 300)]
    assert {row["id"]: row["v"] for row in found}[2] == 20


def test_what_was_staged_is_good_for_another_attempt_on_the_same_head(tmp_path: Path) -> None:
    """A catalog that does not answer at once would cost a job, and leave files, at each attempt."""
    result = TaskResult(parts={(ACCOUNT, 0): [changed([*range(9)], first=Op.UPDATE, of=version(("id", "bigint")))]})
    changes = batch(result, kept(result), tmp_path)
    plan = plan_of(changes)
    changes.stager.stage_ahead([changes])
    moved = replace(plan, index=replace(plan.index, snapshot_id=2))

    first, again, other, last = (
        changes.staged(each)
        for each in (plan, replace(plan, needs_rows=False), moved, replace(moved, needs_rows=False))
    )

    assert first is again
    assert other is last
    assert first is not other


@pytest.mark.parametrize("key", [("id",), None])
@pytest.mark.parametrize(
    ("kind", "held", "may_part"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.string(), pa.string(), True),
        (pa.string(), pa.decimal128(20, 2), False),
        (pa.float64(), pa.float64(), True),
        (pa.decimal128(20, 2), pa.float64(), False),
        (pa.string(), None, False),
    ],
    ids=str,
)
def test_rows_that_are_equal_in_their_table_alone_are_not_parted(
    kind: pa.DataType, held: pa.DataType | None, *, may_part: bool, key: tuple[str, ...] | None
) -> None:
    """`1.0` and `1.00` are one decimal: one share would add the row, and another look for it in the files."""
    columns = (("id", kind),) if key else ((IMAGE, pa.int64()), ("id", kind))
    part = Pieces(0, 0, columns, (0,), (0,), (0,), (9,), (0,), 10.0)
    schema = pa.schema({"other": pa.int32()} if held is None else {"id": held})

    assert stager._may_part([part], key, TableSchema.parse(schema_json(schema, []))) == may_part
    assert not stager._may_part([part], ("id", "other"), TableSchema.parse(schema_json(schema, [])))


def test_pieces_of_wide_rows_have_fewer_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 rows of a megabyte would be no cell that Spark moves, and every share would look through them."""
    of = version(("id", "bigint"))
    part = changed([*range(1_000)], first=Op.INSERT, of=of)
    assert len(part.apart(0, 0, (), 2_000)[1]) == 1

    monkeypatch.setattr(task_result, "PIECE_BYTES", part.here.nbytes / 50)
    assert len(part.apart(0, 0, (), 2_000)[1]) > 50


@pytest.mark.parametrize("error", [TransientError("no answer came", ""), TableMismatch("a file is gone", "")])
def test_a_batch_that_cannot_be_planned_at_once_is_planned_by_an_attempt_to_commit(
    tmp_path: Path, error: Exception
) -> None:
    """Another writer may have removed what the last known head needs: its table is read again, and not parked."""
    rows = {(ACCOUNT, 0): [changed([1, 7], first=Op.UPDATE, of=version(("id", "bigint")))]}
    result = TaskResult(parts={place: [*parts] for place, parts in rows.items()})
    planned = batch(result, kept(result), tmp_path)
    writer = SimpleNamespace(plan=Mock(side_effect=error), storage=STORAGE)
    changes = planned.stager.rows(planned.batch, planned.fits, planned.merging, cast("Any", writer))
    planned.stager.stage_ahead([changes])
    assert not changes.is_empty

    assert added(changes.staged(plan_of(planned))) == 2


def test_rows_of_another_table_are_not_taken_for_those_of_this_one(tmp_path: Path) -> None:
    """A lost task that is run again may number its parts in another order."""
    ours = {(ACCOUNT, 0): [changed([7], first=Op.INSERT, of=version(("id", "bigint")))]}
    theirs = {(OTHER, 0): [changed([8], first=Op.INSERT, of=version(("id", "bigint"), name=OTHER))]}
    again = TaskResult(parts={place: [*parts] for place, parts in {**theirs, **ours}.items()})
    result = TaskResult(parts={**ours, **theirs})
    before, after = kept(result), kept(again)
    changes = batch(result, before, tmp_path)

    changes.stager.stage_ahead([changes])
    assert added(changes.staged(plan_of(changes))) == 1

    changes = batch(result, after, tmp_path)
    changes.stager.stage_ahead([changes])
    with pytest.raises(TransientError, match="not as before"):
        changes.staged(plan_of(changes))


def test_one_share_looks_new_keys_up_and_its_cost_counts_for_the_next_window(tmp_path: Path) -> None:
    """A credit that each task has anew would never afford a large file, or be spent as often as there are shares."""
    of = version(("id", "bigint"))
    result = TaskResult(parts={(ACCOUNT, 0): [changed([*range(100, 400)], first=Op.INSERT, of=of)]})
    changes = batch(result, kept(result), tmp_path)
    sample = NewKeySample("shop.t", STORAGE)
    changes.plan = replace(plan_of(changes), new_keys=sample)

    found = list(changes.shares(1_000))
    assert len(found) > 2
    assert sum(share.stage.new_keys is not None for share in found) == 1

    changes.take(StagedBatch([], {}, 0, credit=3))
    assert sample.credit == 3


@pytest.mark.parametrize("least", [200, 1 << 20])
def test_columns_may_be_called_as_those_of_iceberg_and_spark(
    least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows pass Spark as streams that it does not read: the shares make the same of them as this process."""
    monkeypatch.setattr(stager, "LEAST_SHARE_BYTES", least)
    monkeypatch.setattr(stager, "SHARE_BYTES", 1_000)
    names = ["_pos", "_file", "_row_id", "_deleted", "task", "part", "piece", "body", "target"]
    schema = TableSchema.parse(schema_json(pa.schema([(name, pa.int64()) for name in names]), ["_pos"]))
    part = changed([*range(300)], first=Op.UPDATE, of=version(*((name, "bigint") for name in names), key=("_pos",)))
    ids = part.here["id"]
    rows = part.here.drop_columns("id")
    for place, name in enumerate(names):
        rows = rows.append_column(name, pc.multiply(ids, place + 1))
    result = TaskResult(parts={(ACCOUNT, 0): [Part.of(part.version, rows, "shop")]})
    changes = batch(result, kept(result), tmp_path, schema)

    changes.stager.stage_ahead([changes])

    assert changes.plan is not None
    staged = changes.staged(changes.plan)
    found = [row for file in staged.rows or () for row in pq.read_table(file.path).to_pylist()]
    assert (added(staged), sum(map(len, staged.living.values()))) == (300, 2)
    assert sorted(tuple(row[name] for name in names) for row in found) == [
        tuple(number * (place + 1) for place in range(len(names))) for number in range(300)
    ]


class _Refusing(LocalStorage):
    def __init__(self, error: type[ApplierError], hint: str) -> None:
        self._error, self._hint = error, hint

    def create(self, location: str) -> Any:
        """See `Storage.create`."""
        raise self._error(f"Cannot write {location}: no rights.", self._hint)


@pytest.mark.parametrize("hint", ["check the rights.", ""])
@pytest.mark.parametrize("error", [OutsideRefused, TransientError])
def test_what_a_storage_refuses_to_a_task_names_its_machine(
    error: type[ApplierError], hint: str, tmp_path: Path
) -> None:
    """The driver may well have the rights, and then nobody would find the fault there."""
    result = TaskResult(parts={(ACCOUNT, 0): [changed([*range(9)], first=Op.UPDATE, of=version(("id", "bigint")))]})
    changes = batch(result, kept(result), tmp_path)
    assert changes.plan is not None
    plan = changes.plan = replace(changes.plan, storage=_Refusing(error, hint))

    changes.stager.stage_ahead([changes])

    with pytest.raises(error) as refused:
        changes.staged(plan)
    assert refused.value.what.startswith(f"In a task on {platform.node()}: Cannot write {tmp_path}")
    of_cluster = "let the machines of the cluster reach the storage with the rights of the driver: see docs/cluster.md."
    assert refused.value.hint == (hint or of_cluster)


class _ByJava(JavaStorage):
    """Files that Python does not reach."""

    def __init__(self) -> None:
        """Without a table."""

    def open(self, location: str, size: int | None = None) -> Any:
        """See `Storage.open`."""
        return STORAGE.open(location, size)

    def create(self, location: str) -> Any:
        """See `Storage.create`."""
        return STORAGE.create(location)


class _Nowhere(Kept):
    def stage(self, routes: npt.NDArray[np.int32], work: StageWork) -> dict[int, Any]:
        """See `KeptRows`."""
        raise AssertionError("a task has no way to these files")


def test_rows_of_a_table_that_only_java_reaches_come_to_this_process(tmp_path: Path) -> None:
    """Tasks have no JVM: such a table is written as slowly as ever, and not refused."""
    result = TaskResult(parts={(ACCOUNT, 0): [changed([*range(9)], first=Op.UPDATE, of=version(("id", "bigint")))]})
    of = batch(result, _Nowhere(kept(result).bodies), tmp_path)
    writer = SimpleNamespace(storage=_ByJava())
    rows = of.stager.rows(of.batch, of.fits, of.merging, cast("Any", writer))

    of.stager.stage_ahead([rows])

    staged = rows.staged(replace(plan_of(of), storage=_ByJava()))
    assert (added(staged), sum(map(len, staged.living.values()))) == (9, 2)


@pytest.mark.parametrize("key", [("id",), ()])
def test_few_rows_that_tasks_keep_are_staged_here(key: tuple[str, ...], tmp_path: Path) -> None:
    """They make what the tasks would make of them, whether their table has a key or not."""
    part = changed([*range(300)], first=Op.UPDATE, of=version(("id", "bigint"), key=key))
    before = part.here
    result = TaskResult(parts={(ACCOUNT, 0): [part]})
    rows = kept(result)

    (brought,) = [part.brought(rows.collect()) for part in result.parts[ACCOUNT, 0]]

    assert brought.here.select(before.column_names).sort_by("\0offset").equals(before.sort_by("\0offset"))
    assert brought.pieces is None
    if key:
        of = batch(result, rows, tmp_path)
        here = StagerHere(rows).rows(of.batch, of.fits, of.merging, cast("Any", None))
        assert isinstance(here, RowsHere)
        assert not here.is_empty
        assert added(here.staged(plan_of(of))) == 300


def test_rows_from_tidb_and_those_in_tasks_are_staged_together_here(tmp_path: Path) -> None:
    """The driver has read the first; a change in a task that came behind one of them replaces it."""
    of = version(("id", "bigint"))
    read, sent = changed([1, 2], first=Op.UPDATE, of=of), changed([2, 3], first=Op.UPDATE, of=of, offset=9)
    result = TaskResult(parts={(ACCOUNT, 0): [Part.of(of, sent.here, "shop")]})
    rows = kept(result)
    result.parts[ACCOUNT, 0].append(read)
    found = Batch(ACCOUNT, result.parts[ACCOUNT, 0], 9)
    fits = found.fits(of, cast("Table", _Named(SCHEMA)), None)
    merging = found.merging(Shape(), by_place=False, exact=True)

    staged = StagerInTasks(rows, {}, result.size).rows(
        found, fits, merging, cast("Any", SimpleNamespace(storage=STORAGE))
    )

    assert isinstance(staged, RowsHere)
    assert not staged.is_empty
    plan = plan_of(batch(TaskResult(parts={(ACCOUNT, 0): [sent]}), rows, tmp_path))
    written = [row["id"] for file in staged.staged(plan).rows or () for row in pq.read_table(file.path).to_pylist()]
    assert sorted(written) == [1, 2, 3]
