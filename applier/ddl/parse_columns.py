"""Parses the elements of a table: columns and indexes of CREATE TABLE (…), ADD, MODIFY and CHANGE."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from applier.changefeed.table import Column, ColumnType, Index
from applier.ddl.parse_defaults import Default, read_default, read_now
from applier.ddl.parse_types import TypeText, read_charset, read_collation, read_type
from applier.ddl.tokens import STRING, WORD, Tokens, Unreadable

TABLE_CHARSET = "utf8mb4"
"""Charset of a table whose statement names none. Source: TiDB's default."""

PRIMARY = "PRIMARY"
"""Name of every primary key."""

_AFTER_COLUMN = (",", ")", "FIRST", "AFTER", "PARTITION", "REMOVE")
_KEY_OPTIONS = ("CLUSTERED", "NONCLUSTERED", "GLOBAL", "LOCAL")


@dataclass(frozen=True, slots=True)
class Definition:
    """A column as defined, before the table's charset is known.

    Attributes:
        column: The column; type and default are set by `resolve`.
        type: What was said of its type.
        default: What was said of its default.
        primary: PRIMARY KEY is among its attributes.
        unique: UNIQUE is among its attributes.
    """

    column: Column
    type: TypeText
    default: Default | None = None
    primary: bool = False
    unique: bool = False

    def resolve(self, charset: str, *, backfill: bool = False) -> Column:
        """The column in a table with a default charset.

        Args:
            charset: The table's default charset.
            backfill: True if rows that exist get the default, so that it must be exact.

        Raises:
            Unreadable: The default fills rows, and no text holds it.
        """
        found = self.type.resolve(charset)
        return replace(self.column, type=found, default=self._default(found, backfill=backfill))

    def _default(self, found: ColumnType, *, backfill: bool) -> str | None:
        if self.default is None:
            return None
        try:
            return self.default.of(found)
        except UnicodeDecodeError:
            if backfill:
                raise Unreadable("the default of rows that exist is no UTF-8 text", self.column.name) from None
            # Rows always carry the column, so this default is never filled in; Simple garbles such bytes, too.
            return bytes.fromhex(self.default.text).decode(errors="replace")
        except ValueError:
            raise Unreadable("a default is too long for its type", self.column.name) from None

    def indexes(self) -> list[Index]:
        """Indexes that its attributes make."""
        columns = (self.column.name,)
        made = [Index(PRIMARY, columns, unique=True, primary=True)] if self.primary else []
        return [*made, Index("", columns, unique=True)] if self.unique else made


@dataclass(slots=True)
class Elements:
    """What stands in the parentheses of CREATE TABLE.

    Attributes:
        definitions: Columns, in order.
        indexes: Indexes as tables declare them, then those of column attributes; names may be "".
    """

    definitions: list[Definition] = field(default_factory=list)
    indexes: list[Index] = field(default_factory=list)

    def add(self, element: Definition | Index | None) -> None:
        """Add one element; None is one that neither columns nor keys depend on."""
        if isinstance(element, Definition):
            self.definitions.append(element)
        elif element is not None:
            self.indexes.append(element)


def read_elements(tokens: Tokens) -> Elements:
    """Take columns and indexes in parentheses."""
    inner = tokens.inner(tokens.group())
    found = Elements()
    found.add(read_element(inner))
    while inner.skip(","):
        found.add(read_element(inner))
    if not inner.done:
        raise inner.unreadable("`,` is missing after a column or index")
    for definition in found.definitions:
        found.indexes += definition.indexes()
    return found


def read_element(tokens: Tokens) -> Definition | Index | None:
    """Take a column, or an index or constraint; None for what neither columns nor keys depend on."""
    return read_constraint(tokens) if at_constraint(tokens) else read_definition(tokens)


def at_constraint(tokens: Tokens) -> bool:
    """True if an index or constraint comes next, and no column."""
    if tokens.at_any("PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK"):
        return True
    return tokens.at_any("VECTOR", "COLUMNAR", "HYBRID") and tokens.ahead(1).is_any("INDEX", "KEY")


