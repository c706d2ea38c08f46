"""`applier check` against Iceberg tables: what maps, what a DDL does to them, where the columns of before are from."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from applier.changefeed.table import Column, ColumnType, Index, Partition, Partitioning, TableName, TableVersion
from applier.commands.check.command import check
from applier.commands.check.report import TableAnswer, TableReport
from applier.pipeline.tables.ddl_stamp import DROPPED_AT
from tests.fake_registry import FakeRegistry
from tests.unit.commands.check.world import STAMP, World, column, entry, hold, judge, nullable, record, upgrade

NAME = TableName("shop", "orders")
ICEBERG = ("shop", "orders")
PRIMARY = (Index("PRIMARY", ("id",), unique=True, primary=True),)
ORDERS = TableVersion(
    NAME,
    5,
    (
        Column("id", ColumnType("bigint"), nullable=False),
        Column("name", ColumnType("varchar", length=20)),
        Column("qty", ColumnType("int")),
        Column("price", ColumnType("decimal", length=10, scale=2)),
    ),
    PRIMARY,
)
COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "name": pa.string(),
    "qty": pa.int32(),
    "price": pa.decimal128(10, 2),
}


@pytest.fixture
def orders(world: World) -> World:
    """Table `shop.orders` with rows, of a Simple feed whose control tables know it."""
    world.create(ICEBERG, COLUMNS, rows=3)
    world.remember(ORDERS)
    return world


def table_of(world: World) -> TableReport:
    """The only table of a report."""
    (table,) = check(world.config).tables
    return table


def answer_to(world: World, ddl: str) -> TableAnswer:
    """What becomes of the only table that a DDL concerns."""
    (change,) = check(world.config, ddl=ddl).changes
    assert change.tables, change.reasons
    return change.tables[0]


def test_known_tables_are_compared(orders: World) -> None:
    """Without a registry the control tables tell what upstream is."""
    table = table_of(orders)

    assert (table.verdict, table.known_from, table.iceberg) == ("fits", "control table", "shop.orders")
    assert [column.upstream for column in table.columns] == ["bigint", "varchar", "int", "decimal(10,2)"]


@pytest.mark.parametrize(
    ("iceberg", "reason"),
    [
        ({**COLUMNS, "name": pa.int32()}, "Column name of table shop.orders is int and cannot hold upstream values"),
        ({key: kind for key, kind in COLUMNS.items() if key != "qty"}, "Table shop.orders has no column qty"),
    ],
)
def test_a_column_that_does_not_map_is_named(world: World, iceberg: dict[str, pa.DataType], reason: str) -> None:
    """The very check that a run makes, with its reason, for each column."""
    world.create(ICEBERG, iceberg)
    world.remember(ORDERS)

    table = table_of(world)

    assert (table.verdict, [item.fits for item in table.columns].count(False)) == ("does not fit", 1)
    assert table.reasons[0].startswith(reason)


def test_a_required_column_without_upstream_does_not_fit(world: World) -> None:
    """Its rows would get no value; an optional one is only mentioned."""
    world.create(ICEBERG, {**COLUMNS, "extra": pa.int32(), "must": pa.int32()}, key=("id", "must"))
    world.remember(ORDERS)

    table = table_of(world)

    assert table.reasons == ("Column must is required in Iceberg, and upstream has none of that name.",)
    assert [item.reason for item in table.columns if item.name == "extra"] == [
        "upstream has no such column: rows get NULL"
    ]


def test_a_table_of_another_changefeed_does_not_fit(world: World) -> None:
    """Two appliers on one table would undo each other's rows."""
    world.create(ICEBERG, COLUMNS, properties={"applier.changefeed": "other"})
    world.remember(ORDERS)

    assert table_of(world).reasons == ("Table shop.orders belongs to changefeed other, not to shop.",)


def test_a_loaded_table_is_adopted_only_with_the_very_types(world: World) -> None:
    """A table that no applier has written must match exactly, as `run` demands when it adopts one."""
    world.create(ICEBERG, {**COLUMNS, "qty": pa.int64()}, properties={})
    world.remember(ORDERS)

    assert table_of(world).reasons == (
        "Table shop.orders cannot be adopted: column qty is long, upstream it needs int.",
    )


def test_a_table_that_is_missing_will_be_made(world: World) -> None:
    """That is no misfit, unless a type cannot be mapped."""
    world.remember(ORDERS)

    assert (table_of(world).exists, table_of(world).verdict) == (False, "fits")


