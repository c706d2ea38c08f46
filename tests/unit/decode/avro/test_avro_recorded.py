"""Recorded Avro feeds against the tables that SQL showed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from applier.changefeed.event import Bootstrap, Event, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.table import TableName, TableVersion
from applier.decode.avro.decoder import AvroDecoder
from applier.decode.avro.namesakes import sanitised
from applier.errors import DecodeError, IncompleteRow
from tests import expected, recordings
from tests.model import Model
from tests.model import replay as follow
from tests.unit.decode.recorded_registry import RecordedRegistry
from tests.unit.decode.replay import Comparison, decode_all

pytestmark = pytest.mark.slow

SCENARIOS = ("types", "ddl", "pk", "partition", "midstream", "txns")
WATERMARKED = ("avro-precise", "avro-string-checksum", "avro-before-value")
UNIQUE_ONLY = {"keys.k_uk", "audit.codes"}
"""Tables whose only key is a NOT NULL unique index: their messages have no Kafka key."""

FEEDS = [(scenario, variant) for scenario in SCENARIOS for variant in WATERMARKED]
PLAIN = [(scenario, "avro-plain") for scenario in SCENARIOS]


def decoder(scenario: str, variant: str) -> AvroDecoder:
    """A decoder for a recorded changefeed."""
    config = recordings.config(scenario, variant)
    return AvroDecoder(RecordedRegistry(scenario, variant), config["server_time_zone"])


def keyless(scenario: str) -> set[str]:
    """Tables without a key, which TiCDC does not send in Avro."""
    tables = [table for line in recordings.expected(scenario) for table in line["tables"].items()]
    keyed = {name for name, table in tables if table["primary_key"]}
    return ({name for name, _ in tables} - keyed - UNIQUE_ONLY) | {"shop.sel"}


def readable(scenario: str, variant: str) -> list[dict[str, Any]]:
    """The records but for deletes that name no row; which those are is a claim of its own."""
    return [
        record
        for record in recordings.records(scenario, variant)
        if record["key"] != b"" or (record["value"] or b"\x03")[0] != 3
    ]


@pytest.mark.parametrize(("scenario", "variant"), FEEDS)
def test_what_changes_between_watermarks_is_what_the_rows_say(scenario: str, variant: str) -> None:
    """At each watermark every row that changed is as its last event says, and no row changed without one."""
    left_out = recordings.manifest(scenario)["variants"][variant]["tables_excluded_because_the_encoder_refuses_them"]
    without = keyless(scenario) | set(left_out) | (UNIQUE_ONLY if variant != "avro-before-value" else set())
    decoded = decode_all(decoder(scenario, variant), readable(scenario, variant))

    comparison = Comparison(decoded, rename=sanitised, virtual_is_null=True)
    comparison.run(recordings.expected(scenario), without)

    assert comparison.differences == []
    assert comparison.compared > 150


@pytest.mark.parametrize("variant", ["avro-before-value", "avro-precise", "avro-string-checksum"])
def test_random_transactions_lead_to_what_sql_shows_at_every_watermark(variant: str) -> None:
    """With late watermarks, restarts and rows sent twice, the tables are exact at each watermark that SQL looked at."""
    typed = expected.tables(recordings.expected("txns"))
    model = Model(decoder("txns", variant), typed)
    shown = {line["resolved_ts"]: line["tables"] for line in recordings.expected("txns")}
    compared = 0
    for watermark in follow(model, readable("txns", variant)):
        for text, table in shown.get(watermark, {}).items():
            name = expected.name_of(text)
            if text not in UNIQUE_ONLY or variant == "avro-before-value":
                contents = model.tables[name].contents if name in model.tables else []
                assert expected.bag(contents) == expected.bag(expected.rows(table)), (text, watermark)
                compared += len(contents)

    assert compared > 1000


@pytest.mark.soak
def test_a_hundred_thousand_rows_lead_to_what_sql_shows() -> None:
    """The workload ends with exactly the rows that SQL shows, deletes by their key included."""
    snapshots = recordings.expected("workload")
    model = Model(decoder("workload", "avro-precise"), expected.tables(snapshots))
    for _ in follow(model, recordings.records("workload", "avro-precise"), snapshots[-1]["resolved_ts"]):
        pass

    for text, table in snapshots[-1]["tables"].items():
        assert expected.bag(model.tables[expected.name_of(text)].contents) == expected.bag(expected.rows(table))


@pytest.mark.parametrize(("scenario", "variant"), [*FEEDS, *PLAIN])
def test_every_kind_of_message_comes_as_often_as_it_was_sent(scenario: str, variant: str) -> None:
    """Rows are as many as the recorder counted, control messages as their marks say; refusals have no key."""
    counts: Counter[str] = Counter()
    marks = Counter((record["value"] or b"\xff")[0] for record in recordings.records(scenario, variant))
    decode = decoder(scenario, variant).decode
    for record in recordings.records(scenario, variant):
        try:
            counts.update(kind(event) for event in decode(record["key"], record["value"]))
        except IncompleteRow:
            counts["refused"] += 1
            assert record["key"] == b""
    made = recordings.manifest(scenario)["variants"][variant]["counts"]

    assert counts["row"] + counts["refused"] == made["messages_async"]
    assert (counts["ddl"], counts["resolved"]) == (marks[1], marks[2])
    assert (counts["ddl"] == 0) == (variant == "avro-plain")


def kind(event: Event) -> str:
    """What an event is."""
    match event:
        case RowChange():
            return "row"
        case SchemaChange():
            return "ddl"
        case Resolved():
            return "resolved"
        case Bootstrap():
            return "bootstrap"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_plain_rows_are_the_rows_with_extension_without_their_times(scenario: str) -> None:
    """Without the extension the same images come in the same order, commit ts 0, and inserts are told by nothing."""
    plain, extended = (rows(scenario, variant) for variant in ("avro-plain", "avro-precise"))

    assert [(row.name, row.before, row.after) for row in plain] == [(r.name, r.before, r.after) for r in extended]
    assert {(row.commit_ts, row.op is Op.INSERT) for row in plain} == {(0, False)}
    assert [row.op is Op.DELETE for row in plain] == [row.op is Op.DELETE for row in extended]


def rows(scenario: str, variant: str) -> list[RowChange]:
    """All row changes in the order of sending."""
    found, decode = [], decoder(scenario, variant).decode
    for record in recordings.records(scenario, variant):
        if record["key"] != b"":
            found += [event for event in decode(record["key"], record["value"]) if isinstance(event, RowChange)]
    return found


@pytest.mark.parametrize("variant", ["avro-precise", "avro-string-checksum", "avro-plain"])
def test_a_delete_from_a_table_with_only_a_unique_key_is_refused(variant: str) -> None:
    """Such a delete has an empty key and names no row: it stops the feed with the way out, it is never skipped."""
    refused = []
    decode = decoder("txns", variant).decode
    for record in recordings.records("txns", variant):
        if record["key"] == b"" and (record["value"] is None or record["value"][0] == 3):
            with pytest.raises(IncompleteRow) as caught:
                decode(record["key"], record["value"])
            refused.append(caught.value)

    assert len(refused) == 40
    assert refused[0].what == "A delete has no Kafka key, so it names no row."
    assert "avro-include-before-value=true" in refused[0].hint


def test_before_values_make_a_unique_key_enough() -> None:
    """With `avro-include-before-value` each delete and update of such a table holds the old row."""
    changes = [row for row in all_rows("txns", "avro-before-value") if row.name == TableName("audit", "codes")]

    assert all(set(row.before or ()) == {"a", "b", "v"} for row in changes if row.op is not Op.INSERT)
    assert {row.op for row in changes} >= {Op.DELETE, Op.INSERT}


def all_rows(scenario: str, variant: str) -> list[RowChange]:
    """All row changes, those without a key too."""
    decode = decoder(scenario, variant).decode
    events = [event for r in recordings.records(scenario, variant) for event in decode(r["key"], r["value"])]
    return [event for event in events if isinstance(event, RowChange)]


@pytest.mark.parametrize("variant", WATERMARKED)
def test_virtual_generated_columns_are_present_and_null(variant: str) -> None:
    """Avro rows hold a NULL for what MySQL computes on reading; other protocols leave such a column out."""
    images = [row.after for row in all_rows("types", variant) if row.name.table == "t_gen" and row.after]

    assert images
    assert all(image["g_virtual"] is None for image in images)


def test_names_are_sanitised_until_a_ddl_tells_them() -> None:
    """`a-b` comes as `a_b`; once the described table is learnt, rows come under its own names and version."""
    columns = ("id", "Mixed Case", "s\u00e9lect", "1st", "a-b", "c.d", "_tidb_x", "order")
    described = expected.tables(recordings.expected("types"))[TableName("types", "t_names")]
    records = [
        r for r in recordings.records("types", "avro-precise") if r["topic"] == "golden_types_t_names" and r["key"]
    ]
    before, after = decoder("types", "avro-precise"), decoder("types", "avro-precise")
    after.learn(described)

    sanitised_rows, original_rows = (
        [e for r in records for e in d.decode(r["key"], r["value"])] for d in (before, after)
    )

    assert [names(event) for event in original_rows[:2]] == [columns, columns]
    assert [names(event) for event in sanitised_rows[:2]] == [tuple(map(sanitised, columns))] * 2
    versions = [
        event.version.version for event in (sanitised_rows[0], original_rows[0]) if isinstance(event, Bootstrap)
    ]
    assert len(set(versions)) == 2


def names(event: Event) -> tuple[str, ...]:
    """Column names of a version or of a new image."""
    if isinstance(event, Bootstrap):
        return tuple(column.name for column in event.version.columns)
    assert isinstance(event, RowChange)
    return tuple(event.after or ())


def test_a_learnt_virtual_column_is_left_out() -> None:
    """Where a DDL told that a column is virtual, rows and versions are without it, as in the other protocols."""
    described = expected.tables(recordings.expected("types"))[TableName("types", "t_gen")]
    version = with_virtual(described, "g_virtual")
    decode = decoder("types", "avro-precise")
    decode.learn(version)

    found = [
        event for r in recordings.records("types", "avro-precise") for event in decode.decode(r["key"], r["value"])
    ]
    images = [e.after for e in found if isinstance(e, RowChange) and e.name.table == "t_gen" and e.after]

    assert {tuple(image) for image in images} == {("id", "a", "b", "g_stored", "after_col")}


def with_virtual(version: TableVersion, name: str) -> TableVersion:
    """A version one of whose columns is virtual."""
    columns = tuple(replace(c, generated="virtual") if c.name == name else c for c in version.columns)
    return replace(version, columns=columns)


@pytest.mark.parametrize(
    ("scenario", "variant"), [("types", "avro-precise"), ("pk", "avro-before-value"), ("ddl", "avro-plain")]
)
def test_a_version_is_announced_once_before_its_first_row(scenario: str, variant: str) -> None:
    """Each version comes once, in front of its first row, and not at all to a decoder that has learnt it."""
    first, second = decoder(scenario, variant), decoder(scenario, variant)
    known: set[tuple[TableName, int]] = set()
    for record in readable(scenario, variant):
        for event in first.decode(record["key"], record["value"]):
            if isinstance(event, Bootstrap):
                assert (event.version.name, event.version.version) not in known
                known.add((event.version.name, event.version.version))
                second.learn(event.version)
            elif isinstance(event, RowChange):
                assert (event.name, event.version) in known

    again = [event for r in readable(scenario, variant) for event in second.decode(r["key"], r["value"])]

    assert not [event for event in again if isinstance(event, Bootstrap)]
    assert known


def test_a_flipped_bit_does_not_pass_the_checksum() -> None:
    """A row whose number changed on the way no longer has its checksum: it is refused, with its table named."""
    decode, refused, tried = decoder("txns", "avro-string-checksum"), 0, 0
    for record in recordings.records("txns", "avro-string-checksum"):
        value = record["value"]
        if value and value[0] == 0 and record["topic"] == "golden_bank_orders":
            decode.decode(record["key"], value)
            if tried > 20:
                damaged = value[:5] + bytes([value[5] ^ 2]) + value[6:]
                with pytest.raises(DecodeError, match=r"bank\.orders differs from its checksum"):
                    decode.decode(record["key"], damaged)
                refused += 1
            tried += 1

    assert refused > 100


def test_a_row_that_ticdc_marks_as_corrupted_is_refused() -> None:
    """`_tidb_corrupted` is TiCDC's own finding that the row differs from what TiDB stored."""
    record = next(
        r for r in recordings.records("txns", "avro-string-checksum") if r["value"] and r["value"][0] == 0 and r["key"]
    )
    # The row ends with the flag and the version of the checksum, one byte each.
    assert record["value"][-2:] == b"\x00\x04"

    with pytest.raises(DecodeError, match="TiCDC found that a row"):
        decoder("txns", "avro-string-checksum").decode(record["key"], record["value"][:-2] + b"\x01\x04")
