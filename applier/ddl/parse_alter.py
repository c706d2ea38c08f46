"""Parses ALTER TABLE: one action or more for each of its specifications."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from applier.changefeed.table import TableName
from applier.ddl.actions import (
    Action,
    AddColumn,
    AddIndex,
    AddPartitions,
    DropColumn,
    DropIndex,
    DropPartitions,
    ExchangePartition,
    ModifyColumn,
    NoRows,
    RenameColumn,
    RenameIndex,
    RenameTable,
    ReorganizePartitions,
    SetComment,
    SetDefault,
    SetPartitioning,
    TruncatePartitions,
)
from applier.ddl.parse_columns import (
    TABLE_CHARSET,
    Definition,
    at_constraint,
    read_constraint,
    read_definition,
    read_elements,
)
from applier.ddl.parse_defaults import read_default
from applier.ddl.parse_options import Options, read_options
from applier.ddl.parse_partitions import added_partitions, partition_names, read_partitioning, read_partitions
from applier.ddl.tokens import NAME, NUMBER, STRING, WORD, Tokens, Unreadable, render

Specification = Callable[[Tokens, TableName], Sequence[Action]]


def read_alter(tokens: Tokens, table: TableName) -> list[Action]:
    """Take the specifications of ALTER TABLE; a rename comes last, since the others name the table as it was.

    Raises:
        Unreadable: A specification is not understood, or changes rows in a way that the statement does not show.
    """
    actions: list[Action] = []
    while not tokens.done:
        actions += _specification(tokens, table)
        _separator(tokens)
    if not actions:
        return [NoRows(table, "ALTER TABLE")]
    return [action for action in actions if not isinstance(action, RenameTable)] + [
        action for action in actions if isinstance(action, RenameTable)
    ]


def _separator(tokens: Tokens) -> None:
    """A comma; what becomes of the partitions may follow without one."""
    if not (tokens.done or tokens.at("PARTITION", "BY") or tokens.at("REMOVE", "PARTITIONING")):
        tokens.expect(",")
        if tokens.done:
            raise tokens.unreadable("a specification is missing")


def _specification(tokens: Tokens, table: TableName) -> Sequence[Action]:
    start = tokens.place
    word = tokens.next.text.upper() if tokens.next.kind == WORD else ""
    read = _SPECIFICATIONS.get(word)
    if read is not None:
        return read(tokens, table)
    if _rowless(tokens, word):
        return [NoRows(table, render(tokens.since(start)))]
    return _options(tokens, table)


def _options(tokens: Tokens, table: TableName) -> Sequence[Action]:
    start = tokens.place
    convert = tokens.skip("CONVERT", "TO")
    found = read_options(tokens)
    if tokens.place == start or (convert and not found.charset):
        raise tokens.unreadable("a specification is not known")
    return _option_actions(found, table, render(tokens.since(start)))


def _option_actions(found: Options, table: TableName, what: str) -> list[Action]:
    if found.charset == "binary":
        raise Unreadable("the charset `binary` makes bytes of text", what)
    actions: list[Action] = [] if found.comment is None else [SetComment(table, found.comment)]
    return [*actions, NoRows(table, what)] if found.others else actions


def _add(tokens: Tokens, table: TableName) -> Sequence[Action]:
    tokens.expect("ADD")
    if tokens.at("PARTITION"):
        return _add_partition(tokens, table)
    if tokens.at("STATS_EXTENDED"):
        return [NoRows(table, f"ADD {render(tokens.until(','))}")]
    if at_constraint(tokens):
        return _add_constraint(tokens, table)
    tokens.skip("COLUMN")
    exists = tokens.if_exists()
    if tokens.at("("):
        return _add_columns(tokens, table, if_not_exists=exists)
    definition = read_definition(tokens)
    first, after = _position(tokens)
    column = definition.resolve(TABLE_CHARSET, backfill=True)
    return [AddColumn(table, column, first, after, exists), *_indexes(table, definition)]


def _add_constraint(tokens: Tokens, table: TableName) -> Sequence[Action]:
    start = tokens.place
    index = read_constraint(tokens)
    if index is None:
        return [NoRows(table, f"ADD {render(tokens.since(start))}")]
    return [AddIndex(table, index)]


def _add_columns(tokens: Tokens, table: TableName, *, if_not_exists: bool) -> Sequence[Action]:
    found = read_elements(tokens)
    columns = [definition.resolve(TABLE_CHARSET, backfill=True) for definition in found.definitions]
    added: list[Action] = [AddColumn(table, column, if_not_exists=if_not_exists) for column in columns]
    return added + [AddIndex(table, index) for index in found.indexes]


def _indexes(table: TableName, definition: Definition) -> list[AddIndex]:
    return [AddIndex(table, index) for index in definition.indexes()]


def _position(tokens: Tokens) -> tuple[bool, str | None]:
    if tokens.skip("FIRST"):
        return True, None
    if tokens.skip("AFTER"):
        return False, tokens.column_name()
    return False, None


def _add_partition(tokens: Tokens, table: TableName) -> Sequence[Action]:
    tokens.expect("PARTITION")
    tokens.if_exists()
    tokens.skip_any("NO_WRITE_TO_BINLOG", "LOCAL")
    return [AddPartitions(table, added_partitions(tokens))]


def _drop(tokens: Tokens, table: TableName) -> Sequence[Action]:
    start = tokens.place
    tokens.expect("DROP")
    if tokens.skip("PRIMARY", "KEY"):
        return [DropIndex(table, "primary")]
    if tokens.skip("FOREIGN", "KEY") or tokens.skip_any("CHECK", "CONSTRAINT", "STATS_EXTENDED"):
        tokens.if_exists()
        tokens.name()
        return [NoRows(table, render(tokens.since(start)))]
    if tokens.skip_any("INDEX", "KEY"):
        tokens.if_exists()
        return [DropIndex(table, tokens.name())]
    if tokens.skip("PARTITION"):
        tokens.if_exists()
        return [DropPartitions(table, tokens.names())]
    tokens.skip("COLUMN")
    exists = tokens.if_exists()
    name = tokens.column_name()
    tokens.skip_any("RESTRICT", "CASCADE")
    return [DropColumn(table, name, exists)]


def _modify(tokens: Tokens, table: TableName) -> Sequence[Action]:
    changed = tokens.take().is_("CHANGE")
    tokens.skip("COLUMN")
    tokens.if_exists()
    name = tokens.column_name() if changed else ""
    definition = read_definition(tokens)
    first, after = _position(tokens)
    column = definition.resolve(TABLE_CHARSET)
    return [ModifyColumn(table, name or column.name, column, first, after), *_indexes(table, definition)]


def _alter(tokens: Tokens, table: TableName) -> Sequence[Action]:
    start = tokens.place
    tokens.expect("ALTER")
    if tokens.skip("INDEX"):
        tokens.name()
        if not tokens.skip_any("VISIBLE", "INVISIBLE"):
            raise tokens.unreadable("what becomes of an index is not known")
        return [NoRows(table, render(tokens.since(start)))]
    if tokens.skip_any("CHECK", "CONSTRAINT"):
        tokens.name()
        tokens.skip("NOT")
        tokens.expect("ENFORCED")
        return [NoRows(table, render(tokens.since(start)))]
    tokens.skip("COLUMN")
    name = tokens.column_name()
    if tokens.skip("DROP", "DEFAULT"):
        return [SetDefault(table, name, None)]
    tokens.expect("SET", "DEFAULT")
    try:
        return [SetDefault(table, name, read_default(tokens).of(None))]
    except ValueError:
        raise tokens.unreadable("the default is no text") from None


def _rename(tokens: Tokens, table: TableName) -> Sequence[Action]:
    tokens.expect("RENAME")
    if tokens.skip("COLUMN"):
        name = tokens.column_name()
        tokens.expect("TO")
        return [RenameColumn(table, name, tokens.column_name())]
    if tokens.skip_any("INDEX", "KEY"):
        name = tokens.name()
        tokens.expect("TO")
        return [RenameIndex(table, name, tokens.name())]
    tokens.skip_any("TO", "AS", "=")
    return [RenameTable(table, tokens.table())]


def _partition(tokens: Tokens, table: TableName) -> Sequence[Action]:
    """PARTITION BY …, or PARTITION name with options."""
    if tokens.at("PARTITION", "BY"):
        return [SetPartitioning(table, read_partitioning(tokens))]
    start = tokens.place
    tokens.expect("PARTITION")
    tokens.name()
    if not tokens.skip("ATTRIBUTES") and not tokens.skip("PLACEMENT", "POLICY"):
        raise tokens.unreadable("what becomes of a partition is not known")
    tokens.skip("=")
    tokens.take_of("a value", WORD, NAME, STRING)
    return [NoRows(table, render(tokens.since(start)))]


def _truncate(tokens: Tokens, table: TableName) -> Sequence[Action]:
    tokens.expect("TRUNCATE", "PARTITION")
    return [TruncatePartitions(table, partition_names(tokens))]


def _exchange(tokens: Tokens, table: TableName) -> Sequence[Action]:
    tokens.expect("EXCHANGE", "PARTITION")
    name = tokens.name()
    is_qualified = tokens.is_qualified
    tokens.expect("WITH", "TABLE")
    other = tokens.table()
    if is_qualified and not tokens.is_qualified:
        other = tokens.elsewhere(other)
    if tokens.skip_any("WITH", "WITHOUT"):
        tokens.expect("VALIDATION")
    return [ExchangePartition(table, name, other)]


def _reorganize(tokens: Tokens, table: TableName) -> Sequence[Action]:
    tokens.expect("REORGANIZE", "PARTITION")
    tokens.skip_any("NO_WRITE_TO_BINLOG", "LOCAL")
    if tokens.done or tokens.at(","):
        return [ReorganizePartitions(table, (), ())]
    names = tokens.names()
    tokens.expect("INTO")
    return [ReorganizePartitions(table, names, read_partitions(tokens))]


def _coalesce(tokens: Tokens, table: TableName) -> Sequence[Action]:
    """COALESCE PARTITION n: fewer partitions by hash or key; rows move inside the table."""
    tokens.expect("COALESCE", "PARTITION")
    tokens.skip_any("NO_WRITE_TO_BINLOG", "LOCAL")
    tokens.integer()
    return [ReorganizePartitions(table, (), ())]


def _remove(tokens: Tokens, table: TableName) -> Sequence[Action]:
    tokens.expect("REMOVE")
    if tokens.skip("TTL"):
        return [NoRows(table, "REMOVE TTL")]
    tokens.expect("PARTITIONING")
    return [SetPartitioning(table, None)]


_SPECIFICATIONS: dict[str, Specification] = {
    "ADD": _add,
    "ALTER": _alter,
    "CHANGE": _modify,
    "COALESCE": _coalesce,
    "DROP": _drop,
    "EXCHANGE": _exchange,
    "MODIFY": _modify,
    "PARTITION": _partition,
    "REMOVE": _remove,
    "RENAME": _rename,
    "REORGANIZE": _reorganize,
    "TRUNCATE": _truncate,
}


def _rowless(tokens: Tokens, word: str) -> bool:
    """Take a specification that touches neither rows nor columns; False if none comes next."""
    if any(tokens.skip(*words) for words in _FIXED_WORDS):
        return True
    if word in ("ALGORITHM", "LOCK", "ATTRIBUTES", "STATS_OPTIONS"):
        tokens.take()
        tokens.skip("=")
        tokens.take_of("a value", WORD, STRING)
        return True
    if word == "ORDER":
        _order(tokens)
        return True
    if tokens.skip("SET", "TIFLASH", "REPLICA") or tokens.skip("SET", "HYPO", "TIFLASH", "REPLICA"):
        _replica(tokens)
        return True
    return _partition_upkeep(tokens)


_FIXED_WORDS = (
    ("CACHE",),
    ("NOCACHE",),
    ("SECONDARY_LOAD",),
    ("SECONDARY_UNLOAD",),
    ("ENABLE", "KEYS"),
    ("DISABLE", "KEYS"),
    ("WITH", "VALIDATION"),
    ("WITHOUT", "VALIDATION"),
    ("READ", "ONLY"),
    ("READ", "WRITE"),
    ("COMPACT", "TIFLASH", "REPLICA"),
    ("COMPACT",),
)


def _order(tokens: Tokens) -> None:
    """ORDER BY a, b DESC: a comma may as well begin the next specification."""
    tokens.expect("ORDER", "BY")
    _order_item(tokens)
    while tokens.at(",") and _at_order_item(tokens):
        tokens.take()
        _order_item(tokens)


def _at_order_item(tokens: Tokens) -> bool:
    return tokens.ahead(1).kind == NAME or tokens.ahead(2).is_any("", ",", "ASC", "DESC", ".")


def _order_item(tokens: Tokens) -> None:
    tokens.column_name()
    tokens.skip_any("ASC", "DESC")


def _replica(tokens: Tokens) -> None:
    tokens.take_of("a number of replicas", NUMBER)
    if tokens.skip("LOCATION", "LABELS"):
        tokens.string()
        while tokens.at(",") and tokens.ahead(1).kind == STRING:
            tokens.take()
            tokens.string()


def _partition_upkeep(tokens: Tokens) -> bool:
    """CHECK, OPTIMIZE, REPAIR, REBUILD and ANALYZE PARTITION; FORCE without more."""
    if tokens.at_any("CHECK", "OPTIMIZE", "REPAIR", "REBUILD", "ANALYZE") and tokens.ahead(1).is_("PARTITION"):
        tokens.take()
        tokens.take()
        tokens.skip_any("NO_WRITE_TO_BINLOG", "LOCAL")
        partition_names(tokens)
        return True
    option = tokens.ahead(1).is_any("AUTO_INCREMENT", "AUTO_RANDOM_BASE")
    return not option and tokens.skip("FORCE")
