"""Reads the first words of a statement that is not understood, to decide whether the statement matters."""

from __future__ import annotations

from dataclasses import dataclass

from applier.changefeed.table import TableName
from applier.ddl.tokens import Token, Tokens, Unreadable, statements

FLASHBACK_DATABASE = "flashback-database"
"""Kind of a statement that brings a dropped database back; no policy names it, as no message holds the rows."""

_KINDS = {
    "CREATE TABLE": "create-table",
    "TRUNCATE TABLE": "truncate-table",
    "TRUNCATE": "truncate-table",
    "DROP TABLE": "drop-table",
    "RECOVER TABLE": "recover-table",
    "FLASHBACK TABLE": "recover-table",
    "RENAME TABLE": "rename-table",
    "ALTER TABLE": "",
    "ALTER IGNORE TABLE": "",
    "FLASHBACK DATABASE": FLASHBACK_DATABASE,
    "FLASHBACK SCHEMA": FLASHBACK_DATABASE,
}

_CARRIES = ("RENAME", "EXCHANGE")
"""Words after which a statement may concern a table that its head does not name."""


@dataclass(frozen=True, slots=True)
class StatementHead:
    """The part of a statement that is understood, before the one that is not.

    Attributes:
        kind: Its kind, as policies call it; "" where the head leaves it open, as for ALTER TABLE.
        tables: All tables that it concerns; () where that is not certain.
        databases: Of `FLASHBACK DATABASE` the database that comes back, and its name from then on; else ().
    """

    kind: str = ""
    tables: tuple[TableName, ...] = ()
    databases: tuple[str, ...] = ()


def head(sql: str, database: str) -> StatementHead:
    """Read the head of one statement; nothing of it is certain where there are several."""
    for printed in (True, False):
        try:
            found = list(statements(sql, printed=printed))
            return _head(found[0], database) if len(found) == 1 else StatementHead()
        except Unreadable:
            continue
    return StatementHead()


def _head(statement: list[Token], database: str) -> StatementHead:
    tokens = Tokens(statement, database)
    found = tokens.skip(*_KINDS)
    kind = _KINDS.get(found, "")
    if kind == FLASHBACK_DATABASE:
        name = tokens.name()
        return StatementHead(kind, databases=(name, tokens.name() if tokens.skip("TO") else name))
    if not found or kind in ("recover-table", "rename-table"):
        return StatementHead(kind)
    tokens.if_exists()
    tables = tokens.listed(Tokens.table) if kind == "drop-table" else [tokens.table()]
    is_whole = not any(token.is_(*_CARRIES) for token in statement)
    return StatementHead(kind, tuple(tables) if is_whole else ())
