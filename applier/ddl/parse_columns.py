"""Parses the elements of a table: columns and indexes of CREATE TABLE (…), ADD, MODIFY and CHANGE.

The text of a default is the one that TiDB keeps and Simple reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from applier.changefeed.table import Column, ColumnType, Index
from applier.changefeed.types import DATE_TYPES, INTEGERS
from applier.ddl.parse_types import TypeText, read_charset, read_collation, read_type
from applier.ddl.tokens import BITS, BYTES, NUMBER, STRING, WORD, Tokens, Unreadable, render

TABLE_CHARSET = "utf8mb4"
"""Charset of a table whose statement names none. Source: TiDB's default."""

PRIMARY = "PRIMARY"
"""Name of every primary key."""

_AFTER_COLUMN = (",", ")", "FIRST", "AFTER", "PARTITION", "REMOVE")
_KEY_OPTIONS = ("CLUSTERED", "NONCLUSTERED", "GLOBAL", "LOCAL")
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
        if column.name == "bit" and (
            self.kind == "text" or (self.kind == "number" and not self.text.lstrip("-").isdecimal())
        ):
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


@dataclass(slots=True)
class Definition:
    """A column as defined, before the table's charset is known.

    Its own attributes make it `primary` or `unique`, not the table's indexes.
    """

    name: str
    type: TypeText
    default: Default | None = None
    nullable: bool = True
    generated: str | None = None
    comment: str = ""
    primary: bool = False
    unique: bool = False

    def resolve(self, charset: str, *, backfill: bool = False) -> Column:
        """The column in a table whose default charset is `charset`; with `backfill`, rows that exist get the default.

        Raises:
            Unreadable: The default fills rows, and no text holds it.
        """
        found = self.type.resolve(charset)
        default = self._default(found, backfill=backfill)
        return Column(self.name, found, self.nullable, default, self.generated, self.comment)

    def _default(self, found: ColumnType, *, backfill: bool) -> str | None:
        if self.default is None:
            return None
        try:
            return self.default.of(found)
        except UnicodeDecodeError:
            if backfill:
                raise Unreadable("the default of rows that exist is no UTF-8 text", self.name) from None
            # Rows always carry the column, so this default is never filled in; Simple garbles such bytes as well.
            return bytes.fromhex(self.default.text).decode(errors="replace")
        except ValueError:
            raise Unreadable("a default is too long for its type", self.name) from None

    def indexes(self) -> list[Index]:
        """Indexes that its attributes make."""
        columns = (self.name,)
        made = [Index(PRIMARY, columns, unique=True, primary=True)] if self.primary else []
        return [*made, Index("", columns, unique=True)] if self.unique else made


def read_elements(tokens: Tokens) -> tuple[list[Definition], list[Index]]:
    """Take columns and indexes in parentheses: those of the table, then those of column attributes; names may be ""."""
    found = tokens.listed_in_group(_element, "`,` is missing after a column or index")
    definitions = [element for element in found if isinstance(element, Definition)]
    indexes = [element for element in found if isinstance(element, Index)]
    return definitions, [*indexes, *(index for column in definitions for index in column.indexes())]


def _element(tokens: Tokens) -> Definition | Index | None:
    """Take a column, or an index or constraint; None for what neither columns nor keys depend on."""
    return read_constraint(tokens) if at_constraint(tokens) else read_definition(tokens)


def at_constraint(tokens: Tokens) -> bool:
    """True if an index or constraint comes next, and no column."""
    if tokens.at("PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK"):
        return True
    return tokens.at("VECTOR", "COLUMNAR", "HYBRID") and tokens.ahead(1).is_("INDEX", "KEY")


def read_definition(tokens: Tokens) -> Definition:
    """Take a column: name, type, attributes."""
    found = Definition(tokens.column_name(), read_type(tokens))
    if found.type.word == "SERIAL":
        found.nullable, found.unique = False, True
    while not tokens.done and not tokens.at(*_AFTER_COLUMN):
        _attribute(tokens, found)
    found.nullable = found.nullable and not found.primary
    return found


def _attribute(tokens: Tokens, found: Definition) -> None:
    if tokens.skip("NOT NULL"):
        found.nullable = False
    elif tokens.skip("NULL"):
        found.nullable = True
    elif tokens.skip("DEFAULT"):
        found.default = read_default(tokens)
    elif tokens.skip("COMMENT"):
        found.comment = tokens.string()
    elif tokens.skip("UNIQUE KEY", "UNIQUE"):
        _key_options(tokens)
        found.unique = True
    elif tokens.skip("PRIMARY KEY", "PRIMARY", "KEY"):
        _key_options(tokens)
        found.primary = True
    elif tokens.skip("GENERATED ALWAYS AS", "AS"):
        tokens.group()
        kind = tokens.skip("VIRTUAL", "STORED", "PERSISTENT")
        found.generated = "stored" if kind in ("STORED", "PERSISTENT") else "virtual"
    elif tokens.skip("SERIAL DEFAULT VALUE"):
        found.nullable, found.unique = False, True
    else:
        _plain_attribute(tokens, found.type)


def _key_options(tokens: Tokens) -> None:
    while tokens.skip(*_KEY_OPTIONS):
        pass


