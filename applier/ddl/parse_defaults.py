"""Parses a DEFAULT clause into the text of the default, as TiDB keeps it and Simple reports it."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from applier.changefeed.table import ColumnType
from applier.changefeed.types import DATE_TYPES, INTEGERS
from applier.ddl.tokens import BITS, BYTES, NUMBER, STRING, WORD, Tokens, render

_NOW = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP")
_TODAY = ("CURRENT_DATE", "CURDATE")
_NUMERIC = frozenset({*INTEGERS, "float", "double", "decimal", "bit", "year"})
_DATE_DIGITS = (6, 8, 12, 14)
"""Digits of a date, and of one with its time."""
_LONGEST_NUMBER = 8
"""Bytes of the longest number that `x'…'` or `b'…'` writes."""
_LONGEST_BINARY = 255
"""Bytes of the longest BINARY column; shorter defaults are filled up with zeros."""


class Default(NamedTuple):
    """A default as written.

    Attributes:
        kind: `null`, `text` (a string), `bytes`, `bits`, `number`, or `expression`, which may be a function.
        text: The string, the hexadecimal digits, the number, or the expression as SQL.
    """

    kind: str
    text: str = ""

    def of(self, column: ColumnType | None) -> str | None:
        """Text of the default in a column of a type; None for SET DEFAULT, which does not say the type.

        Raises:
            UnicodeDecodeError: It is bytes that are no text.
            ValueError: It is more bytes than a number has.
        """
        if self.kind == "null":
            return None
        text = self._bytes_of(column) if self.kind in (BYTES, BITS) else self.text
        if self.kind == "number":
            text = _printed(text, column.name if column else "")
        if column is None or self.kind == "expression":
            return text
        if column.name == "bit" and (self.kind == "text" or (self.kind == "number" and not _is_whole(self.text))):
            return _number(text.encode())
        if column.name in ("enum", "set"):
            return _members(self.kind, text, column)
        if column.name == "binary":
            return text + "\0" * (min(column.length or 0, _LONGEST_BINARY) - len(text.encode()))
        return text

    def _bytes_of(self, column: ColumnType | None) -> str:
        value = bytes.fromhex(self.text)
        if column.name in _NUMERIC if column else self.kind == BITS:
            return _number(value)
        return value.decode()


def read_default(tokens: Tokens) -> Default:
    """Take what follows DEFAULT.

    Raises:
        Unreadable: It is no value, function or expression in parentheses.
    """
    if tokens.at("("):
        return _parenthesised(tokens)
    if tokens.skip("NULL"):
        return Default("null")
    if sign := tokens.skip("-", "+"):
        return Default("number", ("-" if sign == "-" else "") + tokens.take_of("a number", NUMBER))
    match tokens.next.kind:
        case "string":
            return Default("text", tokens.string())
        case "bytes" | "bits" | "number" as kind:
            return Default(kind, tokens.take().text)
    return _word(tokens)


def read_now(tokens: Tokens) -> None:
    """Take the function of an ON UPDATE clause."""
    if not tokens.skip(*_NOW):
        raise tokens.unreadable("CURRENT_TIMESTAMP is missing")
    tokens.skip_group()


def _parenthesised(tokens: Tokens) -> Default:
    """Take an expression; in MySQL's syntax a plain value may stand in parentheses as well."""
    group = tokens.group()
    inner = tokens.inner(group)
    found = read_default(inner) if group and not inner.at("(") and len(group) <= 4 else Default("expression")
    return found if inner.done and group else Default("expression", render(group))


def _word(tokens: Tokens) -> Default:
    if word := tokens.skip(*_NOW, *_TODAY):
        tokens.skip_group()
        return Default("expression", "CURRENT_TIMESTAMP" if word in _NOW else "CURRENT_DATE")
    if word := tokens.skip("TRUE", "FALSE"):
        return Default("number", "1" if word == "TRUE" else "0")
    if tokens.at("DATE", "TIME", "TIMESTAMP") and tokens.ahead(1).kind == STRING:
        tokens.take()
        return Default("text", tokens.string())
    return _function(tokens)


def _function(tokens: Tokens) -> Default:
    start = tokens.place
    if tokens.skip("NEXT"):
        tokens.expect("VALUE FOR")
        tokens.table()
    else:
        tokens.take_of("a default", WORD)
        tokens.group()
    return Default("expression", render(tokens.since(start)))


def _printed(number: str, kind: str) -> str:
    """A number as TiDB prints it: a DOUBLE where it has an exponent, else a whole number or DECIMAL, without -0."""
    if "e" in number.lower():
        value = float(number)
        # TiDB rounds a DOUBLE to an integer half to even, but a DECIMAL half away from zero.
        exact = Decimal(value).to_integral_value() if kind.endswith("int") else Decimal(repr(value))
        return f"{exact:f}".removesuffix(".0")
    whole, _, fraction = number.lstrip("-").partition(".")
    text = (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")
    if kind in DATE_TYPES and text.isdecimal() and text != "0":
        # TiDB reads a number from its last digit, so that 101 is 2000-01-01, but a string from its first.
        return text.zfill(next((width for width in _DATE_DIGITS if len(text) <= width), 0))
    return f"-{text}" if number.startswith("-") and text.strip("0.") else text


def _is_whole(number: str) -> bool:
    return number.lstrip("-").isdecimal()


def _number(value: bytes) -> str:
    if len(value) > _LONGEST_NUMBER:
        msg = f"{len(value)} bytes are no number"
        raise ValueError(msg)
    return str(int.from_bytes(value, "big"))


def _members(kind: str, text: str, column: ColumnType) -> str:
    """Labels of an enum's or set's default, which may be given by number or in different case."""
    if kind == "number" and text.isdecimal():
        return _labels(int(text[: 3 * _LONGEST_NUMBER]), column)
    labels = {label.lower(): label for label in reversed(column.elements)}
    parts = [text] if column.name == "enum" else text.split(",")
    return ",".join(labels.get(part.rstrip(" ").lower(), part) for part in parts)


def _labels(number: int, column: ColumnType) -> str:
    if column.name == "set":
        return ",".join(label for place, label in enumerate(column.elements) if number >> place & 1)
    return column.elements[number - 1] if 0 < number <= len(column.elements) else ""
