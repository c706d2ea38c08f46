"""Tables and columns whose names are one in Avro: which of them a row is of is proven, or they alone are parked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.message import MESSAGE_SCHEMA, Messages, TopicPartition, by_place
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.changefeed.window import OffsetRange, Window
from applier.ddl.schema_tracker import Tables
from applier.decode.avro.decoder import AvroDecoder
from applier.decode.avro.namesakes import Lives
from applier.decode.options import DecoderOptions
from applier.order.feed_order import ORDERS
from applier.pipeline.scan import decode_task, scanner
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.scan.window_scan import WindowScan
from applier.runtime.logs import Stopwatch
from applier.runtime.places import Where
from tests.in_memory import InMemory
from tests.known import known_at
from tests.unit.decode.avro_messages import EXTENSION, ID, TS, Schemas, column, record

A = column("a_b", "TEXT", "string", null="first", default=None)
SCHEMAS = Schemas(key=record(ID, namespace="default.my_db"), row=record(ID, A, *EXTENSION, namespace="default.my_db"))
MINE, OTHER = TableName("my-db", "t"), TableName("my_db", "t")
SHARED = TopicPartition("feed", 0)
HERE, THERE = TopicPartition("here", 0), TopicPartition("there", 0)
END = 90

Message = tuple[TopicPartition, bytes | None, bytes]


class MessageSource(InMemory):
    """A `Source` of messages in memory."""

    def __init__(self, messages: list[Message]) -> None:
        places = sorted({place for place, _, _ in messages})
        self._of = {place: [(key, value) for at, key, value in messages if at == place] for place in places}
        self.window = Window({place: OffsetRange(0, len(found)) for place, found in self._of.items()})

    def bounds(self) -> Mapping[TopicPartition, OffsetRange]:
        """See `Source`."""
        return self.window.ranges

    def collect(self, window: Window) -> Messages:
        """See `Source`."""
        rows = [
            {**place._asdict(), "offset": offset, "timestamp": None, "key": key, "value": value}
            for place, span in window.ranges.items()
            for offset, (key, value) in enumerate(self._of[place])
            if span.start <= offset < span.end
        ]
        return dict(by_place(pa.Table.from_pylist(rows, schema=MESSAGE_SCHEMA)))


@pytest.fixture(autouse=True)
def _scripted_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (decode_task, scanner):
        monkeypatch.setattr(module, "decoder_of_thread", lambda *_: AvroDecoder(SCHEMAS, subjects=SCHEMAS))


def ddl(at: int, sql: str, place: TopicPartition = SHARED) -> Message:
    """A DDL."""
    body = {"query": sql, "type": 1, "schema": "my-db", "table": "t", "commitTs": TS + at}
    return place, None, b"\x01" + json.dumps(body).encode()


def create(at: int, name: TableName, place: TopicPartition = SHARED, columns: str = "`a-b` TEXT") -> Message:
    """A CREATE TABLE."""
    return ddl(at, f"CREATE TABLE `{name.database}`.`{name.table}` (`id` BIGINT PRIMARY KEY, {columns})", place)


def row(at: int, key: int, place: TopicPartition = SHARED) -> Message:
    """A new row."""
    extension = {"_tidb_op": "c", "_tidb_commit_ts": TS + at, "_tidb_commit_physical_time": 0}
    return place, SCHEMAS.message("key", id=key), SCHEMAS.message("row", id=key, a_b=str(at), **extension)


def mark(at: int = END, place: TopicPartition = SHARED) -> Message:
    """A watermark."""
    return place, None, b"\x02" + (TS + at).to_bytes(8, "big")


def scan(
    *messages: Message,
    include: tuple[str, ...] = ("*.*",),
    before: Callable[[Lives], None] = lambda _: None,
    order: str = "resolved",
    tables: Iterable[TableName] = (),
) -> WindowScan:
    """What a window holds; `before` takes what DDL of former windows show, which made the `tables`."""
    source, lives = MessageSource(list(messages)), Lives()
    before(lives)
    template = DecodeTask("avro", DecoderOptions(), TypeRules(), include, (), upto=0, order=ORDERS[order])
    ends = {place: span.end for place, span in source.window.ranges.items()}
    made = Tables([TableVersion(name, 1, ()) for name in tables])
    known = known_at(TS, made, lives=lives)
    window = WindowScanner(source, template, rows_describe=True, keep_bad=False, parks=True)
    return window.scan(source.window, known, ends, Stopwatch(), where=Where.HERE)


def held(scanned: WindowScan) -> dict[TableName, list[int]]:
    """Keys by table."""
    rows: dict[TableName, list[int]] = {}
    for (name, _), parts in scanned.results.parts.items():
        keys: list[Any] = [key for part in parts for key in part.here["id"].to_pylist()]
        rows.setdefault(name, []).extend(keys)
    return {name: sorted(found) for name, found in rows.items()}


def test_a_namesake_that_is_left_out_is_one_that_a_row_may_be_of() -> None:
    """Its rows would overwrite those of the table that is replicated; this one alone is parked, by name."""
    found = scan(create(1, MINE), create(2, OTHER), row(5, 1), row(6, 2), mark(), include=("my-db.*",))

    assert held(found) == {}
    assert list(found.parking) == [MINE]
    told = found.parking[MINE]
    assert "Avro record my_db.t may stand for each of my-db.t, my_db.t: Avro gives them one name." in told.what
    assert told.hint == (
        "rename all of these tables but one upstream, or let TiCDC send each to a topic of its own (a [sink] "
        "dispatcher); then load what is parked, with `applier load -c FILE --from DIR "
        "--tables TABLE`."
    )
    assert found.error is None


def test_a_namesake_that_an_earlier_window_left_out_counts() -> None:
    """What became of its DDL is kept, and shows it again after a restart."""
    found = scan(
        create(1, MINE),
        row(5, 1),
        mark(),
        include=("my-db.*",),
        before=lambda lives: lives.take(TS - 5, "CREATE TABLE t (id BIGINT PRIMARY KEY)", "my_db"),
    )

    assert list(found.parking) == [MINE]


@pytest.mark.parametrize("sql", ["", "DROP TABLE `my_db`.`t`"], ids=["both", "one after the other"])
def test_a_namesake_of_a_table_that_is_left_out_loses_no_row_in_the_window_that_makes_it(sql: str) -> None:
    """By the names of before the window, its rows are those of the table that is left out."""
    gone = [ddl(1, sql)] if sql else []
    found = scan(
        *gone,
        create(2, MINE),
        row(5, 1),
        mark(),
        include=("my-db.*",),
        before=lambda lives: lives.take(TS - 5, "CREATE TABLE t (id BIGINT PRIMARY KEY)", "my_db"),
        tables=[TableName("my-db", "another")],
    )

    assert (held(found), list(found.parking)) == (({MINE: [1]}, []) if sql else ({}, [MINE]))


def test_two_tables_of_the_changefeed_are_parked_and_no_other() -> None:
    """The window is applied all the same."""
    other = TableName("my-db", "whole")
    found = scan(create(1, MINE), create(2, OTHER), create(3, other), row(5, 1), mark())

    assert sorted(found.parking) == [MINE, OTHER]
    assert found.error is None


@pytest.mark.parametrize(("sql", "at"), [("DROP TABLE `my_db`.`t`", 4), ("RENAME TABLE `my_db`.`t` TO `my_db`.`u`", 4)])
def test_a_namesake_that_is_gone_is_none_any_more(sql: str, at: int) -> None:
    """The commit ts of each row shows which of them it is of, in the window of the DDL, too."""
    found = scan(create(1, OTHER), row(2, 1), ddl(at, sql), create(5, MINE), row(6, 2), mark())

    assert held(found) == {OTHER: [1], MINE: [2]}
    assert found.parking == {}


def test_a_table_that_takes_the_name_of_its_own_form_is_followed() -> None:
    """RENAME TABLE `my-db`.t TO my_db.t: both names are one in Avro."""
    sql = "RENAME TABLE `my-db`.`t` TO `my_db`.`t`"
    found = scan(create(1, MINE), row(2, 1), ddl(4, sql), row(6, 2), mark())

    assert held(found) == {MINE: [1], OTHER: [2]}


def test_a_column_that_takes_the_name_of_its_own_form_is_followed() -> None:
    """RENAME COLUMN `a-b` TO `a_b`: rows below it hold the one, rows above it the other."""
    sql = "ALTER TABLE `my-db`.`t` RENAME COLUMN `a-b` TO `a_b`"
    found = scan(create(1, MINE), row(2, 1), ddl(4, sql), row(6, 2), mark())

    columns = {
        number: [name for part in parts for name in part.here.column_names if name.startswith("a")]
        for (_, number), parts in found.results.parts.items()
    }
    assert columns == {1: ["a-b"], 2: ["a_b"]}
    assert found.parking == {}


def test_a_topic_of_its_own_shows_the_table() -> None:
    """The DDL of each came in its topic."""
    found = scan(
        create(1, MINE, HERE),
        create(2, OTHER, THERE),
        row(5, 1, HERE),
        row(6, 2, THERE),
        mark(place=HERE),
        mark(place=THERE),
    )

    assert held(found) == {MINE: [1], OTHER: [2]}
    assert found.parking == {}


def test_topics_of_ddl_outlast_a_restart_between_them_and_the_rows() -> None:
    """The window of the rows holds no DDL: a checkpoint kept the topics, also that of a twin that is left out."""
    made = {MINE: "here", OTHER: "there"}

    def restarted(lives: Lives) -> None:
        first = Lives()
        for place, (name, topic) in enumerate(made.items()):
            sql = f"CREATE TABLE `{name.database}`.`{name.table}` (id BIGINT PRIMARY KEY)"
            first.take(TS - 9 + place, sql, "", topic)
            lives.take(TS - 9 + place, sql, "")
        lives.settle(first.homes({}))

    rows = row(5, 1, HERE), row(6, 2, THERE), mark(place=HERE), mark(place=THERE)
    assert held(scan(*rows, before=restarted)) == {MINE: [1], OTHER: [2]}
    assert held(scan(*rows, include=("my-db.*",), before=restarted)) == {MINE: [1]}


def test_only_topics_that_prove_something_are_kept() -> None:
    """Rows show the topic of their table, a name without `_` is no other's, and one topic for all shows nothing."""
    lives = Lives()
    for sql, topic in (("CREATE TABLE t (id INT)", "here"), ("CREATE TABLE t_t (id INT)", "here")):
        lives.take(TS, sql, "shop", topic)
    assert lives.homes({}) == {}

    lives.take(TS, "CREATE TABLE u_u (id INT)", "shop", "there")
    assert lives.homes({TableName("shop", "t_t"): "here"}) == {TableName("shop", "u_u"): ("there",)}


