"""`applier status` reads control tables and metadata, and says whether the tables are fresh."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from rich.console import Console
from typer.testing import CliRunner

from applier import cli, wording
from applier.changefeed.checkpoint import Checkpoint, Cut, Holder, Lease, Stop, Tracked
from applier.changefeed.completeness import LIVE, Completeness, Reason, Why, incomplete
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import FeedPosition, Reading
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.ts import from_unix_ms, unix_ms
from applier.commands import catalog_reader, control_reader
from applier.commands.ddl import listed
from applier.commands.status.command import status
from applier.commands.status.render import render
from applier.config import settings
from applier.errors import ConfigError, TransientError
from applier.sink.control.rows import (
    DeadLetter,
    IgnoredFor,
    SchemaDecision,
    checkpoint_row,
    decision_rows,
    letter_rows,
    version_rows,
)
from applier.sink.format.types import schema_json
from applier.watch.report import StatusReport, Trouble, iso
from applier.wording import several
from tests.unit.commands.check.world import World

TS = 470_606_913_415_151_618
"""Resolved ts of the checkpoint."""


def told(troubles: Iterable[Trouble]) -> tuple[str, ...]:
    """What deserves a look, as the JSON has it."""
    return tuple(map(str, troubles))


AT = unix_ms(TS)
"""Its wall clock in Unix milliseconds."""

ORDERS, USERS = TableName("shop", "orders"), TableName("shop", "users")
HOLDER = Holder("token", "host-a", pid=41, since=AT - 60_000)
HELD = Lease(3, HOLDER)
RELEASED = replace(HELD, released=True)


class Lake:
    """A catalog with the control tables of changefeed `shop`, as an applier leaves them."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"{folder}/tables")

    def write(self, name: str, rows: pa.Table, **properties: str) -> None:
        """Append to a control table, which is made if it is missing."""
        identifier = ("applier_shop", name)
        self.catalog.create_namespace_if_not_exists("applier_shop")
        schema = Schema.model_validate_json(schema_json(rows.schema, ()))
        table = self.catalog.create_table_if_not_exists(identifier, schema)
        table.append(pa.Table.from_arrays(rows.columns, schema=table.schema().as_arrow()))
        with table.transaction() as transaction:
            transaction.set_properties({key.replace("_", "."): value for key, value in properties.items()})

    def orders(self, rows: int, stamp: int = TS, **properties: str) -> int:
        """Make table shop.orders and return its snapshot."""
        stamps = {"applier.changefeed": "shop", "applier.epoch": "3", "applier.resolved-ts": str(stamp)}
        self.world.create(("shop", "orders"), {"id": pa.int64()}, rows=rows, properties={**stamps, **properties})
        head = self.catalog.load_table(("shop", "orders")).current_snapshot()
        assert head is not None
        return head.snapshot_id

    def commit(self, stamp: int | None = None, epoch: int = 3, **entries: str) -> int:
        """Add a row to shop.orders, as an applier does or without a stamp, and return the snapshot."""
        table = self.catalog.load_table(("shop", "orders"))
        stamps = {"applier.changefeed": "shop", "applier.epoch": str(epoch), "applier.resolved-ts": str(stamp)}
        told = ({} if stamp is None else stamps) | {key.replace("_", "."): value for key, value in entries.items()}
        with table.transaction() as transaction:
            transaction.append(pa.table({"id": [7]}).cast(table.schema().as_arrow()), told)
            if stamp is not None:
                transaction.set_properties(told)
        return self.head

    @property
    def head(self) -> int:
        """The snapshot that readers of shop.orders see."""
        head = self.catalog.load_table(("shop", "orders")).current_snapshot()
        assert head is not None
        return head.snapshot_id

    def set_current(self, snapshot_id: int) -> None:
        """Set shop.orders to another snapshot by hand."""
        self.catalog.load_table(("shop", "orders")).manage_snapshots().set_current_snapshot(snapshot_id).commit()

    def expire(self, *snapshot_ids: int) -> None:
        """Drop snapshots of shop.orders."""
        self.catalog.load_table(("shop", "orders")).maintenance.expire_snapshots().by_ids(list(snapshot_ids)).commit()

    def checkpoint(self, snapshot_id: int, **changes: Any) -> Checkpoint:
        """Write a checkpoint that lists shop.orders."""
        made = Checkpoint(
            HELD,
            step=12,
            resolved_ts=TS,
            written_at=AT + 1000,
            partitions={TopicPartition("shop", 0): Reading(100, TS), TopicPartition("shop", 1): Reading(7, None)},
            cut=Cut({("shop", "orders"): snapshot_id}),
            tables={ORDERS: Tracked(1, "shop", completeness=LIVE)},
            counts={"rows": 5},
        )
        made = replace(made, **changes)
        self.write("checkpoints", checkpoint_row(made), applier_step=str(made.step))
        return made

    def status(self, seconds: float = 30, **options: Any) -> StatusReport:
        """The status so many seconds after the resolved ts."""
        return status(self.world.config, now_ms=AT + int(seconds * 1000), **options)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty catalog."""
    return Lake(tmp_path)


def test_everything_is_told(lake: Lake) -> None:
    """Progress, holder, partitions and the query of the cut are those of the newest checkpoint."""
    head = lake.orders(3)
    lake.checkpoint(5, step=11)
    lake.checkpoint(head)

    found = lake.status()

    assert (found.resolved_ts, found.lag_seconds, found.step, found.counts) == (TS, 30.0, 12, {"rows": 5})
    assert found.resolved == "2026-11-21T01:01:45.789+00:00"
    assert found.holder is not None
    assert (found.holder.name, found.holder.epoch, found.holder.released) == ("process 41 on host-a", 3, False)
    assert (found.holder.since, found.holder.silent_seconds) == ("2026-11-21T01:00:45.789+00:00", 29.0)
    (table,) = found.tables
    assert (table.table, table.state, table.rows, table.snapshot_id) == ("shop.orders", "in step", 3, head)
    assert [(item.next_offset, item.resolved_ts) for item in found.partitions] == [(100, TS), (7, None)]
    assert found.cut == (f"SELECT * FROM lake.shop.orders VERSION AS OF {head};",)
    assert (found.verdict, found.exit_code, told(found.notes)) == ("fresh", 0, ())


@pytest.mark.parametrize(("seconds", "max_lag", "code"), [(299, 300, 0), (301, 300, 1), (301, 600, 0), (11, 10, 1)])
def test_tables_are_stale_above_the_lag(lake: Lake, seconds: float, max_lag: float, code: int) -> None:
    """What counts is the age of the resolved ts, against the limit that was given."""
    lake.checkpoint(lake.orders(1), written_at=AT + int(seconds * 1000))

    found = lake.status(seconds, max_lag_seconds=max_lag)

    assert found.exit_code == code
    assert all(sentence.startswith("The tables are ") for sentence in told(found.stale))


def test_the_lag_is_said_in_one_sentence(lake: Lake) -> None:
    """With both figures."""
    lake.checkpoint(lake.orders(1))

    late = f"The tables are 60 min behind (resolved ts {TS}), more than 5 min."
    assert told(lake.status(3600).stale) == (f"{late} Hint: start `applier run -c applier.toml`.",)

    lake.checkpoint(lake.head, step=13, written_at=AT + 3_600_000)
    assert told(lake.status(3600).stale) == (late,)


def test_a_feed_that_stands_still_is_said_in_one_sentence(lake: Lake) -> None:
    """Before the tables are stale it is a note; where no applier runs, nothing shows that the feed stands still."""
    lake.world.raw["source"] = {"kafka": {"topics": ["shop"], "kafka.bootstrap.servers": "broker:9092"}}
    still = {"backlog": 0, "still": 1}
    since = "The feed stands still since 2026-11-21 01:01:45 UTC: the source answers, but no watermark above"
    said = f"{since} {TS} has come. Hint: {wording.WAY_TO_A_LIVING_FEED}"

    lake.checkpoint(lake.orders(1), written_at=AT + 3_600_000, counts=still)
    assert (told(lake.status(3600).stale), lake.status(3600).explanation) == ((said,), None)
    lake.checkpoint(lake.head, step=13, written_at=AT + 90_000, counts=still)
    assert (lake.status(90).verdict, told(lake.status(90).notes)) == ("fresh", (said,))
    lake.checkpoint(lake.head, step=14, written_at=AT + 90_000, counts=still, lease=RELEASED)
    assert [one.partition(" behind")[0] for one in told(lake.status(3600).stale)] == ["The tables are 60 min"]


def test_an_archive_that_is_read_to_its_end_is_complete(lake: Lake) -> None:
    """However old it is, unless `--max-lag` asks; a table that lacks rows is stale all the same."""
    lake.world.raw["source"] = {"archive": "feed"}
    lake.checkpoint(lake.orders(1), counts={"backlog": 0})

    found = lake.status(3600)

    assert (found.verdict, found.exit_code, told(found.stale)) == ("complete", 0, ())
    assert told(found.notes)[0].endswith("feed is read to its end.")
    assert lake.status(3600, max_lag_seconds=300).verdict == "stale"
    lake.checkpoint(lake.head, step=13, counts={"backlog": 3})
    assert lake.status(3600).verdict == "stale"
    unmet = Tracked(1, "shop", completeness=incomplete(Why.UNMET))
    lake.checkpoint(lake.head, step=14, counts={"backlog": 0}, tables={ORDERS: unmet})
    assert lake.status(3600).verdict == "stale"


def test_a_table_that_a_person_parked_is_not_stale(lake: Lake) -> None:
    """Its own state says it, and a note how it comes back; one that is to come back, or could not, needs a look."""
    by_hand = Completeness(Reason(Why.BY_HAND, "a move"), since=TS)
    lake.checkpoint(lake.orders(1), tables={ORDERS: Tracked(1, "shop", completeness=by_hand)})

    found = lake.status()

    assert (found.verdict, found.exit_code, found.summary) == ("fresh", 0, "1 of 1 table is parked on purpose")
    assert [(table.state, table.is_on_purpose) for table in found.tables] == [("parked", True)]
    (note,) = (note for note in found.notes if "a move" in note.because)
    assert "export it with" in note.way_out
    for step, known in enumerate((replace(by_hand, is_due=True), replace(by_hand, reason=Reason(Why.ROW, "no"))), 13):
        lake.checkpoint(lake.head, step=step, tables={ORDERS: Tracked(1, "shop", completeness=known)})
        assert (lake.status().verdict, lake.status().summary) == ("stale", "1 of 1 table needs a hand")


def test_the_number_of_a_step_is_that_of_the_log(lake: Lake) -> None:
    """Heartbeats and a stop have checkpoints of their own, and no line in the log."""
    lake.checkpoint(lake.orders(1), step=15, counts={"rows": 5, "step": 12}, lease=RELEASED)

    assert lake.status().step == 12


def test_after_a_run_to_the_ends_nothing_is_called_complete(lake: Lake) -> None:
    """Messages may wait since, and nobody asks; a run that a user stopped leaves tables that go stale."""
    ended = Stop("", "", AT + 5000)
    lake.checkpoint(lake.orders(1), lease=RELEASED, stopped=ended)

    found = lake.status(3600)

    assert (found.verdict, found.exit_code, found.explanation) == ("ended", 0, None)
    assert found.summary == "the only table is true"
    assert told(found.notes)[0] == (
        f"No applier runs now: `run --once` ended at {iso(AT + 5000)}, at the ends that the source had when it "
        f"began. `applier run -c {lake.world.config.path}` applies what came later."
    )
    assert lake.status(3600, max_lag_seconds=300).exit_code == 1
    lake.checkpoint(lake.head, step=13, lease=RELEASED)
    assert lake.status(3600).verdict == "stale"
    lake.checkpoint(lake.head, step=14, written_at=AT + 3_600_000, stopped=ended)
    assert lake.status(3600).verdict == "stale"


def test_a_changefeed_that_catches_up_is_not_stale(lake: Lake) -> None:
    """While a backlog is left and the lag falls; the exit code is that of tables that are behind."""
    read = {TopicPartition("shop", 0): Reading(100, TS)}
    counts = {"backlog": 1_200_000}
    for step, behind in ((12, 9000), (13, 7500), (14, 7200)):
        lake.checkpoint(
            1,
            step=step,
            resolved_ts=TS - 9000 + step,
            written_at=AT + behind * 1000 + step,
            partitions=read,
            counts=counts,
            cut=Cut(),
            tables={},
        )

    found = lake.status(7201)

    assert (found.verdict, found.exit_code, told(found.stale)) == ("catching up", 1, ())
    assert told(found.notes) == ("The tables are 2 h behind and catch up, with 1,200,000 messages to read.",)
    assert lake.status(7201, max_lag_seconds=300).verdict == "stale"
    lake.checkpoint(
        1, step=15, resolved_ts=TS, written_at=AT + 9_900_000, partitions=read, counts=counts, cut=Cut(), tables={}
    )
    assert lake.status(9901).verdict == "stale"


def test_a_changefeed_that_has_just_begun_catches_up(lake: Lake) -> None:
    """Nothing of its feed is applied yet."""
    holder = replace(HOLDER, since=AT)
    lake.checkpoint(1, resolved_ts=0, partitions={}, cut=Cut(), tables={}, lease=replace(HELD, holder=holder))

    assert (lake.status(30).verdict, told(lake.status(30).notes)) == (
        "catching up",
        ("The first messages are being read.",),
    )
    assert lake.status(400).verdict == "stale"


def test_a_feed_in_offset_order_goes_by_the_sign_of_life(lake: Lake) -> None:
    """It has no resolved ts, so what counts is the age of the last checkpoint."""
    lake.world.raw["changefeed"]["order"] = "offset"
    lake.checkpoint(lake.orders(1, 0), resolved_ts=0)

    assert (lake.status(31).resolved_ts, lake.status(31).lag_seconds, lake.status(31).exit_code) == (None, 30.0, 0)
    (sentence,) = told(lake.status(400).stale)
    assert sentence.startswith("The tables are 7 min behind (the last sign of life), more than 5 min. Hint: start")


def test_dropped_tables_that_are_kept_are_listed(lake: Lake) -> None:
    """Two of one name beside the table that has it, one of a dropped database, one under its name; no other table."""
    lake.checkpoint(lake.orders(1))
    gone = [
        TableName(*name.split(".")) for name in ("shop.ratings", "old.items", "shop.forgotten", "shop.orders_dropped_8")
    ]
    lake.write("table_versions", version_rows([TableVersion(name, 1, ()) for name in (ORDERS, *gone)], 3))
    stamp = {"applier.changefeed": "shop", "applier.epoch": "3", "applier.resolved-ts": str(TS)}
    made = {
        ("shop", "orders_dropped_5"): {**stamp, "applier.dropped-at": "5"},
        ("shop", "orders_dropped_9"): {**stamp, "applier.dropped-at": "9"},
        ("shop", "ratings"): {**stamp, "applier.dropped-at": "7"},
        ("old", "items"): {**stamp, "applier.dropped-at": "8"},
        ("shop", "orders_dropped_8"): {**stamp, "applier.dropped-at": "11"},
        ("shop", "orders_dropped_6"): {**stamp, "applier.changefeed": "other", "applier.dropped-at": "6"},
        ("shop", "forgotten"): {},
        ("shop", "foreign_dropped_7"): {**stamp, "applier.dropped-at": "7"},
    }
    for rows, (name, properties) in enumerate(made.items(), 1):
        lake.world.create(name, {"id": pa.int64()}, rows=rows, properties=properties)

    found = lake.status()

    assert found.dropped is not None
    assert [(it.table, it.iceberg, it.dropped_ts, it.rows, it.files) for it in found.dropped] == [
        ("old.items", "old.items", 8, 4, 1),
        ("shop.orders", "shop.orders_dropped_5", 5, 1, 1),
        ("shop.orders", "shop.orders_dropped_9", 9, 2, 1),
        ("shop.orders_dropped_8", "shop.orders_dropped_8", 11, 5, 1),
        ("shop.ratings", "shop.ratings", 7, 3, 1),
    ]
    assert found.dropped[1].dropped == "1970-01-01T00:00:00.000+00:00"
    assert "`DROP TABLE lake.shop.orders_dropped_5 PURGE`" in found.dropped[1].way_out
    assert (found.exit_code, [it.table for it in found.tables], found.notes) == (0, ["shop.orders"], ())
    assert json.loads(found.to_json())["dropped"][1]["dropped_ts"] == "5"

    lake.catalog.drop_table(("shop", "ratings"))
    lake.catalog.rename_table(("shop", "orders_dropped_5"), ("shop", "mine"))
    again = lake.status().dropped
    assert again is not None
    assert [it.iceberg for it in again] == ["old.items", "shop.orders_dropped_9", "shop.orders_dropped_8"]


def test_only_tables_that_a_dropped_one_may_be_are_loaded(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each namespace is listed once, and what others have there is left alone."""
    lake.checkpoint(lake.orders(1))
    for name in ("a", "b_dropped_7", "orders_dropped_5"):
        lake.world.create(("shop", name), {"id": pa.int64()})
    loaded: list[str] = []
    load = catalog_reader.Lake.table

    def seen(self: catalog_reader.Lake, identifier: tuple[str, ...]) -> catalog_reader.LakeTable | None:
        loaded.append(".".join(identifier))
        return load(self, identifier)

    monkeypatch.setattr(catalog_reader.Lake, "table", seen)

    assert lake.status().dropped == ()
    assert [name for name in loaded if name.startswith("shop.")] == ["shop.orders", "shop.orders_dropped_5"]


