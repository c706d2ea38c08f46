from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from applier.changefeed.checkpoint import Checkpoint, Cut, Holder, Lease
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.errors import CheckpointConflict, TableMismatch, TerminalError
from applier.sink.control import append_table
from applier.sink.control.control import Control, DeadLetter, SchemaDecision
from applier.sink.control.tables import CHECKPOINTS, DEAD_LETTERS, TABLE_VERSIONS
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.maintenance import data_files

pytestmark = pytest.mark.spark

NOW = 1_795_250_000_000
ONE = Holder("one", "host-a", pid=1)
LETTER = DeadLetter("shop", 0, 41, None, None, b"\xff\x00", "cannot be read", 3)
ORDERS = TableName("shop", "orders")
TWO = Holder("two", "host-b", pid=2)

Open = Callable[[], Control]


@pytest.fixture
def control(lake: Catalog, fresh_name: Callable[[], tuple[str, str]]) -> Open:
    """Opens the same control tables again and again, as restarts and rivals do."""
    namespace = fresh_name()[1:]
    return lambda: Control.open(lake, "shop", namespace)


def take(state: Control, holder: Holder, now: int = NOW, *, take_over: bool = False) -> Checkpoint:
    """Take the changefeed at some time."""
    return state.take(holder, 60, now=now, start_of=lambda pid: 1, take_over=take_over)[0]


def following(checkpoint: Checkpoint, offset: int) -> Checkpoint:
    """The checkpoint of the next step."""
    return replace(
        checkpoint,
        step=checkpoint.step + 1,
        resolved_ts=offset << 18,
        partitions={TopicPartition("shop", 0): Reading(offset)},
        cut=Cut({("shop", "orders"): -offset}),
    )


def test_a_new_changefeed_has_no_checkpoint(control: Open) -> None:
    """Its tables are made on first use, and the first holder begins with epoch 1."""
    state = control()
    assert state.last_checkpoint() is None
    taken = take(state, ONE)
    assert (taken.lease.epoch, taken.step, taken.resolved_ts, taken.lease.holder.since) == (1, 0, 0, NOW)


def test_a_restart_goes_on_from_the_newest_checkpoint(control: Open) -> None:
    """What was appended last is read back whole by another process, under the next epoch."""
    state = control()
    last = take(state, ONE)
    for offset in (5, 6, 7):
        last = following(last, offset)
        state.append_checkpoint(last)
    state.release(NOW + 1000)
    again = take(control(), TWO, NOW + 2000)
    lease = Lease(2, replace(TWO, since=NOW + 2000))
    assert again == replace(last, lease=lease, step=5, written_at=NOW + 2000)


def test_a_second_applier_is_refused(control: Open) -> None:
    """While the holder shows signs of life, nobody else gets the changefeed, and nothing is written by trying."""
    taken = take(control(), ONE)
    with pytest.raises(CheckpointConflict, match="held by process 1 on host-a"):
        take(control(), TWO, NOW + 59_000)
    assert control().last_checkpoint() == taken


def test_a_zombie_can_write_nothing(control: Open) -> None:
    """Once another process has taken the changefeed, the old holder's next write of any kind stops it."""
    zombie = control()
    last = take(zombie, ONE)
    taken = take(control(), TWO, take_over=True)
    with pytest.raises(CheckpointConflict, match=r"taken by process 2 on host-b \(epoch 2\)"):
        zombie.append_checkpoint(following(last, 5))
    with pytest.raises(CheckpointConflict, match="taken by process 2"):
        zombie.bury([DeadLetter("shop", 0, 5, None, None, b"?", "why", 1)])
    assert control().last_checkpoint() == taken
    assert control().letters() == []


