"""What a table says of itself outlives repeated steps, lost control tables, and the table that had its name before."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from applier.changefeed.table import TableName
from applier.commands import dead_letters
from applier.commands.follower import Follower
from applier.errors import TerminalError, TransientError
from applier.pipeline.requests import Requests
from applier.pipeline.tables import completeness
from applier.sink.control.rows import TableRequest
from applier.sink.control.table_record import RECORD
from applier.sink.control.tables import namespace
from applier.sink.iceberg.catalog import Catalog
from tests.disasters import Crash, Disasters
from tests.few import few
from tests.lost_tables import LOSSES
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark

TOO_LARGE = {"id": "9" * 30, "v": "x"}
LATER = partial(pytest.param, marks=pytest.mark.soak)
"""A case that `make test-recorded` runs."""

LETTERS = {"on_bad_message": "dead_letter"}


@pytest.fixture
def disasters(monkeypatch: pytest.MonkeyPatch) -> Disasters:
    """What goes wrong."""
    found = Disasters()
    found.install(monkeypatch)
    return found


def fail() -> None:
    """A failure that is worth another try."""
    raise TransientError("Something outside did not answer.")


def come_to_rest(follower: Follower) -> None:
    """Apply all that is there, and bring back what comes back."""
    while (step := follower.turn()).moved or step.resuming:
        pass


def repeat(world: World, disasters: Disasters, point: str, how: str) -> None:
    """Apply all, with a step that comes to a point and is then repeated, by another process or by this one."""
    if how == "dies":
        disasters.crash(point)
        with pytest.raises(Crash):
            world.run()
    else:
        disasters.call(fail, point)
        with world.applier() as pipeline:
            follower = Follower(pipeline)
            with suppress(TransientError):  # A commit may be tried again at once.
                come_to_rest(follower)
            come_to_rest(follower)
    assert disasters.struck
    disasters.mend()
    world.run()


def lose(lake: Catalog, world: World, *tables: str) -> None:
    """Drop control tables by hand."""
    for table in tables:
        lake.drop((namespace(world.name), table))


def is_true(world: World, table: str) -> bool:
    """Whether `applier status` shows a table as whole."""
    shown = [item for item in world.status().tables if item.table == f"shop.{table}"]
    return any(item.state in ("in step", "empty") and not item.because for item in shown)


def bad(world: World) -> None:
    """A table that a bad message leaves without a row."""
    world.create("a")
    world.put("a", 1)
    world.send_row("a", TOO_LARGE)
    world.put("a", 3)
    world.resolve()


@pytest.mark.parametrize("how", few(["dies", "fails"]))
@pytest.mark.parametrize("point", few(["commit-done", "applied"]))
@pytest.mark.parametrize("order", ["resolved", "offset"])
def test_a_dead_letter_is_lacked_behind_a_repeated_step(
    order: str, point: str, how: str, make: Make, disasters: Disasters
) -> None:
    """The repetition finds the rows of the step, and not why the table lacks one."""
    world = make(order=order, **LETTERS)
    bad(world)

    repeat(world, disasters, point, how)

    assert world.keys("a") == {1, 3}
    assert world.table("a").state == "incomplete"
    assert world.status().dead_letter_count == 1


@pytest.mark.parametrize("how", ["dies", "fails"])
def test_rows_that_were_not_found_are_lacked_behind_a_repeated_step(how: str, make: Make, disasters: Disasters) -> None:
    """The repetition finds the row that the update has made."""
    world = make()
    world.settings["tables"] = {"incomplete": "allow"}
    world.create("a")
    world.put("a", 1)
    world.put("a", 7, op="UPDATE")
    world.resolve()

    repeat(world, disasters, "applied", how)

    assert not is_true(world, "a")


@pytest.mark.parametrize("how", ["dies", LATER("fails")])
@pytest.mark.parametrize(
    "point", few(["copy-shown", "resume-done", "commit-done", "resume-taken-in", "resume-shown"], 2)
)
def test_what_a_job_sets_aside_is_lacked_behind_its_repetition(
    point: str, how: str, make: Make, disasters: Disasters
) -> None:
    """The copy says so itself, and the table that it becomes."""
    world = make(**LETTERS)
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.run()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    world.send_row("a", TOO_LARGE)
    world.put("a", 3)
    world.resolve()
    world.run()
    with world.applier() as pipeline:
        request = TableRequest("one", "resume", ("shop.a",), "", "a test")
        assert not Requests(pipeline).carry_out(request).is_refused

    repeat(world, disasters, point, how)

    assert not is_true(world, "a")


@pytest.mark.parametrize("passed", few(["TRUNCATE TABLE a", "ALTER TABLE a DROP COLUMN v", "DROP TABLE a"]))
@pytest.mark.parametrize("why", ["parked", "left out"])
def test_lost_checkpoints_do_not_let_ddl_count_that_a_table_lacks(
    why: str, passed: str, make: Make, lake: Catalog
) -> None:
    """The feed passed a DDL while the table was parked: read again, the table does not count as behind it."""
    world = make()
    world.create("a")
    world.create("b")
    world.put("a", 1, 2)
    world.put("b", 1)
    world.resolve()
    world.run()
    if why == "parked":
        world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    include = ["*.*", "!shop.a"] if why == "left out" else ["*.*"]
    world.ddl(passed)
    world.put("b", 2)
    world.resolve()
    world.run(include=include)
    lose(lake, world, "checkpoints")

    world.run(include=include)

    assert not is_true(world, "a")
    assert world.keys("b") == {1, 2}
    assert is_true(world, "b")


@pytest.mark.parametrize("lost", few(["dead_letters", "checkpoints"]))
def test_a_lost_control_table_makes_no_table_whole(lost: str, make: Make, lake: Catalog) -> None:
    """A table that lacks the row of a dead letter lacks it whatever is lost, and once more is lost."""
    world = make(**LETTERS)
    bad(world)
    world.run()
    lose(lake, world, lost)
    world.run()
    assert not is_true(world, "a")

    lose(lake, world, *({"checkpoints", "dead_letters"} - {lost}))
    world.put("a", 4)
    world.resolve()
    world.run()

    assert not is_true(world, "a")


@pytest.mark.soak
def test_dead_letters_that_were_lost_are_not_given_up(make: Make, lake: Catalog) -> None:
    """Letters that come later and are given up do not make up for those that were lost."""
    world = make(**LETTERS)
    bad(world)
    world.run()
    lose(lake, world, "dead_letters")
    world.run()
    world.send_row("a", TOO_LARGE)
    world.resolve()
    world.run()
    if dead_letters.found(world.config):
        dead_letters.discard(world.config, [], "a test", take_over=True)

    assert not is_true(world, "a")


@pytest.mark.soak
def test_lost_schema_changes_and_then_checkpoints_leave_rows_behind_a_truncate(make: Make, lake: Catalog) -> None:
    """A TRUNCATE that the table has is not applied a second time."""
    world = make()
    world.create("a")
    world.put("a", 1, 2)
    world.ddl("TRUNCATE TABLE a")
    world.put("a", 3)
    world.resolve()
    world.run()
    lose(lake, world, "schema_changes")
    world.put("a", 4)
    world.resolve()
    world.run()
    lose(lake, world, "checkpoints")

    world.run()

    assert world.keys("a") == {3, 4} or not is_true(world, "a")


def test_lost_table_versions_park_tables_or_are_read_again(make: Make, lake: Catalog) -> None:
    """Whatever comes of it, the run does not end as a defect, and no table is true that differs."""
    world = make()
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.run()
    lose(lake, world, "table_versions")
    world.put("a", 2)
    world.resolve()

    with suppress(TerminalError):
        world.run()

    assert world.keys("a") == {1, 2} or not is_true(world, "a")


@pytest.mark.soak
def test_a_table_whose_versions_are_lost_while_it_is_parked_stays_parked(make: Make, lake: Catalog) -> None:
    """The job that was to bring it back does not end as a defect, and names the way out."""
    world = make()
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.run()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    lose(lake, world, "table_versions")
    world.put("a", 2)
    world.resolve()
    world.run()

    with world.applier() as pipeline:
        request = TableRequest("one", "resume", ("shop.a",), "", "a test")
        assert not Requests(pipeline).carry_out(request).is_refused
    world.run()

    assert world.table("a").state == "parked"
    assert "table_versions was lost" in str(world.table("a").because)
    assert "applier load" in str(world.table("a").way_out)


def test_that_a_table_may_not_be_listed_is_shown_once_its_create_table_is_lost(make: Make, lake: Catalog) -> None:
    """The audit of DDL alone knew of it: without that, nobody may call all tables true."""
    world = make()
    world.create("a")
    world.create("b")
    world.put("a", 1)
    world.put("b", 1)
    world.resolve()
    world.run(include=["*.*", "!shop.a"])
    lose(lake, world, "schema_changes")
    world.run(include=["*.*", "!shop.a"])

    world.run(include=["*.*"])

    report = world.status()
    assert "left out since before commit ts" in " ".join(note.because for note in report.notes)


@pytest.mark.parametrize("again", few(["create", "rows", "rename"]))
@pytest.mark.parametrize("on_drop", ["keep", LATER("drop")])
def test_a_name_that_is_used_again_shows_no_row_of_the_table_before(on_drop: str, again: str, make: Make) -> None:
    """The table that was dropped is kept or not; its successor is another one."""
    world = make()
    world.create("a")
    world.create("b")
    world.put("a", 1)
    world.put("b", 5)
    world.ddl("DROP TABLE a")
    world.resolve()
    world.run(on_drop=on_drop)
    if again == "rename":
        world.ddl("RENAME TABLE b TO a", "b")
    elif again == "create":
        world.create("a")
    world.put("a", 2)
    world.resolve()

    world.run()

    wanted = {2, 5} if again == "rename" else {2}
    assert not is_true(world, "a") if again == "rows" else is_true(world, "a")
    assert world.keys("a") == wanted or not is_true(world, "a")


def test_a_create_table_over_a_table_whose_drop_never_came_shows_no_row_of_that(make: Make) -> None:
    """The rows from before it lie in the same window: their commit has the commit ts of the DDL as its stamp."""
    world = make()
    world.create("a")
    world.put("a", 1)
    world.resolve()
    world.run()
    world.put("a", 2)
    world.create("a")
    world.put("a", 3)
    world.resolve()

    world.run()

    assert world.keys("a") == {3} or not is_true(world, "a")


@pytest.mark.soak
def test_tables_that_resume_together_are_known_by_their_names_of_now(make: Make) -> None:
    """A command that names one of them finds the others, also behind a later RENAME."""
    world = make()
    for table in "ab":
        world.create(table)
        world.put(table, 1)
    world.resolve()
    world.run()
    world.obey(f"applier park -c {world.path} --tables shop.a,shop.b --why test")
    with world.applier() as pipeline:
        known = pipeline.state.completeness
        one, two = (TableName("shop", table) for table in "ab")
        known[one] = replace(known[one], partners=(two,))
        completeness.keep(pipeline.state, pipeline.targets)
    world.ddl("RENAME TABLE b TO c", "b")
    world.resolve()
    world.run()

    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.run()

    assert is_true(world, "a")
    assert is_true(world, "c")


@pytest.mark.soak
def test_a_start_that_is_refused_for_lost_control_tables_is_refused_again(make: Make, lake: Catalog) -> None:
    """The refused start makes the control tables anew: the next one must not take them for those that were lost."""
    world = make(order="offset")
    world.create("a")
    world.put("a", 1, 2)
    world.ddl("TRUNCATE TABLE a")
    world.put("a", 3)
    world.run()
    lose(lake, world, "checkpoints", "schema_changes")

    for _ in range(2):
        with pytest.raises(TerminalError, match="both lost"):
            world.run()

    assert world.keys("a") == {3}


def test_a_record_is_small(make: Make, lake: Catalog) -> None:
    """It is part of each metadata file: below 4 kB, also of a table that is parked in a feed of 16 topics."""
    world = make()
    world.topic = "shop_0"
    world.create("a")
    for number in range(16):
        world.topic = f"shop_{number}"
        world.put("a", number)
    for number in range(16):
        world.topic = f"shop_{number}"
        world.resolve()
    world.run()
    whole = lake.load((f"{world.name}__shop", "a"))
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    parked = lake.load((f"{world.name}__shop", "a"))

    assert whole is not None
    assert parked is not None
    for table in (whole, parked):
        assert 0 < len(table.setting(RECORD) or "") < 4096


PARTITIONED = "CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(9)) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (MAXVALUE))"  # noqa: E501 - one statement


@pytest.mark.parametrize("how", few(["dies", "fails"]))
@pytest.mark.parametrize("statement", ["TRUNCATE PARTITION p1", "EXCHANGE PARTITION p0 WITH TABLE b"])
def test_a_dead_letter_is_lacked_behind_a_ddl_that_alone_commits(
    statement: str, how: str, make: Make, disasters: Disasters
) -> None:
    """The commit of the DDL lifts the stamp over the message, which the repetition takes for applied."""
    world = make(**LETTERS)
    world.ddl(PARTITIONED, "a")
    world.create("b")
    world.put("a", 1, 12)
    world.put("b", 2)
    world.resolve()
    world.run()
    world.send_row("a", TOO_LARGE)
    world.ddl(f"ALTER TABLE a {statement}", "a")
    world.resolve()

    repeat(world, disasters, "applied", how)

    assert not is_true(world, "a")
    assert "EXCHANGE" not in statement or not is_true(world, "b")


@pytest.mark.parametrize("statement", few(["TRUNCATE TABLE a", "ALTER TABLE a ADD COLUMN w INT"]))
@pytest.mark.parametrize("is_gone", [LATER(True, id="dropped"), pytest.param(False, id="restored")])
def test_a_table_that_lacks_what_the_audit_says_is_parked_once_checkpoints_are_lost(
    statement: str, make: Make, lake: Catalog, *, is_gone: bool
) -> None:
    """Rows from before such a DDL are not passed over as applied."""
    world = make()
    world.create("a")
    world.create("b")
    world.put("a", 1)
    world.put("b", 1)
    world.resolve()
    world.run()
    place = (f"{world.name}__shop", "a")
    before = lake.load(place)
    assert before is not None
    file = str(before.handle.operations().current().metadataFileLocation())
    world.put("a", 2)
    world.ddl(statement, "a")
    world.put("a", 3)
    world.resolve()
    world.run()
    lake.drop(place)
    if not is_gone:
        lake.handle.registerTable(lake._table(place), file)
    lose(lake, world, "checkpoints")

    world.run()

    assert not is_true(world, "a")
    assert is_true(world, "b")
    assert "schema_changes says it has" in str(world.table("a").because)


@pytest.mark.soak
def test_a_parked_table_remembers_a_dead_letter_that_is_lost(make: Make, lake: Catalog) -> None:
    """What it lacked when it was parked it lacks when it is back."""
    world = make(**LETTERS)
    bad(world)
    world.run()
    world.obey(f"applier park -c {world.path} --tables shop.a --why test")
    lose(lake, world, "dead_letters")
    world.obey(f"applier resume -c {world.path} --tables shop.a")
    world.run()

    assert world.table("a").state == "incomplete"


def test_a_loaded_table_with_a_bad_row_is_parked_though_a_rename_follows(make: Make) -> None:
    """Its rows lie below the rename, so no later window reads them again."""
    world = make(start="midstream")
    world.put("b", 1)
    world.resolve()
    world.run()
    world.spark.sql(f"CREATE TABLE lake.{world.name}__shop.a (id BIGINT, v STRING) USING iceberg")
    world.spark.sql(f"INSERT INTO lake.{world.name}__shop.a VALUES (1, 'one')")
    world.put("a", 5)
    world.send_row("a", TOO_LARGE)
    world.ddl("RENAME TABLE a TO c", "a")
    world.resolve()
    world.run()
    world.put("c", 6)
    world.resolve()
    world.run()

    assert world.table("c").state == "parked"
    assert world.keys("c") == {1}


@pytest.mark.parametrize("loss", [LATER("rolled back"), "restored"])
@pytest.mark.parametrize("table", few(["dead_letters", "schema_changes"]))
def test_a_control_table_that_was_set_back_ends_the_start_until_it_is_dropped(
    table: str, loss: str, make: Make, lake: Catalog
) -> None:
    """What it lacks would count as made up for, or as not decided; once it is dropped, it counts as lost."""
    world = make(**LETTERS)
    for name in ("a", "b"):
        world.create(name)
        world.put(name, 1)
        world.send_row(name, TOO_LARGE)
        world.resolve()
        world.run()
    identifier = (namespace(world.name), table)
    LOSSES[loss](lake, identifier, random.Random(1))

    with pytest.raises(TerminalError, match=f"{table} was set back") as refused:
        world.run()
    assert "or drop it" in (refused.value.hint or "")
    lake.drop(identifier)
    world.run()

    assert not is_true(world, "a")
    assert not is_true(world, "b")


@pytest.mark.soak
def test_a_table_whose_topic_is_gone_is_listed_once_checkpoints_are_lost(make: Make, lake: Catalog) -> None:
    """The feed no longer shows it; it says itself what it is, and what it lacks."""
    world = make(**LETTERS)
    world.create("a")
    world.put("a", 1)
    world.topic = "other"
    world.create("b")
    world.put("b", 1)
    world.send_row("b", TOO_LARGE)
    for topic in ("shop", "other"):
        world.topic = topic
        world.resolve()
    world.run()
    kept = [place for place, topic in enumerate(world._topics) if topic == "shop"]
    world.messages, world._topics = [world.messages[place] for place in kept], ["shop" for _ in kept]
    lose(lake, world, "checkpoints")
    world.topic = "shop"

    world.run()
    world.resolve()
    world.run()

    assert (world.table("a").state, world.table("b").state) == ("in step", "incomplete")


_MADE = ["CREATE TABLE a (id BIGINT PRIMARY KEY, v VARCHAR(9))"]

LIVES = {
    "made": [*_MADE],
    "made again": [*_MADE, "DROP TABLE a", *_MADE],
    "renamed": ["CREATE TABLE z (id BIGINT PRIMARY KEY, v VARCHAR(9))", "RENAME TABLE z TO a"],
    "emptied": [*_MADE, "TRUNCATE TABLE a"],
}
"""The DDL of a table up to its rows."""


@pytest.mark.parametrize("life", few(["made", "made again", "renamed", "emptied"]))
@pytest.mark.parametrize("why", few(["parked", "a letter"]))
@pytest.mark.parametrize(
    ("order", "lost"),
    [
        ("resolved", ["checkpoints"]),
        LATER("resolved", ["checkpoints", "schema_changes"]),
        LATER("offset", ["checkpoints"]),
    ],
    ids=["one", "two", "offset"],
)
def test_ddl_that_are_read_again_make_no_table_whole(
    order: str, lost: list[str], why: str, life: str, make: Make, lake: Catalog
) -> None:
    """Checkpoints are lost, and processes read a message each: the first ones take in what the table says of itself."""
    world = make(order=order, **LETTERS)
    for sql in LIVES[life]:
        world.ddl(sql)
    world.put("a", 1)
    world.resolve()
    world.run()
    if why == "parked":
        world.obey(f"applier park -c {world.path} --tables shop.a --why 'a test'")
        world.put("a", 2)
    else:
        world.send_row("a", TOO_LARGE)
    world.resolve()
    world.run()
    lose(lake, world, *lost)
    for messages in range(1, len(LIVES[life]) + 3):
        with world.applier() as pipeline:
            pipeline.step({place: span.start + messages for place, span in pipeline.source.bounds().items()})

    world.run()

    assert world.keys("a") == {1}
    assert not is_true(world, "a")


@pytest.mark.soak
def test_in_offset_order_a_create_table_behind_rows_of_a_parked_table_makes_it_not_whole(
    make: Make, lake: Catalog
) -> None:
    """Once checkpoints are lost, rows of another topic may be read first, and they stay out."""
    world = make(order="offset")
    world.create("a")
    world.topic = "other"
    world.put("a", 1)
    world.run()
    world.obey(f"applier park -c {world.path} --tables shop.a --why 'a test'")
    world.put("a", 2)
    world.run()
    lose(lake, world, "checkpoints")
    for is_again in (False, True):
        with world.applier() as pipeline:
            ends = {
                at: span.end if at.topic == "other" else span.start for at, span in pipeline.source.bounds().items()
            }
            assert pipeline.step(ends).moved != is_again

    world.run()

    assert world.keys("a") == {1}
    assert not is_true(world, "a")


def test_in_offset_order_a_table_without_rows_is_not_shown_before_its_create_table(make: Make, lake: Catalog) -> None:
    """Once checkpoints are lost, the feed is read from its beginning, and the table is there before its DDL."""
    world = make(order="offset")
    world.settings["source"] = {"messages_per_step": 1}
    for name in ("a", "b"):
        world.create(name)
    world.run()
    lose(lake, world, "checkpoints")
    with world.applier() as pipeline:
        pipeline.step()

    assert (is_true(world, "a"), is_true(world, "b")) == (True, False)

    world.run()

    assert is_true(world, "b")


def test_a_control_table_that_is_set_forward_again_goes_on(make: Make, lake: Catalog) -> None:
    """The first way out that is printed."""
    world = make()
    for name in ("a", "b"):
        world.create(name)
        world.put(name, 1)
        world.resolve()
        world.run()
    identifier = (namespace(world.name), "schema_changes")
    table = lake.load(identifier)
    assert table is not None
    newest = table.snapshot_id
    LOSSES["rolled back"](lake, identifier, random.Random(1))
    with pytest.raises(TerminalError, match="was set back: of its 2 rows it has 1"):
        world.run()

    world.spark.sql(f"CALL lake.system.set_current_snapshot('{'.'.join(identifier)}', {newest})")
    world.run()

    assert world.status().exit_code == 0


def test_a_table_that_a_step_made_and_left_out_since_lacks_rows(make: Make, disasters: Disasters) -> None:
    """The step died behind its DDL; the next start leaves the table out, and the one after it does not."""
    world = make()
    world.create("b")
    world.resolve()
    world.run()
    world.create("a")
    world.put("a", 1)
    world.resolve()
    disasters.crash("ddl-recorded")
    with pytest.raises(Crash):
        world.run()
    disasters.mend()
    world.put("a", 2)
    world.resolve()

    world.run(include=["*.*", "!shop.a"])
    assert not is_true(world, "a")
    world.put("a", 3)
    world.resolve()
    world.run()

    assert not is_true(world, "a") or world.keys("a") == {1, 2, 3}
    assert "shop.a" in {item.table for item in world.status().tables}