def test_dropped_tables_are_unknown_where_the_catalog_does_not_list_its_tables(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status` says so in a note, and the rest stands."""
    lake.checkpoint(lake.orders(1))
    monkeypatch.setattr(SqlCatalog, "list_tables", lambda *_: (_ for _ in ()).throw(PermissionError("no")))

    found = lake.status()

    assert (found.dropped, found.verdict, found.exit_code) == (None, "fresh", 0)
    (note,) = told(found.notes)
    assert note.startswith(
        "Which dropped tables are kept is not known: Cannot list the tables of namespace shop of catalog lake ("
    )
    assert json.loads(found.to_json())["dropped"] is None


def test_a_changefeed_that_never_ran_is_stale(lake: Lake, tmp_path: Path) -> None:
    """Also where the catalog's database does not exist yet."""
    found = lake.status()

    assert told(found.stale) == (
        (
            "This lake has no record of changefeed shop: no tables and no checkpoint. It begins anew at "
            f"{tmp_path}/catalog.db, in {tmp_path}/tables. Hint: start `applier run -c applier.toml`; where "
            "the database had rows before the changefeed, first run `applier load -c applier.toml --from DIR`. If you "
            "expect an existing lake, do not start: move its folder back, or set catalog.uri, catalog.warehouse and "
            "changefeed.name to those of it."
        ),
    )
    assert (found.exit_code, found.holder, found.cut) == (1, None, ())


def test_files_without_a_catalog_are_no_new_lake(tmp_path: Path) -> None:
    """What the warehouse holds shows that the changefeed has run, by another catalog."""
    (tmp_path / "tables/applier_shop/checkpoints").mkdir(parents=True)

    found = status(World(tmp_path).config, now_ms=AT)

    (sentence,) = told(found.stale)
    assert f"catalog.db has no tables, but {tmp_path}/tables/applier_shop holds files of changefeed shop" in sentence
    assert "never run" not in sentence


def test_lost_checkpoints_are_noticed(lake: Lake) -> None:
    """A changefeed without checkpoints whose other control tables are stamped has run."""
    lake.write("table_versions", version_rows([], 1), applier_epoch="3")

    expected = "The control table applier_shop.checkpoints is lost: other tables know epoch 3."
    assert told(lake.status().notes) == (expected,)


def test_a_partition_that_never_sent_a_watermark_is_named(lake: Lake) -> None:
    """Once the tables are late, with what to do; one that TiCDC is known not to use holds nothing back."""
    lake.checkpoint(lake.orders(1))

    assert told(lake.status(30).notes) == ()
    (note, *_) = told(lake.status(3600).notes)
    assert note == (
        "No watermark has ever come from shop/1, so no table advances. Hint: if TiCDC does not use so many partitions "
        "(`partition-num`), set changefeed.partitions to the number that it uses, and start "
        "`applier run -c applier.toml` again; if it is to use them all, pause and resume the changefeed in TiCDC."
    )
    assert note in json.loads(lake.status(3600).to_json())["notes"]
    lake.world.raw["changefeed"]["partitions"] = 1
    assert not any("shop/1" in sentence for sentence in told(lake.status(3600).notes))
    assert "shop/1" not in (lake.status(3600).explanation or "")


def test_nothing_applied_yet_is_stale(lake: Lake) -> None:
    """A first checkpoint without a resolved ts shows nothing."""
    lake.checkpoint(1, resolved_ts=0, cut=Cut(), tables={})

    assert told(lake.status().stale) == ("No resolved ts has been applied yet.",)


def test_a_table_that_is_gone_makes_the_changefeed_stale(lake: Lake) -> None:
    """It is named."""
    lake.checkpoint(5)

    found = lake.status()

    assert [table.state for table in found.tables] == ["missing"]
    (sentence,) = told(found.stale)
    assert sentence == (
        "Table shop.orders is not in the catalog, though the checkpoint lists it. Hint: register it again, in "
        "Spark SQL with `CALL lake.system.register_table(table => 'shop.orders', metadata_file => 'FILE')`, where FILE "
        "is the newest *.metadata.json in its folder metadata, which a DROP without PURGE leaves in storage, and start "
        "`applier run -c applier.toml`; if that parks it, "
        "`applier resume -c applier.toml --tables 'shop.orders'` builds it anew from its CREATE TABLE."
    )


@pytest.mark.parametrize(
    ("changes", "properties", "stamp", "state"),
    [
        ({}, {}, TS + 5, "ahead"),
        ({"cut": Cut()}, {}, TS, "empty"),
        ({}, {"applier.dropped-at": "7"}, TS, "dropped"),
    ],
)
def test_states_of_a_table(lake: Lake, changes: Any, properties: Any, stamp: int, state: str) -> None:
    """A table is told to be ahead, without rows, or dropped upstream."""
    head = lake.orders(1, stamp, **properties)
    lake.checkpoint(head, **changes)

    found = lake.status()

    assert [table.state for table in found.tables] == [state]
    assert found.exit_code == 0
    if state == "ahead":
        assert told(found.notes)[0].startswith("The cut shows more than the resolved ts of shop.orders")


def test_a_cut_whose_snapshot_others_have_expired_is_told(lake: Lake) -> None:
    """The head was made on it, so it shows the same rows, or newer ones."""
    lake.orders(1)
    cut = lake.commit(TS)
    lake.checkpoint(cut)
    lake.commit()
    lake.expire(cut)

    found = lake.status()

    assert ([table.state for table in found.tables], found.exit_code) == (["expired"], 0)
    assert told(found.notes)[0].startswith("The snapshots of the cut have expired in shop.orders")


def test_a_cut_that_others_have_expired_behind_a_step_without_a_checkpoint_is_no_rollback(lake: Lake) -> None:
    """All that is kept is a commit of applier, as in a backup of before the cut."""
    made = [lake.orders(1), lake.commit(TS), lake.commit(TS + 1), lake.commit(TS + 2)]
    lake.checkpoint(made[1])
    lake.expire(*made[:-1])

    found = lake.status()

    assert ([table.state for table in found.tables], found.exit_code) == (["ahead"], 0)


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_table_that_was_restored_from_a_backup_makes_the_changefeed_stale(lake: Lake, is_cut: bool) -> None:
    """Its metadata does not know the snapshot of the cut: from before it, whether older ones have expired or not."""
    first = lake.orders(1)
    lake.commit(TS)
    if is_cut:
        lake.expire(first)
    lake.checkpoint(99)

    found = lake.status()

    assert ([table.state for table in found.tables], found.exit_code) == (["rolled back"], 1)


def test_a_table_that_was_rolled_back_makes_the_changefeed_stale(lake: Lake) -> None:
    """Its way out can be pasted, and the query of the cut still reads the snapshot of the cut."""
    lake.orders(1)
    older, newest = lake.commit(TS - 9), lake.commit(TS)
    lake.checkpoint(newest)
    assert lake.status().exit_code == 0

    lake.set_current(older)
    found = lake.status()

    (table,) = found.tables
    assert (table.state, table.snapshot_id, table.cut_snapshot_id) == ("rolled back", older, newest)
    assert (found.verdict, found.exit_code) == ("stale", 1)
    (sentence,) = told(found.stale)
    assert sentence == (
        f"Table shop.orders was rolled back by hand: it shows snapshot {older}, which is older than snapshot {newest}, "
        "its newest. Hint: set it to that snapshot again, in Spark SQL with "
        f"`CALL lake.system.set_current_snapshot('shop.orders', {newest})`; or stop the running applier, and apply "
        "what it lacks with "
        f"`applier backfill -c applier.toml --from {TS - 10} --repair --tables 'shop.orders'`."
    )
    assert found.cut == (f"SELECT * FROM lake.shop.orders VERSION AS OF {newest};",)

    lake.set_current(newest)
    assert lake.status().exit_code == 0


@pytest.mark.parametrize("order", ["resolved", "offset"])
def test_a_rollback_within_one_stamp_is_noticed(lake: Lake, order: str) -> None:
    """Two commits may carry the same stamp, and rows that were loaded before the first one carry none."""
    lake.world.raw["changefeed"]["order"] = order
    stamp = TS if order == "resolved" else 0
    loaded = lake.orders(1)
    first, newest = lake.commit(stamp), lake.commit(stamp)
    lake.checkpoint(newest, resolved_ts=stamp)

    for older in (first, loaded):
        lake.set_current(older)
        assert [table.state for table in lake.status().tables] == ["rolled back"]
        assert f"set_current_snapshot('shop.orders', {newest})" in told(lake.status().stale)[0]
        assert "--from beginning --repair" in told(lake.status().stale)[0]


def test_a_rollback_in_offset_order_is_noticed_without_the_snapshot_of_the_cut(lake: Lake) -> None:
    """The property names offsets that the head does not."""
    lake.world.raw["changefeed"]["order"] = "offset"
    lake.orders(1)
    older, newest = lake.commit(0, applier_offsets="{1}"), lake.commit(0, applier_offsets="{2}")
    lake.checkpoint(newest, resolved_ts=0)
    lake.set_current(older)
    lake.expire(newest)

    assert [table.state for table in lake.status().tables] == ["rolled back"]


def test_a_rollback_is_noticed_after_the_snapshot_of_the_cut_expired(lake: Lake) -> None:
    """The head is stamped with less than the table; what it lacks can only be applied again."""
    lake.orders(1)
    older, newest = lake.commit(TS - 9), lake.commit(TS)
    lake.checkpoint(newest)
    lake.set_current(older)
    lake.expire(newest)

    found = lake.status()

    assert [table.state for table in found.tables] == ["rolled back"]
    (sentence,) = told(found.stale)
    assert sentence == (
        f"Table shop.orders was rolled back by hand: it shows snapshot {older}, which is older than its stamp. Hint: "
        f"stop the running applier, and run `applier backfill -c applier.toml --from {TS - 10} --repair "
        "--tables 'shop.orders'`, which applies what it lacks."
    )


