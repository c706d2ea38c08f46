"""Recorded Debezium feeds, in JSON and in Avro, against the tables that SQL showed and TiCDC's known losses."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import cramjam
import lz4.frame
import msgspec
import pytest

from applier.changefeed.event import Bootstrap, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.table import Column, TableName
from applier.config.protocols import PROTOCOLS
from applier.decode.debezium.avro_decoder import DebeziumAvroDecoder
from applier.decode.debezium.json_decoder import DebeziumDecoder
from applier.decode.debezium.rows import UNKNOWN_VERSION
from applier.decode.options import DecoderOptions
from tests import expected, recordings
from tests.model import Model
from tests.model import replay as follow
from tests.unit.decode.recorded_registry import RecordedRegistry
from tests.unit.decode.replay import Comparison, Decoded, decode_all

pytestmark = pytest.mark.slow

SCENARIOS = ("types", "ddl", "pk", "partition", "midstream", "txns")
JSON = ("debezium", "debezium-noschema", "debezium-plain", "debezium-no-old-value")
VARIANTS = (*JSON, "debezium-avro")
FEEDS = [(scenario, variant) for scenario in SCENARIOS for variant in VARIANTS]

UNTOLD = {("midstream", "debezium-noschema"), ("midstream", "debezium-plain")}
"""Feeds whose first rows show no types, or leave them open: the CREATE TABLE came before the feed begins."""

DEFAULTS = {
    "types.t_def.n2": "9",
    "types.t_def.s2": "nul'l",
    "types.t_def.dd": "1.50",
    "types.t_def.dt": "2020-02-29 01:02:03",
    "types.t_def.bb": "5",
    "types.t_def.ee": "y",
    "types.t_def.vb": b"vb",
    "shop.orders.c_after": "2020-01-01 00:00:00",
    "shop.orders.c_def_new": "chg",
    "shop.orders.m3": "mm",
}
"""Columns with a DEFAULT that hold NULL arrive as the default. `t_def.ts`, by CURRENT_TIMESTAMP, stays NULL."""

EPOCHS = {
    "types.t_zero.nn_date": "1970-01-01",
    "types.t_zero.nn_dt": "1970-01-01 00:00:00",
    "types.t_zero.nn_ts": "1970-01-01 00:00:00",
    "types.t_zero.z_ts": "1970-01-01 00:00:00",
}
"""Columns with zero or partial dates that arrive as the epoch; nullable DATE and DATETIME columns give NULL."""

MOVED = {"0018-": "2018-", "0099-": "1999-", "0001-": "2001-", "0070-": "1970-"}
"""Years below 100 are taken for years of two digits."""


def decoder(scenario: str, variant: str) -> DebeziumDecoder | DebeziumAvroDecoder:
    """A decoder for a recorded changefeed."""
    if variant == "debezium-avro":
        return DebeziumAvroDecoder(RecordedRegistry(scenario, variant))
    return DebeziumDecoder(DecoderOptions())


def lossy(used: Counter[str]) -> Any:
    """What Debezium makes of a cell, counted by kind of loss."""

    def deviate(name: TableName, column: Column, cell: Any) -> Any:
        path = f"{name}.{column.name}"
        if cell is None and path in DEFAULTS:
            used["default"] += 1
            return DEFAULTS[path]
        if isinstance(cell, str) and "-00" in cell[:10] and path in EPOCHS:
            used["zero date"] += 1
            return EPOCHS[path]
        if column.type.name in ("date", "datetime") and isinstance(cell, str) and cell[:5] in MOVED:
            used["year"] += 1
            return MOVED[cell[:5]] + cell[5:]
        return cell

    return deviate


def left_out(scenario: str, variant: str) -> set[str]:
    """Tables that are not in a feed, or that it does not tell enough of."""
    refused = set(
        recordings.manifest(scenario)["variants"][variant]["tables_excluded_because_the_encoder_refuses_them"]
    )
    keyless = {"keys.k_none", "keys.k_nulluk"}
    if variant == "debezium-avro":
        return refused | keyless | {"shop.sel"}
    return refused | (keyless if variant == "debezium-no-old-value" else set())


def decoded(scenario: str, variant: str) -> Decoded:
    """A recording, decoded whole."""
    found = decode_all(decoder(scenario, variant), recordings.records(scenario, variant))
    found.rows = [row for row in found.rows if row.version != UNKNOWN_VERSION]
    return found


@pytest.mark.parametrize(("scenario", "variant"), [feed for feed in FEEDS if feed not in UNTOLD])
def test_what_changes_between_watermarks_is_what_the_rows_say(scenario: str, variant: str) -> None:
    """But for NULLs that became defaults, zero dates and years below 100, changed rows are as their last event says."""
    used: Counter[str] = Counter()

    comparison = Comparison(decoded(scenario, variant), deviation=lossy(used))
    comparison.run(recordings.expected(scenario), left_out(scenario, variant))

    assert comparison.differences == []
    assert comparison.compared > 150
    assert set(used) == {"types": {"default", "zero date", "year"}, "ddl": {"default"}}.get(scenario, set())


@pytest.mark.parametrize("variant", ["debezium", "debezium-noschema", "debezium-no-old-value", "debezium-avro"])
def test_random_transactions_lead_to_what_sql_shows_at_every_watermark(variant: str) -> None:
    """With late watermarks, restarts and rows sent twice, the tables are exact at each watermark that SQL looked at."""
    first = decoder("txns", variant)
    for record in recordings.records("txns", variant):
        for event in first.decode(record["key"], record["value"]):
            if isinstance(event, SchemaChange) and event.after is not None:
                first.learn(event.after)
    model = Model(first, expected.tables(recordings.expected("txns")))
    shown = {line["resolved_ts"]: line["tables"] for line in recordings.expected("txns")}
    compared = 0
    for record in recordings.records("txns", variant):
        for event in decoder("txns", variant).decode(record["key"], record["value"]):
            if isinstance(event, Bootstrap):
                model.learn(event.version)
    for watermark in follow(model, recordings.records("txns", variant)):
        for text, table in shown.get(watermark, {}).items():
            name = expected.name_of(text)
            contents = model.tables[name].contents if name in model.tables else []
            assert expected.bag(contents) == expected.bag(expected.rows(table)), (text, watermark)
            compared += len(contents)

    assert compared > 1000


@pytest.mark.parametrize(("scenario", "variant"), FEEDS)
def test_every_kind_of_message_comes_as_often_as_it_was_sent(scenario: str, variant: str) -> None:
    """Rows are as many as the recorder counted, the rest are DDL and watermarks; no watermarks without extension."""
    counts: Counter[type] = Counter()
    decode, total = decoder(scenario, variant).decode, 0
    for record in recordings.records(scenario, variant):
        counts.update(type(event) for event in decode(record["key"], record["value"]))
        total += 1
    made = recordings.manifest(scenario)["variants"][variant]["counts"]

    assert counts[RowChange] == made["messages_async"]
    assert counts[RowChange] + counts[SchemaChange] + counts[Resolved] == total
    assert (counts[Resolved] == 0) == (variant == "debezium-plain")
    assert counts[SchemaChange] > 0


def test_rows_without_schema_wait_for_the_ddl_that_describes_their_table() -> None:
    """From the middle of a feed such rows have no version until a DDL came; then they equal those with a schema."""
    bare = decode_all(decoder("midstream", "debezium-noschema"), recordings.records("midstream", "debezium-noschema"))
    full = decoded("midstream", "debezium")
    waiting = [row for row in bare.rows if row.version == UNKNOWN_VERSION]
    first = {name: entries[0][0] for name, entries in bare.described.items()}

    assert waiting
    assert all(row.commit_ts <= first.get(row.name, row.commit_ts) for row in waiting)
    told = [(row.name, row.commit_ts, row.after) for row in bare.rows if row.version != UNKNOWN_VERSION]
    assert told
    assert [row for row in told if row not in [(r.name, r.commit_ts, r.after) for r in full.rows]] == []


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_described_rows_equal_declared_rows(scenario: str) -> None:
    """Where DDL messages describe the tables, a feed without schema gives the images of the one with schema."""
    bare, full = decoded(scenario, "debezium-noschema"), decoded(scenario, "debezium")
    images = {(row.name, row.commit_ts, row.op, repr(row.before), repr(row.after)) for row in full.rows}

    assert {(row.name, row.commit_ts, row.op, repr(row.before), repr(row.after)) for row in bare.rows} <= images


@pytest.mark.parametrize("variant", JSON)
def test_decimals_are_the_nearest_doubles(variant: str) -> None:
    """20 digits arrive as the double next to them, which is what `exact_decimals=False` says."""
    row = next(row for row in decoded("types", variant).rows if row.name.table == "t_dec")

    assert row.after is not None
    assert (row.after["d_20_4"], row.after["d_65_30"]) == (1e16, 1e35)
    assert PROTOCOLS["debezium"].carries.exact_decimals is False


def test_avro_decimals_are_exact() -> None:
    """In Avro 65 digits arrive whole."""
    row = next(row for row in decoded("types", "debezium-avro").rows if row.name.table == "t_dec")

    assert row.after is not None
    assert f"{row.after['d_65_30']:f}" == "9" * 35 + "." + "9" * 30


@pytest.mark.parametrize(("variant", "held"), [("debezium", True), ("debezium-no-old-value", False)])
def test_old_values_are_there_when_they_are_sent(variant: str, held: bool) -> None:
    """`output-old-value=false` takes the old image from updates, never from deletes."""
    changes = decoded("txns", variant).rows

    assert {row.before is not None for row in changes if row.op is Op.UPDATE} == {held}
    assert all(row.before for row in changes if row.op is Op.DELETE)
    assert all(row.before is None for row in changes if row.op is Op.INSERT)


def test_a_ddl_brings_the_table_that_it_left() -> None:
    """`after` is the table under its new name, with keys and full types; None for tables gone, views and databases."""
    changes = {}
    for record in recordings.records("ddl", "debezium"):
        for event in decoder("ddl", "debezium").decode(record["key"], record["value"]):
            if isinstance(event, SchemaChange):
                changes[event.sql] = event
    rename = changes["RENAME TABLE `mirror`.`orders` TO `mirror`.`orders_old`"]
    renamed, former = rename.after, rename.before
    modified = changes["ALTER TABLE `shop`.`orders` MODIFY COLUMN `price` DECIMAL(14,4)"].after
    indexed = changes["ALTER TABLE `shop`.`orders` DROP INDEX `idx_q`"].after
    gone = [sql for sql, change in changes.items() if change.after is None]

    assert (renamed and renamed.name, renamed and renamed.key) == (TableName("mirror", "orders_old"), ("id",))
    assert former is not None
    assert former.name == TableName("mirror", "orders")
    assert modified is not None
    assert changes["ALTER TABLE `shop`.`orders` MODIFY COLUMN `price` DECIMAL(14,4)"].before is None
    price = modified.column("price")
    assert price is not None
    assert (price.type.length, price.type.scale) == (14, 4)
    assert indexed is not None
    assert sorted(sql.split("`")[0].strip() for sql in gone) == sorted(
        [
            *["CREATE DATABASE"] * 2,
            "TRUNCATE TABLE",
            *["DROP TABLE"] * 3,
            "CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER VIEW",
            "DROP VIEW",
            "ALTER DATABASE",
            "DROP DATABASE",
        ]
    )


@pytest.mark.parametrize("variant", ["debezium", "debezium-plain"])
def test_the_order_of_payload_and_schema_does_not_matter(variant: str) -> None:
    """Schema first, or spread over lines, gives the same events as TiCDC's own order."""
    usual, turned = decoder("pk", variant), decoder("pk", variant)
    for record in recordings.records("pk", variant):
        key, value = (msgspec.json.decode(record[name]) for name in ("key", "value"))
        other = [json.dumps(dict(reversed(part.items())), indent=1).encode() for part in (key, value)]

        assert turned.decode(*other) == usual.decode(record["key"], record["value"])


def test_both_compressions_of_key_and_value_are_undone() -> None:
    """With `large-message-handle-compression` TiCDC compresses keys, values and watermarks alike, unmarked."""
    plain, packed = decoder("pk", "debezium"), decoder("pk", "debezium")
    for number, record in enumerate(recordings.records("pk", "debezium")):
        squeeze = lz4.frame.compress if number % 2 else lambda data: bytes(cramjam.snappy.compress_raw(data))
        pair = [squeeze(record[name]) for name in ("key", "value")]

        assert packed.decode(*pair) == plain.decode(record["key"], record["value"])
