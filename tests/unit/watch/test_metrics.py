"""What Prometheus reads of a running changefeed."""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from applier.changefeed.checkpoint import Checkpoint, Cut, Holder, Lease, Tracked
from applier.changefeed.completeness import LIVE, Completeness, Reason, Why
from applier.changefeed.table import TableName
from applier.changefeed.ts import from_unix_ms
from applier.config import settings
from applier.errors import TableMismatch, TransientError
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline, Step
from applier.runtime.logs import Stage, StatusLine
from applier.runtime.outages import OUTAGES, SYSTEMS
from applier.sink.commit.stamp import Stamp
from applier.sink.control.rows import Decision, SchemaDecision
from applier.sink.control.tables import SCHEMA_CHANGES
from applier.sink.iceberg.snapshot import Figures
from applier.watch.board import Board
from applier.watch.metrics import METRICS, NOTES
from applier.watch.report import TableState
from tests.promtool import NEEDS_PROMTOOL, PROMTOOL
from tests.unit.watch.queries import PROCESS, series

CONFIG = {
    "changefeed": {"name": "shop", "protocol": "simple"},
    "source": {"archive": "topic"},
    "catalog": {"name": "lake", "type": "hadoop", "warehouse": "lake"},
}
NOW_MS = 1_700_000_060_000
RESOLVED = from_unix_ms(1_700_000_000_000)
ORDERS, USERS = TableName("shop", "orders"), TableName("shop", "users")
STEP = Step(
    moved=True,
    complete=True,
    status=StatusLine(
        step=4,
        resolved_ts=RESOLVED,
        now_ms=1_700_000_002_500,
        messages=398,
        rows=301,
        waiting=43,
        tables=5,
        backlog=71,
        seconds={"decode": 0.25, "apply": 0.75},
        notes={"dead_letters": 2, "had": 9, "not_found": 4, "expired": 7, "manifests": -1},
    ),
    commits=[(ORDERS, 0.3), (ORDERS, 0.7)],
)


@dataclass
class FakeControl:
    """Control tables in memory."""

    made: list[SchemaDecision] = field(default_factory=list)
    written: Counter[Any] = field(default_factory=Counter)

    def decisions(self, since: int = 0) -> list[SchemaDecision]:
        """Those of DDL at or above a commit ts."""
        return [item for item in self.made if item.commit_ts >= since]

    def letters(self) -> list[Any]:
        """None."""
        return []

    def decide(self, decision: Decision) -> None:
        """Write a decision."""
        self.made.append(SchemaDecision(9, ORDERS, "ALTER TABLE orders DROP a", "drop-column", decision))
        self.written[SCHEMA_CHANGES] += 1


@dataclass
class FakeTable:
    """An Iceberg table with a head."""

    identifier: tuple[str, ...]
    figures: Figures
    asked: list[int] = field(default_factory=list)

    def has_snapshot(self, snapshot_id: int) -> bool:
        """Whether it is kept, which the JVM would be asked: of older ones than the head, none is."""
        self.asked.append(snapshot_id)
        return snapshot_id == self.figures.snapshot_id


@dataclass
class FakeWriter:
    """Writes nothing."""

    table: FakeTable
    known: Stamp | None = None
    rolled_back: TableMismatch | None = None

    @property
    def head(self) -> int:
        """Id of its snapshot."""
        return self.table.figures.snapshot_id


