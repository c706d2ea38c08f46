"""A second opinion on DDL: where sqlglot can read a recorded statement, it says the same as our own grammar.

Our grammar must understand a statement whole (`docs/dev/decisions/0003-ddl-grammar-of-our-own.md`); sqlglot knows less
of TiDB, but nobody here wrote it. What it keeps as a plain command, or cannot read at all, is counted and passed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
import sqlglot
from sqlglot import expressions as exp

from applier.changefeed.event import SchemaChange
from applier.changefeed.table import Column, TableName
from applier.ddl import actions as ddl
from applier.ddl.parser import parse
from tests.unit.ddl.test_ddl_recorded import SCENARIOS, simple

Said: TypeAlias = tuple[Any, ...]
"""One thing that a statement does, in plain words and names."""


def theirs(sql: str, database: str) -> list[Said] | None:
    """What sqlglot says that a statement does; None where it does not understand it."""
    try:
        statement: Any = sqlglot.parse_one(sql, dialect="mysql")
    except sqlglot.ParseError:
        return None
    name = _table(statement, database)
    match statement:
        case exp.Create(kind="TABLE") if isinstance(statement.this, exp.Schema):
            columns = [part for part in statement.this.expressions if isinstance(part, exp.ColumnDef)]
            return [("create", name, *map(_column, columns))]
        case exp.Create(kind="DATABASE") | exp.Drop(kind="DATABASE"):
            (name_of_database, *_) = statement.find_all(exp.Identifier)
            return [(type(statement).__name__.lower(), name_of_database.name)]
        case exp.Drop(kind="TABLE"):
            return [("drop", name)]
        case exp.TruncateTable():
            return [("truncate", _table(statement.expressions[0], database))]
        case exp.Alter(kind="TABLE") if statement.args.get("actions"):
            said = [_action(name, action) for action in statement.args["actions"]]
            return None if None in said else [action for action in said if action is not None]
    return None


def _table(tree: Any, database: str) -> TableName:
    table = tree if isinstance(tree, exp.Table) else tree.find(exp.Table)
    return TableName("", "") if table is None else TableName(table.db or database, table.name)


def _action(name: TableName, action: Any) -> Said | None:
    """One specification of an ALTER TABLE; None for those that are not of columns."""
    match action:
        case exp.ColumnDef():
            return ("add", name, _column(action), *_position(action))
        case exp.ModifyColumn():
            old = action.args.get("rename_from")
            return (
                "modify",
                name,
                old.name if old else action.this.name,
                _column(action.this),
                *_position(action.this),
            )
        case exp.RenameColumn():
            return ("rename", name, action.this.name, action.args["to"].name)
        case exp.Drop(kind="COLUMN"):
            return ("drop column", name, action.args["tables"][0].name)
    return None


def _position(column: exp.ColumnDef) -> tuple[bool, str | None]:
    position = column.args.get("position")
    if position is None:
        return False, None
    return position.args["position"] == "FIRST", position.this.name if position.this else None


def _column(column: exp.ColumnDef) -> Said:
    kinds = [constraint.kind for constraint in column.constraints]
    is_required = any(isinstance(k, exp.NotNullColumnConstraint) and not k.args.get("allow_null") for k in kinds)
    name, is_unsigned, elements = _type(column.args["kind"])
    return column.name, name, is_unsigned, elements, is_required


def _type(kind: exp.DataType) -> Said:
    """Name, sign and members of a type: it calls an unsigned INT a UINT, and MySQL's TIMESTAMP has a zone."""
    name = str(kind.this.value).lower()
    is_unsigned = name.startswith("u") and name.endswith(("int", "double", "decimal"))
    elements = tuple(part.name for part in kind.expressions) if name in ("enum", "set") else ()
    return {"timestamptz": "timestamp"}.get(name, name[1:] if is_unsigned else name), is_unsigned, elements


def ours(sql: str, database: str) -> list[Said]:
    """The same, as our own grammar says it."""
    return list(filter(None, map(_said, parse(sql, database))))


def _said(action: ddl.Action) -> Said | None:
    match action:
        case ddl.CreateTable(table, version) if version is not None:
            return ("create", table, *map(_plain, version.columns))
        case ddl.CreateDatabase(database):
            return ("create", database)
        case ddl.DropDatabase(database):
            return ("drop", database)
        case ddl.DropTable(table):
            return ("drop", table)
        case ddl.TruncateTable(table):
            return ("truncate", table)
        case ddl.AddColumn(table, column, first, after):
            return ("add", table, _plain(column), first, after)
        case ddl.ModifyColumn(table, name, column, first, after):
            return ("modify", table, name, _plain(column), first, after)
        case ddl.RenameColumn(table, name, to):
            return ("rename", table, name, to)
        case ddl.DropColumn(table, name):
            return ("drop column", table, name)
    return None


def _plain(column: Column) -> Said:
    return column.name, column.type.name, column.type.unsigned, column.type.elements, not column.nullable


def _statements() -> Iterator[SchemaChange]:
    for scenario in SCENARIOS:
        yield from (event for event in simple(scenario) if isinstance(event, SchemaChange))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """It warns of every statement that it keeps as text."""
    logger = logging.getLogger("sqlglot")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def test_both_grammars_say_the_same() -> None:
    """Tables, columns in their order, types, members, NOT NULL and places, of all that sqlglot understands."""
    counts: Counter[str] = Counter()
    for change in _statements():
        wanted = theirs(change.sql, change.database)
        counts["read" if wanted else "passed"] += 1
        if wanted:
            assert _without_keys(ours(change.sql, change.database)) == _without_keys(wanted), change.sql
            counts.update(str(said[0]) for said in wanted)

    assert counts["read"] > 2 * counts["passed"]
    assert min(counts[what] for what in ("create", "drop", "truncate", "add", "modify", "rename", "drop column")) > 0


def _without_keys(said: list[Said]) -> list[Said]:
    """Columns of a primary key are NOT NULL to TiDB, whether it is said or not: here only the rest is compared."""
    return [
        tuple(part[:-1] if isinstance(part, tuple) else part for part in action) if action[0] == "create" else action
        for action in said
    ]


def test_a_wrong_answer_would_be_seen() -> None:
    """Another name, type, place or column in the statement is another answer of both grammars."""
    statements = [
        "ALTER TABLE `d`.`t` ADD COLUMN `a` INT UNSIGNED NOT NULL AFTER `b`",
        "ALTER TABLE `d`.`t` ADD COLUMN `a` INT UNSIGNED AFTER `b`",
        "ALTER TABLE `d`.`t` ADD COLUMN `a` INT NOT NULL FIRST",
        "ALTER TABLE `d`.`t` MODIFY COLUMN `a` ENUM('x','Y')",
        "ALTER TABLE `d`.`t` CHANGE COLUMN `b` `a` ENUM('x','y')",
        "ALTER TABLE `d`.`u` DROP COLUMN `a`",
    ]
    answers = [ours(sql, "") for sql in statements]

    assert answers == [theirs(sql, "") for sql in statements]
    assert len(set(map(repr, answers))) == len(statements)