UNREAD = [
    "CREATE TABLE `my_db`.`t` (`id` BIGINT PRIMARY KEY, `area` GEOMETRY)",
    "ALTER TABLE `my_db`.`t` ADD COLUMN `area` GEOMETRY",
    "RENAME TABLE `my_db`.`x` TO `my_db`.`t` AT ONCE",
    "RENAME TABLE my_db.x TO my_db . t AT ONCE",
    "ALTER TABLE `my_db`.`x` RENAME TO `my_db`.`t` AT ONCE",
    "FLASHBACK TABLE `my_db`.`x` TO `my_db`.`t` AT ONCE",
    "CREATE TABLE `my_db`.`y` (`id` INT); RENAME TABLE `my_db`.`x` TO `my_db`.`t` AT ONCE",
    "RENAME TABLE `my_db`.`x` TO `my_db`.`t` '",
]


@pytest.mark.parametrize("sql", UNREAD)
def test_a_name_that_a_ddl_may_have_given_is_not_proven_to_be_free(sql: str) -> None:
    """The statement cannot be read, so nothing shows that rows of the Avro name are of the table that is known."""
    found = scan(create(1, MINE), ddl(2, "CREATE TABLE `my_db`.`x` (`id` INT)"), ddl(3, sql), row(5, 1), mark())

    assert held(found) == {}
    assert MINE in found.parking
    assert "may stand for each of my-db.t, my_db.t" in found.parking[MINE].what


