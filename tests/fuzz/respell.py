"""The text of a DDL in, the same statement spelt otherwise out: letters of any case, names with or without quotes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

STATEMENTS = frozenset({"sql", "q", "ddl"})
"""Members that hold the text of a DDL, in all protocols that write JSON."""

_PIECES = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"[^\"]*\"|`(?:[^`]|``)*`|[A-Za-z_$][\w$]*|\s+|.", re.DOTALL)
_PLAIN_NAME = re.compile(r"`[A-Za-z_][\w$]*`", re.ASCII)
_SPACES = (" ", "  ", "\n", "\t", " /* c */ ", " -- c\n")


def respell(text: str, dice: random.Random) -> str:
    """A statement with other letters, quotes and spaces; what stands in strings stays as it is."""
    how = dice.choice((str.upper, str.lower, lambda word: _mixed(word, dice)))
    return "".join(_spelt(piece, how, dice) for piece in _PIECES.findall(text))


def _spelt(piece: str, how: Callable[[str], str], dice: random.Random) -> str:
    if piece[0] in "'\"":
        return piece
    if piece.isspace():
        return dice.choice(_SPACES) if dice.randrange(4) == 0 else piece
    if piece[0] == "`":
        name = how(piece) if dice.randrange(4) == 0 else piece
        return name[1:-1] if _PLAIN_NAME.fullmatch(name) and dice.randrange(2) else name
    return how(piece) if dice.randrange(8) else piece


def _mixed(word: str, dice: random.Random) -> str:
    return "".join(letter.upper() if dice.randrange(2) else letter.lower() for letter in word)
