"""Every call of a function of applier inside a block, with the functions that it runs under."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from tests.paths import Call

_PACKAGE = f"{Path(__file__).parents[1] / 'applier'}/"
_REACH = "runtime/failpoints.py", "reach"

Function: TypeAlias = tuple[str, str]
"""File below `applier/`, and name."""


@dataclass(slots=True)
class Trace:
    """What ran.

    Attributes:
        calls: Each call with the calls that it runs under, in order. A thread runs under what its maker was in.
        points: The failpoints that were reached, in order.
    """

    calls: list[tuple[Function, tuple[Function, ...]]] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    _stacks: dict[int, list[Function]] = field(default_factory=dict)

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Take one event of `sys.setprofile`."""
        file = frame.f_code.co_filename
        if event not in ("call", "return") or not file.startswith(_PACKAGE):
            return
        function, stacks = (file.removeprefix(_PACKAGE), frame.f_code.co_name), self._stacks
        if (here := threading.get_ident()) not in stacks:
            stacks[here] = list(next(iter(stacks.values()), ()))
        stack = stacks[here]
        if event == "call":
            self.calls.append((function, tuple(stack)))
            stack.append(function)
            if function == _REACH:
                self.points.append(frame.f_locals["point"])
        elif stack and stack[-1] == function:
            stack.pop()

    def hold_to(self, listed: Sequence[Call]) -> None:
        """Make sure that each line of a list ran, under the line that it is indented under."""
        made = {function for function, _ in self.calls}
        called = {(caller, function) for function, callers in self.calls for caller in callers}
        # A dataclass has no code of its own to run.
        for call in (call for call in listed if not call.function[0].isupper()):
            function = call.file, call.function
            assert function in made, f"{call} did not run"
            if call.caller is not None:
                assert ((call.caller.file, call.caller.function), function) in called, (
                    f"{call.caller} did not run {call}"
                )


@contextmanager
def traced() -> Iterator[Trace]:
    """Every call of a function of applier inside the block, in this process."""
    found = Trace()
    threading.setprofile(found.note)
    sys.setprofile(found.note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