def test_a_changefeed_that_never_ran_fits(world: World) -> None:
    """No catalog, no tables, nothing known: nothing that does not fit, and no catalog is made."""
    report = check(world.config)

    assert (report.exit_code, report.tables) == (0, ())
    assert world.files() == {}


def test_nothing_is_written(orders: World, server: FakeRegistry) -> None:
    """Not a byte of catalog and warehouse changes, and the registry gets questions alone."""
    hold(server, [entry("a-value", 1, record(column("id", "long", "BIGINT")))])
    judge(server, "a-value", {1: True})
    before = orders.files()

    check(orders.with_registry(server.url).config, ddl="ALTER TABLE shop.orders ADD COLUMN c INT")

    assert orders.files() == before
    assert all(r.method == "GET" or r.path.startswith("/compatibility/") for r in server.requests)


def test_a_table_behind_the_registry_will_follow(world: World, server: FakeRegistry) -> None:
    """The newest version has a column more; the table fits the one before, so the applier only has to catch up."""
    identity, name = column("id", "long", "BIGINT"), nullable("name", "string", "TEXT")
    first, second = record(identity), record(identity, name)
    hold(server, [entry("shop-value", 1, first), entry("shop-value", 2, second)])
    world.create(ICEBERG, {"id": pa.int64()}, rows=1)

    table = table_of(world.with_registry(server.url))

    assert (table.verdict, table.columns[1].fits) == ("fits", False)
    assert table.reasons[0].endswith("will follow: add name string, NULL in existing rows.")


# ---- DDL


@pytest.mark.parametrize(
    ("ddl", "outcome", "step"),
    [
        ("ADD COLUMN c INT", "in place", "add c int, NULL in existing rows"),
        ("ADD COLUMN c INT DEFAULT 3", "rewritten", "add c int, 3 in existing rows"),
        ("DROP COLUMN qty", "in place", "drop qty; older snapshots keep it"),
        ("RENAME COLUMN qty TO amount", "in place", "rename qty to amount"),
        ("MODIFY COLUMN qty BIGINT", "in place", "widen qty to long"),
        ("MODIFY COLUMN price DECIMAL(12,2)", "in place", "widen price to decimal(12, 2)"),
        ("MODIFY COLUMN qty VARCHAR(20)", "rewritten", "convert qty from int to varchar as TiDB does"),
        ("MODIFY COLUMN name VARCHAR(100)", "nothing to do", None),
        ("ADD INDEX i (name)", "nothing to do", None),
        ("COMMENT = 'x'", "in place", "set the table's comment"),
    ],
)
def test_a_ddl_says_how_the_table_follows(orders: World, ddl: str, outcome: str, step: str | None) -> None:
    """In place or rewritten, with the steps; the plan is the one that `run` carries out."""
    answer = answer_to(orders, f"ALTER TABLE shop.orders {ddl}")

    assert (answer.outcome, answer.known_from) == (outcome, "control table")
    assert (answer.steps[0] if answer.steps else None) == step


def test_a_default_costs_nothing_on_format_three(world: World) -> None:
    """Format version 3 has initial defaults, old ones included; format 2 writes the value into every row."""
    world.remember(ORDERS)
    metadata = world.create(ICEBERG, COLUMNS, rows=1)
    ddl = "ALTER TABLE shop.orders ADD COLUMN c INT DEFAULT 3"

    before = answer_to(world, ddl)
    upgrade(metadata, {"qty": 7, "price": "1.50"})
    after = answer_to(world, ddl)

    assert (before.outcome, before.reasons) == (
        "rewritten",
        ("Format version 2 has no default for the new column c.",),
    )
    assert (after.outcome, after.reasons) == ("in place", ())


def test_an_unknown_value_of_existing_rows_is_refused(orders: World) -> None:
    """The time at which the statement ran is in no message."""
    answer = answer_to(orders, "ALTER TABLE shop.orders ADD COLUMN at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP")

    assert answer.outcome == "refused"
    assert "The value of the new column at in existing rows is not known" in answer.reasons[0]
    assert answer.ways_out


