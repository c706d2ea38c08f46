"""Checks the values of a configuration file, and collects every problem with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from applier.config.section import Section, WrongKeysError, nearest

M = TypeVar("M", bound=BaseModel)

_ROUNDS = 6
"""Values are checked anew this often: what is wrong hides what the checks of the tables around it would find."""

_STAND_INS: Mapping[str, Any] = {
    "changefeed": {"name": "x", "protocol": "debezium"},
    "changefeed.name": "x",
    # No rule that spans sections refuses what goes with it.
    "changefeed.protocol": "debezium",
    "source": {"archive": "x"},
    "source.storage": {"uri": "x"},
    "source.kafka": {"topics": ("x",), "kafka.bootstrap.servers": "x"},
    "registry": {"url": "http://x"},
    "registry.url": "http://x",
    "catalog": {"name": "x", "type": "hive"},
    "catalog.name": "x",
    "catalog.type": "hive",
}
"""What takes the place of a wrong value that is needed, so that the other checks go on; all others are left out."""

_WORDS = {
    "missing": "missing",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text in quotes",
    "tuple_type": "must be a list: [ … ]",
    "model_type": "must be a table",
    "dict_type": "must be a table",
}

_FROM_TEXT: Mapping[str, TypeAdapter[Any]] = {
    "int_type": TypeAdapter(int),
    "float_type": TypeAdapter(float),
    "bool_type": TypeAdapter(bool),
}

_PATTERNS = {
    r"^[A-Za-z0-9_-]+$": "must consist of letters, digits, _ and -",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "must consist of letters, digits and _, and begin with no digit",
}


@dataclass(slots=True)
class Problems:
    """Every problem of one file, by its path as the user gave it, or "": the first of each key, which has a line.

    `from_outside` are keys whose value an environment variable or a file gave, which hold numbers as text.
    """

    file: str = ""
    lines: dict[str, int] = field(default_factory=dict)
    from_outside: set[str] = field(default_factory=set)
    _found: dict[str, str] = field(default_factory=dict, init=False)

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, key: str, what: str) -> None:
        """Note what is wrong with a key; a sentence without its full stop."""
        self._found.setdefault(key, what)

    def rename(self, old: str, new: str) -> None:
        """Note that what stands in the file as one key is meant as another."""
        for key, line in list(self.lines.items()):
            if key == old or key.startswith(f"{old}."):
                self.lines.setdefault(new + key.removeprefix(old), line)

    def sentences(self) -> list[str]:
        """One sentence a problem, in the order of the file; what has no line comes last."""
        placed = [(line_of(self.lines, key), key, what) for key, what in self._found.items()]
        placed.sort(key=lambda each: each[0] or float("inf"))
        return [f"{self._where(line)}{key}: {what}{'' if what.endswith('?') else '.'}" for line, key, what in placed]

    def _where(self, line: int | None) -> str:
        if not self.file:
            return ""
        return f"{self.file}: " if line is None else f"{self.file}:{line}: "


def with_known_keys(raw: Mapping[str, Any], section: type[Section], path: str, problems: Problems) -> dict[str, Any]:
    """The values of a section without its unknown keys; a misspelt one is taken as the key that is meant."""
    known: dict[str, Any] = {}
    for key, value in raw.items():
        name = key
        if unknown := section.unknown(key, value):
            meant, instead = unknown
            note_unknown(problems, path + key, meant, instead)
            if meant is None or meant in raw:
                continue
            problems.rename(path + key, path + meant)
            name = meant
        inner = section.section_of(name)
        is_table = inner is not None and isinstance(value, dict)
        known[name] = with_known_keys(value, inner, f"{path}{name}.", problems) if inner and is_table else value
    return known


def note_unknown(problems: Problems, key: str, meant: str | None, instead: str) -> None:
    """Note a key that nothing knows, and which was meant, or what there is instead."""
    problems.add(key, f"unknown key, did you mean {meant}?" if meant else f"unknown key; {instead}")


def validated(model: type[M], values: dict[str, Any], problems: Problems) -> M | None:
    """The model of some values, whose tables may be changed; None, with all problems noted, where a value is wrong."""
    for _ in range(_ROUNDS):
        try:
            return model.model_validate(values, strict=True)
        except ValidationError as error:
            for detail in error.errors():
                _mend(values, detail, problems)
    return None


def _mend(values: dict[str, Any], detail: Any, problems: Problems) -> None:
    """Note one problem, and put something right in its place."""
    # An entry of a list has a number.
    parts = [part for part in detail["loc"] if isinstance(part, str)]
    key = ".".join(parts)
    adapter = _FROM_TEXT.get(detail["type"])
    if adapter is not None and key in problems.from_outside:
        try:
            _put(values, parts, adapter.validate_python(detail["input"]))
        except ValidationError:
            pass
        else:
            return
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, WrongKeysError):
        for inner, what in cause.problems.items():
            problems.add(f"{key}.{inner}".lstrip("."), what)
    else:
        problems.add(key, _sentence(detail, is_quoted=key not in problems.from_outside))
    if parts:
        _put(values, parts, _STAND_INS.get(key))


def _put(values: dict[str, Any], parts: list[str], value: Any) -> None:
    *outer, last = parts
    for part in outer:
        values = values[part]
    if value is None:
        values.pop(last, None)
    else:
        values[last] = dict(value) if isinstance(value, dict) else value


def _sentence(detail: Any, *, is_quoted: bool) -> str:
    kind, message = detail["type"], detail["msg"]
    if kind in _WORDS:
        quoted = is_quoted and kind in _FROM_TEXT and isinstance(detail["input"], str)
        return _WORDS[kind] + (", without quotes" if quoted else "")
    if kind == "literal_error":
        options = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
        near = nearest(detail["input"], options) if isinstance(detail["input"], str) else None
        return f"must be {detail['ctx']['expected']}" + (f", did you mean {near}?" if near else "")
    if kind == "string_pattern_mismatch":
        return _PATTERNS[detail["ctx"]["pattern"]]
    return str(message).removeprefix("Value error, ").replace("Input should be", "must be")


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
    """The line of each key and each table header of a valid TOML text, by their dotted path, which `tomllib` does not
    keep; keys of inline tables are left out.
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