def test_of_two_that_take_at_once_one_gets_the_changefeed(control: Open) -> None:
    """Both see the same released checkpoint; the fence lets one append pass."""
    first = control()
    take(first, ONE)
    first.release(NOW)
    rivals = [control() for _ in range(4)]
    start = threading.Barrier(len(rivals))
    outcomes: list[str] = []

    def race(rival: Control, number: int) -> None:
        start.wait()
        try:
            take(rival, replace(TWO, token=f"rival {number}"))
            outcomes.append("taken")
        except CheckpointConflict:
            outcomes.append("refused")

    threads = [threading.Thread(target=race, args=(rival, number)) for number, rival in enumerate(rivals)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 3 + ["taken"]


def test_a_holder_that_beats_meanwhile_is_asked_for_again(control: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A take-over by request comes through all the same; one that took the holder for silent is refused."""
    holder, other = control(), control()
    beats = [following(take(holder, ONE), 5)]
    append = Control._append

    def late(state: Control, checkpoint: Checkpoint, last: Checkpoint | None) -> Checkpoint:
        while state is other and beats:
            holder.append_checkpoint(replace(beats.pop(), written_at=NOW + 90_000))
        return append(state, checkpoint, last)

    monkeypatch.setattr(Control, "_append", late)
    with pytest.raises(CheckpointConflict, match="The changefeed is held by process 1 on host-a"):
        take(other, TWO, NOW + 90_000)
    last = control().last_checkpoint()
    assert last is not None
    beats.append(following(last, 6))
    taken = take(other, TWO, NOW + 90_000, take_over=True)
    assert (taken.lease.epoch, taken.resolved_ts, taken.lease.unfenced) == (2, 6 << 18, 1)


def test_a_checkpoint_needs_the_changefeed(control: Open) -> None:
    """Nothing is appended by a process that never took the changefeed, nor twice for one step."""
    state = control()
    with pytest.raises(CheckpointConflict, match="without holding"):
        state.append_checkpoint(Checkpoint(Lease(1, ONE), 1, 0, NOW))
    last = take(state, ONE)
    with pytest.raises(CheckpointConflict, match="Checkpoint 0 was written after checkpoint 0"):
        state.append_checkpoint(last)


def test_a_checkpoint_whose_answer_was_lost_is_written_again(control: Open) -> None:
    """The process does not take its own checkpoint for a rival's; what it wrote last counts."""
    state = control()
    last = take(state, ONE)
    lost, again = following(last, 5), replace(following(last, 9), written_at=NOW + 1)
    state.append_checkpoint(lost)
    state._last = last
    state.append_checkpoint(again)
    assert control().last_checkpoint() == again
    state.append_checkpoint(following(again, 10))
    assert control().last_checkpoint() == following(again, 10)


def test_thousands_of_steps_stay_few_files(control: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every so many files an append writes one in their place: history is kept, and the newest is found at once."""
    monkeypatch.setattr(append_table, "FOLD_FILES", 4)
    monkeypatch.setattr(append_table, "KEEP_ROWS", 8)
    monkeypatch.setattr(append_table, "KEEP_MINUTES", 0)
    state = control()
    last = take(state, ONE)
    for offset in range(1, 15):
        last = following(last, offset)
        state.append_checkpoint(last)
        assert data_files(state.tables[CHECKPOINTS].table) <= 4
        assert control().last_checkpoint() == last
    steps = sorted(row["step"] for row in control().rows(CHECKPOINTS))
    assert steps == list(range(14 - len(steps) + 1, 15))
    assert len(steps) >= 8
    assert len(list(state.tables[CHECKPOINTS].table.history())) < 6


def test_a_compacted_control_table_still_tells_the_newest_checkpoint(control: Open, spark: SparkSession) -> None:
    """Somebody else's maintenance may rewrite the files: rows count, not the file they were written to."""
    state = control()
    last = take(state, ONE)
    for offset in range(1, 7):
        last = following(last, offset)
        state.append_checkpoint(last)
    table = state.tables[CHECKPOINTS].table.identifier
    spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{'.'.join(table)}', options => map('rewrite-all','true'))"
    )
    spark.sql(f"CALL lake.system.expire_snapshots(table => '{'.'.join(table)}', older_than => now(), retain_last => 1)")
    assert control().last_checkpoint() == last
    last = following(last, 99)
    state.append_checkpoint(last)
    assert control().last_checkpoint() == last


def test_table_versions_are_kept_once(control: Open) -> None:
    """A restart knows all versions; saving one again writes nothing, and a changed one of that number wins."""
    state = control()
    take(state, ONE)
    old = TableVersion(TableName("shop", "t"), 7, (Column("id", ColumnType("int")),))
    new = replace(old, table_id=9)
    other = replace(old, version=8)
    state.save_versions([old, other])
    state.save_versions([old, new])
    state.save_versions([new])
    assert data_files(state.tables[TABLE_VERSIONS].table) == 2
    fresh = control()
    assert sorted(fresh.load_versions(), key=lambda version: version.version) == [new, other]


def test_decisions_and_letters_are_read_back(control: Open) -> None:
    """What became of a DDL and which messages were passed over is there after a restart."""
    state = control()
    take(state, ONE)
    refused = SchemaDecision(5 << 18, TableName("shop", "t"), "ALTER …", "modify column", "refused", "why")
    applied = replace(refused, decision="applied", reason="", snapshot_id=-3, schema_id=2)
    earlier = replace(refused, commit_ts=4 << 18)
    state.record_schema_changes([refused])
    state.record_schema_changes([applied, earlier])
    state.bury([LETTER, replace(LETTER, offset=7)])
    state.bury([LETTER])
    assert control().decisions() == [earlier, refused, applied]
    assert control().decisions(since=5 << 18) == [refused, applied]
    assert control().letters() == [replace(LETTER, offset=7), LETTER]


def test_a_successor_that_opened_early_sees_what_the_holder_wrote_meanwhile(control: Open) -> None:
    """Tables that it knows from before the holder's last rows have not been set back."""
    state = control()
    last = take(state, ONE)
    state.bury([LETTER])
    rival = control()
    state.bury([replace(LETTER, offset=42)])
    state.append_checkpoint(following(last, 5))
    assert take(rival, TWO, NOW + 120_000).control_rows == {"schema_changes": 0, "dead_letters": 2}


def test_a_table_that_is_set_back_under_its_holder_takes_no_more_rows(control: Open) -> None:
    """As many rows as it lacks would hide that from every later start."""
    state = control()
    last = take(state, ONE)
    for offset in (41, 42):
        state.bury([replace(LETTER, offset=offset)])
    state.append_checkpoint(following(last, 5))
    *_, first = control().tables[DEAD_LETTERS].table.history()
    control().tables[DEAD_LETTERS].table.handle.manageSnapshots().setCurrentSnapshot(first.id).commit()

    with pytest.raises(TerminalError, match="dead_letters was set back: of its 2 rows it has 1"):
        state.bury([replace(LETTER, offset=43)])
    assert [letter.offset for letter in control().letters()] == [41]


def test_a_foreign_table_is_not_written(lake: Catalog, control: Open) -> None:
    """A table that only has the name of a control table is refused before anything is appended."""
    state = control()
    table = state.tables[DEAD_LETTERS].table
    lake.drop(table.identifier)
    lake.create(table.identifier, state.tables[CHECKPOINTS].table.schema.arrow)
    with pytest.raises(TableMismatch, match="table .* has other columns"):
        control()
