"""What can go wrong inside a step, at a point that a test names: a crash, a catalog that fails, another process.

A crash is an exception that nothing but the test catches: the pipeline is thrown away, what it held in memory with it,
and the changefeed stays held, as after a power cut. It lets a test crash a thousand times where processes could be
started ten times; `tests/recovery/test_kill.py` has the real thing.
"""

from __future__ import annotations

import errno
import io
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pytest

from applier.errors import TransientError
from applier.runtime import failpoints
from applier.sink.commit import committer
from applier.sink.control.control import Control
from applier.sink.format.storage import LocalStorage, local_path
from applier.sink.iceberg import clone, java
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.commit import CommitFailure
from applier.sink.iceberg.java import JavaError
from applier.sink.iceberg.table import Table

Failure: TypeAlias = Literal["lost", "unsent", "conflict", "down"]
"""What a catalog does: makes the change and loses the answer; does nothing and gives an error; lets somebody else
commit first; gives errors until it is mended."""

FAILURES: tuple[Failure, ...] = ("lost", "unsent", "conflict", "down")


When: TypeAlias = Literal["before", "after", "never"]
"""When one question to the catalog, or one read or write of a file, fails: before it had an effect, or behind that (a
file that is read breaks off); never, where only something else happens at that moment."""

WHENS: tuple[When, ...] = ("before", "after", "never")


class Crash(BaseException):
    """The process is dead; not an `Exception`, so that nothing handles it."""