def test_a_commit_on_top_of_a_rollback_hides_nothing(lake: Lake) -> None:
    """Rows of another writer, or the fence of an applier that took over, do not bring the lost rows back."""
    lake.orders(1)
    older, newest = lake.commit(TS), lake.commit(TS)
    lake.checkpoint(newest)
    lake.set_current(older)

    for stamp in (None, TS):
        lake.commit(stamp, epoch=4)
        assert [table.state for table in lake.status().tables] == ["rolled back"]


@pytest.mark.parametrize("stamp", [None, TS, TS + 5])
def test_a_commit_on_top_of_the_cut_is_no_rollback(lake: Lake, stamp: int | None) -> None:
    """Neither one of another writer or a compaction, nor one of a step whose checkpoint has not come."""
    lake.orders(1)
    lake.checkpoint(lake.commit(TS))
    lake.commit(stamp)
    lake.commit()

    assert [table.state for table in lake.status().tables] == ["ahead" if stamp == TS + 5 else "in step"]
    assert lake.status().exit_code == 0


def test_a_repair_that_is_shown_is_no_rollback(lake: Lake) -> None:
    """It was built on what the table showed, and has read what was lost; its checkpoint may not have come."""
    lake.orders(1)
    older, newest = lake.commit(TS - 9), lake.commit(TS)
    lake.checkpoint(newest)
    lake.set_current(older)
    table = lake.catalog.load_table(("shop", "orders"))
    table.append(pa.table({"id": [7]}).cast(table.schema().as_arrow()), {"applier.backfill": "job"})

    assert lake.status().exit_code == 0


