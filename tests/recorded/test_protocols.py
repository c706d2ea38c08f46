"""Recorded changefeeds of every protocol become tables equal to TiDB's, but for what `tests/losses.py` explains."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.mark.structures import ParameterSet

from applier import wording
from applier.changefeed.completeness import Reason, Why
from applier.changefeed.event import SchemaChange
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import Column, TableName
from applier.commands.follower import Follower
from applier.commands.run import Reports, follow
from applier.config import settings
from applier.decode.avro.namesakes import sanitised
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.errors import IncompleteRow, WatermarkStalled
from applier.pipeline.build import decoder_options
from applier.pipeline.step import Pipeline, Step
from tests import expected, recordings
from tests.fake_registry import Answer, fake_registry
from tests.losses import explained
from tests.replay import Replay, differences, doubted, ends_at, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_TIME = {
    "open": ("ddl",),
    "open-shanghai": ("types",),
    "canal-json-ext": ("types",),
    "canal-json-claimcheck-lz4": ("types",),
    "canal-json-raw-change": ("pk",),
    "avro-before-value": ("types",),
    "avro-precise": ("txns",),
    "debezium": ("types",),
    "debezium-avro": ("pk",),
}
"""What `make test` runs; `make test-recorded` runs every variant."""

FAMILIES = (
    ("open", "open"),
    ("canal-json", "canal-json-"),
    ("avro", "avro-precise"),
    ("avro", "avro-string"),
    ("avro", "avro-before"),
    ("debezium", "debezium"),
    ("debezium-avro", "debezium-avro"),
)


def cases() -> Iterator[ParameterSet]:
    """Scenario, protocol and variant of every recording with watermarks that holds its rows."""
    for protocol, prefix in FAMILIES:
        for scenario in ("types", "pk", "txns", "ddl", "partition", "workload"):
            for variant in recordings.variants(scenario, prefix):
                is_other = protocol == "debezium" and variant == "debezium-avro"
                if is_other or "handlekey" in variant or "plain" in variant:
                    continue
                often = scenario in EVERY_TIME.get(variant, ())
                yield pytest.param(scenario, protocol, variant, marks=() if often else pytest.mark.soak)


@contextmanager
def registry_of(scenario: str, variant: str) -> Iterator[str]:
    """Address of a registry that holds what the recorded one held."""
    with fake_registry() as registry:
        for entry in recordings.registry(scenario, variant):
            registry.on(f"/schemas/ids/{entry['id']}", Answer(200, {"schema": entry["schema"]}))
        yield registry.url


@contextmanager
def replaying(
    scenario: str, protocol: str, variant: str, lake: dict[str, str], folder: Path, name: str = ""
) -> Iterator[Replay]:
    """A replay with all that its protocol needs."""
    config = recordings.config(scenario, variant)
    zones = {"timezone": config["server_time_zone"], "session_timezone": "UTC"}
    found = replay(scenario, variant, lake, folder, protocol, name, **zones)
    if scenario == "ddl" and not config["sink"].get("force-replicate"):
        found.raw["tables"]["include"] = ["*.*", f"!{LATE}"]
    if "avro" not in protocol:
        yield found
        return
    with registry_of(scenario, variant) as url:
        found.raw["registry"] = {"url": url}
        yield found


SHAPED = [
    ("simple", "simple-json", "resolved"),
    ("canal-json", "canal-json-ext", "offset"),
    pytest.param("canal-json", "canal-json-ext", "resolved", marks=pytest.mark.soak),
    pytest.param("open", "open", "resolved", marks=pytest.mark.soak),
    pytest.param("open", "open", "offset", marks=pytest.mark.soak),
    pytest.param("avro", "avro-before-value", "resolved", marks=pytest.mark.soak),
    pytest.param("debezium", "debezium", "resolved", marks=pytest.mark.soak),
]
"""Protocols, variants and orders in which tables with a shape are compared."""

LATE = TableName("shop", "sel")
"""Gets its first key by an ALTER TABLE: what it was before is in no feed without `force-replicate`."""

STOPPED = {
    *((scenario, variant) for scenario in ("pk", "txns") for variant in ("avro-precise", "avro-string-checksum")),
    ("pk", "debezium-no-old-value"),
}
"""Feeds that stop by name at a row that they do not hold: Avro without before-values at a delete from a table with only
a unique key, and Debezium without old values at an update of a table without any key."""

UNTOLD = {("pk", "open-no-old-value"): ("keys.k_none:", "keys.k_nulluk:")}
"""Updates of tables without any key look like inserts there, so their contents are not those of upstream."""


def described(scenario: str) -> dict[tuple[TableName, str], Column]:
    """Each column as the last DDL of its table described it, defaults included."""
    decoder = build("simple", DecoderOptions())
    events = (event for r in recordings.records(scenario, "simple-json") for event in decoder.decode(None, r["value"]))
    versions = [event.after for event in events if isinstance(event, SchemaChange) and event.after is not None]
    return {(version.name, column.name): column for version in versions for column in version.columns}


def unexplained(found: Replay, state: Mapping[str, Any], protocol: str) -> list[str]:
    """What differs between the tables and a recorded state, and is no loss of the protocol."""
    problems = differences(found, state)
    if protocol not in ("debezium", "debezium-avro") or not problems:
        return problems
    columns = described(Path(found.scenario).name)  # A build's recording has the tables of the scenario of its name.
    return [problem for problem in problems if not _is_loss(problem, found, state, protocol, columns)]


def _is_loss(
    problem: str,
    found: Replay,
    state: Mapping[str, Any],
    protocol: str,
    columns: Mapping[tuple[TableName, str], Column],
) -> bool:
    """Whether a loss explains each cell of a table that differs; rows are put side by side by what they share."""
    text = problem.split(": ", maxsplit=1)[0]
    rows, name = found.contents(expected.name_of(text)), expected.name_of(text)
    wanted = expected.rows(state["tables"][text])
    if rows is None or len(rows) != len(wanted):
        return False
    left = list(rows)
    for row in wanted:
        twin = left.pop(max(range(len(left)), key=lambda n: sum(_same(left[n], k, cell) for k, cell in row.items())))
        differing = [(k, cell) for k, cell in row.items() if not _same(twin, k, cell)]
        if not all(explained(protocol, columns.get((name, k)), cell, twin.get(k)) for k, cell in differing):
            return False
    return True


def _same(row: Mapping[str, Any], name: str, cell: Any) -> bool:
    return expected.bag([{name: row.get(name)}]) == expected.bag([{name: cell}])


def advance(pipeline: Pipeline, ends: Mapping[TopicPartition, int]) -> Step:
    """Step as far as the ends allow."""
    while True:
        step = pipeline.step(ends)
        if not step.moved:
            return step


@pytest.mark.parametrize(("scenario", "protocol", "variant"), list(cases()))
def test_equal_at_every_recorded_resolved_ts(
    scenario: str, protocol: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Every cell of every table is what SQL showed at that resolved ts, but for what the protocol cannot carry."""
    with replaying(scenario, protocol, variant, lake, tmp_path) as found:
        found.raw["changefeed"]["on_table_error"] = "stop"
        decoder = build(protocol, decoder_options(settings.parse(found.raw)))
        states = 0
        with found.running(spark) as pipeline:
            for state, ends in ends_at(scenario, variant, decoder):
                error = advance(pipeline, ends).error
                if error is not None:
                    assert (scenario, variant) in STOPPED
                    assert isinstance(error, IncompleteRow)
                    return
                untold = UNTOLD.get((scenario, variant), ())
                problems = [p for p in unexplained(found, state, protocol) if not p.startswith(untold)]
                assert problems == [], f"at resolved ts {state['resolved_ts']}"
                states += 1
            assert doubted(found, pipeline) == {}

        assert states == len(recordings.expected(scenario))
        assert (scenario, variant) not in STOPPED


