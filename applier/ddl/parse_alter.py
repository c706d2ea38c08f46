"""Parses ALTER TABLE: one action or more for each of its specifications."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from applier.changefeed.table import TableName
from applier.ddl import actions as ddl
from applier.ddl.parse_columns import (
    TABLE_CHARSET,
    at_constraint,
    read_constraint,
    read_default,
    read_definition,
    read_elements,
)
from applier.ddl.parse_options import read_options
from applier.ddl.parse_partitions import added_partitions, partition_names, read_partitioning, read_partitions
from applier.ddl.tokens import NAME, NUMBER, STRING, WORD, Tokens, Unreadable, render


def read_alter(tokens: Tokens, table: TableName) -> list[ddl.Action]:
    """Take the specifications of ALTER TABLE; a rename comes last, since the others name the table as it was."""
    actions: list[ddl.Action] = []
    while not tokens.done:
        actions += _specification(tokens, table)
        _separator(tokens)
    if not actions:
        return [ddl.NoRows(table)]
    return sorted(actions, key=lambda action: isinstance(action, ddl.RenameTable))


def _separator(tokens: Tokens) -> None:
    """A comma; what becomes of the partitions may follow without one."""
    if not (tokens.done or tokens.at("PARTITION BY", "REMOVE PARTITIONING")):
        tokens.expect(",")
        if tokens.done:
            raise tokens.unreadable("a specification is missing")


def _specification(tokens: Tokens, table: TableName) -> Sequence[ddl.Action]:
    read = _SPECIFICATIONS.get(tokens.next.text.upper()) if tokens.next.kind == WORD else None
    if read is not None:
        tokens.take()
        return read(tokens, table)
    return [ddl.NoRows(table)] if _rowless(tokens) else _options(tokens, table)


def _options(tokens: Tokens, table: TableName) -> Sequence[ddl.Action]:
    start = tokens.place
    convert = tokens.skip("CONVERT TO")
    found = read_options(tokens)
    if tokens.place == start or (convert and not found.charset):
        raise tokens.unreadable("a specification is not known")
    if found.charset == "binary":
        raise Unreadable("the charset `binary` makes bytes of text", render(tokens.since(start)))
    actions: list[ddl.Action] = [] if found.comment is None else [ddl.SetComment(table, found.comment)]
    return [*actions, ddl.NoRows(table)] if found.others else actions


def _add(tokens: Tokens, table: TableName) -> Sequence[ddl.Action]:
    if tokens.skip("PARTITION"):
        tokens.if_exists()
        tokens.skip(*_BINLOG)
        return [ddl.AddPartitions(table, added_partitions(tokens))]
    if tokens.at("STATS_EXTENDED"):
        tokens.until(",")
        return [ddl.NoRows(table)]
    if at_constraint(tokens):
        index = read_constraint(tokens)
        return [ddl.AddIndex(table, index) if index else ddl.NoRows(table)]
    tokens.skip("COLUMN")
    exists = tokens.if_exists()
    if tokens.at("("):
        definitions, indexes = read_elements(tokens)
        columns = [definition.resolve(TABLE_CHARSET, backfill=True) for definition in definitions]
        several: list[ddl.Action] = [ddl.AddColumn(table, column, if_not_exists=exists) for column in columns]
        return several + [ddl.AddIndex(table, index) for index in indexes]
    definition = read_definition(tokens)
    column = definition.resolve(TABLE_CHARSET, backfill=True)
    added = ddl.AddColumn(table, column, *_position(tokens), exists)
    return [added, *(ddl.AddIndex(table, index) for index in definition.indexes())]


def _position(tokens: Tokens) -> tuple[bool, str | None]:
    if tokens.skip("FIRST"):
        return True, None
    return False, tokens.column_name() if tokens.skip("AFTER") else None


def _drop(tokens: Tokens, table: TableName) -> Sequence[ddl.Action]:
    if tokens.skip("PRIMARY KEY"):
        return [ddl.DropIndex(table, "primary")]
    if tokens.skip("FOREIGN KEY", "CHECK", "CONSTRAINT", "STATS_EXTENDED"):
        tokens.if_exists()
        tokens.name()
        return [ddl.NoRows(table)]
    if tokens.skip("INDEX", "KEY"):
        tokens.if_exists()
        return [ddl.DropIndex(table, tokens.name())]
    if tokens.skip("PARTITION"):
        tokens.if_exists()
        return [ddl.DropPartitions(table, tokens.names())]
    tokens.skip("COLUMN")
    exists = tokens.if_exists()
    name = tokens.column_name()
    tokens.skip("RESTRICT", "CASCADE")
    return [ddl.DropColumn(table, name, exists)]


def _change(tokens: Tokens, table: TableName, *, is_named: bool = True) -> Sequence[ddl.Action]:
    tokens.skip("COLUMN")
    tokens.if_exists()
    name = tokens.column_name() if is_named else ""
    definition = read_definition(tokens)
    column = definition.resolve(TABLE_CHARSET)
    modified = ddl.ModifyColumn(table, name or column.name, column, *_position(tokens))
    return [modified, *(ddl.AddIndex(table, index) for index in definition.indexes())]


def _alter(tokens: Tokens, table: TableName) -> Sequence[ddl.Action]:
    if tokens.skip("INDEX"):
        tokens.name()
        if not tokens.skip("VISIBLE", "INVISIBLE"):
            raise tokens.unreadable("what becomes of an index is not known")
        return [ddl.NoRows(table)]
    if tokens.skip("CHECK", "CONSTRAINT"):
        tokens.name()
        tokens.skip("NOT")
        tokens.expect("ENFORCED")
        return [ddl.NoRows(table)]
    tokens.skip("COLUMN")
    name = tokens.column_name()
    if tokens.skip("DROP DEFAULT"):
        return [ddl.SetDefault(table, name, None)]
    tokens.expect("SET DEFAULT")
    try:
        return [ddl.SetDefault(table, name, read_default(tokens).of(None))]
    except ValueError:
        raise tokens.unreadable("the default is no text") from None


def _rename(tokens: Tokens, table: TableName) -> Sequence[ddl.Action]:
    if tokens.skip("COLUMN"):
        name = tokens.column_name()
        tokens.expect("TO")
        return [ddl.RenameColumn(table, name, tokens.column_name())]
    if tokens.skip("INDEX", "KEY"):
        name = tokens.name()
        tokens.expect("TO")
        return [ddl.RenameIndex(table, name, tokens.name())]
    tokens.skip("TO", "AS", "=")
    return [ddl.RenameTable(table, tokens.table())]


def _partition(tokens: Tokens, table: TableName) -> Sequence[ddl.Action]:
    """PARTITION BY …, or PARTITION name with options."""
    if tokens.skip("BY"):
        return [ddl.SetPartitioning(table, read_partitioning(tokens))]
    tokens.name()
    if not tokens.skip("ATTRIBUTES", "PLACEMENT POLICY"):
        raise tokens.unreadable("what becomes of a partition is not known")
    tokens.value("a value", WORD, NAME, STRING)
    return [ddl.NoRows(table)]


def _truncate(tokens: Tokens, table: TableName) -> Sequence[ddl.Action]:
    tokens.expect("PARTITION")
    return [ddl.TruncatePartitions(table, partition_names(tokens))]


def _exchange(tokens: Tokens, table: TableName) -> Sequence[ddl.Action]:
    tokens.expect("PARTITION")
    name = tokens.name()
    is_qualified = tokens.is_qualified
    tokens.expect("WITH TABLE")
    other = tokens.table()
    if is_qualified and not tokens.is_qualified:
        other = tokens.elsewhere(other)
    if tokens.skip("WITH", "WITHOUT"):
        tokens.expect("VALIDATION")
    return [ddl.ExchangePartition(table, name, other)]


def _reorganize(tokens: Tokens, table: TableName) -> Sequence[ddl.Action]:
    tokens.expect("PARTITION")
    tokens.skip(*_BINLOG)
    if tokens.done or tokens.at(","):
        return [ddl.ReorganizePartitions(table, (), ())]
    names = tokens.names()
    tokens.expect("INTO")
    return [ddl.ReorganizePartitions(table, names, read_partitions(tokens))]


def _coalesce(tokens: Tokens, table: TableName) -> Sequence[ddl.Action]:
    """COALESCE PARTITION n: fewer partitions by hash or key; rows move inside the table."""
    tokens.expect("PARTITION")
    tokens.skip(*_BINLOG)
    tokens.integer()
    return [ddl.ReorganizePartitions(table, (), ())]


def _remove(tokens: Tokens, table: TableName) -> Sequence[ddl.Action]:
    if tokens.skip("TTL"):
        return [ddl.NoRows(table)]
    tokens.expect("PARTITIONING")
    return [ddl.SetPartitioning(table, None)]


_BINLOG = ("NO_WRITE_TO_BINLOG", "LOCAL")

_SPECIFICATIONS: dict[str, Callable[[Tokens, TableName], Sequence[ddl.Action]]] = {
    "ADD": _add,
    "ALTER": _alter,
    "CHANGE": _change,
    "COALESCE": _coalesce,
    "DROP": _drop,
    "EXCHANGE": _exchange,
    "MODIFY": partial(_change, is_named=False),
    "PARTITION": _partition,
    "REMOVE": _remove,
    "RENAME": _rename,
    "REORGANIZE": _reorganize,
    "TRUNCATE": _truncate,
}


def _rowless(tokens: Tokens) -> bool:
    """Take a specification that touches neither rows nor columns; False if none comes next."""
    if tokens.skip(*_ROWLESS):
        return True
    if tokens.skip("ALGORITHM", "LOCK", "ATTRIBUTES", "STATS_OPTIONS"):
        tokens.value("a value", WORD, STRING)
        return True
    if tokens.skip("ORDER BY"):
        _order(tokens)
        return True
    if tokens.skip("SET TIFLASH REPLICA", "SET HYPO TIFLASH REPLICA"):
        tokens.take_of("a number of replicas", NUMBER)
        if tokens.skip("LOCATION LABELS"):
            tokens.string()
            while tokens.at(",") and tokens.ahead(1).kind == STRING:
                tokens.take()
                tokens.string()
        return True
    if tokens.skip(*(f"{word} PARTITION" for word in ("CHECK", "OPTIMIZE", "REPAIR", "REBUILD", "ANALYZE"))):
        tokens.skip(*_BINLOG)
        partition_names(tokens)
        return True
    return not tokens.at("FORCE AUTO_INCREMENT", "FORCE AUTO_RANDOM_BASE") and bool(tokens.skip("FORCE"))


_ROWLESS = (
    *("CACHE", "NOCACHE", "SECONDARY_LOAD", "SECONDARY_UNLOAD", "COMPACT TIFLASH REPLICA", "COMPACT"),
    *("ENABLE KEYS", "DISABLE KEYS", "WITH VALIDATION", "WITHOUT VALIDATION", "READ ONLY", "READ WRITE"),
)


def _order(tokens: Tokens) -> None:
    """Take what follows ORDER BY: `a, b DESC`. A comma may as well begin the next specification."""
    while True:
        tokens.column_name()
        tokens.skip("ASC", "DESC")
        if not (tokens.at(",") and (tokens.ahead(1).kind == NAME or tokens.ahead(2).is_("", ",", "ASC", "DESC", "."))):
            return
        tokens.take()
