"""What holds for any names, any list of specifications, and any text at all."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from applier.changefeed.table import TableName
from applier.ddl.actions import (
    AddColumn,
    AddIndex,
    CreateTable,
    DropColumn,
    DropTable,
    ExchangePartition,
    ModifyColumn,
    RenameColumn,
    RenameTable,
    TruncatePartitions,
)
from applier.ddl.parser import parse
from applier.errors import SchemaChangeRefused
from tests.unit.ddl.test_ddl_statements import ROWLESS, SPECIFICATIONS, STATEMENTS, T

NAMES = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=20
) | st.sampled_from(
    ["a`b", "``", "a.b", " ", "select", "'", '"', "\\", "/*", "*/", "--", "#", ";", "表", "/*T![x] y */"]
)
SINGLE = [text for text, _ in SPECIFICATIONS if "RENAME TO" not in text and "RENAME AS" not in text] + ROWLESS
COMBINABLE = [text for text in SINGLE if "PARTITION" not in text]


def quoted(name: str) -> str:
    """A name as TiDB prints it."""
    return f"`{name.replace('`', '``')}`"


def printed(value: str) -> str:
    """A string as TiDB prints it."""
    return "_UTF8MB4'" + value.replace("'", "''") + "'"


@given(NAMES, NAMES, NAMES, NAMES)
def test_names_come_back_as_they_are(database: str, table: str, first: str, second: str) -> None:
    """Whatever characters a name has, it comes back the same from every place where a name may stand."""
    name = TableName(database, table)
    full, a, b = f"{quoted(database)}.{quoted(table)}", quoted(first), quoted(second)
    assert parse(f"DROP TABLE {full},{a}", second) == (DropTable(name), DropTable(TableName(second, first)))
    assert parse(f"RENAME TABLE {full} TO {b}.{a};", "") == (RenameTable(name, TableName(second, first)),)
    assert parse(f"ALTER TABLE {full} RENAME COLUMN {a} TO {b}, DROP COLUMN {a}", "") == (
        RenameColumn(name, first, second),
        DropColumn(name, first),
    )
    assert parse(f"ALTER TABLE {full} TRUNCATE PARTITION {a},{b}", "") == (TruncatePartitions(name, (first, second)),)
    assert parse(f"ALTER TABLE {full} EXCHANGE PARTITION {a} WITH TABLE {b}.{a}", "") == (
        ExchangePartition(name, first, TableName(second, first)),
    )


@given(NAMES, NAMES)
def test_column_names_come_back_as_they_are(first: str, second: str) -> None:
    """The names of columns and indexes survive definitions, places and key lists."""
    a, b = quoted(first), quoted(second)
    add, change, index = parse(
        f"ALTER TABLE t ADD COLUMN {a} INT AFTER {b}, CHANGE COLUMN {a} {b} INT, ADD UNIQUE {b}({a}, {b})", "d"
    )
    assert isinstance(add, AddColumn)
    assert isinstance(change, ModifyColumn)
    assert isinstance(index, AddIndex)
    assert (add.column.name, add.after) == (first, second)
    assert (change.name, change.column.name) == (first, second)
    assert (index.index.name, index.index.columns) == (second, (first, second))


@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=30), NAMES)
def test_printed_strings_come_back_as_they_are(value: str, name: str) -> None:
    """Defaults, members and comments are whatever stands between the quotes, backslashes included."""
    member = printed(value).removeprefix("_UTF8MB4")
    text = f"`a` VARCHAR(99) DEFAULT {printed(value)} COMMENT {member}"
    (action,) = parse(
        f"CREATE TABLE {quoted(name)} ({text},`e` ENUM({member},'z'))",
        "d",
    )
    assert isinstance(action, CreateTable)
    assert action.version is not None
    column, enum = action.version.columns
    assert (column.default, column.comment, enum.type.elements[0]) == (value, value, value.rstrip(" "))


@given(st.lists(st.sampled_from(COMBINABLE), min_size=1, max_size=5))
def test_a_list_of_specifications_says_what_each_says(specifications: list[str]) -> None:
    """No specification is lost or changed by its neighbours."""
    single = [action for text in specifications for action in parse(f"ALTER TABLE t {text}", "shop")]
    assert list(parse(f"ALTER TABLE t {', '.join(specifications)}", "shop")) == single


@given(st.sampled_from(SINGLE), st.sampled_from([str.lower, str.swapcase]))
def test_keywords_may_be_written_in_any_letters(text: str, change: Callable[[str], str]) -> None:
    """Keywords mean the same in small letters; names and texts differ only in their letters."""
    expected = repr(parse(f"ALTER TABLE t {text}", "shop")).lower()
    assert repr(parse(change(f"ALTER TABLE t {text}"), "shop")).lower() == expected


@settings(max_examples=300)
@given(st.sampled_from([sql for sql, _ in STATEMENTS] + [f"ALTER TABLE t {text}" for text in SINGLE]), st.data())
def test_broken_statements_are_refused_and_nothing_else_happens(sql: str, data: st.DataObject) -> None:
    """A statement that is cut, or has something put into it, is read or refused, but raises nothing else."""
    place = data.draw(st.integers(0, len(sql)))
    rest = data.draw(st.sampled_from(["", sql[place + 1 :], f"({sql[place:]}", f"'{sql[place:]}", f"/*{sql[place:]}"]))
    read_or_refused(sql[:place] + data.draw(st.text(max_size=3)) + rest)


@given(st.text() | st.text(alphabet="`'\"\\/*!T[]();, \nabcALTER TABLE"))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever a message says its SQL is, the only error is a refusal."""
    read_or_refused(text)
    read_or_refused(f"ALTER TABLE t {text}")
    read_or_refused(f"CREATE TABLE t ({text})")
    read_or_refused(f"ALTER TABLE t ADD COLUMN c INT DEFAULT {text}")


def read_or_refused(sql: str) -> None:
    """Actions of a text, at least one; a refusal is as good."""
    try:
        actions = parse(sql, T.database)
    except SchemaChangeRefused:
        return
    assert actions
