"""Finds the line on which each key of a TOML file stands, as `tomllib` does not keep it."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_KEYS = r"""(?:[\w-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
_PATH = rf"{_KEYS}(?:[ \t]*\.[ \t]*{_KEYS})*"
_HEAD = re.compile(rf"[ \t]*\[{{1,2}}[ \t]*({_PATH})[ \t]*\]{{1,2}}")
_KEY = re.compile(rf"[ \t]*({_PATH})[ \t]*=")
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|.",
    re.DOTALL,
)


def lines_of(text: str) -> dict[str, int]:
    """The line of each key and each table header of a valid TOML text, by their dotted path; keys of inline tables are
    left out.
    """
    found: dict[str, int] = {}
    section, place, depth, line, at_start = "", 0, 0, 1, True
    while place < len(text):
        if at_start and depth == 0:
            if head := _HEAD.match(text, place):
                section, place = _dotted(head[1]), head.end()
                _note_table(found, section, line)
            elif key := _KEY.match(text, place):
                found.setdefault(f"{section}.{_dotted(key[1])}".lstrip("."), line)
                place = key.end()
        token = _TOKEN.match(text, place)
        if token is None:
            break
        depth += (token[0] in ("[", "{")) - (token[0] in ("]", "}"))
        line += token[0].count("\n")
        at_start = token[0] == "\n"
        place = token.end()
    return found


def line_of(lines: dict[str, int], path: str) -> int | None:
    """The line of a dotted path, or of the nearest table around it."""
    while path:
        if path in lines:
            return lines[path]
        path = path.rpartition(".")[0]
    return None


def _note_table(found: dict[str, int], path: str, line: int) -> None:
    """Note a table, and those around it, which may have no header of their own."""
    while path and path not in found:
        found[path] = line
        path = path.rpartition(".")[0]


def _dotted(keys: str) -> str:
    """The path that keys mean as TOML writes them, without their quotes."""
    parts: list[str] = []
    value: Any = tomllib.loads(f"{keys} = 0")
    while isinstance(value, dict):
        ((key, value),) = value.items()
        parts.append(key)
    return ".".join(parts)