def test_a_silent_holder_is_noted(lake: Lake) -> None:
    """Once its lease is over; one that released the changefeed is not."""
    head = lake.orders(1)
    lake.checkpoint(head)
    assert told(lake.status(100).notes) == (
        "process 41 on host-a holds the changefeed, but has been silent for 99 s: the next applier takes it.",
    )

    lake.checkpoint(head, step=13, lease=RELEASED)
    assert told(lake.status(100).notes) == ()


def test_decisions_and_letters_are_listed_newest_first(lake: Lake) -> None:
    """The last decision on each DDL counts; a letter that was buried twice is one."""
    lake.checkpoint(lake.orders(1))
    refused = SchemaDecision(from_unix_ms(AT - 5000), ORDERS, "ALTER TABLE orders …", "modify-column", "refused", "why")
    lake.write("schema_changes", decision_rows([refused, replace(refused, commit_ts=from_unix_ms(AT - 9000))], 3))
    lake.write("schema_changes", decision_rows([replace(refused, decision="applied", reason="")], 3))
    letter = DeadLetter("shop", 0, 7, datetime(2026, 1, 1, tzinfo=UTC), None, b"secret", "Cannot decode", 12)
    lake.write("dead_letters", letter_rows([letter, letter, replace(letter, offset=8)], 3))

    found = lake.status()

    assert [(item.decision, item.reason) for item in found.schema_changes] == [("applied", ""), ("solved", "why")]
    assert found.schema_change_count == 2
    assert [item.offset for item in found.dead_letters] == [8, 7]
    assert found.dead_letter_count == 2
    assert told(found.notes) == ("2 messages were set aside as dead letters.",)
    assert "secret" not in found.to_json()