@dataclass(slots=True)
class Disasters:
    """Lets the appliers of this process come to grief, once for each order.

    Attributes:
        reached: How often each point was reached.
        struck: How often something happened, by what it was and where.
        calls: Questions to the catalog, and files that were opened or made, while they were counted.
    """

    reached: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    _fault: tuple[int, When, Callable[[], None] | None] | None = None
    _at: dict[str, tuple[int, Callable[[], None]]] = field(default_factory=dict)
    _failing: tuple[int, Failure] | None = None
    _is_dead: bool = False
    _is_down: bool = False
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _own: threading.local = field(default_factory=threading.local)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take the place of the kill points, and stand between the appliers and the catalog."""
        release, own = Control.release, self._own
        monkeypatch.setattr(failpoints, "reach", self._reach)
        monkeypatch.setattr(Control, "release", lambda control: None if self._is_dead else release(control))
        for owner, name in ((committer, "commit"), (Catalog, "rename"), (Catalog, "create")):
            monkeypatch.setattr(owner, name, self._failing_call(getattr(owner, name), name))
        for name, kind in (("clone", "create"), ("begin_anew", "create"), ("show", "commit")):
            monkeypatch.setattr(clone, name, self._failing_call(getattr(clone, name), kind))
        monkeypatch.setattr("applier.sink.commit.committer.ATTEMPTS", 3)
        monkeypatch.setattr(LocalStorage, "open", self._failing_file(LocalStorage.open, "rb"))
        monkeypatch.setattr(LocalStorage, "create", self._failing_file(LocalStorage.create, "wb"))
        translated = java.translated
        for module in [module for name, module in sys.modules.items() if name.startswith("applier.")]:
            if getattr(module, "translated", None) is translated:
                monkeypatch.setattr(module, "translated", self._failing_question(translated))
        own.depth = 0

    # ---- orders

    def crash(self, point: str = "", turn: int = 1) -> None:
        """The process dies at a point, or at any; at the n-th time that it is reached from now on."""
        self.call(self._die, point, turn)

    def call(self, action: Callable[[], None], point: str = "", turn: int = 1) -> None:
        """Something else happens there; points that it reaches itself do not count."""
        self._at[point] = (turn, action)

    def fail(self, failure: Failure, turn: int = 1) -> None:
        """The catalog fails at the n-th change from now on."""
        self._failing = (turn, failure)

    def fault(self, turn: int, when: When, meanwhile: Callable[[], None] | None = None) -> None:
        """Count from now on; the n-th call fails once, and another writer does something at that very moment."""
        self.calls, self._fault = 0, (turn, when, meanwhile)

    def leave_calls(self) -> None:
        """No more call fails, as those that follow are of the test itself."""
        self._fault = None

    def mend(self) -> None:
        """Nothing more happens, and a new process may start. Threads of a dead one die until then."""
        self._at.clear()
        self.leave_calls()
        self._failing, self._is_dead, self._is_down = None, False, False

    # ---- what happens

    def _reach(self, point: str) -> None:
        with self._lock:
            action = None if self._is_busy() else self._due(point)
        if action is not None:
            self.struck[f"{getattr(action, '__name__', 'call').strip('_')} at {point}"] += 1
            self._own.busy = True
            try:
                action()
            finally:
                self._own.busy = False
        if self._is_dead:
            raise Crash(point)

    def _due(self, point: str) -> Callable[[], None] | None:
        self.reached[point] += 1
        found = None
        for name in (point, ""):
            turn, action = self._at.get(name, (0, None))
            if action is not None and turn <= 1:
                found = action
                self._at.pop(name)
            elif action is not None:
                self._at[name] = (turn - 1, action)
        return found

    def _is_busy(self) -> bool:
        return bool(getattr(self._own, "busy", False))

    def _die(self) -> None:
        self._is_dead = True

    def _failing_call(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            failure = None if self._is_inside() else self._next_failure()
            if failure is None:
                return self._nested(real, *args, **kwargs)
            self.struck[f"{failure} {name}"] += 1
            done = None
            if failure == "conflict" and name == "commit":
                _commit_elsewhere(args[0])
                return self._nested(real, *args, **kwargs)
            if failure == "lost":
                done = self._nested(real, *args, **kwargs)
            what = f"The catalog's answer to {name} is an error"
            if name == "commit":
                raise CommitFailure(what, "UncheckedSQLException", failure, done if failure == "lost" else 7)
            raise JavaError(what, "UncheckedSQLException", failure)

        return call

    def _fails(self, what: str) -> When:
        with self._lock:
            if self._fault is None or self._is_busy():
                return "never"
            self.calls += 1
            turn, when, meanwhile = self._fault
            if turn != self.calls:
                return "never"
            self.struck[f"{when}{' beside another writer' if meanwhile else ''} at {what}"] += 1
        if meanwhile is not None:
            self._own.busy = True
            try:
                # The other writer loses against a commit of the applier as the applier may lose against it.
                with suppress(TransientError):
                    meanwhile()
            finally:
                self._own.busy = False
        return when

    def _failing_question(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def asked(action: str, *systems: Any) -> Iterator[None]:
            when = self._fails(action.partition(" ")[0])
            if when == "before":
                raise JavaError(action, "UncheckedSQLException", "no answer came")
            with real(action, *systems):
                yield
            if when == "after":
                raise JavaError(action, "UncheckedSQLException", "the answer was lost")

        return asked

    def _failing_file(self, real: Callable[..., Any], mode: str) -> Callable[..., Any]:
        def opened(storage: LocalStorage, location: str, *size: int | None) -> Any:
            when = self._fails(mode)
            if when == "before":
                raise TransientError(f"Cannot open {location}: no answer came.")
            found = real(storage, location, *size)
            if when == "never":
                return found
            found.close()
            return _Breaking(local_path(location), mode)

        return opened

    def _next_failure(self) -> Failure | None:
        with self._lock:
            if self._is_down:
                return "down"
            if self._failing is None:
                return None
            turn, failure = self._failing
            self._failing = (turn - 1, failure) if turn > 1 else None
            if turn > 1:
                return None
            self._is_down = failure == "down"
            return failure

    def _is_inside(self) -> bool:
        return self._is_busy() or getattr(self._own, "depth", 0) > 0

    def _nested(self, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._own.depth = getattr(self._own, "depth", 0) + 1
        try:
            return real(*args, **kwargs)
        finally:
            self._own.depth -= 1


class _Breaking(io.FileIO):
    """A file that breaks off at the first read, or that is there although the one who made it hears of an error."""

    def read(self, *_: Any) -> bytes:
        raise OSError(errno.ECONNRESET, "connection reset")

    def readinto(self, *_: Any) -> int:
        raise OSError(errno.ECONNRESET, "connection reset")

    def readall(self) -> bytes:
        raise OSError(errno.ECONNRESET, "connection reset")

    def close(self) -> None:
        is_made = self.writable() if not self.closed else False
        super().close()
        if is_made:
            raise OSError(errno.ECONNRESET, "connection reset")


def _commit_elsewhere(table: Table) -> None:
    """Somebody else makes a snapshot that changes no row, before this one is sent."""
    other = table.handle.newTransaction()
    other.newFastAppend().commit()
    other.commitTransaction()
