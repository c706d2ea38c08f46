from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from applier.changefeed.filter import TablePattern
from applier.changefeed.shape import Shape
from applier.changefeed.table import Column, Index, TableName, TableVersion
from applier.changefeed.table import ColumnType as T
from applier.changefeed.types import TypeRules
from applier.ddl import actions as ddl
from applier.ddl.actions import Action
from applier.errors import RELOAD
from applier.sink.evolve.column_mapping import moves
from applier.sink.evolve.plan import Evolution, plan
from applier.sink.evolve.steps import (
    AddField,
    ConvertField,
    DescribeField,
    DescribeTable,
    DropField,
    EvolutionStep,
    MoveField,
    PromoteField,
    Refusal,
    RelaxField,
    RenameField,
    SetKey,
    Truncate,
)
from applier.sink.format.types import ADDED_COLUMNS, TableSchema, schema_json

RULES = TypeRules()
NAME = TableName("shop", "orders")
ID = Column("id", T("bigint", length=20), nullable=False)
QTY = Column("qty", T("int", length=11))
PRICE = Column("price", T("decimal", length=10, scale=2))
NOTE = Column("note", T("varchar", length=10))
PRIMARY = Index("primary", ("id",), unique=True, primary=True)


DEFAULT_UNKNOWN = (
    "The value of the new column c in existing rows is not known: "
    "its default is an expression, or no int that can be read."
)


def table(*columns: Column, indexes: tuple[Index, ...] = (PRIMARY,)) -> TableVersion:
    """A version of the table."""
    return TableVersion(NAME, 1, columns, indexes)


def schema_of(*names: str, properties: Mapping[str, str] | None = None) -> TableSchema:
    """The schema of an Iceberg table with columns of these names."""
    return TableSchema.parse(schema_json(pa.schema({name: pa.int64() for name in names})), properties)


def planned(before: TableVersion, after: TableVersion, *actions: Action, rules: TypeRules = RULES) -> Evolution:
    """The plan, which is neither refused nor in doubt."""
    found = plan(before, after, actions, rules)
    assert (found.only_empty, found.refused) == ((), None)
    return found


def steps(before: TableVersion, after: TableVersion, *actions: Action) -> tuple[EvolutionStep, ...]:
    """Steps of the plan."""
    return planned(before, after, *actions).steps


def modified(old: Column, new: Column) -> tuple[EvolutionStep, ...]:
    """Steps of MODIFY or CHANGE COLUMN."""
    return steps(table(ID, old), table(ID, new), ddl.ModifyColumn(NAME, old.name, new))


BASE = table(ID, QTY, NOTE)


def test_a_new_column_comes_with_its_default_and_place() -> None:
    """ADD COLUMN … FIRST adds the field behind the others and moves it."""
    new = Column("c", T("int"), default="5", comment="why")
    expected = AddField("c", pa.int32(), pa.scalar(5, pa.int32()), "why")
    after = table(new, ID, QTY, NOTE)
    assert steps(BASE, after, ddl.AddColumn(NAME, new, first=True)) == (expected, MoveField("c", None))
    after = table(ID, new, QTY, NOTE)
    assert steps(BASE, after, ddl.AddColumn(NAME, new, after="id")) == (expected, MoveField("c", "id"))
    after = table(ID, QTY, NOTE, new)
    assert steps(BASE, after, ddl.AddColumn(NAME, new)) == (expected,)


def test_a_column_that_exists_already_is_not_added_again() -> None:
    """ADD COLUMN IF NOT EXISTS of a column that is there changes nothing."""
    assert steps(BASE, BASE, ddl.AddColumn(NAME, QTY)) == ()


def test_what_only_the_statement_tells_is_taken_from_it() -> None:
    """Simple's schemas carry neither comments nor generated columns."""
    new = Column("c", T("int"), nullable=False)
    written = replace(new, generated="virtual", comment="why")
    after = table(ID, QTY, NOTE, new)
    expected = AddField("c", pa.int32(), pa.scalar(None, pa.int32()), "why")
    rules = TypeRules(virtual_columns="null")
    assert planned(BASE, after, ddl.AddColumn(NAME, written), rules=rules).steps == (expected,)


