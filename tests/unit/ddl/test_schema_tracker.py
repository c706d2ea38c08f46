"""Tables through DDL: columns, keys, names and partitions after each action."""

from __future__ import annotations

from dataclasses import replace

import pytest

from applier.changefeed.event import SchemaChange
from applier.changefeed.table import Column, ColumnType, Index, Partition, Partitioning, TableName, TableVersion
from applier.ddl.actions import (
    AddColumn,
    AddIndex,
    AddPartitions,
    CreateTable,
    DropColumn,
    DropDatabase,
    DropIndex,
    DropPartitions,
    DropTable,
    ModifyColumn,
    NoRows,
    RecoverTable,
    RenameColumn,
    RenameIndex,
    RenameTable,
    ReorganizePartitions,
    SetDefault,
    SetPartitioning,
    TruncateTable,
)
from applier.ddl.alter_table import apply
from applier.ddl.schema_tracker import Tables
from applier.errors import SchemaChangeRefused

T, U, V = TableName("shop", "t"), TableName("shop", "u"), TableName("mirror", "v")
INT, TEXT = ColumnType("int"), ColumnType("text")
PRIMARY = Index("PRIMARY", ("id",), unique=True, primary=True)
BEFORE = TableVersion(
    T,
    1,
    (Column("id", INT, nullable=False), Column("Name", TEXT), Column("qty", INT, nullable=False)),
    (PRIMARY, Index("uk", ("qty",), unique=True), Index("both", ("Name", "qty"))),
)
FROM_ROWS = replace(BEFORE, indexes=(), handle_key=("id",))
"""A table that only its rows describe: they mark their key, and may lack columns."""


def after(*actions: object, before: TableVersion = BEFORE) -> TableVersion:
    """A table after actions."""
    version = before
    for action in actions:
        version = apply(version, action, 2)  # type: ignore[arg-type]
    return version


def names(version: TableVersion) -> list[str]:
    """Names of the columns, in order."""
    return [column.name for column in version.columns]


NEW = Column("new", TEXT, default="x")


@pytest.mark.parametrize(
    ("action", "order"),
    [
        (AddColumn(T, NEW), ["id", "Name", "qty", "new"]),
        (AddColumn(T, NEW, first=True), ["new", "id", "Name", "qty"]),
        (AddColumn(T, NEW, after="ID"), ["id", "new", "Name", "qty"]),
        (ModifyColumn(T, "name", NEW), ["id", "new", "qty"]),
        (ModifyColumn(T, "qty", NEW, first=True), ["new", "id", "Name"]),
        (ModifyColumn(T, "id", NEW, after="qty"), ["Name", "qty", "new"]),
        (ModifyColumn(T, "id", NEW, after="name"), ["Name", "new", "qty"]),
        (DropColumn(T, "NAME"), ["id", "qty"]),
        (RenameColumn(T, "name", "title"), ["id", "title", "qty"]),
    ],
)
def test_columns_have_the_places_that_the_statement_gives(action: object, order: list[str]) -> None:
    """FIRST and AFTER place a column; a changed one stays otherwise; names match in any letters."""
    assert names(after(action)) == order


def test_a_changed_table_has_the_new_version() -> None:
    """The number changes with columns and keys, and with nothing else."""
    assert after(AddColumn(T, NEW)).version == 2
    assert after(NoRows(T)) is BEFORE
    tables = Tables([BEFORE])
    tables.apply(RenameTable(T, V), 2)
    assert tables.get(V) == replace(BEFORE, name=V)


def test_a_renamed_column_stays_in_its_indexes() -> None:
    """Indexes and the key follow a column's new name, whether it is renamed or changed."""
    renamed = after(RenameColumn(T, "id", "no"), ModifyColumn(T, "QTY", Column("Qty", INT)))
    assert [index.columns for index in renamed.indexes] == [("no",), ("Qty",), ("Name", "Qty")]
    assert renamed.key == ("no",)
    assert after(RenameColumn(T, "id", "no"), before=FROM_ROWS).key == ("no",)


def test_columns_of_the_primary_key_stay_not_null() -> None:
    """MODIFY COLUMN need not repeat NOT NULL for a column of the primary key."""
    column = after(ModifyColumn(T, "id", Column("id", ColumnType("bigint")))).column("id")
    assert column == Column("id", ColumnType("bigint"), nullable=False)


