from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest

from applier.errors import OutsideRefused, TableMismatch, TransientError
from applier.sink.commit import committer as module
from applier.sink.commit.committer import Committer
from applier.sink.commit.foreign_commits import lacks
from applier.sink.commit.stamp import CHANGEFEED, EPOCH, RESOLVED_TS, Stamp
from applier.sink.iceberg import commit as prepared
from applier.sink.iceberg.commit import Change, CommitFailure
from applier.sink.iceberg.files import DataFile
from applier.sink.iceberg.snapshot import MAIN, Snapshot
from applier.sink.iceberg.table import Table

OURS = {CHANGEFEED: "feed", EPOCH: "1", RESOLVED_TS: "10"}


class FakeTable:
    """A table with a history, newest first, whose catalog fails as often as it is told."""

    branch = MAIN

    def __init__(self, *snapshots: Snapshot) -> None:
        self.snapshots = list(snapshots)
        self.properties = dict(OURS)
        self.failures = 0
        self.met: list[int] = []
        self.schema: Any = type("Schema", (), {"id": 0})()
        self.on_refresh: Callable[[], None] = lambda: None

    def __str__(self) -> str:
        return "shop.orders"

    @property
    def snapshot_id(self) -> int | None:
        """The head."""
        return self.snapshots[0].id if self.snapshots else None

    def refresh(self) -> None:
        """The newest metadata."""
        self.on_refresh()

    def has_snapshot(self, number: int) -> bool:
        """Whether it is kept."""
        return any(item.id == number for item in self.snapshots)

    def meet(self, number: int) -> None:
        """Take note of its time."""
        self.met.append(number)

    def history(self, start: int | None = None) -> Iterator[Snapshot]:
        """The snapshots from one on."""
        if self.failures:
            self.failures -= 1
            raise TransientError("No answer came.")
        ids = [item.id for item in self.snapshots]
        return iter(self.snapshots[ids.index(start) if start in ids else 0 :])


def committer_of(table: FakeTable) -> Committer:
    """A committer that has looked at the table."""
    found = Committer(cast("Table", table), "feed", 1)
    found.open()
    return found


def test_rows_of_others_are_noticed_by_the_look_after_one_that_failed() -> None:
    """A look that cannot read the history leaves the head as it was, so the next one reads all of it."""
    table = FakeTable(Snapshot(1, "append", OURS))
    committer = committer_of(table)
    table.snapshots.insert(0, Snapshot(2, "append", {}, 1))
    table.failures = 1

    with pytest.raises(TransientError):
        committer.look()
    committer.look()

    assert (committer.head, committer.is_foreign) == (2, True)


def test_a_table_that_was_rolled_back_is_refused_at_every_look_until_it_is_set_to_its_newest_snapshot() -> None:
    """The first refusal does not make the older snapshot the head that commits go on from."""
    newest = Snapshot(2, "append", {**OURS, RESOLVED_TS: "20"}, 1)
    table = FakeTable(newest, Snapshot(1, "append", OURS))
    table.properties[RESOLVED_TS] = "20"
    committer = committer_of(table)
    table.snapshots.remove(newest)

    for _ in range(2):
        with pytest.raises(TableMismatch, match="rolled back by hand"):
            committer.look()
    assert committer.head == 2
    table.snapshots.insert(0, newest)
    committer.look()

    assert (committer.head, committer.rolled_back) == (2, None)


def test_a_commit_on_a_listed_snapshot_that_others_have_expired_is_no_older_one() -> None:
    """A backup of before the snapshot has no commit that was made on it."""

    def expired(_: int) -> tuple[Snapshot, ...]:
        return ()

    assert not lacks([Snapshot(2, "append", OURS, 1)], 1, expired)
    assert lacks([Snapshot(2, "append", OURS, 3)], 1, expired)


