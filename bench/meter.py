"""A command in, its seconds, CPU seconds and memory out: its own and those of every process that it starts.

The command runs below a process of this module that adopts orphans (Linux's child subreaper), so whatever a driver, its
JVM and its Python workers start, and however they end, their CPU time is in one rusage. `/proc` is read on the way.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""

_KCMP = {"x86_64": 312, "aarch64": 272}.get(os.uname().machine)
"""Number of kcmp(2), which C's library has no name for."""

_KCMP_VM = 1

_SAMPLE_SECONDS = 0.2
_ORPHAN_SECONDS = 20.0
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True, slots=True)
class Line:
    """One event that the command printed: a line with a JSON object that has a member `event`.

    Attributes:
        at: Seconds since the command was started.
        cpu: CPU seconds that the whole tree had used by then.
        fields: The line's fields.
        beside: The same of processes beside the command, below those that `begin` was told of.
    """

    at: float
    cpu: float
    fields: Mapping[str, Any]
    beside: float = 0


class Sample(NamedTuple):
    """What had been used by a moment.

    Attributes:
        at: Seconds since the command was started.
        cpu: As of `Line`.
        beside: As of `Line`.
    """

    at: float
    cpu: float
    beside: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of a command.

    Attributes:
        exit_code: As `subprocess` gives it.
        seconds: From start to exit.
        cpu_seconds: User and system time of all processes.
        peak_mb: Highest sum of resident memory over all processes, as sampled; shared pages count for each, save
            where a process still runs in its parent's memory.
        lines: The events that it printed.
        samples: CPU time five times a second, where processes beside it count.
    """

    exit_code: int
    seconds: float
    cpu_seconds: float
    peak_mb: float
    lines: list[Line] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def events(self, name: str) -> list[Line]:
        """The events of one name."""
        return [line for line in self.lines if line.fields["event"] == name]


@dataclass(frozen=True, slots=True)
class Running:
    """A command on its way; `begin` makes it."""

    process: subprocess.Popen[bytes]
    report: Path

    def end(self, *, stop: bool = False) -> Measured:
        """Wait for its end.

        Args:
            stop: Ask it to end, with SIGTERM.
        """
        if stop:
            self.process.terminate()
        self.process.wait()
        if not self.report.exists():
            msg = f"the run that {self.report} should describe was not measured to its end"
            raise RuntimeError(msg)
        read = json.loads(self.report.read_text(encoding="utf-8"))
        lines, samples = [Line(**line) for line in read["lines"]], [Sample(*each) for each in read["samples"]]
        return Measured(**read | {"lines": lines, "samples": samples})


def begin(command: Sequence[str], log: Path, beside: Sequence[int] = ()) -> Running:
    """Start a command.

    Args:
        command: Program and arguments.
        log: Gets everything that it prints.
        beside: Ids of processes whose descendants work for it as well.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    report = log.with_suffix(".json")
    report.unlink(missing_ok=True)
    others = [f"--beside={pid}" for pid in beside]
    meter = [sys.executable, "-m", "bench.meter", *others, str(log), str(report), *command]
    return Running(subprocess.Popen(meter, stdin=subprocess.DEVNULL), report)


def measure(command: Sequence[str], log: Path, beside: Sequence[int] = ()) -> Measured:
    """Run a command to its end; takes what `begin` takes."""
    return begin(command, log, beside).end()


def tree(root: int) -> list[int]:
    """Ids of a process's living descendants, without itself."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None:
            children.setdefault(int(stat[1]), []).append(int(entry.name))
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def tree_cpu(root: int) -> float:
    """CPU seconds of a process's descendants, the living and those that were waited for; without its own."""
    ticks = 0
    for pid in tree(root):
        if (stat := _stat(pid)) is not None:
            ticks += sum(int(value) for value in stat[11:15])
    own = _stat(root)
    return (ticks + (int(own[13]) + int(own[14]) if own else 0)) / _TICK


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state on; None for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _resident_mb(pid: int) -> float:
    """Resident memory of a process; 0 for one that is gone, or that runs in its parent's memory.

    A JVM starts a program by a child that borrows its memory (vfork) until the program begins: seen just then, the
    whole JVM would count twice.
    """
    try:
        if _borrows_memory(pid):
            return 0.0
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_MB
    except OSError:
        return 0.0


def _borrows_memory(pid: int) -> bool:
    stat = _stat(pid)
    if _KCMP is None or stat is None:
        return False
    return bool(ctypes.CDLL(None).syscall(_KCMP, pid, int(stat[1]), _KCMP_VM, 0, 0) == 0)


class _Watch:
    """Watches one command from the process above it."""

    def __init__(self, log: IO[bytes], beside: Sequence[int]) -> None:
        self._log = log
        self._others = beside
        self._start = time.monotonic()
        self.peak_mb = 0.0
        self.lines: list[Line] = []
        self.samples: list[Sample] = []
        self._sampled = 0.0

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    def follow(self, process: subprocess.Popen[bytes]) -> None:
        """Take samples and lines until the command has ended."""
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while process.poll() is None:
                if selector.select(_SAMPLE_SECONDS):
                    chunk = os.read(process.stdout.fileno(), 1 << 16)
                    if not chunk:
                        process.wait()
                        break
                    rest = self._take(rest + chunk)
                if self.elapsed - self._sampled >= _SAMPLE_SECONDS:
                    self._sample()
        self._take(rest + _left(process.stdout) + b"\n")

    def _take(self, data: bytes) -> bytes:
        """Keep the whole lines of what was read; return the rest."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._log.write(line + b"\n")
            if line.startswith(b"{"):
                self._keep(line)
        self._log.flush()
        return rest

    def _keep(self, line: bytes) -> None:
        try:
            fields = json.loads(line)
        except ValueError:
            return
        if "event" not in fields:
            return
        at, cpu, beside = self._used()
        self.lines.append(Line(at, cpu, fields, beside))

    def _sample(self) -> None:
        self.peak_mb = max(self.peak_mb, sum(_resident_mb(pid) for pid in tree(os.getpid())))
        if self._others:
            self.samples.append(self._used())
        self._sampled = self.elapsed

    def _used(self) -> Sample:
        return Sample(self.elapsed, tree_cpu(os.getpid()), sum(map(tree_cpu, self._others)))


def _left(pipe: IO[bytes]) -> bytes:
    """What was written since the last look. An orphan may hold the pipe open: nothing is waited for."""
    read = b""
    try:
        while chunk := os.read(pipe.fileno(), 1 << 16):
            read += chunk
    except BlockingIOError:
        pass
    return read


def _reap() -> None:
    """Wait for adopted orphans, and end those that do not end by themselves."""
    deadline = time.monotonic() + _ORPHAN_SECONDS
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            continue
        if time.monotonic() > deadline:
            for orphan in tree(os.getpid()):
                os.kill(orphan, signal.SIGKILL)
        time.sleep(0.05)


def main() -> None:
    """Run the command that the arguments name, as `measure` asks for."""
    parser = argparse.ArgumentParser(prog="bench.meter")
    parser.add_argument("--beside", type=int, action="append", default=[])
    parser.add_argument("log", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
    with arguments.log.open("wb") as log:
        watch = _Watch(log, arguments.beside)
        process = subprocess.Popen(arguments.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        watch.follow(process)
        seconds = watch.elapsed
        _reap()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = usage.ru_utime + usage.ru_stime
    measured = Measured(process.returncode, seconds, cpu, watch.peak_mb, watch.lines, watch.samples)
    arguments.report.write_text(json.dumps(asdict(measured)), encoding="utf-8")


if __name__ == "__main__":
    main()