def test_a_dropped_column_leaves_its_indexes() -> None:
    """An index loses the column, and goes with its last one."""
    assert [index.columns for index in after(DropColumn(T, "qty")).indexes] == [("id",), ("Name",)]
    assert after(DropColumn(T, "id"), before=FROM_ROWS).key == ()


def test_a_default_is_set_and_dropped() -> None:
    """SET DEFAULT and DROP DEFAULT change nothing but the default."""
    changed = after(SetDefault(T, "name", "x"))
    assert changed.column("Name") == Column("Name", TEXT, default="x")
    assert after(SetDefault(T, "name", None), before=changed).columns == BEFORE.columns


def test_a_new_primary_key_identifies_rows() -> None:
    """ADD PRIMARY KEY makes its columns NOT NULL, and is the key from there on."""
    bare = TableVersion(T, 1, (Column("A", INT), Column("b", INT)))
    keyed = after(AddIndex(T, Index("PRIMARY", ("a",), unique=True, primary=True)), before=bare)
    assert keyed.key == ("A",)
    assert [column.nullable for column in keyed.columns] == [False, True]
    assert after(DropIndex(T, "primary"), AddIndex(T, replace(PRIMARY, columns=("qty",)))).key == ("qty",)


@pytest.mark.parametrize("before", [BEFORE, FROM_ROWS])
@pytest.mark.parametrize("first", [(), (AddColumn(T, Column("more", INT)), NoRows(T))])
def test_a_second_primary_key_is_refused(before: TableVersion, first: tuple[object, ...]) -> None:
    """TiDB adds none before it drops the first: that drop, and the rows of the table without a key, did not come."""
    sentence = (
        "shop.t has the key id, and a DDL adds a primary key: its drop, and rows between, may be missing from the feed."
    )
    with pytest.raises(SchemaChangeRefused) as refused:
        after(*first, AddIndex(T, replace(PRIMARY, columns=("qty",))), before=before)
    assert refused.value.what == sentence
    assert "applier load -c FILE --from DIR --tables TABLE" in refused.value.hint


@pytest.mark.parametrize(
    "action",
    [RenameColumn(T, "id", "NAME"), ModifyColumn(T, "id", Column("qty", INT)), AddColumn(T, Column("ID", INT))],
)
def test_a_column_takes_no_name_that_is_taken(action: object) -> None:
    """Two columns of one name would be one to all that follows."""
    with pytest.raises(SchemaChangeRefused, match="already has the column"):
        after(action)


def test_tables_are_moved_past_what_they_do_not_admit() -> None:
    """Who only follows upstream refuses nothing: the rows behind the statement have what it left upstream."""
    tables = Tables([BEFORE, replace(BEFORE, name=U)])
    again = AddColumn(T, Column("qty", INT))
    tables.move(SchemaChange(5, "", "shop"), [again, DropColumn(T, "none"), AddColumn(T, Column("more", INT))])
    tables.move(SchemaChange(6, "", "shop"), [AddIndex(U, replace(PRIMARY, columns=("qty",)))])

    assert names(tables.get(T) or BEFORE) == ["id", "Name", "qty", "more"]
    assert (tables.get(U) or BEFORE).key == ("qty",)


def test_the_key_falls_back_when_it_is_dropped() -> None:
    """Without its primary key a table is known by a not-null unique one, then by nothing."""
    without = after(DropIndex(T, "primary"))
    assert without.key == ("qty",)
    assert after(DropIndex(T, "UK"), before=without).key == ()
    assert after(DropIndex(T, "primary"), before=FROM_ROWS).key == ()


def test_an_index_that_is_not_known_may_be_dropped() -> None:
    """The feed need not have told of an index: that of a foreign key, or one over expressions."""
    assert after(DropIndex(T, "fk")) is BEFORE
    assert after(DropIndex(T, "fk"), before=FROM_ROWS) is FROM_ROWS


def test_an_index_is_renamed_and_found_again() -> None:
    """The new name counts from there on."""
    assert after(RenameIndex(T, "UK", "other"), DropIndex(T, "OTHER")).indexes == (PRIMARY, BEFORE.indexes[2])


def test_an_index_that_exists_is_not_added_again() -> None:
    """TiDB passes over ADD INDEX IF NOT EXISTS, so the index stays as it is."""
    assert after(AddIndex(T, Index("UK", ("Name",)))).indexes == BEFORE.indexes