def test_columns_are_dropped_and_renamed_by_name() -> None:
    """A rename keeps the field; names differ from each other without regard to case."""
    renamed = replace(QTY, name="Amount")
    assert steps(BASE, table(ID, QTY), ddl.DropColumn(NAME, "NOTE")) == (DropField("note"),)
    assert steps(BASE, table(ID, renamed, NOTE), ddl.RenameColumn(NAME, "QTY", "Amount")) == (
        RenameField("qty", "Amount"),
    )
    upper = replace(QTY, name="QTY")
    assert steps(BASE, table(ID, upper, NOTE), ddl.ModifyColumn(NAME, "QTY", upper)) == (RenameField("qty", "QTY"),)


def test_columns_may_swap_their_names() -> None:
    """Both fields keep their values under the other's name."""
    one, two = replace(QTY, name="note"), replace(NOTE, name="qty")
    actions = (ddl.RenameColumn(NAME, "qty", "note"), ddl.RenameColumn(NAME, "note", "qty"))
    assert steps(BASE, table(ID, one, two), *actions) == (RenameField("qty", "note"), RenameField("note", "qty"))


def test_a_dropped_column_may_come_back_as_another() -> None:
    """DROP and ADD of one name in a statement are two columns."""
    new = Column("qty", T("int"), default="1")
    found = steps(BASE, table(ID, NOTE, new), ddl.DropColumn(NAME, "qty"), ddl.AddColumn(NAME, new))
    assert found == (DropField("qty"), AddField("qty", pa.int32(), pa.scalar(1, pa.int32())))


def test_several_specifications_are_one_evolution() -> None:
    """ADD, DROP, MODIFY and RENAME of one ALTER TABLE are planned together, later steps by the new names."""
    new = Column("m", T("varchar", length=5), default="mm")
    qty = Column("amount", T("bigint"))
    before, after = table(ID, QTY, PRICE, NOTE), table(ID, qty, NOTE, new)
    found = steps(
        before, after, ddl.AddColumn(NAME, new), ddl.DropColumn(NAME, "price"), ddl.ModifyColumn(NAME, "qty", qty)
    )
    assert found == (
        DropField("price"),
        RenameField("qty", "amount"),
        PromoteField("amount", pa.int64()),
        AddField("m", pa.string(), pa.scalar("mm")),
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (T("varchar", length=10), T("varchar", length=100)),
        (T("char", length=10), T("varchar", length=10)),
        (T("varchar", length=10), T("text")),
        (T("text"), T("longtext")),
        (T("tinyint"), T("int")),
        (T("tinyint", unsigned=True), T("int")),
        (T("int", length=11), T("int", length=5)),
        (T("enum", elements=("a",)), T("enum", elements=("a", "b"))),
        (T("set", elements=("a",)), T("set", elements=("a", "b"))),
        (T("datetime", scale=0), T("datetime", scale=6)),
        (T("varbinary", length=3), T("blob")),
        (T("binary", length=3), T("varbinary", length=3)),
        (T("bit", length=3), T("bit", length=5)),
        (T("year"), T("year")),
    ],
    ids=lambda kind: kind.name,
)
def test_a_wider_type_of_the_same_form_changes_nothing(old: T, new: T) -> None:
    """Every value is what it was and the field's type holds it."""
    assert modified(Column("c", old), Column("c", new)) == ()


