"""States of tables that lack rows: how a user comes by each, and what is done before a command that is printed then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from applier.changefeed.completeness import Why
from applier.changefeed.filter import exactly
from applier.changefeed.table import TableName
from applier.pipeline.requests import Requests
from applier.pipeline.tables.loads import place_of
from applier.sink.control.rows import TableRequest
from applier.sink.control.tables import namespace
from applier.sink.iceberg.catalog import Catalog
from tests.spark.ways_out import export
from tests.spark.world import World

Act = Callable[[World], object]

A = TableName("shop", "a")
LEFT = ["*.*", "!shop.a"]
PARTED = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (100))"


@dataclass(frozen=True)
class TableState:
    """A state of table `a`.

    Attributes:
        why: Why it lacks rows.
        begin: What happens to a new changefeed until the table is in that state.
        ways: What the sentence has done before each command that it prints, by the verb of that.
        changefeed: Keys of section `changefeed`.
        table: The table, where it is another one.
        others: Tables that lack rows too, each with a way out of its own.
        not_here: Commands whose condition, which the sentence names, does not hold.
    """

    why: Why
    begin: Act
    ways: Mapping[str, Act]
    changefeed: Mapping[str, Any] = field(default_factory=dict)
    table: str = "a"
    others: tuple[str, ...] = ()
    not_here: frozenset[str] = frozenset()


def nothing(_: World) -> None:
    """The sentence names nothing to be done before the command."""


def two(world: World) -> None:
    """Two tables of two rows each."""
    for table in ("a", "b"):
        world.create(table)
        world.put(table, 1, 2)
    go(world)


def go(world: World, **tables: Any) -> None:
    """Apply what there is."""
    world.resolve()
    world.run(**tables)


def lose(world: World, *tables: str) -> None:
    """Drop control tables by hand."""
    for table in tables:
        Catalog(world.spark, "lake").drop((namespace(world.name), table))


def ask(world: World, kind: Any, why: str = "") -> None:
    """Let a process take a request and die."""
    with world.applier() as pipeline:
        assert (
            not Requests(pipeline).carry_out(TableRequest("one", kind, tuple(exactly([A])), why, "a test")).is_refused
        )


def park(world: World) -> None:
    """Park by hand."""
    world.obey(f"applier park -c {world.path} --tables shop.a --why 'a look'")


def resume(world: World, code: int = 0) -> None:
    """Give `applier resume`."""
    world.obey(f"applier resume -c {world.path} --tables shop.a", code=code)


def without_create(world: World) -> None:
    """Rows of a come first."""
    world.create("b")
    world.put("b", 1)
    world.put("a", 1, 2)
    go(world)


def unmet(world: World) -> None:
    """A DDL of a is the first that comes, and its CREATE TABLE is supplied."""
    folder = world.folder.parent / "schemas"
    folder.mkdir()
    declared = "CREATE TABLE `a` (`id` bigint NOT NULL, `v` varchar(9), PRIMARY KEY (`id`));\n"
    (folder / "shop.a-schema.sql").write_text(declared)
    world.settings["upstream"] = {"schemas": str(folder)}
    world.create("b")
    world.put("b", 1)
    world.ddl("ALTER TABLE a ADD INDEX i (v)")
    go(world)


def not_found(world: World) -> None:
    """The feed never held a row that it updates, and the table may go on."""
    two(world)
    world.put("a", 7, op="UPDATE")
    go(world, incomplete="allow")


def renamed(world: World) -> None:
    """A RENAME is ignored."""
    world.settings["ddl"] = {"rename-table": "ignore"}
    two(world)
    world.ddl("RENAME TABLE a TO c", "c")
    world.put("c", 3)
    go(world)


def refused(world: World) -> None:
    """A DDL is not understood."""
    two(world)
    world.put("a", 3)
    world.ddl("ALTER TABLE a FROBNICATE")
    world.put("a", 4)
    go(world)


def skipped(world: World) -> None:
    """A DDL that was refused is skipped."""
    refused(world)
    skip(world)
    world.run()


def skip(world: World) -> None:
    """Skip the newest DDL."""
    ts = next(it["_tidb"]["commitTs"] for it in reversed(world.messages) if it.get("isDdl"))
    world.obey(f"applier ddl skip {ts} -c {world.path} --why 'it is so'")


def bad_date(world: World) -> None:
    """A row of a has a date that no type has."""
    world.create("b")
    world.put("b", 1)
    world.ddl("CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(9), w DATE)")
    for key, day in (("1", "2026-01-01"), ("2", "0000-00-00")):
        world.send_row("a", {"id": key, "v": "x", "w": day}, kinds={"w": "date"})
    go(world, zero_dates="stop")


def mend_date(world: World) -> None:
    """Such dates are taken for NULL."""
    world.settings["tables"]["zero_dates"] = "null"


def drop_row(world: World) -> None:
    """The row goes upstream, too."""
    world.put("a", 2, op="DELETE")
    world.resolve()


def letters_lost(world: World) -> None:
    """The table of dead letters is lost."""
    bad_date(world)
    lose(world, "dead_letters")
    mend_date(world)
    world.run()


def late(world: World) -> None:
    """A topic is read behind a DDL in another one."""
    world.create("b")
    world.create("c")
    world.put("c", 1)
    lagging = world.ts + 1
    world.ts += 9
    world.ddl("RENAME TABLE c TO a", "c")
    world.put("a", 2)
    world.run()
    newest, world.ts, world.topic = world.ts, lagging, "lagging"
    world.put("c", 8)
    world.ts, world.topic = newest, "shop"
    world.run()


def exchanged(world: World) -> None:
    """A partition changes places with a table that lacks rows."""
    world.ddl(f"CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(9)) {PARTED}")
    world.put("a", 1, 50)
    world.put("b", 2)
    go(world)
    world.ddl("ALTER TABLE a EXCHANGE PARTITION p0 WITH TABLE b")
    go(world)


def came_back(world: World) -> None:
    """A table is dropped while it is parked, and recovered."""
    two(world)
    park(world)
    world.put("a", 3)
    world.ddl("DROP TABLE a")
    go(world)
    world.ddl("RECOVER TABLE a")
    world.put("a", 4)
    go(world)


def made_while_parked(world: World) -> None:
    """A table takes the name of one that is parked, in offset order."""
    two(world)
    world.create("c")
    world.put("c", 1)
    world.run()
    park(world)
    world.ddl("DROP TABLE a")
    world.ddl("RENAME TABLE c TO a", "c")
    world.put("a", 3)
    world.run()


def left_out(world: World) -> None:
    """The table is left out."""
    two(world)
    world.put("a", 3)
    go(world, include=LEFT)


def placeless(world: World) -> None:
    """It is left out by the start that finds the checkpoints lost."""
    two(world)
    lose(world, "checkpoints")
    world.put("a", 3)
    go(world, include=LEFT)


def renamed_out(world: World) -> None:
    """A RENAME takes it out of the names that are admitted, and these become more."""
    world.create("b")
    world.create("c")
    world.put("c", 1, 2)
    go(world, include=LEFT)
    world.ddl("RENAME TABLE c TO a", "c")
    world.put("a", 3)
    go(world)
    world.run(include=["*.*"])


def admit(world: World) -> None:
    """Let `tables.include` admit it."""
    world.settings["tables"]["include"] = ["*.*"]


def left_out_before(world: World) -> None:
    """In offset order nothing shows its place."""
    world.create("b")
    world.put("b", 1)
    world.create("a")
    world.put("a", 1)
    world.run(include=LEFT)
    world.put("a", 2)
    world.run(include=["*.*"])


def left_out_before_due(world: World) -> None:
    """The next step reads it from its CREATE TABLE."""
    world.create("b")
    world.put("b", 1)
    world.create("a")
    world.put("a", 1)
    go(world, include=LEFT)
    world.settings["tables"]["include"] = ["*.*"]
    with world.applier():
        pass


def by_hand(world: World) -> None:
    """A user parks it."""
    two(world)
    park(world)
    world.put("a", 3)
    go(world)


def rebuilt(world: World) -> None:
    """It is to be built anew, and the process dies."""
    letters_lost(world)
    ask(world, "resume")


def rebuilt_in_vain(world: World) -> None:
    """It is to be built anew, and the feed has lost its CREATE TABLE."""
    letters_lost(world)
    world.lose(4)
    resume(world, code=3)


def key_only(world: World) -> None:
    """A row holds its key alone."""
    two(world)
    world.ts += 1
    world.put("a", 3)
    world.messages[-1]["_tidb"]["onlyHandleKey"] = True
    go(world)


def column_gone(world: World) -> None:
    """Another program renames a column."""
    two(world)
    world.spark.sql(f"ALTER TABLE lake.{world.name}__shop.a RENAME COLUMN v TO u")
    world.put("a", 3)
    go(world)


def column_back(world: World) -> None:
    """It gives the column its name again."""
    world.spark.sql(f"ALTER TABLE lake.{world.name}__shop.a RENAME COLUMN u TO v")


def rolled_back(world: World) -> None:
    """Another program sets it to an older snapshot."""
    two(world)
    first = world.table("a").snapshot_id
    world.put("a", 3)
    go(world)
    world.spark.sql(f"CALL lake.system.rollback_to_snapshot('{world.name}__shop.a', {first})")
    world.put("b", 3)
    world.resolve()
    world.start()


def roll_on(world: World) -> None:
    """It sets it back."""
    place = f"{world.name}__shop.a"
    newest = max(world.spark.table(f"lake.{place}.snapshots").collect(), key=lambda row: row["committed_at"])
    world.spark.sql(f"CALL lake.system.set_current_snapshot('{place}', {newest['snapshot_id']})")


def filtered(world: World) -> None:
    """The feed never held a row that it updates."""
    two(world)
    world.put("a", 7, op="UPDATE")
    go(world)


def versions_lost(world: World) -> None:
    """Nothing shows its columns any more."""
    two(world)
    lose(world, "table_versions")
    world.run()


def loading(world: World) -> None:
    """A load is begun, and its process dies."""
    without_create(world)
    ask(world, "load")


def catching_up(world: World) -> None:
    """An export is loaded, and nothing runs."""
    without_create(world)
    world.obey(f"applier load -c {world.path} --from {export(world)} --tables shop.a")


def loaded_in_vain(world: World) -> None:
    """What was loaded is gone before it is shown."""
    catching_up(world)
    Catalog(world.spark, "lake").drop(place_of(world.name, A))
    world.put("a", 3)
    go(world)


LOAD: Mapping[str, Act] = {"load": nothing}
AGAIN: Mapping[str, Act] = {"run": nothing}

STATES: Mapping[str, TableState] = {
    "no create": TableState(Why.NO_CREATE, without_create, LOAD),
    "unmet": TableState(Why.UNMET, unmet, LOAD),
    "not found": TableState(Why.NOT_FOUND, not_found, LOAD, {"on_table_error": "stop"}),
    "not renamed": TableState(Why.NOT_RENAMED, renamed, LOAD, table="c"),
    "skipped": TableState(Why.SKIPPED, skipped, {"adopt": nothing, **LOAD}),
    "letters": TableState(
        Why.LETTERS, bad_date, {"backfill": mend_date, "dead-letters": drop_row}, {"on_bad_message": "dead_letter"}
    ),
    "letters lost": TableState(
        Why.LETTERS_LOST, letters_lost, {"resume": nothing, **LOAD}, {"on_bad_message": "dead_letter"}
    ),
    "late": TableState(Why.LATE, late, LOAD, {"order": "offset"}),
    "exchanged": TableState(Why.EXCHANGED, exchanged, LOAD, others=("b",)),
    "came back": TableState(Why.CAME_BACK, came_back, LOAD),
    "made while parked": TableState(Why.MADE_WHILE_PARKED, made_while_parked, LOAD, {"order": "offset"}),
    "left out": TableState(Why.LEFT_OUT, left_out, {"run": admit, "forget": nothing}),
    "left out, without a place": TableState(Why.LEFT_OUT, placeless, {"load": admit, "forget": nothing}),
    "renamed out": TableState(Why.LEFT_OUT_BEFORE, renamed_out, {"resume": nothing}),
    "left out before": TableState(Why.LEFT_OUT_BEFORE, left_out_before, LOAD, {"order": "offset"}),
    "left out before, due": TableState(Why.LEFT_OUT_BEFORE, left_out_before_due, AGAIN),
    "by hand": TableState(Why.BY_HAND, by_hand, {"resume": nothing}),
    "rebuilt, due": TableState(Why.REBUILT, rebuilt, AGAIN, {"on_bad_message": "dead_letter"}),
    "rebuilt in vain": TableState(Why.REBUILT, rebuilt_in_vain, LOAD, {"on_bad_message": "dead_letter"}),
    "ddl": TableState(Why.DDL, refused, {"ddl": nothing, "resume": skip, **LOAD}),
    "row": TableState(Why.ROW, bad_date, {"resume": mend_date, "load": mend_date}),
    "key only": TableState(Why.ROW, key_only, LOAD, not_here=frozenset({"resume"})),
    "table": TableState(Why.TABLE, column_gone, {"run": column_back, "resume": nothing, **LOAD}),
    "rolled back": TableState(Why.TABLE, rolled_back, {"run": roll_on, "resume": nothing, **LOAD}),
    "filtered": TableState(Why.LOST, filtered, LOAD),
    "versions lost": TableState(Why.LOST, versions_lost, LOAD, others=("b",)),
    "loading": TableState(Why.LOADING, loading, LOAD),
    "catching up": TableState(Why.CATCHING_UP, catching_up, AGAIN),
    "loaded in vain": TableState(Why.CATCHING_UP, loaded_in_vain, LOAD),
}
"""A state of a table each."""

WITHOUT: Mapping[Why, str] = {
    Why.UNRECORDED: "a checkpoint says of each of its tables what is known of it",
    Why.NOT_READ: "a job alone has it, until it comes to the CREATE TABLE",
}
"""Why a reason has no state here: no table that `status` shows has it."""