def test_a_row_that_is_not_in_its_message_parks_its_table_alone(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """The message is read, so it is known whose row it lacks: all other tables are right at the end."""
    with replaying("pk", "debezium", "debezium-no-old-value", lake, tmp_path) as found:
        with found.running(spark) as pipeline:
            step = advance(pipeline, pipeline.ends())
            parked = pipeline.state.parked
            reasons = {pipeline.state.completeness[name].reason.detail for name in parked}

        assert step.error is None
        assert parked
        assert all("does not hold the old row" in reason for reason in reasons)
        problems = unexplained(found, recordings.expected("pk")[-1], "debezium")
        assert [problem for problem in problems if not problem.startswith(tuple(f"{name}:" for name in parked))] == []


@pytest.mark.soak
def test_a_table_that_gets_its_first_key_later_stops_no_other(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Its rows from before the key are in no message: it is never shown as whole, and all others are right."""
    with replaying("ddl", "open", "open-shanghai", lake, tmp_path) as found:
        found.raw["tables"]["include"] = ["*.*"]
        with found.running(spark) as pipeline:
            step = advance(pipeline, pipeline.ends())
            decisions = {item.decision for item in pipeline.state.control.decisions() if item.table == LATE}
            known, cut = pipeline.state.completeness.get(LATE), pipeline.state.checkpoint.cut.heads

        assert step.error is None
        assert "without a table" in decisions
        assert known is None or known.state == "incomplete"
        assert found.identifier(LATE) not in cut
        problems = unexplained(found, recordings.expected("ddl")[-1], "open")
        assert [problem for problem in problems if not problem.startswith(f"{LATE}")] == []


PLAIN = (("canal-json", "canal-json"), ("avro", "avro-plain"), ("debezium", "debezium-plain"))
"""Variants without watermarks, and their protocols."""

PLAIN_EVERY_TIME = {
    ("types", "canal-json"),
    ("partition", "canal-json"),
    ("txns", "debezium-plain"),
    ("types", "avro-plain"),
}


UNCREATED = {"avro-plain"}
"""Those of them that have no DDL."""


def plain_cases() -> Iterator[ParameterSet]:
    """Scenario, protocol and variant of every recording without watermarks."""
    for scenario in ("types", "pk", "txns", "ddl", "partition"):
        for protocol, variant in PLAIN:
            if variant == "avro-plain" and scenario in ("ddl", "partition"):
                continue  # Rows that a DDL takes away do not go without it: see the tests below.
            often = (scenario, variant) in PLAIN_EVERY_TIME
            yield pytest.param(scenario, protocol, variant, marks=() if often else pytest.mark.soak)


@pytest.mark.parametrize(("scenario", "protocol", "variant"), list(plain_cases()))
def test_equal_at_the_end_in_offset_order(
    scenario: str, protocol: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """A feed without watermarks reaches the contents of its end, once its order is said to be by offset."""
    with replaying(scenario, protocol, variant, lake, tmp_path) as found:
        found.raw["changefeed"] |= {"order": "offset", "on_table_error": "stop"}
        with found.running(spark) as pipeline:
            error = advance(pipeline, pipeline.ends()).error
            assert pipeline.state.resolved_ts == 0
            lacking = doubted(found, pipeline)

        if (scenario, variant) in (("pk", "avro-plain"), ("txns", "avro-plain")):
            assert isinstance(error, IncompleteRow)  # As those of `STOPPED`.
            return
        assert error is None
        # Without DDL messages there is no CREATE TABLE, which alone shows that no row came before the feed.
        assert lacking == (
            dict.fromkeys(found.tables(), wording.clause(Reason(Why.NO_CREATE))) if variant in UNCREATED else {}
        )
        state = recordings.expected(scenario)[-1]
        assert unexplained(found, as_plain(state) if variant == "avro-plain" else state, protocol) == []


def as_plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """The contents as Avro without DDL tells them: names sanitised, virtual columns there and NULL."""
    tables = {}
    for text, table in state["tables"].items():
        columns = [{**column, "name": sanitised(column["name"])} for column in table["columns"]]
        tables[text] = {**table, "columns": columns}
    return {**state, "tables": tables}


def test_a_type_that_changes_where_no_ddl_is_sent_is_refused(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Avro without DDL messages shows by its schemas alone that a column is another one: it is never guessed how.

    The table is parked before anything of the step is committed to it.
    """
    with replaying("ddl", "avro", "avro-plain", lake, tmp_path) as found:
        found.raw["changefeed"]["order"] = "offset"
        found.raw["tables"]["unknown_default"] = "null"
        with found.running(spark) as pipeline:
            assert advance(pipeline, pipeline.ends()).error is None
            known = pipeline.state.completeness[TableName("mirror", "orders")]

        assert (known.state, known.reason.detail) == (
            "parked",
            "A column of table mirror.orders changed its type in the middle of a step, and the feed carries no DDL",
        )
        assert found.contents(TableName("mirror", "orders")) == []


def test_rows_that_a_partition_takes_with_it_stay_where_no_ddl_is_sent(
    spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Avro without DDL messages shows no row of a TRUNCATE or DROP PARTITION: tables have them on top of upstream's."""
    with replaying("partition", "avro", "avro-plain", lake, tmp_path) as found:
        found.raw["changefeed"]["order"] = "offset"
        with found.running(spark) as pipeline:
            assert advance(pipeline, pipeline.ends()).error is None
        state = as_plain(recordings.expected("partition")[-1])
        (problem,) = [line for line in unexplained(found, state, "avro") if line.startswith("parts.p_hash:")]
        assert problem.startswith("parts.p_hash: 13 rows for 1\n")
        assert problem.endswith("wants []")


@pytest.mark.parametrize(("protocol", "variant"), PLAIN)
def test_a_run_that_follows_a_feed_without_watermarks_ends(
    protocol: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """As long as its order is not said to be by offset; nothing of it is shown or counts as read."""
    with replaying("types", protocol, variant, lake, tmp_path) as found:
        found.raw["changefeed"]["name"] = f"never-{variant}"
        found.prefix = f"never_{found.prefix}"
        found.raw["tables"]["route"] = f"{found.prefix}__{{database}}.{{table}}"
        found.raw["run"] = {"interval_seconds": 0.001, "freshness_seconds": 0}
        minutes = itertools.count(0, 60)
        with found.running(spark) as pipeline:
            with pytest.raises(WatermarkStalled, match=r"No watermark has ever come from .*order = \"offset\""):
                follow(Follower(pipeline), threading.Event(), Reports(lambda status: None), lambda: next(minutes))
            assert pipeline.state.checkpoint.step == 0

    assert not found.tables()
