"""Windows shared out among processes: every message is read once, in order, whatever becomes of a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from applier.changefeed.message import MESSAGE_SCHEMA, Messages, PartitionMessages, TopicPartition
from applier.changefeed.window import OffsetRange, Window
from applier.consume.window_size import WindowTooLargeError
from applier.consume.workers import pool as pools
from applier.consume.workers.pool import WorkerPool, shared_out
from applier.errors import RegistryReplaced, TerminalError, TransientError

pytestmark = pytest.mark.slow

SIZES = {("a", 0): 50, ("a", 1): 30, ("a", 2): 0, ("b", 0): 20, ("b", 7): 1}
WINDOW = Window({TopicPartition(*place): OffsetRange(5, 5 + size) for place, size in SIZES.items()})
FOUND: pa.Schema = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("process", pa.int64())]  # type: ignore[arg-type]  # the stubs know no list of fields of several types
)


def tell(parts: Iterable[PartitionMessages]) -> pa.Table:
    """The places of what it reads, and where it is read."""
    found = [
        pa.table(
            [*(messages[name] for name in FOUND.names[:3]), pa.repeat(os.getpid(), messages.num_rows)], schema=FOUND
        )
        for _, messages in parts
    ]
    return pa.concat_tables([FOUND.empty_table(), *found])


def stop_early(parts: Iterable[PartitionMessages]) -> pa.Table:
    """Reads as little as it can."""
    place, messages = next(iter(parts))
    return tell([(place, messages.slice(0, 1))])


def stop_elsewhere(here: int, error: Exception, parts: Iterable[PartitionMessages]) -> pa.Table:
    """Cannot go on after its first messages, but not in the process that is told."""
    found = tell(parts if os.getpid() == here else islice(parts, 1))
    if os.getpid() != here:
        raise error
    return found


def fail_elsewhere(here: int, parts: Iterable[PartitionMessages]) -> pa.Table:
    """Fails, but not in the process that is told."""
    found = tell(parts)
    if os.getpid() != here:
        msg = "the secret row"
        raise ValueError(msg)
    return found


def want_memory_elsewhere(here: int, parts: Iterable[PartitionMessages]) -> pa.Table:
    """Has not enough memory, but not in the process that is told."""
    found = tell(parts)
    if os.getpid() != here:
        raise MemoryError
    return found


def be_killed_elsewhere(here: int, parts: Iterable[PartitionMessages]) -> pa.Table:
    """Ends at once like one whose memory the system needs, but not in the process that is told."""
    if os.getpid() != here:
        os.kill(os.getpid(), signal.SIGKILL)
    return tell(parts)


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    """Three processes."""
    found = WorkerPool(3)
    yield found
    found.close()


def chunks(size: int = 7) -> Iterator[Messages]:
    """The messages of the window, some of each partition at a time."""
    for start in range(5, 55, size):
        chunk = {}
        for place, span in WINDOW.ranges.items():
            offsets = list(range(start, min(start + size, span.end)))
            rows = [{"topic": place.topic, "partition": place.partition, "offset": offset} for offset in offsets]
            if rows:
                chunk[place] = pa.Table.from_pylist(rows, MESSAGE_SCHEMA)
        yield chunk


def processes(found: Sequence[pa.Table]) -> dict[int, dict[tuple[str, int], list[int]]]:
    """By process and partition the offsets that it read, in its order."""
    told: dict[int, dict[tuple[str, int], list[int]]] = {}
    for row in pa.concat_tables(found).to_pylist():
        places = told.setdefault(row["process"], {})
        places.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    return told


def whole() -> dict[tuple[str, int], list[int]]:
    """All offsets of the window."""
    return {place: list(range(5, 5 + size)) for place, size in SIZES.items() if size}


def test_shares_are_about_equal() -> None:
    """The largest partitions first, each to whoever has least; nobody is without one."""
    a0, a1, a2, b0, b7 = (TopicPartition(*place) for place in SIZES)

    assert shared_out(WINDOW, 1) == [{a0, a1, a2, b0, b7}]
    assert shared_out(WINDOW, 2) == [{a0, b7}, {a1, a2, b0}]
    assert len(shared_out(WINDOW, 9)) == len(SIZES)
    assert shared_out(Window({}), 9) == [set()]


def test_every_message_is_read_once_and_in_its_order() -> None:
    """By this process alone, or by all, each its partitions."""
    pool = WorkerPool(3)
    try:
        first = processes(pool.run(WINDOW, tell, chunks(), is_alone=True))
        assert not pool.is_started
        found = [processes(pool.run(WINDOW, tell, chunks())) for _ in range(2)]
    finally:
        pool.close()

    assert first == {os.getpid(): whole()}
    for told in found:
        assert len(told) == 3
        assert os.getpid() in told
        assert {place: offsets for places in told.values() for place, offsets in places.items()} == whole()
        assert sum(map(len, told.values())) == len(whole())
    assert found[0] == found[1], "other processes were started for the last window"


def test_one_process_starts_no_other() -> None:
    """Where there is one core."""
    assert processes(WorkerPool(1).run(WINDOW, tell, chunks())) == {os.getpid(): whole()}


def test_a_job_may_end_before_its_messages(pool: WorkerPool) -> None:
    """What it did not read is not taken for what the next one is to read."""
    assert [found.num_rows for found in pool.run(WINDOW, stop_early, chunks())] == [1, 1, 1]
    assert len(processes(pool.run(WINDOW, tell, chunks()))) == 3


@pytest.mark.parametrize(
    "error",
    [
        TransientError("The registry is away.", "wait."),
        RegistryReplaced("The registry is another.", "look."),
        WindowTooLargeError(7, 3),
    ],
)
def test_a_job_that_cannot_go_on_elsewhere_says_why(pool: WorkerPool, error: Exception) -> None:
    """As in this process; the other processes stay, and begin the next window with its own messages."""
    others = processes(pool.run(WINDOW, tell, chunks())).keys()

    with pytest.raises(type(error), match=str(error)) as raised:
        pool.run(WINDOW, partial(stop_elsewhere, os.getpid(), error), chunks(1))

    assert vars(raised.value) == vars(error)
    assert processes(pool.run(WINDOW, tell, chunks())).keys() == others


def test_a_defect_elsewhere_is_told_without_its_rows(pool: WorkerPool) -> None:
    """Its kind and place; the rest may be a row. The next window has new processes."""
    with pytest.raises(TerminalError, match=r"^A task failed with ValueError at applier/") as raised:
        pool.run(WINDOW, partial(fail_elsewhere, os.getpid()), chunks())

    assert "secret" not in str(raised.value)
    assert len(processes(pool.run(WINDOW, tell, chunks()))) == 3


def test_a_process_that_is_killed_is_told_and_replaced(pool: WorkerPool) -> None:
    """The step may be tried again: nothing of the window was taken for read."""
    with pytest.raises(TransientError, match=r"ended before its work did, by signal 9\. .*out of memory"):
        pool.run(WINDOW, partial(be_killed_elsewhere, os.getpid()), chunks(1))

    assert len(processes(pool.run(WINDOW, tell, chunks()))) == 3


def test_a_process_without_enough_memory_is_no_defect(pool: WorkerPool) -> None:
    """The step may be tried again."""
    with pytest.raises(TransientError, match=r"ended before its work did\. .*out of memory"):
        pool.run(WINDOW, partial(want_memory_elsewhere, os.getpid()), chunks())


def test_a_process_that_cannot_be_started_is_told(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the system says; the step may be tried again."""
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    with pytest.raises(TransientError, match=r"cannot be started: No such file or directory\. .*is tried again"):
        pool.run(WINDOW, tell, chunks())