@pytest.mark.parametrize(
    ("old", "new", "arrow"),
    [
        (T("int"), T("bigint"), pa.int64()),
        (T("int"), T("int", unsigned=False, length=20), None),
        (T("smallint", unsigned=True), T("int", unsigned=True), pa.int64()),
        (T("float"), T("double"), pa.float64()),
        (T("decimal", length=10, scale=2), T("decimal", length=12, scale=2), pa.decimal128(12, 2)),
    ],
    ids=lambda kind: getattr(kind, "name", None),
)
def test_a_wider_number_is_promoted_in_place(old: T, new: T, arrow: pa.DataType | None) -> None:
    """Iceberg widens these without touching a file."""
    expected = (PromoteField("c", arrow),) if arrow else ()
    assert modified(Column("c", old), Column("c", new)) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (T("int"), T("varchar", length=20)),
        (T("varchar", length=20), T("bigint")),
        (T("bigint"), T("int")),
        (T("bigint"), T("bigint", unsigned=True)),
        (T("int", unsigned=True), T("bigint", unsigned=True)),
        (T("int"), T("int", unsigned=True)),
        (T("decimal", length=12, scale=2), T("decimal", length=14, scale=4)),
        (T("decimal", length=12, scale=2), T("decimal", length=10, scale=2)),
        (T("decimal", length=38, scale=2), T("decimal", length=40, scale=2)),
        (T("datetime", scale=6), T("datetime", scale=0)),
        (T("time", scale=0), T("time", scale=2)),
        (T("date"), T("datetime", scale=0)),
        (T("varchar", length=100), T("varchar", length=10)),
        (T("varchar", length=10), T("char", length=10)),
        (T("text"), T("varchar", length=100)),
        (T("varchar", length=10), T("varbinary", length=10)),
        (T("binary", length=3), T("binary", length=4)),
        (T("enum", elements=("a", "b")), T("enum", elements=("b", "a"))),
        (T("double"), T("float")),
        (T("float", length=8, scale=2), T("float", length=6, scale=2)),
        (T("bit", length=8), T("bit", length=64)),
    ],
    ids=lambda kind: kind.name,
)
def test_a_type_that_may_change_values_is_a_conversion(old: T, new: T) -> None:
    """TiDB rewrites such columns, or checks every value, and sends no row events."""
    (found,) = modified(Column("c", old, nullable=False), Column("c", new, nullable=False))
    assert isinstance(found, ConvertField)
    assert (found.old, found.new, found.holds_null) == (old, new, False)


@pytest.mark.parametrize(
    ("new", "policy", "holds_null"),
    [(T("varchar", length=30), "null", False), (T("varchar", length=30), "stop", True), (T("date"), "null", True)],
)
def test_null_may_be_a_zero_date(new: T, policy: Literal["null", "stop"], *, holds_null: bool) -> None:
    """TiDB makes the text `0000-00-00 00:00:00` of it, in a nullable column too."""
    before, after = (table(ID, Column("c", kind)) for kind in (T("datetime", scale=0), new))
    (found,) = planned(before, after, rules=TypeRules(zero_dates=policy)).steps
    assert isinstance(found, ConvertField)
    assert found.holds_null == holds_null


def test_boolean_columns_are_converted_by_name_of_the_rule() -> None:
    """tinyint(1) to tinyint(4) is nothing to TiDB, but a new field where booleans are wanted."""
    old, new = Column("c", T("tinyint", length=1)), Column("c", T("tinyint", length=4))
    assert modified(old, new) == ()
    (found,) = planned(table(ID, old), table(ID, new), rules=TypeRules(tinyint1="boolean")).steps
    assert isinstance(found, ConvertField)


def test_nullability_and_defaults_change_no_row() -> None:
    """NOT NULL leaves the field optional, NULL relaxes it, and a default counts for rows to come."""
    assert modified(QTY, replace(QTY, nullable=False, default="7")) == ()
    assert modified(replace(QTY, nullable=False), QTY) == (RelaxField("qty"),)
    assert steps(BASE, table(ID, replace(QTY, default="3"), NOTE), ddl.SetDefault(NAME, "qty", "3")) == ()


def test_comments_are_applied() -> None:
    """Of columns and of the table."""
    assert modified(QTY, replace(QTY, comment="pieces")) == (DescribeField("qty", "pieces"),)
    assert steps(BASE, BASE, ddl.SetComment(NAME, "sold")) == (DescribeTable("sold"),)


def test_a_modified_column_may_move() -> None:
    """MODIFY COLUMN … FIRST, with the fewest moves."""
    after = table(QTY, ID, NOTE)
    assert steps(BASE, after, ddl.ModifyColumn(NAME, "qty", QTY, first=True)) == (MoveField("qty", None),)