def test_a_ddl_that_a_parked_table_has_not_taken_is_not_shown_as_ignored(lake: Lake) -> None:
    """The resume of the table decides on it; one that is configured to be ignored stays so."""
    lake.checkpoint(lake.orders(1), resolved_ts=TS, lease=RELEASED)
    ddl = SchemaDecision(TS, ORDERS, "ALTER TABLE orders …", "add-column", "ignored", IgnoredFor.PARKED.words)
    ddl = replace(ddl, ignored_for=IgnoredFor.PARKED)
    policy = IgnoredFor.CONFIGURED
    others = [ddl, replace(ddl, commit_ts=TS - 1, ignored_for=policy, reason=policy.words)]
    lake.write("schema_changes", decision_rows(others, 3))

    shown = [("parked", "the table is parked"), ("ignored", "configured under [ddl]")]
    assert sorted((item.decision, item.reason) for item in listed(lake.world.config)) == sorted(shown)
    assert sorted((item.decision, item.reason) for item in lake.status().schema_changes) == sorted(shown)


def test_a_ddl_that_stops_the_feed_comes_first_with_the_command_that_passes_it(lake: Lake) -> None:
    """Another start would only fail again; the DDL is `pending` as in `ddl list`."""
    lake.checkpoint(lake.orders(1), resolved_ts=TS, lease=RELEASED)
    stops = "A DDL of kind modify-column stops the feed, as configured: ALTER TABLE orders … (commit ts 7)."
    ddl = SchemaDecision(TS + 1, ORDERS, "ALTER TABLE orders …", "modify-column", "refused", stops)
    lake.write("schema_changes", decision_rows([ddl], 3))

    found, config = lake.status(1000), lake.world.config.path

    held = (
        f"A DDL of shop.orders holds changefeed shop up: {stops} Hint: run `applier ddl skip {TS + 1} -c {config} "
        "--why TEXT` to pass it without its effect, or mend what the reason names; then start "
        f"`applier run -c {config}`."
    )
    assert told(found.stale) == (held, f"The tables are 17 min behind (resolved ts {TS}), more than 5 min.")
    assert found.summary == "a DDL of shop.orders holds the changefeed up; the only table is true"
    assert [item.decision for item in found.schema_changes] == ["pending"]
    (item,) = listed(lake.world.config)
    assert item.decision == "pending"
    assert item.way_out.startswith(f"Run `applier ddl skip {TS + 1} -c {config} --why TEXT` to pass it")

    lake.checkpoint(lake.head, step=13, resolved_ts=TS + 2, lease=RELEASED)
    assert [item.decision for item in lake.status().schema_changes] == ["solved"]
    assert told(lake.status().stale) == ()


