"""The lists of calls of the pages `docs/dev/path-of-*.md`, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_DOCS = Path(__file__).parents[1] / "docs/dev"
_LINE = re.compile(r"( *)(\* )?([\w/]+\.py): (\w+)(?: +(\d+))?")
_TOTAL = re.compile(r"The list has (\d+) files(?:, (\d+) of its own,)? and (\d+) forms")

EVENT, LOAD, RESUME, TASKS = "path-of-an-event", "path-of-a-load", "path-of-a-resume", "path-of-rows-in-tasks"
"""Names of the pages."""


@dataclass(frozen=True, slots=True)
class Call:
    """One line of a list.

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
def page(name: str) -> str:
    """A page."""
    return (_DOCS / f"{name}.md").read_text(encoding="utf-8")


@cache
def calls(name: str) -> list[Call]:
    """The lines of the list of a page, in order."""
    found: list[Call] = []
    open_lines: list[tuple[int, Call]] = []
    for line in page(name).partition("```text\n")[2].partition("```")[0].splitlines():
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


def files(name: str) -> set[str]:
    """The files of the list of a page."""
    return {call.file for call in calls(name)}


def stated(name: str) -> tuple[int, int, int]:
    """What a page says of its list: files, those that the path of an event does not have, and forms."""
    match = _TOTAL.search(page(name))
    assert match is not None
    return int(match[1]), int(match[2] or 0), int(match[3])


def points(name: str) -> list[str]:
    """The failpoints of the table that shows what a kill leaves, in order."""
    return re.findall(r"^\| `([a-z-]+)` \| ", page(name), re.MULTILINE)