def test_another_key_identifies_rows() -> None:
    """A primary key that is added, replaced or dropped changes the identity; a renamed key column does not."""
    keyless = table(replace(ID, nullable=True), QTY, indexes=())
    keyed = table(ID, QTY)
    assert steps(keyless, keyed, ddl.AddIndex(NAME, PRIMARY)) == (SetKey(("id",)),)
    assert steps(keyed, table(ID, QTY, indexes=()), ddl.DropIndex(NAME, "primary")) == (SetKey(()),)
    unique = Index("uk", ("qty",), unique=True)
    assert steps(keyed, table(ID, QTY, indexes=(PRIMARY, unique)), ddl.AddIndex(NAME, unique)) == ()
    renamed = table(replace(ID, name="key"), QTY, indexes=(replace(PRIMARY, columns=("key",)),))
    assert steps(keyed, renamed, ddl.RenameColumn(NAME, "id", "key")) == (RenameField("id", "key"),)


def test_truncate_removes_all_rows() -> None:
    """No row events follow."""
    assert steps(BASE, BASE, ddl.TruncateTable(NAME)) == (Truncate(),)


def test_statements_without_effect_have_no_steps() -> None:
    """Indexes, charset, statistics, and partitions to come."""
    index = Index("i", ("qty",))
    actions = (ddl.AddIndex(NAME, index), ddl.NoRows(NAME), ddl.AddPartitions(NAME, ()))
    assert steps(BASE, table(ID, QTY, NOTE, indexes=(PRIMARY, index)), *actions) == ()


@pytest.mark.parametrize(
    ("after", "action", "reason"),
    [
        (
            table(ID, QTY, NOTE, Column("c", T("int"), default="rand()")),
            ddl.AddColumn(NAME, Column("c", T("int"), default="rand()")),
            DEFAULT_UNKNOWN,
        ),
        (
            table(ID, replace(QTY, type=T("json")), NOTE),
            ddl.ModifyColumn(NAME, "qty", replace(QTY, type=T("json"))),
            "Column qty changes from int to json: the exact result of TiDB's conversion from int to json is not known.",
        ),
        (
            BASE,
            ddl.DropPartitions(NAME, ("p0", "p1")),
            "The rows of dropped partitions (p0, p1) go without row events.",
        ),
        (BASE, ddl.TruncatePartitions(NAME, ()), "The rows of truncated partitions (all) go without row events."),
    ],
    ids=["default", "conversion", "drop partition", "truncate partition"],
)
def test_what_cannot_be_exact_is_refused_if_there_are_rows(after: TableVersion, action: Action, reason: str) -> None:
    """The reason is a sentence; without rows the steps are still good."""
    found = plan(BASE, after, [action], TypeRules())
    assert [refusal.reason for refusal in found.only_empty] == [reason]
    assert found.refused is None


@pytest.mark.parametrize(
    "action",
    [ddl.ExchangePartition(NAME, "p0", TableName("shop", "x")), ddl.RecoverTable(NAME)],
    ids=["swap", "recover"],
)
def test_rows_that_come_from_elsewhere_are_always_refused(action: Action) -> None:
    """They have no row events, and are not in the table."""
    found = plan(BASE, BASE, [action], TypeRules()).refused
    assert found is not None
    assert "without row events" in found.reason


def test_without_statements_a_rename_is_not_guessed() -> None:
    """Where only schemas travel, a column that goes while another comes may be the same; a rename in Iceberg parks."""
    found = plan(BASE, table(ID, QTY, replace(NOTE, name="remark")), [], TypeRules())
    what = "Columns note are gone and remark are new, and no statement shows whether they were renamed."
    assert found.only_empty == (Refusal(what, RELOAD),)
    assert plan(BASE, table(ID, QTY), [], TypeRules()) == Evolution((DropField("note"),))


def test_a_view_is_no_table() -> None:
    """Its columns have types that no table has."""
    found = plan(BASE, table(ID, Column("v", T("unspecified"))), [], TypeRules())
    assert found.refused is not None


