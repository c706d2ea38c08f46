"""Parses the SQL of a DDL message into actions; refuses a statement that it does not understand as a whole.

The grammar is written out here and in `parse_*.py`, after TiDB's own: general SQL parsers keep statements that they do
not know as plain text, and a specification that is passed over is a table that is silently wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from applier.changefeed.table import TableName, TableVersion, fold
from applier.ddl import actions as ddl
from applier.ddl.alter_table import named_indexes
from applier.ddl.parse_alter import read_alter
from applier.ddl.parse_columns import TABLE_CHARSET, read_elements, read_index
from applier.ddl.parse_options import read_options
from applier.ddl.parse_partitions import read_partitioning
from applier.ddl.tokens import (
    NAME,
    NUMBER,
    STRING,
    WORD,
    Known,
    Token,
    Tokens,
    Unreadable,
    looks_printed,
    statements,
)
from applier.errors import SchemaChangeRefused

_SHOWN = 300
"""Characters of a statement that an error shows."""

_NEAR = 100
"""Characters that it shows of the place where the statement was not understood."""

_HINT = (
    "load the table again from a new export, or let [ddl] ignore this statement if it changes neither rows nor columns."
)


def parse(
    sql: str,
    database: str,
    before: TableName | None = None,
    after: TableName | None = None,
    passed: Container[str] = (),
    known: Known = lambda _: (),
) -> tuple[ddl.Action, ...]:
    """Actions of a DDL text, in the order in which they take effect.

    Args:
        sql: One or more statements, as TiCDC sends them.
        database: Database of names that name none; "" where the message does not say.
        before: The table before the statement, where the message describes it.
        after: The table after it, likewise.
        passed: First words of statements to pass over.
        known: Finds the tables of a name in all databases.

    Returns:
        At least one action; ALTER TABLE with several specifications has several.

    Raises:
        SchemaChangeRefused: A statement, or part of one, is not understood.
    """
    try:
        readings = _readings(sql, lambda statement: Tokens(statement, database, before, after, known), passed)
        # Both hold if a backslash stands before a letter: TiDB's printer shows which is meant.
        return readings[looks_printed(sql)] if len(readings) > 1 else next(iter(readings.values()))
    except Unreadable as error:
        near = f" near `{_cut(error.near, _NEAR)}`" if error.near else ""
        raise SchemaChangeRefused(
            f"Cannot read a DDL: {error.expected}{near}, in: {_cut(sql, _SHOWN)}", _HINT
        ) from None


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def _readings(
    sql: str, reader: Callable[[list[Token]], Tokens], passed: Container[str]
) -> dict[bool, tuple[ddl.Action, ...]]:
    """What a text means, by whether TiDB printed it; without a backslash that makes no difference."""
    readings: dict[bool, tuple[ddl.Action, ...]] = {}
    problem: Unreadable | None = None
    for printed in (False, True) if "\\" in sql else (True,):
        try:
            readings[printed] = _read(map(reader, statements(sql, printed=printed)), passed)
        except Unreadable as error:
            problem = error
    if problem is not None and not readings:
        raise problem
    return readings


def _read(found: Iterable[Tokens], passed: Container[str]) -> tuple[ddl.Action, ...]:
    actions: list[ddl.Action] = []
    for tokens in found:
        word = tokens.next.text.upper() if tokens.next.kind == WORD else ""
        if word in passed:
            continue
        if word not in _STATEMENTS:
            raise tokens.unreadable("the statement is no DDL that TiCDC sends")
        tokens.take()
        actions += _STATEMENTS[word](tokens)
        if not tokens.done:
            raise tokens.unreadable("the statement goes on where it should end")
    if not actions:
        raise Unreadable("the statement is empty")
    return tuple(actions)


def _create(tokens: Tokens) -> Sequence[ddl.Action]:
    if tokens.skip("DATABASE", "SCHEMA"):
        tokens.if_exists()
        return [ddl.CreateDatabase(_database(tokens, tokens.name()))]
    if tokens.skip("TABLE", "TEMPORARY TABLE", "GLOBAL TEMPORARY TABLE"):
        return [_create_table(tokens)]
    if tokens.skip("SEQUENCE"):
        return [_sequence(tokens)]
    if tokens.at("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "HYBRID", "INDEX"):
        return [_create_index(tokens)]
    return [_create_view(tokens)]


def _database(tokens: Tokens, name: str) -> str:
    """The database, once its options are taken."""
    while tokens.skip("ENCRYPTION", "DEFAULT ENCRYPTION", "READ ONLY"):
        tokens.value("a value", WORD, STRING, NUMBER)
    if tokens.skip("SET TIFLASH REPLICA"):
        tokens.until(";")
    read_options(tokens)
    return name


def _create_table(tokens: Tokens) -> ddl.CreateTable:
    tokens.if_exists()
    table = tokens.table()
    is_qualified = tokens.is_qualified
    like = _like(tokens)
    if like is not None:
        is_apart = is_qualified and not tokens.is_qualified
        _on_commit(tokens)
        return _apart(tokens, table, like) if is_apart else ddl.CreateTable(table, like=like)
    definitions, indexes = read_elements(tokens)
    options = read_options(tokens, commas=True)
    partitioning = read_partitioning(tokens) if tokens.skip("PARTITION BY") else None
    if tokens.skip("SPLIT"):  # Boundaries of regions, which do not affect rows.
        tokens.until("ON COMMIT")
    _on_commit(tokens)
    if not definitions:
        raise Unreadable("a table has no columns", str(table))
    columns = tuple(definition.resolve(options.charset or TABLE_CHARSET) for definition in definitions)
    return ddl.CreateTable(table, named_indexes(TableVersion(table, 0, columns), indexes), None, partitioning)


def _like(tokens: Tokens) -> TableName | None:
    found = tokens.skip("LIKE", "( LIKE")
    like = tokens.table() if found else None
    if found.startswith("("):
        tokens.expect(")")
    return like


def _apart(tokens: Tokens, table: TableName, like: TableName) -> ddl.CreateTable:
    """CREATE TABLE … LIKE a table whose database the text leaves open: not needed if the message has columns."""
    if tokens.after is not None and fold(tokens.after.table) == fold(table.table):
        return ddl.CreateTable(table)
    among = tuple(name for name in tokens.known(like.table) if name != table)
    return ddl.CreateTable(table, like=among[0] if among else tokens.elsewhere(like), among=among)


def _on_commit(tokens: Tokens) -> None:
    if tokens.skip("ON COMMIT"):
        if not tokens.skip("DELETE", "PRESERVE"):
            raise tokens.unreadable("ON COMMIT is followed by an unknown word")
        tokens.expect("ROWS")


def _create_index(tokens: Tokens) -> ddl.Action:
    unique = bool(tokens.skip("UNIQUE"))
    tokens.skip("FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "HYBRID")
    tokens.expect("INDEX")
    tokens.if_exists()
    name = tokens.name()
    if tokens.skip("USING", "TYPE"):
        tokens.take_of("a kind of index", WORD)
    tokens.expect("ON")
    table = tokens.table()
    index = read_index(tokens, name, unique=unique)
    if tokens.skip("PARAMETER"):
        tokens.value("a string", STRING)
    _online(tokens)
    return ddl.AddIndex(table, index) if index else ddl.NoRows(table)


def _online(tokens: Tokens) -> None:
    """ALGORITHM and LOCK at the end of CREATE and DROP INDEX."""
    while tokens.skip("ALGORITHM", "LOCK"):
        tokens.value("a value", WORD)


def _create_view(tokens: Tokens) -> ddl.Action:
    """Algorithm, definer and security may stand before VIEW."""
    if tokens.at("OR REPLACE", "ALGORITHM", "DEFINER", "SQL SECURITY"):
        tokens.until("VIEW")
    tokens.expect("VIEW")
    view = tokens.table()
    tokens.until(";")
    return ddl.CreateView(view)


def _drop(tokens: Tokens) -> Sequence[ddl.Action]:
    if tokens.skip("DATABASE", "SCHEMA"):
        tokens.if_exists()
        return [ddl.DropDatabase(tokens.name())]
    if tokens.skip("INDEX"):
        tokens.if_exists()
        name = tokens.name()
        tokens.expect("ON")
        table = tokens.table()
        _online(tokens)
        return [ddl.DropIndex(table, name)]
    if tokens.skip("VIEW"):
        return [ddl.DropView(name) for name in _tables(tokens)]
    if tokens.skip("SEQUENCE"):
        return [ddl.NoRows(name) for name in _tables(tokens)]
    if tokens.skip("GLOBAL") or tokens.at("TEMPORARY"):
        tokens.expect("TEMPORARY")
    if not tokens.skip("TABLE", "TABLES"):
        raise tokens.unreadable("what is dropped is not known")
    return [ddl.DropTable(name) for name in _tables(tokens)]


def _tables(tokens: Tokens) -> list[TableName]:
    tokens.if_exists()
    names = tokens.listed(Tokens.table)
    tokens.skip("RESTRICT", "CASCADE")
    return names


def _alter(tokens: Tokens) -> Sequence[ddl.Action]:
    if tokens.skip("DATABASE", "SCHEMA"):
        named = tokens.next.kind == NAME or not tokens.at("DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "PLACEMENT")
        # Simple does not say which database it is; its options do not concern the tables that are there.
        return [ddl.AlterDatabase(_database(tokens, tokens.name() if named else tokens.database))]
    if tokens.skip("SEQUENCE"):
        return [_sequence(tokens)]
    tokens.skip("IGNORE")
    tokens.expect("TABLE")
    table = tokens.table()
    is_qualified = tokens.is_qualified
    actions = read_alter(tokens, table)
    if isinstance(actions[-1], ddl.RenameTable) and tokens.is_qualified and not is_qualified:
        table = tokens.elsewhere(table)
        return [ddl.on(action, table) for action in actions]
    return actions


def _sequence(tokens: Tokens) -> ddl.NoRows:
    tokens.if_exists()
    name = tokens.table()
    tokens.until(";")
    return ddl.NoRows(name)


def _truncate(tokens: Tokens) -> Sequence[ddl.Action]:
    tokens.skip("TABLE")
    return [ddl.TruncateTable(tokens.table())]


def _rename(tokens: Tokens) -> Sequence[ddl.Action]:
    if not tokens.skip("TABLE", "TABLES"):
        raise tokens.unreadable("what is renamed is not known")
    return tokens.listed(_pair)


def _pair(tokens: Tokens) -> ddl.RenameTable:
    table = tokens.table()
    is_qualified = tokens.is_qualified
    tokens.expect("TO")
    to = tokens.table()
    return ddl.RenameTable(tokens.elsewhere(table) if tokens.is_qualified and not is_qualified else table, to)


def _recover(tokens: Tokens) -> Sequence[ddl.Action]:
    tokens.expect("TABLE")
    if tokens.at("BY JOB"):
        raise tokens.unreadable("the number of a job does not show which table came back")
    table = tokens.table()
    if tokens.next.kind == NUMBER:
        tokens.take()
    return [ddl.RecoverTable(table)]


def _flashback(tokens: Tokens) -> Sequence[ddl.Action]:
    if not tokens.skip("TABLE"):
        raise tokens.unreadable("rows of whole databases came back, and no message says which")
    table = tokens.table()
    return [ddl.RecoverTable(table, tokens.table() if tokens.skip("TO") else None)]


_STATEMENTS: dict[str, Callable[[Tokens], Sequence[ddl.Action]]] = {
    "ALTER": _alter,
    "CREATE": _create,
    "DROP": _drop,
    "FLASHBACK": _flashback,
    "RECOVER": _recover,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
}