@dataclass
class FakeTargets:
    """The tables of the process, and a catalog that lists what `listed` returns and has what `loaded` returns."""

    writers: list[FakeWriter]
    kept: dict[tuple[str, ...], int] = field(default_factory=dict)
    listed: Callable[[tuple[str, ...]], list[tuple[str, ...]]] = lambda _: []
    loaded: Callable[[tuple[str, ...]], Any] = lambda _: None

    @property
    def catalog(self) -> Any:
        """A catalog."""
        return SimpleNamespace(list=self.listed, load=self.loaded)

    def identifier(self, name: TableName) -> tuple[str, ...]:
        """Where a table goes."""
        return tuple(name)

    def side_by_side(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """One after the other."""
        return [work(item) for item in items]


@dataclass
class Shop:
    """A changefeed with two tables, as its process sees it."""

    board: Board
    control: FakeControl
    state: State
    writers: list[FakeWriter]

    def __post_init__(self) -> None:
        self.targets = FakeTargets(self.writers)

    def begin(self) -> None:
        """Take the changefeed."""
        self.board.begin(self.pipeline)

    def step(self, step: Step = STEP) -> None:
        """Make a step; what is known of the tables goes into the checkpoint."""
        tables = {name: replace_known(self.state, name) for name in self.state.checkpoint.tables}
        self.state.checkpoint = replace(self.state.checkpoint, tables=tables)
        self.board.take(self.pipeline, step)

    @property
    def pipeline(self) -> Pipeline:
        """What the board looks at."""
        known = {"state": self.state, "targets": self.targets, "config": self.board.config}
        return cast("Pipeline", SimpleNamespace(**known))

    def value(self, name: str, **labels: str) -> float | None:
        """A sample of the metrics, as they would be scraped now."""
        return self.board.metrics.registry.get_sample_value(f"applier_{name}", {"changefeed": "shop"} | labels)


def replace_known(state: State, name: TableName) -> Tracked:
    """What the next checkpoint says of a table."""
    return state.checkpoint.tables[name]._replace(completeness=state.completeness[name])


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Before its checkpoint is read, at a time that stands still."""
    monkeypatch.setattr(OUTAGES, "counts", Counter())
    monkeypatch.setattr(time, "time", lambda: NOW_MS / 1000)
    control = FakeControl()
    holder = Holder("a", "host", pid=7, since=NOW_MS - 90_000)
    tables = {ORDERS: Tracked(1, completeness=LIVE), USERS: Tracked(1, completeness=LIVE)}
    heads: dict[tuple[str, ...], int] = {("shop", "orders"): 11}
    checkpoint = Checkpoint(Lease(3, holder), 9, RESOLVED, NOW_MS - 1000, cut=Cut(heads), tables=tables)
    state = State(cast("Any", control), checkpoint, completeness=dict.fromkeys(tables, LIVE))
    figures = Figures(11, rows=500, files=8, committed_ms=1_699_999_999_000, sequence=40)
    return Shop(Board(settings.parse(CONFIG)), control, state, [FakeWriter(FakeTable(("shop", "orders"), figures))])


def test_counters_add_up_and_gauges_show_the_newest_step(shop: Shop) -> None:
    """Two steps: what was done is summed, what is left is what the second says."""
    shop.begin()
    shop.step()
    shop.step(replace(STEP, status=replace(STEP.status, backlog=0, waiting=1, notes={}), commits=()))

    assert shop.value("steps_total") == 2
    assert shop.value("messages_total") == 796
    assert shop.value("rows_total") == 602
    assert shop.value("commits_total") == 10
    assert shop.value("dead_letters_total") == 2
    assert shop.value("not_found_total") == 4
    assert shop.value("expired_snapshots_total") == 7
    assert shop.value("merged_manifests_total") == 0, "a counter never goes back"
    assert shop.value("stage_duration_seconds_sum", stage="decode") == 0.5
    assert shop.value("step_duration_seconds_count") == 2
    assert shop.value("step_duration_seconds_sum") == 2
    assert shop.value("commit_duration_seconds_sum", table="shop.orders") == 1
    assert shop.value("commit_duration_seconds_count", table="shop.users") == 0
    assert shop.value("backlog_messages") == 0
    assert shop.value("waiting_rows") == 1
    assert shop.value("last_step_timestamp_seconds") == 1_700_000_002.5


def test_a_look_that_found_nothing_is_no_step(shop: Shop) -> None:
    """It says how much is left, and adds nothing to what was done."""
    shop.begin()
    shop.step(replace(STEP, moved=False, commits=()))

    assert shop.value("backlog_messages") == 71
    assert shop.value("messages_total") == shop.value("step_duration_seconds_count") == 0
    assert shop.value("last_step_timestamp_seconds") is None


def test_lag_grows_while_no_step_comes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that hangs must not look fresh: the lag is taken when it is asked for, and the hold is seen to end."""
    shop.begin()
    assert (shop.value("lag_seconds"), shop.value("table_lag_seconds", table="shop.orders")) == (60, 60)
    assert (shop.value("fresh"), shop.value("lease_held")) == (1, 1)

    monkeypatch.setattr(time, "time", lambda: NOW_MS / 1000 + 300)

    assert (shop.value("lag_seconds"), shop.value("table_lag_seconds", table="shop.orders")) == (360, 360)
    assert (shop.value("fresh"), shop.value("lease_held")) == (0, 0)
    assert shop.value("last_heartbeat_timestamp_seconds") == NOW_MS / 1000 - 1
    assert shop.value("max_lag_seconds") == 300


def test_a_reload_shows_the_new_configuration_and_goes_on_counting(shop: Shop) -> None:
    """Counters that began again would look like a restart."""
    shop.begin()
    shop.step()
    counted, before = shop.value("messages_total"), shop.value("ddl_decisions_total", decision="applied")
    assert shop.value("lease_held") == 1
    config = settings.parse(CONFIG | {"run": {"heartbeat_seconds": 0.1, "lease_seconds": 0.5}})
    pipeline = shop.pipeline
    cast("Any", pipeline).config = config

    shop.board.begin(pipeline)

    assert shop.board.config is config
    assert shop.value("lease_held") == 0, "its last sign is a second old"
    assert (shop.value("messages_total"), shop.value("ddl_decisions_total", decision="applied")) == (counted, before)


def test_a_feed_in_offset_order_has_no_lag(shop: Shop) -> None:
    """Without a watermark the lag is not known, and 0 would be a lie."""
    raw = CONFIG | {"changefeed": {"name": "shop", "protocol": "canal-json", "order": "offset"}}
    shop.board = Board(settings.parse(raw))
    shop.state.checkpoint = replace(shop.state.checkpoint, resolved_ts=0)
    shop.begin()
    shop.step()

    assert shop.value("messages_total") == 398
    assert shop.value("changefeed_info", order="offset", protocol="canal-json") == 1
    assert shop.value("resolved_timestamp_seconds") is None
    assert shop.value("lag_seconds") is None


@pytest.mark.parametrize("resolved_ts", [None, 0])
def test_a_step_without_a_watermark_has_no_lag_on_the_page(shop: Shop, resolved_ts: int | None) -> None:
    """Before the first watermark, the plot does not begin with half a century."""
    shop.begin()
    shop.step(replace(STEP, status=replace(STEP.status, resolved_ts=resolved_ts)))

    assert shop.board.history.points[-1].lag is None
    assert shop.board.view().report.steps[0].lag_seconds is None


def test_a_table_that_an_error_parks_is_counted_once(shop: Shop) -> None:
    """Its state changes, and its lag is the age of what it shows; one that a user parks is no failure."""
    shop.begin()
    shop.state.completeness[ORDERS] = Completeness(Reason(Why.DDL, "it is refused"), from_unix_ms(NOW_MS - 5000))
    shop.state.completeness[USERS] = Completeness(Reason(Why.BY_HAND, "a move"), from_unix_ms(NOW_MS - 7000))
    shop.step()
    shop.step()

    assert shop.value("table_failures_total", table="shop.orders") == 1
    assert shop.value("table_failures_total", table="shop.users") == 0
    assert shop.value("table_lag_seconds", table="shop.orders") == 5
    states = {state: shop.value("table_state", table="shop.orders", state=state) for state in get_args(TableState)}
    assert {state for state, value in states.items() if value} == {"parked"}
    assert None not in states.values()


def test_a_table_that_was_parked_before_the_start_did_not_fail_now(shop: Shop) -> None:
    """A restart is not another failure."""
    shop.state.completeness[ORDERS] = Completeness(Reason(Why.DDL, "it is refused"), RESOLVED)
    shop.begin()
    shop.step()

    assert shop.value("table_failures_total", table="shop.orders") == 0


def test_commits_of_a_table_count_from_the_start(shop: Shop) -> None:
    """By sequence number, from its beginning where the table was made anew; of a table without commits nothing."""
    orders = shop.writers[0].table
    shop.begin()
    assert shop.value("table_commits_total", table="shop.orders") == 0
    assert shop.value("table_rows", table="shop.orders") == 500
    assert shop.value("table_files", table="shop.orders") == 8
    assert shop.value("table_last_commit_timestamp_seconds", table="shop.orders") == 1_699_999_999
    assert shop.value("table_rows", table="shop.users") is None

    orders.figures = replace(orders.figures, snapshot_id=12, sequence=43)
    shop.step()
    assert shop.value("table_commits_total", table="shop.orders") == 3

    orders.figures = replace(orders.figures, snapshot_id=13, sequence=2)
    shop.step()
    assert shop.value("table_commits_total", table="shop.orders") == 2


def test_every_commit_of_a_new_table_counts(shop: Shop) -> None:
    """It is there after the step that made it, which committed to it, too."""
    new = TableName("shop", "new")
    shop.begin()
    shop.state.completeness[new] = LIVE
    shop.state.checkpoint = replace(
        shop.state.checkpoint, tables={**shop.state.checkpoint.tables, new: Tracked(1, completeness=LIVE)}
    )
    shop.writers.append(FakeWriter(FakeTable(("shop", "new"), Figures(5, 10, 1, NOW_MS, sequence=2))))
    shop.step(replace(STEP, commits=[(new, 0.4)]))

    assert shop.value("table_commits_total", table="shop.new") == 2
    assert shop.value("commit_duration_seconds_sum", table="shop.new") == 0.4


@pytest.mark.parametrize(
    ("stamp", "cut", "state"),
    [
        (Stamp("shop", 3, RESOLVED), 11, "in step"),
        (Stamp("shop", 3, RESOLVED + 1), 11, "ahead"),
        (Stamp("shop", 3, RESOLVED, {"applier.dropped-at": "7"}), 11, "dropped"),
        (Stamp("shop", 3, RESOLVED), 9, "expired"),
        (Stamp("shop", 3, RESOLVED), None, "empty"),
        (None, None, "empty"),
    ],
)
def test_the_state_of_a_table_is_what_its_metadata_shows(
    shop: Shop, stamp: Stamp | None, cut: int | None, state: str
) -> None:
    """As `status` has it; and the JVM is asked for what has changed alone, however many steps follow."""
    heads: dict[tuple[str, ...], int] = {} if cut is None else {("shop", "orders"): cut}
    shop.state.checkpoint = replace(shop.state.checkpoint, cut=Cut(heads))
    shop.writers[0].known = stamp
    shop.begin()
    for _ in range(3):
        shop.step()

    orders = shop.board.view().report.tables[0]
    assert (orders.state, orders.rows, orders.snapshot_id, orders.cut_snapshot_id) == (state, 500, 11, cut)
    assert shop.writers[0].table.asked == ([9] if state == "expired" else [])


def test_a_table_that_was_rolled_back_makes_the_page_stale(shop: Shop) -> None:
    """With the reason and the way out that the process has for it."""
    back = TableMismatch(
        "Table shop.orders was rolled back by hand: it was, but it is", "Run `applier resume -c FILE`."
    )
    shop.writers[0].rolled_back = back
    shop.begin()

    report = shop.board.view().report
    assert (report.verdict, report.tables[0].state) == ("stale", "rolled back")
    assert str(report.stale[0]) == (
        "Table shop.orders was rolled back by hand: it was, but it is. "
        f"Hint: Run `applier resume -c {shop.board.config.path}`."
    )


def test_of_a_table_that_is_not_open_nothing_is_claimed(shop: Shop) -> None:
    """It is not missing for that, and no false alarm is raised."""
    shop.writers.clear()
    shop.begin()

    report = shop.board.view().report
    assert (report.tables[0].state, report.tables[0].snapshot_id, report.verdict) == ("in step", None, "fresh")


def test_a_dropped_table_vanishes(shop: Shop) -> None:
    """With all its series: what it showed last would be shown for ever."""
    shop.begin()
    shop.step()
    assert 'table="shop.orders"' in shop.board.metrics.text().decode()

    shop.state.checkpoint = replace(shop.state.checkpoint, tables={USERS: Tracked(1, completeness=LIVE)})
    shop.step()

    text = shop.board.metrics.text().decode()
    assert 'table="shop.orders"' not in text
    assert 'table="shop.users"' in text


def test_dropped_tables_that_are_kept_are_counted_and_named(shop: Shop) -> None:
    """Those of before by one listing for a start, those of now as their DDL are applied; the verdict stays.

    Tables of others may have such names: what is named is printed with a command that removes it.
    """
    asked: list[tuple[str, ...]] = []
    stamp = {"applier.changefeed": "shop", "applier.epoch": "3", "applier.resolved-ts": "1"}
    made = {
        "orders_dropped_5": {**stamp, "applier.dropped-at": "5"},
        "orders_dropped_9": {**stamp, "applier.dropped-at": "9"},
        "orders_dropped_2022": {},
        "orders_dropped_2023": stamp,
        "orders_dropped_2024": {**stamp, "applier.changefeed": "other", "applier.dropped-at": "2024"},
    }

    def listed(namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        asked.append(namespace)
        names = ("orders", *made, "orders_dropped_2025", "foreign", "foreign_dropped_5", "users_dropped_x")
        return [(*namespace, name) for name in names]

    def loaded(identifier: tuple[str, ...]) -> Any:
        properties = made.get(identifier[-1])
        return None if properties is None else SimpleNamespace(properties=properties, identifier=identifier)

    shop.targets.listed, shop.targets.loaded = listed, loaded
    shop.state.versions[TableName("shop", "ratings"), 1] = cast("Any", None)
    shop.targets.kept["shop", "ratings"] = 7
    assert shop.value("dropped_tables") is None
    shop.begin()
    shop.step()
    shop.step()
    report = shop.board.view().report
    assert report.dropped is not None
    assert [(it.table, it.iceberg, it.dropped_ts, it.rows) for it in report.dropped] == [
        ("shop.orders", "shop.orders_dropped_5", 5, None),
        ("shop.orders", "shop.orders_dropped_9", 9, None),
        ("shop.ratings", "shop.ratings", 7, None),
    ]
    assert (shop.value("dropped_tables"), report.verdict, asked) == (3, "fresh", [("shop",)])

    shop.targets.kept["shop", "orders"] = 11
    shop.step()
    assert shop.value("dropped_tables") == 3, "its DROP is in no checkpoint yet: it is among the tables"
    shop.state.checkpoint = replace(shop.state.checkpoint, tables={USERS: Tracked(1, completeness=LIVE)})
    shop.state.versions[ORDERS, 1] = cast("Any", None)
    shop.step()
    assert shop.value("dropped_tables") == 4
    del shop.targets.kept["shop", "ratings"]
    shop.step()
    assert (shop.value("dropped_tables"), asked) == (3, [("shop",)])


def test_dropped_tables_are_unknown_where_the_catalog_does_not_list_its_tables(shop: Shop) -> None:
    """No series says that there are none, and everything else is shown."""

    def listed(namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        raise TransientError(f"Cannot list namespace {namespace}.")

    shop.targets.listed = listed
    shop.targets.kept["shop", "users"] = 7
    shop.begin()
    shop.step()

    assert shop.board.view().report.dropped is None
    assert shop.value("dropped_tables") is None
    assert (shop.value("fresh"), shop.value("steps_total")) == (1, 1)


def test_ddl_are_counted_by_what_became_of_them(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since the start; a refused one is pending while it parks its table."""
    shop.control.decide("refused")
    shop.begin()
    assert shop.value("ddl_decisions_total", decision="refused") == 0
    assert shop.value("ddl_refused_pending") == 0, "its table is not parked: somebody has brought it back"

    shop.state.completeness[ORDERS] = Completeness(Reason(Why.DDL, "it is refused"), RESOLVED)
    shop.step()
    assert shop.value("ddl_refused_pending") == 1

    monkeypatch.setattr("applier.watch.board._READ_SECONDS", 0)
    shop.control.decide("skipped")
    shop.step()
    assert shop.value("ddl_decisions_total", decision="skipped") == 1
    assert shop.value("ddl_refused_pending") == 0


def test_an_outage_shows_which_system_does_not_answer(shop: Shop) -> None:
    """While it lasts; after it the counter remains."""
    OUTAGES.begin(ConnectionError("no broker"))
    try:
        assert shop.value("outage", system="other") == 1
        assert shop.value("outage", system="lake") == 0
    finally:
        OUTAGES.end()
    assert shop.value("outage", system="other") == 0
    assert shop.value("outages_total", system="other") == 1


def test_series_are_there_before_the_first_step(shop: Shop) -> None:
    """Rates see the first step, and alerts a process that never comes to one; what is not known is absent."""

    def there() -> set[str]:
        families = list(shop.board.metrics.registry.collect())
        return {sample.name for family in families for sample in family.samples}

    always = [metric for metric in METRICS if not metric.absent and not metric.name.startswith("stage")]
    assert {name for metric in always for name in series(metric)} <= there()
    for stage in get_args(Stage):
        assert shop.value("stage_duration_seconds_count", stage=stage) == 0
    for system in SYSTEMS:
        assert shop.value("outages_total", system=system) == shop.value("outage", system=system) == 0
    for decision in get_args(Decision):
        assert shop.value("ddl_decisions_total", decision=decision) == 0
    assert [shop.value(name) for name in ("lag_seconds", "fresh", "backlog_messages", "lease_epoch")] == [None] * 4
    assert shop.value("lease_held") == 0

    shop.begin()

    assert shop.value("lease_held") == 1
    assert shop.value("lease_epoch") == 3
    assert shop.value("resolved_timestamp_seconds") == 1_700_000_000
    assert shop.value("dead_letters_open") == 0
    assert shop.value("table_failures_total", table="shop.users") == 0
    assert shop.value("commit_duration_seconds_count", table="shop.users") == 0
    assert shop.value("table_state", table="shop.users", state="empty") == 1


def test_everything_that_is_shown_is_defined(shop: Shop) -> None:
    """And the other way round: each definition has series once a step was made."""
    shop.begin()
    shop.step()
    defined = {name for metric in METRICS for name in series(metric)}
    families = list(parsed(shop.board.metrics.text().decode()))
    shown = {sample.name for family in families for sample in family.samples}

    assert {name for name in shown if name.startswith("applier_")} == defined
    assert {name for name in shown if not name.startswith("applier_")} <= set(PROCESS)
    assert set(NOTES) <= {metric.name for metric in METRICS if metric.kind == "counter"}
    build = next(family for family in families if family.name == "applier_build_info").samples[0].labels
    assert all(re.match(r"\d+\.\d+", build[label]) for label in ("version", "python", "spark", "iceberg"))


@NEEDS_PROMTOOL
def test_the_exposition_follows_the_conventions(shop: Shop) -> None:
    """Prometheus' own linter has nothing to say about names, help and types."""
    shop.begin()
    shop.step()
    text = shop.board.metrics.text()
    found = subprocess.run([str(PROMTOOL), "check", "metrics"], input=text, capture_output=True, check=False)

    assert found.stdout.decode() + found.stderr.decode() == ""
    assert found.returncode == 0


def test_every_metric_is_explained() -> None:
    """The page on watching has each by its name."""
    page = (Path(__file__).parents[3] / "docs/watching.md").read_text(encoding="utf-8")

    assert [metric.full_name for metric in METRICS if f"| `{metric.full_name}` |" not in page] == []