@given(st.permutations(list("abcdefg")))
def test_moves_lead_to_the_wanted_order(wanted: list[str]) -> None:
    """Made one after the other they give the order, and no more names move than have to."""
    order = sorted(wanted)
    done = list(moves(order, wanted))
    for name, after in done:
        order.remove(name)
        order.insert(order.index(after) + 1 if after else 0, name)
    assert order == wanted
    assert len({name for name, _ in done}) == len(done)


def test_one_column_moves_once() -> None:
    """The last to the front and the first to the end are one move each, however wide the table."""
    assert list(moves("abcd", "dabc")) == [("d", None)]
    assert list(moves("abcd", "bcda")) == [("a", "d")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (T("datetime"), T("datetime", scale=3)),
        (T("timestamp"), T("timestamp", scale=0)),
        (T("datetime", scale=3), T("datetime")),
        (T("time", scale=3), T("time")),
        (T("decimal", length=10, scale=2), T("decimal")),
        (T("bit", length=8), T("bit")),
        (T("varchar", length=8), T("varchar")),
        (T("enum", elements=("a",)), T("enum")),
    ],
    ids=str,
)
def test_what_a_description_does_not_show_is_no_change(old: T, new: T) -> None:
    """A version may show less than was known, or more, without any statement on the column: no value changes."""
    assert steps(table(ID, Column("c", old)), table(ID, Column("c", new))) == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (T("datetime"), T("datetime", scale=3)),
        (T("timestamp"), T("timestamp", scale=6)),
        (T("time"), T("time", scale=0)),
        (T("bit"), T("bit", length=8)),
        (T("decimal", scale=2), T("decimal", length=10, scale=2)),
    ],
    ids=str,
)
def test_a_statement_on_a_type_of_unknown_size_checks_every_value(old: T, new: T) -> None:
    """The column may have been larger, and TiDB rounded or refused what was: unknown is neither 0 nor 1."""
    (found,) = modified(Column("c", old), Column("c", new))
    assert isinstance(found, ConvertField)


def test_text_that_turns_out_to_be_bytes_is_refused_where_there_are_rows() -> None:
    """Debezium without its extension writes bytes as base64 text, and only a DDL shows what they are."""
    before, after = table(ID, Column("c", T("text"))), table(ID, Column("c", T("varbinary", length=8)), NOTE)

    found = plan(before, after, [ddl.AddColumn(NAME, NOTE)], RULES)

    (doubt,) = found.only_empty
    assert doubt.reason == (
        "Column c was read as text, and this statement shows it as varbinary without changing it: "
        "the rows so far hold other text."
    )


VIRTUAL = Column("v", T("int"), generated="virtual")


@pytest.mark.parametrize(
    ("before", "after", "action"),
    [
        (BASE, table(ID, VIRTUAL, QTY, NOTE), ddl.AddColumn(NAME, VIRTUAL, after="id")),
        (table(ID, VIRTUAL), table(ID), ddl.DropColumn(NAME, "v")),
        (table(ID, VIRTUAL), table(ID, replace(VIRTUAL, name="w")), ddl.RenameColumn(NAME, "v", "w")),
        (
            table(ID, VIRTUAL),
            table(ID, replace(VIRTUAL, type=T("bigint"))),
            ddl.ModifyColumn(NAME, "v", replace(VIRTUAL, type=T("bigint"))),
        ),
        (table(ID, QTY, VIRTUAL), table(VIRTUAL, ID, QTY), ddl.ModifyColumn(NAME, "v", VIRTUAL, first=True)),
    ],
)
def test_a_virtual_column_that_the_table_lacks_is_no_column_of_it(
    before: TableVersion, after: TableVersion, action: Action
) -> None:
    """Its values are in no message, so it is left out, and so is every statement on it."""
    held = schema_of(*({column.name for column in before.columns} - {"v"}))
    assert plan(before, after, [action], RULES, held) == Evolution()


def test_a_virtual_column_that_the_table_has_follows_its_upstream() -> None:
    """Tables that were made with it keep it, under the name that it gets."""
    before, after = table(ID, VIRTUAL), table(ID, replace(VIRTUAL, name="w"))
    found = plan(before, after, [ddl.RenameColumn(NAME, "v", "w")], RULES, schema_of("id", "v"))
    assert found == Evolution((RenameField("v", "w"),))


