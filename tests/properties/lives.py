"""The log of a database in, which table is which at a moment out: through renames, until it is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.upstream import FROBNICATE, Database, Ddl, Name

Life = int
"""A table from its CREATE TABLE to its end, by the commit ts of the first."""


@dataclass(frozen=True, slots=True)
class Lives:
    """Tables of one database by their lives.

    Args:
        database: The upstream, with all that happens to it.
    """

    database: Database

    def at(self, ts: int, told: frozenset[str] | None = None) -> dict[Name, Life]:
        """The tables at a moment.

        Args:
            ts: The moment.
            told: Which DDL of exactly that commit ts count; None for all.
        """
        found: dict[Name, Life] = {}
        for item in self._ddl(ts):
            if told is None or item.ts < ts or item.sql in told:
                follow(item, found)
        return found

    def refused(self, life: Life, ts: int) -> set[int]:
        """Commit ts of the statements of a table up to a moment that no parser knows."""
        return {item.ts for item, lives in self._with_lives(ts) if FROBNICATE in item.sql and life in lives}

    def exchanged(self, life: Life, ts: int) -> set[Life]:
        """Tables with which a table exchanged rows up to a moment, and those with which these did."""
        found = {life}
        for _ in range(2):
            for item, lives in self._with_lives(ts):
                if " EXCHANGE PARTITION " in item.sql and not found.isdisjoint(lives):
                    found |= lives
        return found - {life}

    def together(self, ts: int) -> Iterator[set[Life]]:
        """The tables of each statement at a commit ts, in whose parts they follow each other."""
        found = [lives for item, lives in self._with_lives(ts) if item.ts == ts]
        if found:
            yield set().union(*found)

    def _with_lives(self, ts: int) -> Iterator[tuple[Ddl, set[Life]]]:
        found: dict[Name, Life] = {}
        for item in self._ddl(ts):
            yield item, {found[name] for name in item.names if name in found}
            follow(item, found)

    def _ddl(self, ts: int) -> Iterator[Ddl]:
        return (item for item in self.database.log if isinstance(item, Ddl) and item.ts <= ts)


def follow(item: Ddl, found: dict[Name, Life]) -> None:
    """Let tables be known by their names behind a statement."""
    if item.schema is None:
        for name in item.names:
            found.pop(name, None)
        return
    match item.kind:
        case "CREATE":
            found[item.schema.name] = item.ts
        case "ERASE":
            found.pop(item.schema.name, None)
        case "RENAME":
            assert item.before is not None
            life = found.pop(item.before.name, None)
            if life is not None:
                found[item.schema.name] = life
