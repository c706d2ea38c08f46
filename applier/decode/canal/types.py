"""Reads a column type from the text of a `mysqlType` member of Canal-JSON.

TiCDC writes bare names (`decimal`, `int unsigned`); with `content-compatible`, and official Canal always, full types
(`decimal(10,2)`, `int(10) unsigned`, `enum('a','b')`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from applier.changefeed.table import ColumnType
from applier.decode.row_schemas import SIGNED

_TYPE = re.compile(r"\s*([A-Za-z]+)\s*(?:\((.*)\))?\s*((?:unsigned|zerofill|signed|\s)*)", re.DOTALL | re.IGNORECASE)
_MEMBER = re.compile(r"'((?:[^']|'')*)'")
_ESCAPE = re.compile(r"''|\\[0nr]")
_PLAIN = {"''": "'", r"\0": "\0", r"\n": "\n", r"\r": "\r"}
_SECONDS = frozenset({"time", "datetime", "timestamp"})


@lru_cache(maxsize=4096)
def column_type(text: str) -> ColumnType:
    """The type. What is no type of TiDB keeps its text as name, and its values are refused later."""
    match = _TYPE.fullmatch(text)
    if match is None:
        return ColumnType(text)
    name = match[1].lower()
    if name in ("enum", "set"):
        return ColumnType(name, elements=_members(match[2] or ""))
    numbers = [int(number) for number in re.findall(r"[0-9]{1,5}", match[2] or "")]
    unsigned = name in SIGNED and "unsigned" in match[3].lower()
    if name in _SECONDS:
        return ColumnType(name, scale=numbers[0] if numbers else None)
    if name == "decimal" and numbers:
        return ColumnType(name, unsigned, numbers[0], numbers[1] if len(numbers) > 1 else 0)
    return ColumnType(name, unsigned, numbers[0] if numbers else None)


def _members(text: str) -> tuple[str, ...]:
    """Members as TiDB prints them: it doubles quotes and escapes NUL and line ends, but not the backslash itself."""
    return tuple(_ESCAPE.sub(lambda match: _PLAIN[match[0]], member) for member in _MEMBER.findall(text))
