"""Upstream text on a terminal: names, statements and messages of others are data, and no control character passes."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group
from rich.style import Style
from rich.table import Table
from rich.text import Text as RichText

_HIDDEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
"""Categories of Unicode that move the cursor, turn the direction of text, or show nothing."""


def escaped(text: str, *, lines: bool = False) -> str:
    r"""A text with each character that a terminal would obey written out, such as `\x1b`; `lines` keeps line breaks."""
    if text.isprintable():
        return text
    return "".join(char if char == " " or (lines and char == "\n") else _shown(char) for char in text)


def _shown(char: str) -> str:
    if unicodedata.category(char) not in _HIDDEN:
        return char
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


class Text(RichText):
    """Rich's text, escaped; what it holds is never read as markup. Line breaks stay."""

    def __init__(self, text: str = "", style: str | Style = "", **options: Any) -> None:
        super().__init__(escaped(text, lines=True), style, **options)

    def append(self, text: RichText | str, style: str | Style | None = None) -> Text:
        """Add text; see Rich."""
        super().append(escaped(text, lines=True) if isinstance(text, str) else text, style)
        return self


def grid(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Group:
    """A table below its title, whose heads and cells are data."""
    table = Table()
    for column in columns:
        table.add_column(Text(escaped(column)))
    for row in rows:
        table.add_row(*(Text(escaped(str(cell))) for cell in row))
    return below(title, table)


def below(title: str, table: Table) -> Group:
    """A table below its title, a line of its own: Rich's titles break at the width of the table."""
    return Group(Text(escaped(title), "bold"), table)
