"""Reads the first words of a statement that is not understood: enough to decide whether it matters."""

from __future__ import annotations

from dataclasses import dataclass

from applier.changefeed.table import TableName
from applier.ddl.tokens import Token, Tokens, Unreadable, statements

_CARRIES = ("RENAME", "EXCHANGE")
"""Words after which a statement may concern a table that its head does not name."""


@dataclass(frozen=True, slots=True)
class StatementHead:
    """What a statement says before the part that is not understood.

    Attributes:
        kind: Its kind, as policies call it; "" where the head leaves it open, as for ALTER TABLE.
        tables: All tables that it concerns; () where that is not certain.
    """

    kind: str = ""
    tables: tuple[TableName, ...] = ()


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
    kind, is_whole = "", not any(token.is_(*_CARRIES) for token in statement)
    if tokens.skip("CREATE TABLE"):
        kind = "create-table"
    elif tokens.skip("TRUNCATE"):
        kind = "truncate-table"
        tokens.skip("TABLE")
    elif tokens.skip("DROP TABLE"):
        kind = "drop-table"
    elif tokens.skip("RECOVER TABLE", "FLASHBACK TABLE"):
        return StatementHead("recover-table")
    elif tokens.skip("RENAME TABLE"):
        return StatementHead("rename-table")
    elif not (tokens.skip("ALTER TABLE", "ALTER IGNORE TABLE")):
        return StatementHead()
    tokens.if_exists()
    tables = [tokens.table()]
    while kind == "drop-table" and tokens.skip(","):
        tables.append(tokens.table())
    return StatementHead(kind, tuple(tables) if is_whole else ())