@pytest.mark.parametrize(
    ("upstream", "printed"),
    [
        (
            {},
            "run `applier load -c applier.toml --from DIR --tables 'shop.orders'`; or leave it out in tables.include.",
        ),
        (
            {"url": "mysql://reader@tidb:4000"},
            "Run `applier load -c applier.toml --tables 'shop.orders'`; or leave it out in tables.include.",
        ),
    ],
)
def test_the_way_out_reads_rows_from_where_the_configuration_has_them(
    orders: World, upstream: dict[str, str], printed: str
) -> None:
    """No export is asked for where a TiDB is named."""
    orders.raw["upstream"] = upstream

    answer = answer_to(orders, "ALTER TABLE shop.orders TRUNCATE PARTITION p")

    assert answer.outcome == "refused"
    assert answer.ways_out[0].endswith(printed)
    assert ("tiup dumpling" in answer.ways_out[0]) == (not upstream)


def test_a_value_that_tidb_is_asked_for_is_not_refused(orders: World) -> None:
    """With `upstream.url`, save in offset order, where the rows of the table may be newer than the statement."""
    orders.raw["upstream"] = {"url": "mysql://reader@tidb:4000"}
    ddl = "ALTER TABLE shop.orders ADD COLUMN at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP"

    answer = answer_to(orders, ddl)
    orders.raw["changefeed"]["order"] = "offset"

    assert answer.outcome == "in place"
    assert answer.reasons[0].endswith("which the changefeed does not show. `run` asks the TiDB of upstream.url.")
    assert answer_to(orders, ddl).outcome == "refused"


@pytest.mark.parametrize(("indexes", "outcome"), [(PRIMARY, "rewritten"), ((), "refused")])
def test_tidb_is_not_asked_for_rows_without_a_key(world: World, indexes: tuple[Index, ...], outcome: str) -> None:
    """As `run` finds the rows of a changed column by their key, and parks a table that has none."""
    world.create(ICEBERG, COLUMNS, rows=3)
    world.remember(replace(ORDERS, indexes=indexes))
    world.raw["upstream"] = {"url": "mysql://reader@tidb:4000"}

    answer = answer_to(world, "ALTER TABLE shop.orders MODIFY COLUMN name JSON")

    assert answer.outcome == outcome
    assert any("asks the TiDB" in reason for reason in answer.reasons) is (outcome == "rewritten")


def test_an_empty_table_has_no_existing_values(world: World) -> None:
    """The same statement is fine on a table without rows."""
    world.create(ICEBERG, COLUMNS)
    world.remember(ORDERS)
    ddl = "ALTER TABLE shop.orders ADD COLUMN at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP"

    assert answer_to(world, ddl).outcome == "in place"


def test_a_column_that_was_changed_by_hand_is_refused(world: World) -> None:
    """The plan starts from what upstream was; a table of other types cannot follow it."""
    world.create(ICEBERG, {**COLUMNS, "qty": pa.string()}, rows=1)
    world.remember(ORDERS)

    answer = answer_to(world, "ALTER TABLE shop.orders MODIFY COLUMN qty VARCHAR(9)")

    assert answer.outcome == "refused"
    assert answer.reasons == ("Column qty of the Iceberg table is string, upstream it was int.",)


@pytest.mark.parametrize(
    ("ddl", "outcome", "word"),
    [
        ("TRUNCATE TABLE shop.orders", "in place", "remove all rows"),
        ("DROP TABLE shop.orders", "in place", "keep the table"),
        ("RENAME TABLE shop.orders TO shop.sales", "in place", "rename to shop.sales"),
        ("DROP TABLE shop.nothing", "nothing to do", "not there"),
        ("CREATE TABLE shop.items (id INT PRIMARY KEY)", "created", "make the table"),
        ("CREATE TABLE shop.items (id INT)", "created", "has no key"),
        ("CREATE TABLE shop.items LIKE shop.orders", "created", "make the table"),
        ("CREATE TABLE shop.items LIKE shop.nothing", "cannot tell", "are not known"),
        ("ALTER TABLE shop.nothing ADD COLUMN c INT", "cannot tell", "shown neither by control tables"),
        ("RECOVER TABLE shop.orders", "cannot tell", "is looked up"),
        ("CREATE VIEW shop.v AS SELECT 1", "nothing to do", ""),
    ],
)
def test_statements_on_whole_tables_are_answered(orders: World, ddl: str, outcome: str, word: str) -> None:
    """Each has an outcome and a word on it."""
    answer = answer_to(orders, ddl)

    assert answer.outcome == outcome
    assert word in " ".join([*answer.steps, *answer.reasons])