def test_a_ddl_that_parks_a_table_is_listed_with_the_ways_out_of_the_table(lake: Lake) -> None:
    """Those that `status` prints."""
    parked = Completeness(Reason(Why.DDL, "why", TS + 1), since=TS, position=FeedPosition(ORDERS, TS, version=1))
    last = lake.checkpoint(lake.orders(1), tables={ORDERS: Tracked(1, "shop", completeness=parked)})
    ddl = SchemaDecision(TS + 1, ORDERS, "ALTER TABLE orders …", "modify-column", "refused", "why")
    lake.write("schema_changes", decision_rows([ddl], 3))

    (item,) = listed(lake.world.config)

    way_out = lake.world.config.ways_out.of([ORDERS], parked)
    assert (last.step, item.decision) == (12, "pending")
    assert item.way_out == f"{way_out[:1].upper()}{way_out[1:]}"
    assert f"ddl skip {TS + 1}" in item.way_out


@pytest.mark.parametrize("released", [True, False])
def test_what_ended_the_last_run_is_said_until_a_step_is_done(lake: Lake, *, released: bool) -> None:
    """Also while another process has begun, which may come to the same end."""
    stop = Stop("The registry was rebuilt.", "begin anew: `applier forget -c FILE`.", AT + 500)
    lake.checkpoint(lake.orders(1), lease=replace(HELD, released=released), stopped=stop)

    (said,) = told(lake.status().stale)
    assert lake.status().summary == "an error ended the last run; the only table is true"
    assert said == (
        f"The last run of changefeed shop ended at {iso(AT + 500)}: The registry was rebuilt. "
        f"Hint: begin anew: `applier forget -c {lake.world.config.path}`."
    )
    lake.checkpoint(lake.head, step=13, stopped=Stop("It failed.", "", AT))
    assert told(lake.status().stale)[0].endswith(f"It failed. Hint: start `applier run -c {lake.world.config.path}`.")


def test_a_ddl_that_ended_the_last_run_is_said_once(lake: Lake) -> None:
    """With the command that passes it; another end beside it is said, too."""
    stops = "A DDL of kind modify-column stops the feed, as configured: ALTER TABLE orders … (commit ts 7)."
    ddl = SchemaDecision(TS + 1, ORDERS, "ALTER TABLE orders …", "modify-column", "refused", stops)
    lake.write("schema_changes", decision_rows([ddl], 3))

    lake.checkpoint(lake.orders(1), lease=RELEASED, stopped=Stop(stops, "set its policy.", AT, TS + 1))
    assert [sentence.partition(" ")[0] for sentence in told(lake.status().stale)] == ["A"]
    lake.checkpoint(lake.head, step=13, lease=RELEASED, stopped=Stop("The registry was rebuilt.", "", AT))
    assert [sentence.partition(" ")[0] for sentence in told(lake.status().stale)] == ["A", "The"]


@pytest.mark.parametrize("released", [True, False])
def test_a_ddl_that_is_recorded_to_be_passed_is_no_longer_offered_to_be(lake: Lake, *, released: bool) -> None:
    """Neither where it ended the last run, nor where a table waits for it."""
    skip = "applier ddl skip"
    hint = f"set its policy. Or pass this statement: {skip} {TS + 1}."
    way = Completeness(Reason(Why.DDL, "It is refused", TS + 1), TS, FeedPosition(ORDERS, TS))
    stop = Stop("It is refused.", hint, AT, TS + 1)
    tables, lease = {ORDERS: Tracked(1, "shop", completeness=way)}, replace(HELD, released=released)
    lake.checkpoint(lake.orders(1), lease=lease, stopped=stop, tables=tables)
    ddl = SchemaDecision(TS + 1, ORDERS, "ALTER TABLE orders …", "modify-column", "refused", "It is refused.")
    lake.write("schema_changes", decision_rows([ddl], 3))
    assert sum(f"{skip} {TS + 1}" in said for said in told(lake.status().stale)) == 2

    lake.write("schema_changes", decision_rows([replace(ddl, decision="to skip", reason="me: it is so")], 3))
    found, run = lake.status(), f"`applier run -c {lake.world.config.path}`"

    recorded = "it is recorded that the next run passes it without its effect"
    ended, waits = told(found.stale)
    assert ended == (
        f"The DDL of commit ts {TS + 1} ended the last run of changefeed shop; {recorded}."
        + (f" Hint: start {run}." if released else "")
    )
    assert waits.startswith(
        f"Table shop.orders is parked since resolved ts {TS} and resumes: It is refused; {recorded}. "
        f"Hint: {run} brings it back; "
    )
    assert f"{skip} {TS + 1}" not in waits
    assert found.tables[0].because == waits.partition(" Hint: ")[0]