@pytest.mark.parametrize("sql", ["DROP TABLE `my_db`.`t` AT ONCE", "RENAME TABLE `my_db`.`t` TO `my_db`.`z` AT ONCE"])
def test_a_ddl_that_cannot_be_read_frees_no_name(sql: str) -> None:
    """The namesake may be there still."""
    found = scan(create(1, MINE), create(2, OTHER), ddl(3, sql), row(5, 1), mark())

    assert list(found.parking) == [MINE, OTHER]


@pytest.mark.parametrize("sql", ["DROP TABLE `my_db`.`t`", "RENAME TABLE `my_db`.`t` TO `my_db`.`z`"])
def test_a_ddl_without_a_commit_ts_frees_no_name(sql: str) -> None:
    """Nothing shows which rows lie before it."""
    found = scan(create(1, MINE), create(2, OTHER), row(5, 1), mark(), before=lambda lives: lives.take(0, sql, "my_db"))

    assert list(found.parking) == [MINE, OTHER]


@pytest.mark.parametrize("messages", [[], [mark()]], ids=["none", "a watermark"])
def test_a_watermark_anywhere_in_the_window_shows_that_rows_may_lack_columns(messages: list[Message]) -> None:
    """Also where it follows rows that were read without knowing."""
    found = scan(row(5, 1), *messages, order="offset")

    assert found.job.marks.shown is not None
    assert found.job.marks.shown.has_watermarks == bool(messages)


def test_rows_that_are_not_due_park_nothing() -> None:
    """The DDL that makes their table the only one may follow."""
    found = scan(create(1, MINE), create(2, OTHER), row(95, 1), mark())

    assert found.parking == {}
    assert found.results.counts["held"] == 1


def _both(lives: Lives) -> None:
    for name in (MINE, OTHER):
        lives.take(TS - 9, f"CREATE TABLE `{name.database}`.`{name.table}` (`id` BIGINT PRIMARY KEY)", "")


MOVING = ["RENAME TABLE `my-db`.`t` TO `my-db`.`u`", "DROP TABLE `my_db`.`t`"]


@pytest.mark.parametrize("sql", MOVING)
def test_a_ddl_that_frees_the_name_of_an_ambiguous_row_does_not_stop_the_feed(sql: str) -> None:
    """In offset order it keeps the tables from being parked: the window that begins with the row ends before it."""
    told = ddl(9, sql), ddl(9, sql, HERE)
    found = scan(row(5, 1), row(6, 2), told[0], row(10, 3), told[1], told[1], before=_both, order="offset")

    assert found.window.ranges == {SHARED: OffsetRange(0, 2)}
    assert (sorted(found.parking), found.error) == ([MINE, OTHER], None)


def test_an_ambiguous_row_behind_others_ends_the_window_of_such_a_ddl() -> None:
    """What comes before the row is applied first."""
    found = scan(create(1, TableName("my-db", "v")), row(5, 1), ddl(9, MOVING[0]), before=_both, order="offset")

    assert found.window.ranges == {SHARED: OffsetRange(0, 1)}
    assert found.error is not None
