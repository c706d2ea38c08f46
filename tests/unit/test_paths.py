"""The lists of calls in `docs/dev/path-of-*.md`, compared with the source that they name."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.paths import EVENT, LOAD, RESUME, TASKS, Call, calls, files, page, stated

_APPLIER = Path(__file__).parents[2] / "applier"
_PAGES = (EVENT, LOAD, RESUME, TASKS)
_CALLS = [call for name in _PAGES for call in calls(name)]
_MOST_OF_ITS_OWN = 25
"""Files of a page beside those of an event: more, and a reader cannot hold them."""


@cache
def _definitions(file: str) -> dict[str, list[ast.AST]]:
    """Functions and classes of a file, nested ones included, by name."""
    found: dict[str, list[ast.AST]] = {}
    for node in ast.walk(ast.parse((_APPLIER / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(node.name, []).append(node)
    return found


def _names_in(definition: ast.AST) -> set[str]:
    """Every name and attribute that the body of a function mentions."""
    nodes = list(ast.walk(definition))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return attributes | {node.id for node in nodes if isinstance(node, ast.Name)}


def test_every_file_and_function_of_the_list_exists() -> None:
    """A line of the list names a function, or a class, of a file of applier."""
    assert [str(call) for call in _CALLS if not (_APPLIER / call.file).is_file()] == []
    assert [str(call) for call in _CALLS if call.function not in _definitions(call.file)] == []


def test_every_line_is_called_by_the_one_that_it_is_indented_under() -> None:
    """The function above a line mentions the line's function, unless the page marks a call through a value."""
    direct = [(call, call.caller) for call in _CALLS if call.caller and not call.is_indirect]

    assert direct
    assert [f"{call} under {caller}" for call, caller in direct if not _mentions(caller, call.function)] == []


def _mentions(caller: Call, function: str) -> bool:
    return any(function in _names_in(definition) for definition in _definitions(caller.file)[caller.function])


def test_few_calls_are_marked_as_indirect() -> None:
    """Nearly every line is held against its caller."""
    indirect = {name: [call.function for call in calls(name) if call.is_indirect] for name in _PAGES}

    assert indirect == {
        EVENT: ["__call__", "_attempt"],
        LOAD: ["_make", "__call__", "_attempt"],
        RESUME: [],
        TASKS: ["__call__", "__call__"],
    }


@pytest.mark.parametrize("name", _PAGES)
def test_the_numbers_of_files_and_forms_are_those_of_the_list(name: str) -> None:
    """The page states how many files the list has, and its forms are numbered and explained without a gap."""
    explained = [int(number) for number in re.findall(r"^\| (\d+) \| ", page(name), re.MULTILINE)]
    own = files(name) - files(EVENT)

    assert stated(name) == (len(files(name)), len(own), len(explained))
    assert len(own) <= _MOST_OF_ITS_OWN
    numbered = [call.form for call in calls(name) if call.form is not None]
    assert sorted(numbered) == explained == list(range(1, len(explained) + 1))


def test_the_list_begins_in_the_step_that_the_command_runs() -> None:
    """Lines without a caller are those that `Pipeline.step` calls."""
    first = [call for call in calls(EVENT) if call.caller is None]
    definitions = _definitions("pipeline/step.py")

    assert {call.file for call in first} == {"pipeline/step.py", "pipeline/apply_window.py"}
    assert {call.function for call in first} <= set().union(*map(_names_in, definitions["_step"]))


@pytest.mark.parametrize(("name", "first"), [(LOAD, "load"), (RESUME, "turn"), (TASKS, "_step")])
def test_the_other_lists_have_one_beginning(name: str, first: str) -> None:
    """A load begins in its command, a resume in a turn of the loop of `run`."""
    assert [call.function for call in calls(name) if call.caller is None] == [first]


@pytest.mark.parametrize("name", [*(f"dev/{page}" for page in _PAGES), "dev/architecture", "ddl"])
def test_every_module_in_backticks_exists(name: str) -> None:
    """A page names files by the paths that they have, below applier or the repository."""
    root = _APPLIER.parent
    named = set(re.findall(r"`([a-z_]+/[\w/]+\.py)`", (root / f"docs/{name}.md").read_text(encoding="utf-8")))

    assert named
    assert [path for path in sorted(named) if not any((base / path).is_file() for base in (_APPLIER, root))] == []
