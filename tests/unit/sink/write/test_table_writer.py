from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from applier.errors import TransientError
from applier.sink.commit import committer
from applier.sink.commit.stamp import Stamp
from applier.sink.format.file_layout import FileLayout
from applier.sink.format.storage import LocalStorage
from applier.sink.format.types import TableSchema, schema_json
from applier.sink.iceberg.commit import Change
from applier.sink.iceberg.files import DataFile
from applier.sink.iceberg.snapshot import Snapshot
from applier.sink.iceberg.table import Table
from applier.sink.write import table_writer
from applier.sink.write.stage import StagedBatch
from applier.sink.write.table_writer import CommitWork, TableWriter
from tests.unit.sink.commit.test_committer import OURS, FakeTable

SCHEMA = TableSchema.parse(schema_json(pa.schema({"id": pa.int64()}), ["id"]))


class CompactedTable(FakeTable):
    """A table that another writer compacts, and cleans up, while a commit is planned."""

    handle: object = None
    is_stale = False

    def __init__(self, folder: Path) -> None:
        super().__init__(Snapshot(1, "append", OURS))
        self.schema = SCHEMA
        unsorted = {"order-id": 0, "fields": []}
        self.file_layout = FileLayout("shop.orders", str(folder), SCHEMA, {"spec-id": 0, "fields": []}, unsorted, {}, 3)

    def setting(self, _: str) -> str | None:
        """It is given none."""
        return None

    def scan(self, snapshot_id: int, _: Sequence[str]) -> list[DataFile]:
        """The manifests of the first snapshot are gone."""
        if snapshot_id == 1:
            self.snapshots = [Snapshot(2, "replace", {}, 1), *self.snapshots]
            raise TransientError("A manifest cannot be read.")
        return []


def test_a_plan_that_fails_as_its_head_was_compacted_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt finds the new head, and the commit goes on."""
    table = CompactedTable(tmp_path)
    monkeypatch.setattr(table_writer, "storage_for", lambda _: LocalStorage())
    monkeypatch.setattr(table_writer, "own_columns", lambda _: {})
    monkeypatch.setattr(committer, "changed", lambda *_: None)
    sent: list[Any] = []

    def commit(_: Any, change: Change, head: int | None, *__: Any) -> int:
        sent.append((list(change.rows), head))
        return 3

    monkeypatch.setattr(committer, "commit", commit)
    writer = TableWriter(cast("Table", table), "feed", 1)
    work = CommitWork()

    for attempt in writer.attempts(work, Stamp("feed", 1, 20)):
        with attempt:
            writer.plan(["id"], exact=True, work=work)
            assert writer.take(work, StagedBatch([], {}, 0))

    assert sent == [([], 2)]
    assert work.snapshot_id == writer.head == 3


@pytest.mark.parametrize("where", ["plan", "commit"])
def test_a_table_whose_keys_are_refused_is_loaded_before_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The storage is opened with the new ones, and no step fails."""
    table, opened = CompactedTable(tmp_path), list[object]()
    table.snapshots = [Snapshot(2, "append", OURS)]

    def refresh() -> None:
        table.handle, table.is_stale = "of the new keys", False

    def storage_for(loaded: CompactedTable) -> LocalStorage:
        opened.append(loaded.handle)
        return LocalStorage()

    monkeypatch.setattr(table, "refresh", refresh)
    monkeypatch.setattr(table_writer, "storage_for", storage_for)
    monkeypatch.setattr(committer, "changed", lambda *_: None)
    writer = TableWriter(cast("Table", table), "feed", 1)

    table.is_stale = True
    if where == "plan":
        writer.plan(["id"], exact=True)
    else:
        next(writer.attempts(CommitWork(), Stamp("feed", 1, 20)))

    assert opened == [None, "of the new keys"]