def test_a_column_with_the_name_of_one_that_applier_added_is_refused() -> None:
    """Engines take names that differ in their letters alone for one; a user who dropped it left its name there."""
    properties = {ADDED_COLUMNS: "_commit_ts _op"}
    new = replace(NOTE, name="_COMMIT_ts")
    for held in (["id", "_commit_ts"], ["id"]):
        schema = schema_of(*held, properties=properties)
        found = plan(table(ID), table(ID, new), [ddl.AddColumn(NAME, new)], RULES, schema)
        assert found.refused is not None
        assert found.refused.reason == "Column _COMMIT_ts has the name of a column that applier added."
    assert plan(table(ID), table(ID, new), [], RULES, schema_of("id", properties={})).refused is None


def test_a_column_is_placed_behind_a_virtual_one_that_is_left_out() -> None:
    """The columns that are there keep the order that they have upstream."""
    before, after = table(ID, VIRTUAL, QTY), table(ID, VIRTUAL, NOTE, QTY)
    found = plan(before, after, [ddl.AddColumn(NAME, NOTE, after="v")], RULES, schema_of("id", "qty"))
    assert [type(step) for step in found.steps] == [AddField, MoveField]


def test_what_only_the_statement_shows_decides_on_the_default() -> None:
    """A schema may name CHAR a text, show the zero value where there is no default, or nothing where there is one."""
    shown = Column("c", T("text"), default="ab ")
    char = Column("c", T("char", length=5), default="ab ")
    year = Column("c", T("year"), nullable=False, default="\uffff")
    for new, written, value in (
        (shown, char, "ab"),
        (year, replace(year, default=None), 0),
        (replace(year, default="0"), replace(year, default=None), 0),
        (year, replace(year, default="2024"), 2024),
    ):
        (step,) = steps(table(ID), table(ID, new), ddl.AddColumn(NAME, written))
        assert isinstance(step, AddField)
        assert step.default.as_py() == value


def test_digits_of_a_float_that_only_the_statement_shows_are_rounded_to() -> None:
    """No message of Simple shows the D of FLOAT(M,D), by which TiDB rounds each value."""
    old, new = Column("c", T("float", length=12)), Column("c", T("float", length=7))
    written = Column("c", T("float", length=7, scale=2))
    (step,) = steps(table(ID, old), table(ID, new), ddl.ModifyColumn(NAME, "c", written))
    assert isinstance(step, ConvertField)
    assert step.new == written.type


class Shown:
    """A TiDB that shows a value in all rows."""

    key = ("id",)

    def __init__(self, value: object) -> None:
        self.value = value

    def only_value(self, _: str, arrow: pa.DataType) -> pa.Scalar | None:  # type: ignore[type-arg]
        """The value; None where rows differ."""
        return None if self.value is None else pa.scalar(self.value, arrow)

    def values(self, name: str, kind: T, arrow: pa.DataType, keys: pa.Table) -> pa.ChunkedArray:  # type: ignore[type-arg]
        """It is not asked while a statement is planned."""
        raise AssertionError


def test_what_is_not_known_is_what_tidb_shows() -> None:
    """A default that no message shows, and all values that a change of type rewrote; what is known is not asked for."""
    known, unknown = Column("k", T("int"), default="5"), Column("c", T("int"), default="rand()")
    before, after = table(ID, NOTE), table(ID, replace(NOTE, type=T("json")), known, unknown)
    found = plan(before, after, [ddl.ModifyColumn(NAME, "note", after.columns[1])], RULES)
    assert [doubt.column for doubt in found.only_empty] == ["note", "c"]
    assert found.lacks_values

    shown = Shown(7)
    done = found.with_values(shown)

    assert done.only_empty == ()
    added = {step.name: step.default.as_py() for step in done.steps if isinstance(step, AddField)}
    assert added == {"k": 5, "c": 7}
    assert [step.shown for step in done.steps if isinstance(step, ConvertField)] == [shown]