def _plain_attribute(tokens: Tokens, kind: TypeText) -> None:
    """Take an attribute that leaves the column's values as they are, or one of its charset."""
    if tokens.at("COLLATE"):
        collated = read_collation(tokens)
        kind.charset = kind.charset or collated
    elif tokens.at("CHARACTER", "CHARSET"):
        kind.charset = read_charset(tokens)
    elif tokens.skip("ON UPDATE"):
        if not tokens.skip(*_NOW):
            raise tokens.unreadable("CURRENT_TIMESTAMP is missing")
        tokens.skip_group()
    elif tokens.skip("REFERENCES"):
        _reference(tokens)
    elif tokens.at("CONSTRAINT", "CHECK"):
        _check(tokens)
    elif tokens.skip("AUTO_RANDOM"):
        tokens.skip_group()
    elif tokens.skip("COLUMN_FORMAT", "STORAGE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
        tokens.value("a value", WORD, STRING)
    elif not tokens.skip("AUTO_INCREMENT", "VISIBLE", "INVISIBLE", "BINARY"):
        raise tokens.unreadable("an attribute of a column is not known")


def _check(tokens: Tokens) -> None:
    if tokens.skip("CONSTRAINT") and not tokens.at("CHECK"):
        tokens.name()
    tokens.expect("CHECK")
    tokens.group()
    tokens.skip("NOT ENFORCED", "ENFORCED")


def _reference(tokens: Tokens) -> None:
    """Take what follows REFERENCES: t (columns) with its options; the other table is not touched."""
    tokens.column_name()
    tokens.skip_group()
    if tokens.skip("MATCH") and not tokens.skip("FULL", "PARTIAL", "SIMPLE"):
        raise tokens.unreadable("MATCH is followed by an unknown word")
    while tokens.skip("ON DELETE", "ON UPDATE"):
        if not tokens.skip("RESTRICT", "CASCADE", "SET NULL", "SET DEFAULT", "NO ACTION"):
            raise tokens.unreadable("what a foreign key does is not known")


def read_constraint(tokens: Tokens) -> Index | None:
    """Take an index or constraint; None for a foreign key, a check, an index over expressions: they identify no row."""
    name = ""
    if tokens.skip("CONSTRAINT") and not tokens.at("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        name = tokens.name()
    if tokens.at("CHECK"):
        _check(tokens)
        return None
    if tokens.skip("FOREIGN KEY"):
        tokens.if_exists()
        if not tokens.at("("):
            tokens.name()
        tokens.group()
        tokens.expect("REFERENCES")
        _reference(tokens)
        return None
    return _index(tokens, name)


def _index(tokens: Tokens, name: str) -> Index | None:
    primary = bool(tokens.skip("PRIMARY"))
    unique = primary or bool(tokens.skip("UNIQUE"))
    special = tokens.skip("FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "HYBRID")
    if not (tokens.skip("KEY", "INDEX") or unique or special) or (primary and special):
        raise tokens.unreadable("an index is not understood")
    tokens.if_exists()
    if not tokens.at("(") and not (tokens.at("USING", "TYPE") and tokens.ahead(1).kind == WORD):
        name = tokens.name()
    return read_index(tokens, PRIMARY if primary else name, unique=unique, primary=primary)


def read_index(tokens: Tokens, name: str, *, unique: bool, primary: bool = False) -> Index | None:
    """Take the columns and options of an index; None for an index over expressions."""
    _index_options(tokens)
    columns = tokens.listed_in_group(_part, "a column of an index is not understood")
    # A partial index does not distinguish rows that are outside of it.
    unique = not _index_options(tokens) and unique
    return Index(name, tuple(columns), unique, primary) if all(columns) else None


def _part(tokens: Tokens) -> str:
    """Take a part of an index: the name of a column, which may be cut to a length; "" for an expression."""
    name = ""
    if not tokens.skip_group():
        name = tokens.column_name()
        tokens.skip_group()
    tokens.skip("ASC", "DESC")
    return name


def _index_options(tokens: Tokens) -> bool:
    """Take options of an index; True if it is a partial one."""
    while True:
        if tokens.skip("USING", "TYPE"):
            tokens.take_of("a kind of index", WORD)
        elif tokens.skip("WITH PARSER"):
            tokens.name()
        elif tokens.skip("COMMENT", "SECONDARY_ENGINE_ATTRIBUTE"):
            tokens.value("a string", STRING)
        elif tokens.skip("KEY_BLOCK_SIZE", "PRE_SPLIT_REGIONS"):
            tokens.skip("=")
            if not tokens.skip_group():
                tokens.integer()
        elif tokens.skip("WHERE"):
            tokens.until(",", ")", "LOCK", "ALGORITHM")
            return True
        elif not tokens.skip("VISIBLE", "INVISIBLE", "ADD_COLUMNAR_REPLICA_ON_DEMAND", *_KEY_OPTIONS):
            return False


def read_default(tokens: Tokens) -> Default:
    """Take what follows DEFAULT: a value, a function, or an expression in parentheses."""
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


def _number(value: bytes) -> str:
    if len(value) > _LONGEST_NUMBER:
        msg = f"{len(value)} bytes are no number"
        raise ValueError(msg)
    return str(int.from_bytes(value, "big"))


def _members(kind: str, text: str, column: ColumnType) -> str:
    """Labels of an enum's or set's default, which may be given by number or in different case."""
    if kind == "number" and text.isdecimal():
        number = int(text[: 3 * _LONGEST_NUMBER])
        if column.name == "set":
            return ",".join(label for place, label in enumerate(column.elements) if number >> place & 1)
        return column.elements[number - 1] if 0 < number <= len(column.elements) else ""
    labels = {label.lower(): label for label in reversed(column.elements)}
    parts = [text] if column.name == "enum" else text.split(",")
    return ",".join(labels.get(part.rstrip(" ").lower(), part) for part in parts)
