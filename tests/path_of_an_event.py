"""The list of calls in `docs/path-of-an-event.md`, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PAGE = Path(__file__).parents[1] / "docs/path-of-an-event.md"
_LINE = re.compile(r"( *)(\* )?([\w/]+\.py): (\w+)(?: +(\d+))?")


@dataclass(frozen=True, slots=True)
class Call:
    """One line of the list.

    Attributes:
        file: Path below `applier/`.
        function: A function, method or class of it.
        caller: The line that it is indented under; None for a line that is not indented.
        is_indirect: Its caller calls it through a value, so its code does not show the name.
        form: Number of the form that the row has from here on; None where the form stays.
    """

    file: str
    function: str
    caller: Call | None
    is_indirect: bool
    form: int | None

    def __str__(self) -> str:
        return f"{self.file}:{self.function}"


@cache
def page() -> str:
    """The page."""
    return _PAGE.read_text(encoding="utf-8")


@cache
def calls() -> list[Call]:
    """The lines of the list, in order."""
    found: list[Call] = []
    open_lines: list[tuple[int, Call]] = []
    for line in page().partition("```text\n")[2].partition("```")[0].splitlines():
        match = _LINE.fullmatch(line)
        assert match is not None, f"not a line of the list: {line}"
        depth = len(match[1])
        while open_lines and open_lines[-1][0] >= depth:
            open_lines.pop()
        caller = open_lines[-1][1] if open_lines else None
        found.append(Call(match[3], match[4], caller, match[2] is not None, int(match[5]) if match[5] else None))
        open_lines.append((depth, found[-1]))
    assert found
    return found


def forms() -> list[int]:
    """The numbers of the forms, in the order of the list."""
    return [call.form for call in calls() if call.form is not None]
