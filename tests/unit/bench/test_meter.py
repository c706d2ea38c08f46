"""The benchmark's meter counts every process that a command starts, however it ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.meter import begin, measure

pytestmark = pytest.mark.slow

_BURN = "import time\nwhile time.process_time() < 0.5: pass"


def test_orphan_is_waited_for_and_counted(tmp_path: Path) -> None:
    """CPU time of a process that outlives the command and was moved to a session of its own is in the result."""
    orphan = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {_BURN!r}], start_new_session=True)"
    measured = measure([sys.executable, "-c", orphan], tmp_path / "log")
    assert measured.exit_code == 0
    assert measured.cpu_seconds >= 0.5


def test_events_carry_the_cpu_seconds_so_far(tmp_path: Path) -> None:
    """An event between two pieces of work has the CPU seconds of the first."""
    work = f'{_BURN}\nprint(\'{{"event": "half"}}\', flush=True)\n{_BURN.replace("0.5", "1.0")}'
    measured = measure([sys.executable, "-c", work], tmp_path / "log")
    (half,) = measured.events("half")
    assert 0.4 <= half.cpu < measured.cpu_seconds - 0.3
    assert 0 < half.at <= measured.seconds


def test_other_output_is_kept_and_no_event(tmp_path: Path) -> None:
    """Lines that are no JSON, or JSON without an event, go to the log and nowhere else."""
    measured = measure(
        [sys.executable, "-c", "print('{\"a\": 1}'); print('{nonsense'); print('end', end='')"], tmp_path / "log"
    )
    assert measured.lines == []
    assert (tmp_path / "log").read_text(encoding="utf-8").split("\n")[:3] == ['{"a": 1}', "{nonsense", "end"]


def test_failure_of_the_command_is_told(tmp_path: Path) -> None:
    """The exit code is that of the command."""
    assert measure([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log").exit_code == 3


_WAIT = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print('{"event": "ready"}', flush=True)
signal.sigwait([signal.SIGTERM])
print('{"event": "asked"}')
"""


def test_stopped_command_gets_sigterm(tmp_path: Path) -> None:
    """Stopping a run asks the command to end, and what it says then still counts."""
    log = tmp_path / "log"
    running = begin([sys.executable, "-c", _WAIT], log)
    while not (log.exists() and "ready" in log.read_text(encoding="utf-8")):
        assert running.process.poll() is None
    assert [line.fields["event"] for line in running.end(stop=True).lines] == ["ready", "asked"]


_BORROW = """
import ctypes
import signal

held = b"x" * 300_000_000
stack = ctypes.create_string_buffer(1 << 16)
libc = ctypes.CDLL(None)
CLONE_VM, CLONE_VFORK = 0x100, 0x4000
top = ctypes.c_void_p(ctypes.addressof(stack) + len(stack) - 16)
child = libc.clone(libc.usleep, top, CLONE_VM | CLONE_VFORK | signal.SIGCHLD, ctypes.c_void_p(900_000))
assert child > 0
"""


def test_borrowed_memory_counts_once(tmp_path: Path) -> None:
    """A child that runs in its parent's memory until it starts a program of its own adds nothing to the peak."""
    measured = measure([sys.executable, "-c", _BORROW], tmp_path / "log")
    assert measured.exit_code == 0, (tmp_path / "log").read_text(encoding="utf-8")
    assert 280 < measured.peak_mb < 400


def test_memory_of_two_processes_adds_up(tmp_path: Path) -> None:
    """A child with memory of its own counts beside its parent."""
    child = "held = b'x' * 150_000_000; import time; time.sleep(0.9)"
    parent = f"held = b'x' * 150_000_000; import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    assert measure([sys.executable, "-c", parent], tmp_path / "log").peak_mb > 280
