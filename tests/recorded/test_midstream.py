"""Recordings of the Simple protocol that start in the middle: tables loaded before are carried on from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from _pytest.mark.structures import ParameterSet

from applier import wording
from applier.changefeed.types import TypeRules, column_arrow_type
from applier.commands.status.command import status
from applier.config import settings
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.errors import TableMismatch, WatermarkStalled
from applier.pipeline.stall import refuse_stall
from applier.sink.control.rows import IgnoredFor
from tests import expected, recordings
from tests.recorded.test_protocols import advance, replaying
from tests.replay import Replay, differences, ends_at, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIANTS = recordings.variants("midstream", "simple-")


LEFT_OPEN = {"open": "mid.evt", "canal-json": "mid.evt", "debezium": "mid.acct"}
"""Loaded tables that rows alone do not describe: Open and Canal-JSON name no members of an ENUM, and Debezium sends
decimals as doubles, which the DDL of the table alone show."""

EVERY_TIME = ("simple-json", "simple-avro-on-demand", "canal-json-ext", "avro-precise", "debezium")
"""What `make test` runs; `make test-recorded` runs every variant."""

UNDESCRIBED = ("simple-json-no-bootstrap", "debezium-noschema", "canal-json", "avro-plain", "debezium-plain")
"""Variants whose rows wait for a schema, and those without watermarks."""


def begun_midstream() -> Iterator[ParameterSet]:
    """Protocol and variant of every recording that can begin in the middle."""
    protocols = ("simple", "open", "canal-json", "avro", "debezium-avro", "debezium")
    for variant in recordings.variants("midstream"):
        if variant not in UNDESCRIBED:
            protocol = next(name for name in protocols if variant.startswith(name))
            yield pytest.param(protocol, variant, marks=() if variant in EVERY_TIME else pytest.mark.soak)


def load(found: Replay, state: dict[str, object], without: str = "") -> None:
    """Load tables with a recorded state, as somebody who has a dump would: the applier has no part in it."""
    for name, version in expected.tables([state]).items():
        types = {column.name: column_arrow_type(name, column, TypeRules()) for column in version.columns}
        schema = pa.schema([pa.field(column, kind) for column, kind in types.items() if column != without])
        found.catalog.create_namespace_if_not_exists((f"{found.prefix}__{name.database}",))
        table = found.catalog.create_table((f"{found.prefix}__{name.database}", name.table), schema)
        rows = expected.rows(state["tables"][str(name)])  # type: ignore[index]
        table.append(pa.Table.from_pylist(rows, schema=schema))


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(variant, marks=() if variant in EVERY_TIME else pytest.mark.soak)
        for variant in VARIANTS
        if "no-bootstrap" not in variant
    ],
)
def test_equal_at_every_recorded_resolved_ts(
    variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Tables loaded before the recording starts are what SQL showed at every resolved ts after it."""
    first = recordings.expected("midstream")[0]
    found = replay("midstream", variant, lake, tmp_path, "simple", start="midstream")
    load(found, first)
    before, *states = ends_at("midstream", variant, build("simple", DecoderOptions()))
    with found.running(spark) as pipeline:
        for state, ends in states:
            while pipeline.step(ends).moved:
                pass
            assert differences(found, state) == [], f"at resolved ts {state['resolved_ts']}"

    assert before[0] == first
    assert len(states) == len(recordings.expected("midstream")) - 1


def test_rows_without_a_schema_stop_the_watermark(spark: SparkSession, lake: dict[str, str], tmp_path: Path) -> None:
    """Without BOOTSTRAP messages nothing is applied, and the refusal names the rows that wait."""
    found = replay("midstream", "simple-json-no-bootstrap", lake, tmp_path, "simple", start="midstream")
    state = recordings.expected("midstream")[0]
    load(found, state)
    with found.running(spark) as pipeline:
        ends = pipeline.ends()
        step = pipeline.step(ends)
        while step.moved or not step.complete:
            step = pipeline.step(ends)

        with pytest.raises(WatermarkStalled) as refusal:
            refuse_stall(step)

    assert differences(found, state) == []
    assert "Rows wait for a schema that has not come: " in refusal.value.what
    assert "of table mid.acct from golden-midstream/0, first at commit ts 4706069147" in refusal.value.what
    assert "BOOTSTRAP message every 120 seconds" in refusal.value.hint


