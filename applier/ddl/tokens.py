"""Splits the text of a DDL into statements and tokens.

TiCDC parses a statement and prints it again. Two things of that print are not SQL as MySQL would read it: a backslash
in a string stands for itself, because the printer does not escape it; and what only TiDB knows is in comments such as
`/*T![auto_rand] AUTO_RANDOM(5) */`, which count as text.
Source: `restoreFlags` in TiCDC (no `RestoreStringEscapeBackslash`), `WriteString` in TiDB's parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from applier.changefeed.table import TableName, fold

T = TypeVar("T")

Known: TypeAlias = Callable[[str], Sequence[TableName]]
"""Finds the tables of a name in all databases."""

WORD, NAME, STRING, BYTES, BITS, NUMBER, SYMBOL = "word", "name", "string", "bytes", "bits", "number", "symbol"

_MAX_DIGITS = 20
"""Digits of the longest whole number that a DDL holds; more of them are an attack on `int`."""

_WORD = r"[\w$\u0080-\U0010ffff]"
_TOKEN = re.compile(
    rf"""
      (?P<space> [ \t\r\n\f\v]+ | \#[^\n]* | --(?=[ \t\r\n\f\v]|\Z)[^\n]* )
    | (?P<open> /\*(?:T!(?:\[[^\]*]*\])?|!\d{{0,6}}) )
    | (?P<comment> /\*.*?\*/ )
    | (?P<close> \*/ )
    | (?P<name> `[^`]*(?:``[^`]*)*` )
    | (?P<bits> [bB]'(?P<b1>[01]*)' | 0b(?P<b2>[01]+)(?!{_WORD}) )
    | (?P<hex> [xX]'(?P<x1>(?:[0-9A-Fa-f]{{2}})*)' | 0x(?P<x2>[0-9A-Fa-f]+)(?!{_WORD}) )
    | (?: [nN](?=') | _[A-Za-z0-9]+[ \t\r\n]*(?='|"|[xX]'|[bB]'|0x|0b) )
    | (?P<string> STRINGS )
    | (?P<number> (?: \d++(?:\.\d*+)? | (?<![\w$`])\.\d++ ) (?: [eE][+-]?\d++ )? (?!{_WORD}) )
    | (?P<word> {_WORD}+ )
    | (?P<symbol> (?!/\*)[-+*/%=<>!~^&|(),.;@:?\[\]{{}}] )
    """,
    re.VERBOSE | re.DOTALL,
)
_PRINTED_STRING = r"""'[^']*(?:''[^']*)*' | "[^"]*(?:""[^"]*)*" """
_TYPED_STRING = r"""'[^'\\]*(?:(?:''|\\.)[^'\\]*)*' | "[^"\\]*(?:(?:""|\\.)[^"\\]*)*" """
_PRINTED = re.compile(_TOKEN.pattern.replace("STRINGS", _PRINTED_STRING), _TOKEN.flags)
_TYPED = re.compile(_TOKEN.pattern.replace("STRINGS", _TYPED_STRING), _TOKEN.flags)

_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_BEFORE_OPTION = ("=", "COLLATE", "SET", "USING")
"""What stands before words that are printed as they were typed: names of charsets, collations and engines."""
_LOST = re.compile(r"AlterTableType\(\d+\) is not supported")
"""What TiDB prints in place of a specification that its printer does not know."""


class Unreadable(Exception):
    """A statement that this grammar does not understand; `parse` turns it into `SchemaChangeRefused`.

    Each function that takes a part of a statement raises it where something else comes next. `expected` says what would
    have been understood, or why the text cannot be; `near` is the text where it stopped.
    """

    def __init__(self, expected: str, near: str = "") -> None:
        super().__init__(expected, near)
        self.expected = expected
        self.near = near


class Token(NamedTuple):
    """One token.

    Attributes:
        kind: `word`, `name` (in backticks), `string`, `bytes` (`x'…'`), `bits` (`b'…'`), `number` or `symbol`.
        text: Without quotes and escapes; of `bytes` and `bits` the hexadecimal digits.
    """

    kind: str
    text: str

    def is_(self, *words: str) -> bool:
        """True for one of these keywords or symbols; names in backticks are never keywords."""
        return self.kind in (WORD, SYMBOL) and self.text.upper() in words


END = Token(SYMBOL, "")
"""Stands after the last token of a statement."""


def statements(sql: str, *, printed: bool) -> Iterator[list[Token]]:
    """Tokens of each statement of a text, which `;` separates.

    If TiDB `printed` the text, a backslash in a string stands for itself.

    Raises:
        Unreadable: Something is not closed, or no token at all.
    """
    statement: list[Token] = []
    for token in _tokens(sql, _PRINTED if printed else _TYPED, printed=printed):
        if token.is_(";"):
            if statement:
                yield statement
            statement = []
        else:
            statement.append(token)
    if statement:
        yield statement


def looks_printed(sql: str) -> bool:
    """True if TiDB may have printed the text: keywords in capitals, names in backticks, strings in single quotes."""
    previous, quotes = END, 0
    for token in _tokens(sql, _PRINTED, printed=True):
        if token.kind == WORD and token.text != token.text.upper() and not previous.is_(*_BEFORE_OPTION):
            return False
        quotes += token.text.count('"')
        previous = token
    return quotes == sql.count('"')


def _tokens(sql: str, pattern: re.Pattern[str], *, printed: bool) -> Iterator[Token]:
    place, inside = 0, False
    while place < len(sql):
        found = pattern.match(sql, place)
        if found is None:
            raise Unreadable("the text is cut off or holds something that is no SQL", sql[place : place + 40])
        kind = found.lastgroup
        if kind == "comment" and _LOST.search(found.group()):
            raise Unreadable("TiDB did not print all of the statement", found.group())
        if (kind == "open" and inside) or (kind == "close" and not inside):
            raise Unreadable("comments are nested", sql[place : place + 40])
        if kind in ("open", "close"):
            inside = kind == "open"
        token = _token(found, printed=printed)
        if token is not None:
            yield token
        place = found.end()
    if inside:
        raise Unreadable("a comment is not closed")


def _token(found: re.Match[str], *, printed: bool) -> Token | None:
    text = found.group()
    match found.lastgroup:
        case "name":
            return Token(NAME, text[1:-1].replace("``", "`"))
        case "string":
            return Token(STRING, _unquote(text, printed=printed))
        case "bits":
            bits = found.group("b1") or found.group("b2") or ""
            return Token(BITS, int(bits or "0", 2).to_bytes((len(bits) + 7) // 8, "big").hex())
        case "hex":
            digits = found.group("x1") or found.group("x2") or ""
            return Token(BYTES, digits if len(digits) % 2 == 0 else f"0{digits}")
        case "number" | "word" | "symbol":
            return Token(found.lastgroup, text)
    return None


def _unquote(text: str, *, printed: bool) -> str:
    quote, body = text[0], text[1:-1]
    if printed or "\\" not in body:
        return body.replace(quote * 2, quote)
    parts = re.split(r"(\\.)", body, flags=re.DOTALL)
    return "".join(
        _ESCAPED.get(part[1], part[1]) if part[:1] == "\\" else part.replace(quote * 2, quote) for part in parts
    )


class Tokens:
    """A statement that is read from left to right; what else it is read by, see `parse`."""

    def __init__(
        self,
        tokens: Iterable[Token],
        database: str,
        before: TableName | None = None,
        after: TableName | None = None,
        known: Known = lambda _: (),
    ) -> None:
        self._tokens = list(tokens)
        self.place = 0  # How many tokens were taken.
        self.database = database
        self.before = before
        self.after = after
        self.known = known
        self.is_qualified = False  # Whether the table that was taken last names its database.

    @property
    def next(self) -> Token:
        """The next token; `END` after the last."""
        return self.ahead(0)

    def ahead(self, count: int) -> Token:
        """The token `count` after the next."""
        place = self.place + count
        return self._tokens[place] if place < len(self._tokens) else END

    @property
    def done(self) -> bool:
        """True after the last token."""
        return self.place >= len(self._tokens)

    def at(self, *phrases: str) -> bool:
        """True if one of these keywords, symbols, or phrases of them comes next."""
        return bool(self._coming(phrases))

    def skip(self, *phrases: str) -> str:
        """Take the first of these keywords, symbols or phrases that comes next; "" if there is none."""
        found = self._coming(phrases)
        self.place += len(found.split())
        return found

    def _coming(self, phrases: Iterable[str]) -> str:
        first = self.next.text.upper()
        for phrase in phrases:
            # Nearly all phrases begin with another word.
            if phrase.startswith(first) and all(self.ahead(at).is_(word) for at, word in enumerate(phrase.split())):
                return phrase
        return ""

    def expect(self, phrase: str) -> None:
        """Take these keywords or symbols."""
        if not self.skip(phrase):
            raise self.unreadable(f"`{phrase}` is missing")

    def take(self) -> Token:
        """Take the next token."""
        if self.done:
            raise self.unreadable("the statement ends too early")
        self.place += 1
        return self._tokens[self.place - 1]

    def take_of(self, what: str, *kinds: str) -> str:
        """Text of the next token, which must be of one of the kinds."""
        if self.next.kind not in kinds or self.done:
            raise self.unreadable(f"{what} is missing")
        return self.take().text

    def name(self) -> str:
        """Take a name, in backticks or not."""
        text = self.take_of("a name", NAME, WORD)
        if not text:
            raise self.unreadable("a name is empty")
        return text

    def column_name(self) -> str:
        """Take the name of a column; its table and database may stand before it."""
        name = self.name()
        while self.skip("."):
            name = self.name()
        return name

    def table(self) -> TableName:
        """Take the name of a table; without a database it is in the one that the message names."""
        first = self.name()
        self.is_qualified = bool(self.skip("."))
        if self.is_qualified:
            return TableName(first, self.name())
        if not self.database:
            raise self.unreadable("a name has no database, and the message does not name one")
        return TableName(self.database, first)

    def elsewhere(self, name: TableName) -> TableName:
        """The table of a name without a database, in a statement that names the database of another table alone.

        TiCDC's old architecture does not qualify names, and its messages do not name the session's database.

        Raises:
            Unreadable: The message does not describe the table before the statement.
        """
        if self.before is not None and fold(self.before.table) == fold(name.table):
            return self.before
        raise self.unreadable(f"the database of table {name.table} is not known, as the message names another table's")

    def value(self, what: str, *kinds: str) -> str:
        """Take the value of an option; `=` may stand before it."""
        self.skip("=")
        return self.take_of(what, *kinds)

    def string(self) -> str:
        """Take a string."""
        return self.take_of("a string", STRING)

    def integer(self) -> int:
        """Take a whole number."""
        text = self.take_of("a whole number", NUMBER)
        if not text.isdecimal() or not text.isascii() or len(text) > _MAX_DIGITS:
            raise self.unreadable(f"{text[:_MAX_DIGITS]} is no whole number")
        return int(text)

    def group(self) -> list[Token]:
        """Take what stands in parentheses, and return it without them."""
        self.expect("(")
        start, depth = self.place, 1
        while depth:
            token = self.take()
            depth += token.is_("(") - token.is_(")")
        return self._tokens[start : self.place - 1]

    def skip_group(self) -> bool:
        """Take what stands in parentheses if `(` comes next."""
        if found := self.at("("):
            self.group()
        return found

    def until(self, *stops: str) -> list[Token]:
        """Take everything up to a keyword or symbol outside of parentheses, or to the end."""
        start = self.place
        while not self.done and not self.at(")", *stops):
            if not self.skip_group():
                self.take()
        return self._tokens[start : self.place]

    def since(self, place: int) -> list[Token]:
        """Tokens taken since a `place`."""
        return self._tokens[place : self.place]

    def inner(self, tokens: Iterable[Token]) -> Tokens:
        """A reader of a part of the statement."""
        return Tokens(tokens, self.database, self.before, self.after)

    def listed(self, read: Callable[[Tokens], T]) -> list[T]:
        """Take items separated by commas, each as `read` takes it."""
        items = [read(self)]
        while self.skip(","):
            items.append(read(self))
        return items

    def listed_in_group(self, read: Callable[[Tokens], T], unclear: str) -> list[T]:
        """As `listed`, in parentheses; `unclear` says what is wrong where an item goes on after `read`."""
        inner = self.inner(self.group())
        items = inner.listed(read)
        if not inner.done:
            raise inner.unreadable(unclear)
        return items

    def names(self) -> tuple[str, ...]:
        """Take names separated by commas."""
        return tuple(self.listed(Tokens.name))

    def if_exists(self) -> bool:
        """Take `IF EXISTS` or `IF NOT EXISTS` if it comes next."""
        return bool(self.skip("IF EXISTS", "IF NOT EXISTS"))

    def unreadable(self, expected: str) -> Unreadable:
        """An error at this place."""
        near = self._tokens[max(self.place - 3, 0) : self.place + 4]
        return Unreadable(expected, render(near))


def render(tokens: Iterable[Token]) -> str:
    """SQL of tokens, in one form however it was written: names in backticks, strings quoted, no introducers."""
    text, previous, signed = "", END, False
    for token in tokens:
        if text and not signed and not _joined(previous, token):
            text += " "
        text += _written(token)
        # A sign is one where no value stands before it.
        signed = token.is_("-", "+") and (previous is END or previous.is_(*_BEFORE_SIGN))
        previous = token
    return text


_BEFORE_SIGN = ("(", ",", "+", "-", "*", "/", "%", "=", "<", ">", "DEFAULT", "IN", "AND", "OR", "DIV", "MOD")


def _joined(left: Token, right: Token) -> bool:
    """True where no space stands between two tokens: `a`.`b`, f(x), (1, 2)."""
    if right.kind == SYMBOL and right.text in "),.":
        return True
    if left.kind == SYMBOL and left.text in "(.":
        return True
    return right.is_("(") and left.kind in (WORD, NAME)


def _written(token: Token) -> str:
    match token.kind:
        case "name":
            return f"`{token.text.replace('`', '``')}`"
        case "string":
            return "'" + token.text.replace("\\", "\\\\").replace("'", "''") + "'"
        case "bytes" | "bits":
            return f"x'{token.text}'"
    return token.text