def test_a_reader_that_fails_leaves_no_part_of_a_window(pool: WorkerPool) -> None:
    """Its error is what is told, and what the others were given of the window is gone with them."""

    def cut_short() -> Iterator[Messages]:
        yield next(chunks())
        raise TransientError("The broker is gone.", "wait.")

    with pytest.raises(TransientError, match="The broker is gone"):
        pool.run(WINDOW, tell, cut_short())

    found = processes(pool.run(WINDOW, tell, chunks()))
    assert {place: offsets for places in found.values() for place, offsets in places.items()} == whole()


def test_processes_that_are_not_needed_end(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A feed that has caught up keeps none of them; one that has not does."""
    others = processes(pool.run(WINDOW, tell, chunks())).keys() - {os.getpid()}
    pool.tend()
    assert all(map(is_there, others))

    monkeypatch.setattr(pools, "_IDLE_SECONDS", 0.0)
    pool.tend()

    assert len(others) == 2
    assert not any(map(is_there, others))


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    """Although it is killed, and says nothing to them."""
    script = tmp_path / "starts.py"
    script.write_text(
        "import time\n"
        "from applier.consume.workers.pool import Worker\n"
        "print(Worker()._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    path = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}
    ) as one:
        assert one.stdout is not None
        other = int(one.stdout.readline())
        assert is_there(other)
        one.kill()

    deadline = time.monotonic() + 30
    while is_there(other) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_there(other)


def is_there(process: int) -> bool:
    """Whether a process runs; one that ended and that nobody asked after does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