def test_a_ddl_that_a_living_process_has_just_refused_holds_nothing_up(lake: Lake) -> None:
    """It may be about to park the table, and to go on."""
    since = int(datetime.now(tz=UTC).timestamp() * 1000) - 60_000
    ddl = SchemaDecision(TS + 1, ORDERS, "ALTER TABLE orders …", "modify-column", "refused", "why")
    lake.write("schema_changes", decision_rows([ddl], 3))

    lake.checkpoint(lake.orders(1), lease=Lease(3, replace(HOLDER, since=since)))
    assert told(lake.status().stale) == ()

    lake.checkpoint(lake.head, step=13, lease=Lease(3, replace(HOLDER, since=since + 120_000)))
    assert len(told(lake.status().stale)) == 1


def test_a_ddl_on_a_database_is_named_by_it_and_a_reason_has_no_colon_at_its_end(lake: Lake) -> None:
    """In `status` and in `ddl list`; one that names nothing has no name."""
    lake.checkpoint(lake.orders(1))
    made = SchemaDecision(7, TableName("", ""), "CREATE DATABASE a", "create-database", "ignored", job="38f2dd8b")
    lake.write("schema_changes", decision_rows([made, replace(made, commit_ts=8, table=TableName("a", ""))], 3))

    shown = [(item.table, item.reason) for item in lake.status().schema_changes]
    told = [(item.table, item.reason) for item in listed(lake.world.config)]

    assert shown == [("a", "resume 38f2dd8b"), ("", "resume 38f2dd8b")]
    assert told == shown[::-1]


def test_the_limit_is_the_configured_one(lake: Lake) -> None:
    """`--max-lag` takes its place."""
    lake.checkpoint(lake.orders(1))
    http = lake.world.config.http.model_copy(update={"max_lag_seconds": 20.0})
    config = lake.world.config.model_copy(update={"http": http})

    assert status(config, now_ms=AT + 30_000).verdict == "stale"
    assert status(config, max_lag_seconds=60.0, now_ms=AT + 30_000).verdict == "fresh"


def test_tables_with_one_reason_and_one_way_out_share_a_sentence(lake: Lake) -> None:
    """Each has its own in the JSON."""
    doubted = incomplete(Why.LETTERS)
    names = [TableName("shop", name) for name in "abcde"]
    lake.checkpoint(lake.orders(1), tables={name: Tracked(1, "shop", completeness=doubted) for name in names})

    found, config = lake.status(), lake.world.config.path

    letters = f"`applier backfill -c {config} --dead-letters`"
    discard = f"`applier dead-letters discard -c {config} --all --why TEXT`"
    which, why = "Tables shop.a, shop.b and 3 others", wording.clause(Reason(Why.LETTERS))
    stop = f"stop the running applier, and run {letters} or {discard}"
    assert told(found.stale) == (f"{which} are incomplete: {why}. Hint: {stop}.",)
    assert [table.because for table in found.tables][4] == f"Table shop.e is incomplete: {why}."


@pytest.mark.parametrize(
    ("names", "said"), [("a", "a"), ("ab", "a and b"), ("abc", "a, b and c"), ("abcd", "a, b and 2 others")]
)
def test_names_are_listed_as_people_do(names: str, said: str) -> None:
    """At most three of them."""
    assert several(names) == said