def test_an_index_without_a_name_gets_the_one_that_tidb_gives() -> None:
    """It is called like its first column, with a number where that is taken, or is `primary`."""
    version = replace(BEFORE, columns=(*BEFORE.columns, Column("primary", INT)))
    found = after(
        AddIndex(T, Index("", ("qty",))),
        AddIndex(T, Index("", ("QTY", "id"))),
        AddIndex(T, Index("", ("primary",))),
        before=version,
    )
    assert [index.name for index in found.indexes[3:]] == ["qty", "QTY_2", "primary_2"]


@pytest.mark.parametrize(
    "action",
    [
        DropColumn(T, "x"),
        RenameColumn(T, "x", "y"),
        ModifyColumn(T, "x", NEW),
        SetDefault(T, "x", None),
        AddColumn(T, NEW, after="x"),
        ModifyColumn(T, "id", NEW, after="x"),
        AddColumn(T, Column("NAME", TEXT)),
    ],
)
def test_a_statement_that_does_not_fit_the_table_is_refused(action: object) -> None:
    """A table whose columns are all known must fit what TiDB did to it; if not, a DDL was missed."""
    with pytest.raises(SchemaChangeRefused, match="column") as caught:
        after(action)
    assert "shop.t" in caught.value.what
    assert caught.value.hint


def test_rows_need_not_show_every_column() -> None:
    """Rows lack virtual columns, and those that a selector leaves out: a DDL on these changes nothing."""
    for action in (DropColumn(T, "x"), RenameColumn(T, "x", "y"), ModifyColumn(T, "x", NEW), SetDefault(T, "x", "1")):
        assert after(action, before=FROM_ROWS) is FROM_ROWS
    assert after(AddColumn(T, Column("NAME", TEXT)), before=FROM_ROWS) is FROM_ROWS
    assert names(after(AddColumn(T, NEW, after="x"), before=FROM_ROWS)) == ["id", "Name", "qty", "new"]


def test_if_exists_allows_for_what_is_not_there() -> None:
    """With IF EXISTS and IF NOT EXISTS TiDB passes over what has nothing to do."""
    assert after(DropColumn(T, "x", if_exists=True)) is BEFORE
    assert after(AddColumn(T, Column("NAME", TEXT), if_not_exists=True)) is BEFORE


def test_keys_alone_are_left_as_they_are() -> None:
    """A version that holds key columns only does not say what the table looks like."""
    keys = replace(BEFORE, keys_only=True)
    assert after(DropColumn(T, "x"), before=keys) is keys


def test_tables_that_are_not_known_stay_so() -> None:
    """An action on a table that the feed never described does not invent it."""
    tables = Tables()
    tables.apply(AddColumn(T, NEW), 2)
    tables.apply(RecoverTable(T), 2)
    tables.apply(CreateTable(U, like=T), 2)
    assert len(tables) == 0


def test_a_created_table_has_the_new_version() -> None:
    """What the statement describes gets the number, also in place of a table that is there."""
    tables = Tables([FROM_ROWS])
    tables.apply(CreateTable(T, BEFORE), 7)
    assert tables.get(T) == replace(BEFORE, version=7)


def test_names_are_found_in_any_letters() -> None:
    """TiDB does not tell SHOP.T from shop.t; the name stays as it was declared."""
    tables = Tables([BEFORE])
    tables.apply(AddColumn(TableName("SHOP", "T"), NEW), 2)
    found = tables.get(TableName("Shop", "t"))
    assert found is not None
    assert (found.name, names(found)) == (T, ["id", "Name", "qty", "new"])
    assert TableName("sHOP", "T") in tables
    assert list(tables) == tables.of_database("SHOP") == [T]


def test_a_copy_is_a_table_of_its_own() -> None:
    """CREATE TABLE LIKE takes columns, keys and partitions, and no id."""
    partitioned = Partitioning("hash", "id", (Partition("p0"),))
    tables = Tables()
    tables.put(replace(BEFORE, table_id=5), partitioned)
    tables.apply(CreateTable(V, like=T), 9)
    assert tables.get(V) == replace(BEFORE, name=V, version=9)
    assert tables.partitioning(V) == partitioned


def test_a_swap_exchanges_two_tables() -> None:
    """The parts of a swap, one after another, give each table the other's name."""
    other = replace(FROM_ROWS, name=U)
    tables = Tables([BEFORE, other])
    for action in (RenameTable(T, V), RenameTable(U, T), RenameTable(V, U)):
        tables.apply(action, 2)
    assert dict(tables.items()) == {T: other.renamed(T), U: BEFORE.renamed(U)}