def read_definition(tokens: Tokens) -> Definition:
    """Take a column: name, type, attributes.

    Raises:
        Unreadable: A type or an attribute is not known.
    """
    name = tokens.column_name()
    found = Definition(Column(name, ColumnType("")), read_type(tokens))
    if found.type.word == "SERIAL":
        found = replace(found, column=replace(found.column, nullable=False), unique=True)
    while not tokens.done and not tokens.at_any(*_AFTER_COLUMN):
        found = _attribute(tokens, found)
    if found.primary:
        found = replace(found, column=replace(found.column, nullable=False))
    return found


def _attribute(tokens: Tokens, found: Definition) -> Definition:
    """The definition with its next attribute."""
    if tokens.skip("NOT", "NULL"):
        return replace(found, column=replace(found.column, nullable=False))
    if tokens.skip("NULL"):
        return replace(found, column=replace(found.column, nullable=True))
    if tokens.skip("DEFAULT"):
        return replace(found, default=read_default(tokens))
    if tokens.skip("COMMENT"):
        return replace(found, column=replace(found.column, comment=tokens.string()))
    if tokens.skip("UNIQUE"):
        tokens.skip("KEY")
        _key_options(tokens)
        return replace(found, unique=True)
    if tokens.skip("PRIMARY", "KEY") or tokens.skip("PRIMARY") or tokens.skip("KEY"):
        _key_options(tokens)
        return replace(found, primary=True)
    if tokens.skip("GENERATED", "ALWAYS", "AS") or tokens.skip("AS"):
        return _generated(tokens, found)
    if tokens.skip("SERIAL", "DEFAULT", "VALUE"):
        return replace(found, column=replace(found.column, nullable=False), unique=True)
    return _plain_attribute(tokens, found)


def _key_options(tokens: Tokens) -> None:
    while tokens.skip_any(*_KEY_OPTIONS):
        pass


def _generated(tokens: Tokens, found: Definition) -> Definition:
    tokens.group()
    kind = tokens.skip_any("VIRTUAL", "STORED", "PERSISTENT")
    stored = kind in ("STORED", "PERSISTENT")
    return replace(found, column=replace(found.column, generated="stored" if stored else "virtual"))


