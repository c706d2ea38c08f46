"""Parses the type of a column into a `ColumnType`, with the names and lengths that TiDB gives it, as in Simple."""

from __future__ import annotations

from dataclasses import dataclass

from applier.changefeed.table import ColumnType
from applier.ddl.tokens import BYTES, NAME, STRING, WORD, Tokens

_ALIASES = {
    "tinyint": "BOOL BOOLEAN INT1",
    "smallint": "INT2",
    "mediumint": "MIDDLEINT INT3",
    "int": "INTEGER INT4",
    "bigint": "INT8 SERIAL",
    "float": "FLOAT4",
    "double": "FLOAT8 REAL",
    "decimal": "DEC NUMERIC FIXED",
    "year": "SQL_TSI_YEAR",
    "char": "CHARACTER NCHAR",
    "varchar": "VARCHARACTER NVARCHAR",
    "mediumtext": "LONG",
}
"""Other words for types."""

_PLAIN = (
    "bit date datetime timestamp time binary varbinary tinytext text longtext tinyblob blob mediumblob longblob "
    "enum set json vector"
)
"""Types with a single word."""

_NAMES = {
    word: name
    for name, words in (_ALIASES | dict.fromkeys(_PLAIN.split(), "")).items()
    for word in (name.upper(), *words.split())
}

SIZES = {"tiny": 255, "": 65535, "medium": 16777215, "long": 4294967295}
"""Bytes that texts and blobs hold, by what their name begins with."""

_INTEGER_LENGTHS = {"tinyint": (4, 3), "smallint": (6, 5), "mediumint": (9, 8), "int": (11, 10), "bigint": (20, 20)}
"""Display width of a signed and an unsigned column without one (TiDB `mysql.GetDefaultFieldLengthAndDecimal`)."""

_LENGTHS = {"float": 12, "double": 22, "date": 10, "year": 4, "json": 4294967295, "bit": 1, "char": 1, "binary": 1}
_SECONDS = {"time": 10, "datetime": 19, "timestamp": 19}
_BINARY_FORMS = {"char": "binary", "varchar": "varbinary"} | {f"{size}text": f"{size}blob" for size in SIZES}
_CHARACTER_BYTES = {"utf8mb4": 4, "gb18030": 4, "utf32": 4, "utf16": 4, "utf8": 3, "utf8mb3": 3, "gbk": 2, "ucs2": 2}
_CHARSET_WORDS = {"ASCII": "latin1", "UNICODE": "ucs2", "BYTE": "binary"}
_TWO_NUMBERS = "a type has one or two numbers"
_WIDEST_FLOAT = 24
"""Bits of the mantissa up to which FLOAT(p) is a float."""


@dataclass(slots=True)
class TypeText:
    """A column's type as written; the charset may follow later, among the column's attributes.

    Attributes:
        word: The type's first word, in capitals.
        name: TiDB's name of it.
        charset: Charset in lower case, from CHARACTER SET or the collation; "" where the column names none.
    """

    word: str
    name: str
    numbers: tuple[int, ...] = ()
    members: tuple[str, ...] = ()
    unsigned: bool = False
    charset: str = ""

    def resolve(self, table_charset: str) -> ColumnType:
        """The type, in a table whose default charset is `table_charset`."""
        charset = self.charset or table_charset
        name = _BINARY_FORMS.get(self.name, self.name) if charset == "binary" else self.name
        if name in _INTEGER_LENGTHS:
            return ColumnType(name, self.unsigned, self._first(_INTEGER_LENGTHS[name][self.unsigned]))
        if name in ("enum", "set"):
            lengths = [len(member) for member in self.members]
            length = max(lengths) if name == "enum" else sum(lengths) + len(lengths) - 1
            return ColumnType(name, length=length, elements=self.members)
        if name in _SECONDS:
            digits = self._first(0)
            return ColumnType(name, length=_SECONDS[name] + (digits + 1 if digits else 0), scale=digits)
        if name == "decimal":
            scale = self.numbers[1] if len(self.numbers) > 1 else 0
            return ColumnType(name, self.unsigned, self._first(10) or 10, scale)
        if name in ("float", "double"):
            return self._real(name)
        if name.endswith(("text", "blob")):
            return self._large(name, charset)
        return ColumnType(name, length=self._first(_LENGTHS.get(name, 0)) or None)

    def _first(self, default: int) -> int:
        return self.numbers[0] if self.numbers else default

    def _real(self, name: str) -> ColumnType:
        """FLOAT(p) shows how many bits are kept; FLOAT(m, d) is always a float."""
        if name == "float" and len(self.numbers) == 1:
            name = "float" if self.numbers[0] <= _WIDEST_FLOAT else "double"
            return ColumnType(name, self.unsigned, _LENGTHS[name])
        scale = self.numbers[1] if len(self.numbers) > 1 else None
        return ColumnType(name, self.unsigned, self._first(_LENGTHS[name]), scale)

    def _large(self, name: str, charset: str) -> ColumnType:
        """TEXT(n) and BLOB(n) become the smallest type that holds n characters."""
        size, family = name[:-4], name[-4:]
        if self.numbers and size == "":
            wanted = self.numbers[0] * (_CHARACTER_BYTES.get(charset, 1) if family == "text" else 1)
            size = next((size for size, length in SIZES.items() if wanted <= length), "long")
        return ColumnType(f"{size}{family}", length=SIZES[size])