def test_a_commit_that_comes_late_counts_where_the_next_attempt_cannot_be_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planned anew on top of it, the same rows would be in a table without a key twice."""
    table = FakeTable(Snapshot(1, "append", OURS))
    committer = committer_of(table)
    planned: list[int | None] = []

    def commit(*_: Any) -> int:
        raise CommitFailure("Commit failed", "UncheckedSQLException", "no answer", 7)

    monkeypatch.setattr(module, "commit", commit)

    for attempt in committer.attempts(Stamp("feed", 1, 20)):
        with attempt as head:
            planned.append(head)
            if len(planned) == 2:
                table.snapshots.insert(0, Snapshot(7, "append", OURS, 1))
                raise TransientError("A file cannot be read.")
            committer.send(Change())

    assert (committer.made, committer.head) == (7, 7)
    assert planned == [1, 1]


@pytest.mark.parametrize(("second", "is_late"), [(None, True), (8, True), (7, False)])
def test_a_commit_is_late_that_is_not_what_was_planned_last(
    monkeypatch: pytest.MonkeyPatch, second: int | None, *, is_late: bool
) -> None:
    """The next attempt may have no snapshot: it is refused by the one that came, before it is prepared."""
    table = FakeTable(Snapshot(1, "append", OURS))
    committer = committer_of(table)
    numbers = [7, second] if is_late else [second]

    def commit(*_: Any) -> int:
        number = numbers.pop(0)
        if not numbers:
            table.snapshots.insert(0, Snapshot(7, "append", OURS, 1))
        raise CommitFailure("Commit failed", "ValidationException", "head is 7, not 1", number)

    monkeypatch.setattr(module, "commit", commit)

    _commit(committer)

    assert (committer.made, committer.is_late) == (7, is_late)


def test_columns_that_cannot_be_read_end_the_commit_though_the_head_has_moved() -> None:
    """Nothing is planned yet: the step is repeated, as after any other answer that does not come."""
    table = FakeTable(Snapshot(1, "append", OURS))
    committer = committer_of(table)
    table.snapshots.insert(0, Snapshot(2, "replace", OURS, 1))
    table.schema = _UnreadOnce()

    with pytest.raises(TransientError, match="The catalog is silent"):
        _commit(committer)


def test_an_answer_that_does_not_come_ends_the_commit_though_the_head_has_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the catalog's answer nobody knows whether the commit was made: to plan it anew could make it twice."""
    table = FakeTable(Snapshot(1, "append", OURS))
    committer = committer_of(table)
    sent: list[int | None] = []

    def commit(_table: Table, _change: Change, expected: int | None, _sending: Callable[[], None]) -> int:
        sent.append(expected)
        table.snapshots.insert(0, Snapshot(2, "replace", OURS, 1))
        table.on_refresh = _silent
        raise CommitFailure("Commit failed", "UncheckedSQLException", "no answer", 7)

    monkeypatch.setattr(module, "commit", commit)
    monkeypatch.setattr(module, "ATTEMPTS", 1)

    with pytest.raises(TransientError, match="The catalog is silent"):
        _commit(committer)
    assert (sent, committer.head) == ([1], 1)


def test_a_file_that_a_task_has_written_to_another_disk_is_not_committed(tmp_path: Path) -> None:
    """The table would have a file that nobody can read: its rows would be lost, those of a compaction as well."""
    here, there = tmp_path / "here.parquet", tmp_path / "there.parquet"
    here.touch()
    table, sending = mock.MagicMock(after=0, file_layout=mock.Mock(properties={})), mock.Mock()
    found = [DataFile(f"file:{here}", "parquet", 1, 1), DataFile("s3://b/x", "parquet", 1, 1)]

    prepared.commit(table, Change(found), None, sending)
    with pytest.raises(OutsideRefused, match=r"there\.parquet is not on this machine: the task that wrote it has an"):
        prepared.commit(table, Change([*found, DataFile(str(there), "parquet", 1, 1)]), None, sending)

    assert sending.call_count == table.java.own.PreparedCommit.prepare.call_count == 1


class _UnreadOnce:
    is_read = False

    @property
    def id(self) -> int:
        if not self.is_read:
            self.is_read = True
            _silent()
        return 0


def _commit(committer: Committer) -> None:
    for attempt in committer.attempts(Stamp("feed", 1, 20)):
        with attempt:
            committer.send(Change())


def _silent() -> None:
    raise TransientError("The catalog is silent.")