def test_a_dropped_database_takes_all_its_tables(orders: World) -> None:
    """Each table of it has its own answer."""
    orders.raw["tables"] = {"on_drop": "drop"}

    (change,) = check(orders.config, ddl="DROP DATABASE shop").changes

    assert [(answer.table, answer.outcome) for answer in change.tables] == [("shop.orders", "dropped")]


@pytest.mark.parametrize(("known", "outcome"), [(True, "in place"), (False, "refused")])
def test_partitions_go_only_where_their_bounds_are_known(world: World, known: bool, outcome: str) -> None:
    """The checkpoint keeps how a table is partitioned; without that nobody knows which rows go."""
    parts = Partitioning("range", "`id`", (Partition("p0", ("100",)), Partition("p1", ("200",))))
    world.create(ICEBERG, COLUMNS, rows=1)
    world.remember(ORDERS, current={NAME: (5, parts if known else None)})

    assert answer_to(world, "ALTER TABLE shop.orders DROP PARTITION p0").outcome == outcome


def test_the_checkpoint_says_which_version_counts(world: World) -> None:
    """A version that was seen later, for rows further on, is not what the table is at the checkpoint."""
    later = replace(ORDERS, version=6, columns=(*ORDERS.columns, Column("c", ColumnType("int"))))
    world.create(ICEBERG, COLUMNS, rows=1)
    world.remember(ORDERS, later, current={NAME: (5, None)})

    assert answer_to(world, "ALTER TABLE shop.orders ADD COLUMN c INT").steps == ("add c int, NULL in existing rows",)


def test_without_control_tables_iceberg_tells_the_columns(world: World) -> None:
    """A table that somebody loaded is taken for the widest upstream types that map onto it."""
    world.create(ICEBERG, COLUMNS, rows=1)

    answer = answer_to(world, "ALTER TABLE shop.orders MODIFY COLUMN qty BIGINT")

    assert (answer.outcome, answer.known_from, answer.steps) == ("in place", "iceberg", ("widen qty to long",))


@pytest.mark.parametrize(
    ("policy", "outcome", "code"), [("ignore", "ignored", 0), ("stop", "refused", 1), ("apply", "in place", 0)]
)
def test_policies_of_the_configuration_count(orders: World, policy: str, outcome: str, code: int) -> None:
    """A kind that is ignored is no misfit, one that stops is."""
    orders.raw["ddl"] = {"drop-column": policy}

    report = check(orders.config, ddl="ALTER TABLE shop.orders DROP COLUMN qty")

    (answer,) = report.changes[0].tables
    assert (answer.outcome, report.exit_code) == (outcome, code)
    if policy == "stop":
        what = 'The whole `run` ends before it, for all tables: [ddl] says "stop" for drop-column.'
        assert answer.reasons == (what,)
        (way_out,) = answer.ways_out
        assert 'write "apply" or "ignore" for drop-column under [ddl]' in way_out
        assert "`applier reload -c applier.toml`" in way_out
        assert "`applier ddl list -c applier.toml`" in way_out


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(
    "ddl",
    ["ALTER TABLE shop.orders ADD COLUMN c INT", "TRUNCATE TABLE shop.orders", "RENAME TABLE shop.orders TO shop.b"],
)
def test_a_table_that_was_dropped_and_is_kept_is_named_as_such(world: World, ddl: str, is_known: bool) -> None:
    """No such statement can run upstream; of a last table, versions stay in the control tables."""
    world.create(ICEBERG, COLUMNS, rows=1, properties={**STAMP, DROPPED_AT: "449"})
    if is_known:
        world.remember(ORDERS)

    answer = answer_to(world, ddl)

    assert (answer.outcome, answer.steps) == ("cannot tell", ())
    what = "Table shop.orders was dropped upstream (commit ts 449), and its Iceberg table is kept."
    assert answer.reasons == (what,)
    assert "RECOVER TABLE" in answer.ways_out[0]


def test_a_table_that_is_left_out_is_ignored(orders: World) -> None:
    """tables.include decides before anything else."""
    orders.raw["tables"] = {"include": ["other.*"]}

    assert answer_to(orders, "ALTER TABLE shop.orders ADD COLUMN c INT").outcome == "ignored"
    assert check(orders.config).tables == ()


def test_a_schema_needs_a_registry(orders: World, world: World) -> None:
    """Protocols without one have no schema files to be asked about."""
    report = check(orders.config, schema=world.folder / "x.avsc")

    assert (report.exit_code, report.changes[0].reasons) == (2, ("There is no schema registry that could be asked.",))
