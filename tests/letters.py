"""Names in, names as people type them in DDL out: TiDB finds tables and columns in any letters, and needs no quotes."""

from __future__ import annotations

import random
import re

Name = tuple[str, str]
"""Database and table."""

_WORDS = re.compile(r"`[^`]*`|'[^']*'|[A-Za-z_]\w*")
_KEYWORDS = re.compile("ADD|ALTER|COLUMN|CREATE|DATABASE|DROP|FIRST|INDEX|MODIFY|PARTITION|RENAME|TABLE|TO|TRUNCATE")


class Letters:
    """Writes names as they are, quoted and with their database."""

    def known(self, name: Name, _database: str) -> str:
        """A table that is there, in a statement of a session that uses a database."""
        return f"`{name[0]}`.`{name[1]}`"

    def new(self, name: Name, _database: str) -> str:
        """A name that the statement gives: its letters are the table's."""
        return f"`{name[0]}`.`{name[1]}`"

    def database(self, name: str) -> str:
        """A database that is there."""
        return f"`{name}`"

    def column(self, name: str) -> str:
        """A column that is there."""
        return f"`{name}`"

    def words(self, sql: str) -> str:
        """The statement with its keywords in letters of their own."""
        return sql


class AnyLetters(Letters):
    """Writes names in letters that are drawn, with and without quotes, and with their database only where one must."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance

    def known(self, name: Name, database: str) -> str:
        """See `Letters`."""
        table = self._quoted(self._cased(name[1]))
        return table if self._is_short(name, database) else f"{self._quoted(self._cased(name[0]))}.{table}"

    def new(self, name: Name, database: str) -> str:
        """See `Letters`; the database is there, so it may be typed in any letters."""
        table = self._quoted(name[1])
        return table if self._is_short(name, database) else f"{self._quoted(self._cased(name[0]))}.{table}"

    def database(self, name: str) -> str:
        """See `Letters`."""
        return self._quoted(self._cased(name))

    def column(self, name: str) -> str:
        """See `Letters`."""
        return self._quoted(self._cased(name))

    def words(self, sql: str) -> str:
        """See `Letters`."""
        return _WORDS.sub(lambda word: self._word(word.group()), sql)

    def _word(self, word: str) -> str:
        return self._cased(word) if _KEYWORDS.fullmatch(word) else word

    def _is_short(self, name: Name, database: str) -> bool:
        return name[0] == database and self._random.random() < 0.4

    def _quoted(self, name: str) -> str:
        return f"`{name}`" if self._random.random() < 0.5 or not name.isidentifier() else name

    def _cased(self, name: str) -> str:
        return self._random.choice([name, name.upper(), name.lower(), name.capitalize(), name.swapcase()])