def read_type(tokens: Tokens) -> TypeText:
    """Take a column's type."""
    national = tokens.skip("NATIONAL")
    found = _named(tokens)
    if national:
        found.charset = "utf8"
    if found.name in ("enum", "set"):
        found.members = tuple(tokens.listed_in_group(_member, "the list of members does not end"))
    elif tokens.at("("):
        found.numbers = tuple(tokens.listed_in_group(Tokens.integer, _TWO_NUMBERS))
        if len(found.numbers) > 2:
            raise tokens.unreadable(_TWO_NUMBERS)
    _attributes(tokens, found)
    return found


def _named(tokens: Tokens) -> TypeText:
    word = tokens.take_of("a type", WORD).upper()
    if word not in _NAMES:
        raise tokens.unreadable(f"TiDB has no column type {word}")
    found = TypeText(word, _NAMES[word])
    if word in ("NCHAR", "NVARCHAR"):
        found.charset = "utf8"
    if found.name == "char" and tokens.skip("VARYING", "VARCHAR", "VARCHARACTER"):
        found.name = "varchar"
    elif word == "DOUBLE":
        tokens.skip("PRECISION")
    elif word == "LONG":
        _long(tokens, found)
    elif word == "VECTOR" and tokens.skip("<"):
        tokens.expect("FLOAT")
        tokens.expect(">")
    elif word in ("BOOL", "BOOLEAN"):
        found.numbers = (1,)
    elif word == "SERIAL":
        found.unsigned = True
    return found


def _long(tokens: Tokens, found: TypeText) -> None:
    if tokens.skip("VARBINARY", "BYTE"):
        found.name = "mediumblob"
    elif tokens.skip("CHAR", "CHARACTER"):
        tokens.expect("VARYING")
    else:
        tokens.skip("VARCHAR", "VARCHARACTER")


def _member(tokens: Tokens) -> str:
    """A member; spaces at its end are not kept."""
    if tokens.next.kind != BYTES:
        return tokens.take_of("a member", STRING).rstrip(" ")
    try:
        return bytes.fromhex(tokens.take().text).decode().rstrip(" ")
    except UnicodeDecodeError:
        raise tokens.unreadable("a member is no UTF-8 text") from None


def _attributes(tokens: Tokens, found: TypeText) -> None:
    """Attributes that are part of the type: signs, and the charset of strings."""
    while True:
        if tokens.skip("UNSIGNED", "ZEROFILL"):
            found.unsigned = True
        elif tokens.at("CHARACTER", "CHARSET"):
            found.charset = read_charset(tokens)
        elif word := tokens.skip(*_CHARSET_WORDS):
            found.charset = _CHARSET_WORDS[word]
        elif not tokens.skip("SIGNED", "BINARY"):
            return


def read_charset(tokens: Tokens) -> str:
    """Take `CHARACTER SET [=] name` or `CHARSET [=] name`; its name in lower case."""
    if not tokens.skip("CHARSET"):
        tokens.expect("CHARACTER SET")
    return tokens.value("a charset", WORD, STRING, NAME).lower()


def read_collation(tokens: Tokens) -> str:
    """Take `COLLATE [=] name`; the charset that it belongs to, in lower case."""
    tokens.expect("COLLATE")
    return tokens.value("a collation", WORD, STRING, NAME).lower().split("_")[0]