def test_table_that_does_not_fit_is_refused(spark: SparkSession, lake: dict[str, str], tmp_path: Path) -> None:
    """A loaded table that lacks a column is named with the column, and stays as it is; all others go on."""
    found = replay("midstream", "simple-json", lake, tmp_path, "simple", name="midstream-unfit", start="midstream")
    found.raw["changefeed"]["on_table_error"] = "stop"
    load(found, recordings.expected("midstream")[0], without="bal")
    sentence = "midstream_unfit__mid.acct cannot be adopted: column bal is missing, upstream it needs decimal(12, 2)."
    with found.running(spark) as pipeline, pytest.raises(TableMismatch, match="cannot be adopted") as refusal:
        pipeline.step()

    assert sentence in refusal.value.what
    found.raw["changefeed"]["on_table_error"] = "park"
    with found.running(spark) as pipeline:
        while pipeline.step().moved:
            pass
        reasons = {
            str(table): wording.clause(pipeline.state.completeness[table].reason) for table in pipeline.state.parked
        }

    assert reasons == {"mid.acct": f"Table {sentence}".rstrip(".")}
    assert len(found.contents(expected.name_of("mid.acct")) or ()) == 10
    problems = differences(found, recordings.expected("midstream")[-1])
    assert [line for line in problems if not line.startswith("mid.acct:")] == []


@pytest.mark.parametrize(("protocol", "variant"), list(begun_midstream()))
def test_a_window_with_ddl_of_loaded_tables_leaves_them_equal_and_live(
    protocol: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """The first window holds all DDL: each changes its table from what the rows below it show, and `status` is well."""
    left_open = LEFT_OPEN.get(protocol)
    first, last = (
        {**state, "tables": {name: table for name, table in state["tables"].items() if name != left_open}}
        for state in (recordings.expected("midstream")[0], recordings.expected("midstream")[-1])
    )
    with replaying("midstream", protocol, variant, lake, tmp_path) as found:
        name = f"window-{variant}"
        found.prefix = name.replace("-", "_")
        found.raw["changefeed"] |= {"name": name, "start": "midstream"}
        found.raw["tables"] = {"route": f"{found.prefix}__{{database}}.{{table}}", "include": [*last["tables"]]}
        load(found, first)
        with found.running(spark) as pipeline:
            advance(pipeline, pipeline.ends())
            resolved_ts = pipeline.state.resolved_ts
        report = status(settings.parse(found.raw), now_ms=(resolved_ts >> 18) + 5000)

        assert {table.table: table.state for table in report.tables} == dict.fromkeys(last["tables"], "in step")
        assert {change.decision for change in report.schema_changes if change.reason != IgnoredFor.LEFT_OUT.words} <= {
            "applied",
            "rewritten",
        }
        assert differences(found, last) == []


@pytest.mark.parametrize(
    ("variant", "start"),
    [
        ("debezium", "midstream"),
        ("debezium-no-old-value", "beginning"),
        pytest.param("debezium", "beginning", marks=pytest.mark.soak),
        pytest.param("debezium-no-old-value", "midstream", marks=pytest.mark.soak),
    ],
)
def test_rows_from_before_the_first_ddl_of_a_table_keep_every_digit(
    variant: str, start: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Debezium describes a table in its DDL alone: rows of both sides are read right, and the DDL is applied once."""
    name = f"midstream-{variant}-{start}"
    found = replay("midstream", variant, lake, tmp_path, "debezium", name=name, start=start)
    with found.running(spark) as pipeline:
        ends = pipeline.ends()
        while pipeline.step(ends).moved:
            pass

    state = recordings.expected("midstream")[-1]
    for text in state["tables"]:
        rows = expected.bag(found.contents(expected.name_of(text)) or [])
        assert len(rows) > 5
        assert set(rows) <= set(expected.bag(expected.rows(state["tables"][text]))), text


@pytest.mark.parametrize(
    ("protocol", "variant"), [("open", "open"), pytest.param("canal-json", "canal-json-ext", marks=pytest.mark.soak)]
)
def test_a_loaded_table_supplies_what_rows_leave_open(
    protocol: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Rows do not name the precision of a decimal: a table loaded with it is adopted, and stays equal."""
    found = replay("midstream", variant, lake, tmp_path, protocol, name=f"loaded-{variant}", start="midstream")
    found.raw["tables"]["include"] = ["mid.acct", "mid.tag"]
    states = [
        ({**state, "tables": {name: table for name, table in state["tables"].items() if name != "mid.evt"}}, ends)
        for state, ends in ends_at("midstream", variant, build(protocol, DecoderOptions()))
    ]
    load(found, states[0][0])
    with found.running(spark) as pipeline:
        for state, ends in states[1:]:
            while pipeline.step(ends).moved:
                pass
            assert differences(found, state) == [], f"at resolved ts {state['resolved_ts']}"