def test_the_newest_steps_are_read_from_the_checkpoints(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table of many files only those that hold the newest; a large file, which holds thousands, is left alone."""
    head = lake.orders(1)
    for step, counts in ((9, {}), (10, {"backlog": 4, "read_ms": 30, "apply_ms": 1200}), (11, {"checkpoint_ms": 80})):
        lake.checkpoint(head, step=step, resolved_ts=TS - 20 + step, counts={"applied": 5, **counts})
    lake.checkpoint(head, step=12, resolved_ts=TS - 20 + 11)

    found = lake.status().steps

    assert [(step.step, step.rows, step.backlog) for step in found] == [(11, 5, None), (10, 5, 4)]
    assert found[1].seconds == {"read": 0.03, "apply": 1.2, "checkpoint": 0.08}

    monkeypatch.setattr(control_reader, "_FOLD_BYTES", 1)
    assert lake.status().steps == ()


def test_names_are_quoted_where_they_must_be(lake: Lake) -> None:
    """The queries can be pasted into Spark."""
    lake.checkpoint(1, tables={}, cut=Cut({("my-shop", "a`b"): 4}))

    assert lake.status().cut == ("SELECT * FROM lake.`my-shop`.`a``b` VERSION AS OF 4;",)


def test_the_keys_of_the_json_do_not_depend_on_what_is_there(lake: Lake) -> None:
    """A changefeed that never ran has the same keys as one with everything."""
    never = json.loads(lake.status().to_json())
    lake.checkpoint(lake.orders(1))

    assert json.loads(lake.status().to_json()).keys() == never.keys()


def test_the_keys_of_the_json_are_explained(lake: Lake) -> None:
    """docs/output.md has each key, nested ones too."""
    lake.checkpoint(lake.orders(1))
    stamp = {"applier.changefeed": "shop", "applier.epoch": "3", "applier.resolved-ts": "7", "applier.dropped-at": "5"}
    lake.world.create(("shop", "orders_dropped_5"), {"id": pa.int64()}, properties=stamp)
    lake.write("schema_changes", decision_rows([SchemaDecision(TS, ORDERS, "…", "x", "applied")], 3))
    lake.write("dead_letters", letter_rows([DeadLetter("shop", 0, 7, None, None, None, "e", 1)], 3))
    page = (Path(__file__).parents[4] / "docs/output.md").read_text(encoding="utf-8")
    chapter = page.partition("## `applier status`")[2].partition("\n## ")[0]

    assert [key for key in _keys(json.loads(lake.status().to_json())) if f"`{key}`" not in chapter] == []


def _keys(value: Any) -> set[str]:
    if isinstance(value, list):
        return {key for item in value for key in _keys(item)}
    if not isinstance(value, dict):
        return set()
    inner = {key for name, item in value.items() if name != "counts" for key in _keys(item)}
    return {*value, *inner}


def test_a_terminal_shows_all_of_it(lake: Lake) -> None:
    """The verdict comes first, and what is left out is counted."""
    head = lake.orders(2)
    lake.checkpoint(head)
    lake.write("schema_changes", decision_rows([SchemaDecision(TS, ORDERS, "DROP TABLE x", "x", "refused", "no")], 3))
    lake.write("dead_letters", letter_rows([DeadLetter("shop", 0, 7, None, None, None, "bad [red]", 1)], 3))
    out = io.StringIO()

    render(lake.status(), Console(file=out, width=140))

    shown = out.getvalue()
    assert shown.startswith("fresh · the only table is true as of 2026-11-21 01:01:45 (30 s ago)\n")
    for text in (
        "process 41 on host-a",
        "shop/1",
        "no watermark of it",
        "DROP TABLE x",
        "bad [red]",
        "in step",
        "1 query",
    ):
        assert text in shown


def test_the_command_prints_json_and_exits_with_the_verdict(lake: Lake, tmp_path: Path) -> None:
    """`--max-lag` moves the line between fresh and stale; `--cut` prints what Spark SQL takes, and nothing else."""
    lake.checkpoint(lake.orders(1))
    file = _file(lake, tmp_path)

    stale = CliRunner().invoke(cli.app, ["status", "-c", str(file), "--json", "--max-lag", "0"])
    fresh = CliRunner().invoke(cli.app, ["status", "-c", str(file), "--json", "--max-lag", "1e12"])

    cut = CliRunner().invoke(cli.app, ["status", "-c", str(file), "--cut", "--max-lag", "0"])

    assert (cut.exit_code, cut.stdout) == (1, f"SELECT * FROM lake.shop.orders VERSION AS OF {lake.head};\n")
    same = CliRunner().invoke(cli.app, ["status", "-c", str(file), "--cut", "spark", "--max-lag", "0"])
    python = CliRunner().invoke(cli.app, ["status", "-c", str(file), "--cut", "pyiceberg", "--max-lag", "1e12"])
    alone = CliRunner().invoke(cli.app, ["status", "-c", str(file), "pyiceberg"])

    names: dict[str, Any] = {}
    exec(python.stdout, names)  # noqa: S102 - what a user is to paste
    names["catalog"].close()
    assert same.stdout == cut.stdout
    assert names["tables"]["shop.orders"].num_rows == 1
    assert (
        str(alone.exception) == "pyiceberg names an engine for the queries of --cut: add --cut, or leave pyiceberg out."
    )
    assert (stale.exit_code, json.loads(stale.stdout)["verdict"]) == (1, "stale")
    assert (fresh.exit_code, json.loads(fresh.stdout)["exit_code"]) == (0, 0)


@pytest.mark.parametrize(("engine", "mark"), [("spark", "--"), ("duckdb", "--"), ("pyiceberg", "#")])
def test_a_cut_is_whole_however_old_it_is_and_names_what_it_lacks(
    engine: str, mark: str, lake: Lake, tmp_path: Path
) -> None:
    """The lag is of years, and a table is parked: what is printed shows one moment all the same."""
    parked = Completeness(Reason(Why.BY_HAND, "out of order"), TS, FeedPosition(USERS, TS))
    lake.world.create(("shop", "users"), {"id": pa.int64()})
    lake.checkpoint(
        lake.orders(1), tables={ORDERS: Tracked(1, completeness=LIVE), USERS: Tracked(1, completeness=parked)}
    )
    file = _file(lake, tmp_path)

    found = CliRunner().invoke(cli.app, ["status", "-c", str(file), "--cut", engine])

    first, *rest = found.stdout.splitlines()
    assert found.exit_code == 0
    reason = f"Table shop.users is parked since resolved ts {TS}: out of order."
    assert first == f"{mark} {reason}"
    assert "users" not in "".join(rest)
    assert "orders" in rest[-1]


@pytest.mark.parametrize("engine", ["spark", "duckdb", "pyiceberg"])
def test_without_a_cut_nothing_is_printed_but_the_reason(engine: str, lake: Lake, tmp_path: Path) -> None:
    """A script does not take the lines that an engine needs first for a cut."""
    parked = Completeness(Reason(Why.BY_HAND, "out of order"), TS, FeedPosition(USERS, TS))
    lake.world.create(("shop", "users"), {"id": pa.int64()})
    lake.checkpoint(0, cut=Cut(), tables={USERS: Tracked(1, completeness=parked)})

    found = CliRunner().invoke(cli.app, ["status", "-c", str(_file(lake, tmp_path)), "--cut", engine])

    assert found.exit_code == 1
    assert [line[:2] for line in found.stdout.splitlines()] in (["--"] * 2, ["# "] * 2)


def _file(lake: Lake, folder: Path) -> Path:
    file = folder / "applier.toml"
    sections = lake.world.raw
    file.write_text(
        "\n".join(f"[{name}]\n" + "\n".join(f'{k} = "{v}"' for k, v in keys.items()) for name, keys in sections.items())
    )
    return file


def test_a_catalog_that_does_not_answer_is_no_verdict(lake: Lake, tmp_path: Path) -> None:
    """Nobody can tell, which is neither fresh nor stale."""
    lake.checkpoint(lake.orders(1))
    (tmp_path / "catalog.db").write_bytes(b"no database at all" * 100)

    with pytest.raises(TransientError, match="Cannot open catalog lake"):
        lake.status()


def test_a_catalog_of_java_alone_is_a_matter_of_configuration(lake: Lake) -> None:
    """PyIceberg cannot read it."""
    lake.world.raw["catalog"]["type"] = "nessie"

    with pytest.raises(ConfigError, match="nessie can be read through Spark alone"):
        lake.status()


def test_the_changefeed_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths begin beside the configuration, so that nobody is told to begin a second lake."""
    lake = Lake(tmp_path)
    lake.checkpoint(lake.orders(5))
    file, elsewhere = tmp_path / "applier.toml", tmp_path / "elsewhere"
    elsewhere.mkdir()
    file.write_text(
        '[changefeed]\nname = "shop"\nprotocol = "simple"\n[source]\narchive = "topic"\n[catalog]\nname = "lake"\n'
        'type = "jdbc"\nuri = "jdbc:sqlite:catalog.db"\nwarehouse = "tables"\n'
    )
    monkeypatch.chdir(elsewhere)

    for path in ("../applier.toml", str(file)):
        report = status(settings.load(path), now_ms=AT)
        assert (report.step, report.stale) == (12, ())