def test_a_name_taken_by_an_unknown_table_is_stale() -> None:
    """A table that was never described may take the name of one that was; what was known of the name is wrong then."""
    tables = Tables([BEFORE])
    tables.apply(RenameTable(U, T), 2)
    assert tables.get(T) is None


def test_a_database_takes_its_tables_along() -> None:
    """DROP DATABASE says no table's name."""
    tables = Tables([BEFORE, replace(BEFORE, name=V)])
    tables.apply(DropDatabase("SHOP"), 2)
    assert [name for name, _ in tables.items()] == [V]


def test_what_was_dropped_can_be_recovered() -> None:
    """RECOVER brings back the table as it was dropped, FLASHBACK … TO the one before a TRUNCATE under another name."""
    tables = Tables([BEFORE])
    tables.apply(DropTable(T), 2)
    assert T not in tables
    tables.apply(RecoverTable(T), 2)
    assert tables.get(T) == BEFORE
    tables.apply(TruncateTable(T), 2)
    tables.apply(AddColumn(T, NEW), 3)
    tables.apply(RecoverTable(T, V), 4)
    assert tables.get(V) == BEFORE.renamed(V)
    assert tables.get(T) == replace(BEFORE, version=3, columns=(*BEFORE.columns, NEW))


def test_a_copy_of_all_tables_is_independent() -> None:
    """What is tried on a copy does not happen to the original."""
    tables = Tables([BEFORE])
    copy = tables.copy()
    copy.apply(AddColumn(T, NEW), 2)
    copy.apply(DropTable(T), 2)
    assert tables.get(T) == BEFORE
    tables.apply(RecoverTable(T, V), 2)
    assert V not in tables


def partitions(*actions: object, method: str = "range") -> list[str] | None:
    """Names of the partitions p0, p1, p2 after actions; None where nothing tells of them."""
    tables = Tables()
    tables.put(BEFORE, Partitioning(method, "id", tuple(Partition(name) for name in ("p0", "p1", "p2"))))
    for action in actions:
        tables.apply(action, 2)  # type: ignore[arg-type]
    found = tables.partitioning(T)
    return [partition.name for partition in found.partitions] if found else None


def test_partitions_follow_their_statements() -> None:
    """Added ones come last, dropped ones go, reorganized ones are replaced where they stood."""
    assert partitions(AddPartitions(T, (Partition("x"),))) == ["p0", "p1", "p2", "x"]
    assert partitions(DropPartitions(T, ("P1",))) == ["p0", "p2"]
    assert partitions(ReorganizePartitions(T, ("p0", "P1"), (Partition("x"), Partition("y")))) == ["x", "y", "p2"]
    assert partitions(SetPartitioning(T, None)) is None
    assert partitions(AddColumn(T, NEW)) == ["p0", "p1", "p2"]


def test_partitions_by_hash_are_numbered_on() -> None:
    """TiDB calls added partitions by their place; after a COALESCE nothing tells how many there are."""
    assert partitions(AddPartitions(T, (Partition(""),) * 2), method="hash") == ["p0", "p1", "p2", "p3", "p4"]
    assert partitions(ReorganizePartitions(T, (), ()), method="hash") is None


def test_a_known_partitioning_outlives_a_new_version() -> None:
    """What rows or messages tell of a table says nothing of its partitions."""
    tables = Tables()
    tables.put(BEFORE, Partitioning("hash", "id"))
    tables.put(FROM_ROWS)
    assert tables.partitioning(T) == Partitioning("hash", "id")
    assert tables.partitioning(U) is None


@pytest.mark.parametrize(
    ("rows", "found"), [((BEFORE,), BEFORE), ((replace(BEFORE, columns=BEFORE.columns[:1]),), None), ((), None)]
)
def test_rows_show_which_table_is_the_source(rows: tuple[TableVersion, ...], found: TableVersion | None) -> None:
    """Without a row that fits, a table that is not known may be meant."""
    tables = Tables([BEFORE, replace(BEFORE, name=U, columns=BEFORE.columns[1:])])
    tables.apply(CreateTable(V, like=T, among=(T, U), rows=rows), 9)
    assert tables.get(V) == (found and replace(found, name=V, version=9))