def _plain_attribute(tokens: Tokens, found: Definition) -> Definition:
    """Attributes that leave the column's values as they are, and those of its charset."""
    if tokens.at("COLLATE"):
        collated = read_collation(tokens)
        found.type.charset = found.type.charset or collated
    elif tokens.at_any("CHARACTER", "CHARSET"):
        found.type.charset = read_charset(tokens)
    elif tokens.skip("ON", "UPDATE"):
        read_now(tokens)
    elif tokens.at_any("REFERENCES"):
        _reference(tokens)
    elif tokens.at_any("CONSTRAINT", "CHECK"):
        _check(tokens)
    elif tokens.skip_any("AUTO_RANDOM"):
        if tokens.at("("):
            tokens.group()
    elif tokens.skip_any("COLUMN_FORMAT", "STORAGE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
        tokens.skip("=")
        tokens.take_of("a value", WORD, STRING)
    elif not tokens.skip_any("AUTO_INCREMENT", "VISIBLE", "INVISIBLE", "BINARY"):
        raise tokens.unreadable("an attribute of a column is not known")
    return found


def _check(tokens: Tokens) -> None:
    if tokens.skip("CONSTRAINT") and not tokens.at("CHECK"):
        tokens.name()
    tokens.expect("CHECK")
    tokens.group()
    if not tokens.skip("NOT", "ENFORCED"):
        tokens.skip("ENFORCED")


def _reference(tokens: Tokens) -> None:
    """REFERENCES t (columns) with its options; the other table is not touched."""
    tokens.expect("REFERENCES")
    tokens.name()
    if tokens.skip("."):
        tokens.name()
    if tokens.at("("):
        tokens.group()
    if tokens.skip("MATCH") and not tokens.skip_any("FULL", "PARTIAL", "SIMPLE"):
        raise tokens.unreadable("MATCH is followed by an unknown word")
    while tokens.at("ON", "DELETE") or tokens.at("ON", "UPDATE"):
        tokens.take()
        tokens.take()
        if not (
            tokens.skip_any("RESTRICT", "CASCADE")
            or tokens.skip("SET", "NULL")
            or tokens.skip("SET", "DEFAULT")
            or tokens.skip("NO", "ACTION")
        ):
            raise tokens.unreadable("what a foreign key does is not known")


def read_constraint(tokens: Tokens) -> Index | None:
    """Take an index or constraint.

    Returns:
        The index; None for a foreign key, a check, and an index over expressions: no row is known by them.
    """
    name = ""
    if tokens.skip("CONSTRAINT") and not tokens.at_any("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        name = tokens.name()
    if tokens.at("CHECK"):
        _check(tokens)
        return None
    if tokens.skip("FOREIGN", "KEY"):
        tokens.if_exists()
        if not tokens.at("("):
            tokens.name()
        tokens.group()
        _reference(tokens)
        return None
    return _index(tokens, name)


def _index(tokens: Tokens, name: str) -> Index | None:
    primary = tokens.skip("PRIMARY")
    unique = primary or tokens.skip("UNIQUE")
    special = tokens.skip_any("FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "HYBRID")
    if not (tokens.skip_any("KEY", "INDEX") or unique or special) or (primary and special):
        raise tokens.unreadable("an index is not understood")
    tokens.if_exists()
    if not tokens.at("(") and not (tokens.at_any("USING", "TYPE") and tokens.ahead(1).kind == WORD):
        name = tokens.name()
    return read_index(tokens, PRIMARY if primary else name, unique=unique, primary=primary)


def read_index(tokens: Tokens, name: str, *, unique: bool, primary: bool = False) -> Index | None:
    """Take the columns and options of an index; None for an index over expressions."""
    _index_options(tokens)
    columns = _parts(tokens.inner(tokens.group()))
    partial = _index_options(tokens)
    # A partial index does not distinguish rows that are outside of it.
    return None if columns is None else Index(name, columns, unique=unique and not partial, primary=primary)


def _parts(tokens: Tokens) -> tuple[str, ...] | None:
    columns: list[str] = []
    expressions = False
    while True:
        if tokens.at("("):
            tokens.group()
            expressions = True
        else:
            columns.append(tokens.column_name())
            if tokens.at("("):
                tokens.group()
        tokens.skip_any("ASC", "DESC")
        if not tokens.skip(","):
            break
    if not tokens.done:
        raise tokens.unreadable("a column of an index is not understood")
    return None if expressions else tuple(columns)


def _index_options(tokens: Tokens) -> bool:
    """Take options of an index; True if it is a partial one."""
    while True:
        if tokens.skip_any("USING", "TYPE"):
            tokens.take_of("a kind of index", WORD)
        elif tokens.skip("KEY_BLOCK_SIZE"):
            tokens.skip("=")
            tokens.integer()
        elif tokens.skip("WITH", "PARSER"):
            tokens.name()
        elif tokens.skip("COMMENT"):
            tokens.string()
        elif tokens.skip("SECONDARY_ENGINE_ATTRIBUTE"):
            tokens.skip("=")
            tokens.string()
        elif tokens.skip("PRE_SPLIT_REGIONS"):
            _split_regions(tokens)
        elif tokens.skip("WHERE"):
            tokens.until(",", ")", "LOCK", "ALGORITHM")
            return True
        elif not tokens.skip_any("VISIBLE", "INVISIBLE", "ADD_COLUMNAR_REPLICA_ON_DEMAND", *_KEY_OPTIONS):
            return False


def _split_regions(tokens: Tokens) -> None:
    tokens.skip("=")
    if tokens.at("("):
        tokens.group()
    else:
        tokens.integer()