def test_a_default_that_tidb_does_not_show_stays_unknown() -> None:
    """Rows that hold different values show none."""
    column = Column("c", T("int"), default="rand()")
    found = plan(table(ID), table(ID, column), (), RULES)

    assert found.with_values(Shown(None)) == found


def test_values_of_a_converted_column_are_asked_for_by_a_key() -> None:
    """Which the statement leaves as it is; those of a new column are not."""
    added = Column("c", T("int"), default="rand()")
    new = plan(table(ID), table(ID, added), (), RULES)
    changed = replace(NOTE, type=T("json"))
    converted = plan(table(ID, NOTE), table(ID, changed), [ddl.ModifyColumn(NAME, "note", changed)], RULES)

    assert [new.may_be_asked(key) for key in ((), ("id",))] == [True, True]
    assert [converted.may_be_asked(key) for key in ((), ("id",), ("note",))] == [False, True, False]


def test_values_are_not_all_that_is_missing() -> None:
    """Whether a column was renamed, and which rows went with a partition, no values show."""
    gone = plan(table(ID, QTY), table(ID, PRICE), (), RULES)
    dropped = plan(table(ID), table(ID), [ddl.DropPartitions(NAME, ("p",))], RULES)
    plain = plan(table(ID), table(ID, QTY), (), RULES)

    assert [found.lacks_values for found in (gone, dropped, plain)] == [False, False, False]


NO_V = replace(RULES, shapes=[(TablePattern("*.*"), Shape("*.*", frozenset({"v"})))])
V = Column("V", T("int"))


@pytest.mark.parametrize(
    ("before", "after", "action"),
    [
        (BASE, table(ID, V, QTY, NOTE), ddl.AddColumn(NAME, V, after="id")),
        (table(ID, V), table(ID), ddl.DropColumn(NAME, "v")),
        (table(ID, V), table(ID, replace(V, name="v")), ddl.RenameColumn(NAME, "V", "v")),
        (
            table(ID, V),
            table(ID, replace(V, type=T("json"), nullable=False)),
            ddl.ModifyColumn(NAME, "v", replace(V, type=T("json"), nullable=False)),
        ),
        (table(ID, QTY, V), table(V, ID, QTY), ddl.ModifyColumn(NAME, "v", V, first=True)),
    ],
)
def test_statements_on_an_excluded_column_do_nothing(before: TableVersion, after: TableVersion, action: Action) -> None:
    """With and without the columns of the Iceberg table at hand, and as rows alone show them."""
    held = schema_of(*({column.name for column in before.columns} - {"V"}))
    assert plan(before, after, [action], NO_V, held) == plan(before, after, [action], NO_V) == Evolution()
    if not isinstance(action, ddl.RenameColumn):
        assert plan(before, after, (), NO_V, held) == Evolution()


@pytest.mark.parametrize("actions", [[ddl.RenameColumn(NAME, "V", "w")], []], ids=["by a statement", "by rows alone"])
def test_a_column_that_may_have_been_an_excluded_one_is_refused(actions: list[Action]) -> None:
    """Its rows so far have values that the table lacks."""
    found = plan(table(ID, V), table(ID, replace(V, name="w")), actions, NO_V)
    assert found.refused is not None
    assert "`exclude` leaves out column V and not w" in found.refused.reason
    assert "applier load" in found.refused.hint


def test_a_column_that_becomes_an_excluded_one_is_refused() -> None:
    """The user has to say what becomes of its values."""
    found = plan(table(ID, replace(V, name="w")), table(ID, V), [ddl.RenameColumn(NAME, "w", "V")], NO_V)
    assert found.refused is not None
    assert "`exclude` leaves out column V and not w, and the one was the other." in found.refused.reason


def test_an_excluded_column_that_becomes_part_of_the_key_is_refused() -> None:
    """No row could be found again."""
    after = replace(table(ID, V), indexes=(), handle_key=("id", "V"))
    found = plan(table(ID, V), after, (), NO_V)
    assert found.refused is not None
    assert found.refused.reason == f"Column V of table {NAME} is part of its key, which no table is without."
    assert 'Take it off `exclude` of [tables."*.*".columns]' in found.refused.hint
