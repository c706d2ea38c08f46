"""How far a load is, for people."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from applier.changefeed.table import TableName
from applier.commands.load.outlook import megabytes
from applier.runtime.figures import counted, span


@dataclass(slots=True)
class LoadProgress:
    """Counts what was loaded; threads may share it.

    Args:
        size: Bytes of all files.
        say: Shows the user a line.
        clock: Monotonic seconds.
    """

    size: int
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    rows: int = field(default=0, init=False)
    done: int = field(default=0, init=False)
    _read: int = field(default=0, init=False)
    _start: float = field(default=0.0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self._start = self.clock()

    def add(self, name: TableName, rows: int, size: int) -> None:
        """Take rows and bytes of files that are in a table; bytes without rows are those of an earlier attempt."""
        with self._lock:
            self.rows += rows
            self.done += size
            self._read += size if rows else 0
            if rows:
                self.say(f"{name}: {counted(rows, 'row')}; in all {self._line()}")

    def _line(self) -> str:
        seconds = max(0.001, self.clock() - self._start)
        rate = self._read / seconds
        # The first small files take as long as a job of Spark, and tell nothing of the others.
        is_telling = self._read > self.size // 50 and self.size - self.done > rate
        left = f", {span(round((self.size - self.done) / rate))} left" if is_telling else ""
        rows = counted(self.rows, "row")
        return f"{rows}, {megabytes(self.done)} of {megabytes(self.size)}, {megabytes(int(rate))}/s{left}"
