"""Stop requests: SIGTERM, SIGINT and SIGHUP are obeyed after the step under way, and at once while the process waits.

The process may be killed at any point, so it may also leave a wait at any point: the next start does again what was
not finished.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from applier.runtime import terminal

_RELEASE_SECONDS = 2.0
"""Longest time that is spent on releasing the changefeed when a wait is left."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequested(BaseException):
    """The process was asked to stop while it waited. No exception of the program: nothing may catch it on the way."""


class Stopping:
    """The stop request of this process.

    `event` is set once there is one, `unfinished` says what it would leave, and the step under way may then go on for
    so many `seconds`.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.unfinished = ""
        self.seconds = 0.0
        self._waits = 0
        self._folders: list[Path] = []
        self._end_of_step: threading.Timer | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A stop request, before or meanwhile, ends the block at once by StopRequested; for the main thread alone."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._waits += 1
        try:
            if self.event.is_set():
                raise StopRequested
            yield
        finally:
            self._waits -= 1

    def check(self) -> None:
        """Begin nothing that a stop request would have to wait for: after one, StopRequested in the main thread."""
        with self.waiting():
            pass

    def pause(self, seconds: float) -> None:
        """Sleep; a stop request ends it at once, in the main thread by StopRequested."""
        with self.waiting():
            self.event.wait(seconds)
            self.check()

    def remove_when_left(self, folder: Path) -> None:
        """Remove a folder of temporary files if the process ends by `leave`."""
        self._folders.append(folder)

    def ask(self, seconds: float) -> None:
        """Take note of a stop request, after which the step under way may go on for so many seconds.

        The handler of a signal calls this, in the main thread. It raises StopRequested where the process waits.
        """
        if not self.event.is_set():
            self.event.set()
            if sys.stderr.isatty() and not self._waits:
                # A logger may hold its lock while the handler of a signal runs.
                sentence = "Stopping once what is under way is done. Press Ctrl-C again to end at once."
                os.write(2, f"{_no_bar()}{sentence}\n".encode())
            self._end_of_step = threading.Timer(seconds, self._abandon, [seconds])
            self._end_of_step.daemon = True
            self._end_of_step.start()
        if self._waits:
            raise StopRequested

    def end(self) -> None:
        """The command is over: a stop request of it concerns nothing that the process does later."""
        self.event.clear()
        if self._end_of_step is not None:
            self._end_of_step.cancel()

    def leave(self, release: Callable[[], None] | None) -> None:
        """End the process without another call by this thread, whose connection to Java may be in mid-answer.

        `release` says that this process has stopped; it gets two seconds. It is None if the process holds nothing.
        """
        if release is not None:

            def released() -> None:
                # The process that starts next finds out by the lease or the process id that this one is gone.
                with suppress(Exception):
                    release()

            thread = threading.Thread(target=released, daemon=True)
            thread.start()
            thread.join(_RELEASE_SECONDS)
        rest = f". {self.unfinished}" if self.unfinished else " while waiting; nothing was left half done."
        self._end(f"Stopped{rest}")

    def _abandon(self, seconds: float) -> None:
        """End the process although a step is under way: the next start does that step again."""
        self._end(f"Stopped {seconds:g} s after the request, in the middle of a step, which the next start does again.")

    def _end(self, sentence: str) -> None:
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)
        shown = f"{_no_bar()}\x1b[?25h" if _no_bar() else ""  # A progress bar hides the cursor.
        os.write(2, f"{shown}{sentence}\n".encode())
        os._exit(130 if self.unfinished else 0)


def _no_bar() -> str:
    """What takes the row of a progress bar off a terminal: the interrupted thread may hold the lock of Rich."""
    return "\r\x1b[2K" if terminal.is_watched() and not terminal.CONSOLE.is_dumb_terminal else ""


STOPPING = Stopping()
"""There is one, as signals are sent to processes."""


@contextmanager
def stop_signals(seconds: float, unfinished: str = "") -> Iterator[threading.Event]:
    """An event that SIGTERM, SIGINT and SIGHUP set; a second signal ends the process as usual.

    A step may go on for so many seconds after the first one. Under `nohup` SIGHUP stays ignored. A command that has not
    done its work when it is stopped says so by `unfinished`, and ends with 130: a script must not go on behind it.
    """
    STOPPING.event.clear()
    STOPPING.unfinished, STOPPING.seconds = unfinished, seconds

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        signal.signal(number, signal.SIG_DFL)
        STOPPING.ask(STOPPING.seconds)

    wanted = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    with kept_handlers():
        for number in wanted:
            signal.signal(number, ask)
        told = sys.unraisablehook
        # Where Python lets no error pass, as in what it does around a fork, the next wait ends instead.
        sys.unraisablehook = lambda found: None if found.exc_type is StopRequested else told(found)
        try:
            yield STOPPING.event
        finally:
            STOPPING.end()
            sys.unraisablehook = told


@contextmanager
def kept_handlers() -> Iterator[None]:
    """Keep the handlers of signals through a block that sets others: Spark sets one for SIGINT that stops no step."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


@contextmanager
def leaving(release: Callable[[], None] | None = None) -> Iterator[None]:
    """End the process if the block is left by a stop request, before anything outside of the block is closed."""
    try:
        yield
    except StopRequested:
        STOPPING.leave(release)
        raise
