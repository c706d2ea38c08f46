"""Recorded Open protocol feeds against the tables that SQL showed."""

from __future__ import annotations

from pathlib import Path

import pytest

from applier.changefeed.event import Op, RowChange, SchemaChange
from applier.decode.columnar import groups
from tests import recordings
from tests.unit.decode.described import Mirror, counts, decoder_of, events, script

pytestmark = pytest.mark.slow

PROTOCOL = "open"
ROWS_ONLY = ("types", "pk", "txns", "midstream")
"""Scenarios whose rows say all; in the others DDL changes rows."""

KEYLESS = frozenset({"keys.k_none", "keys.k_nulluk"})
"""Tables whose updates cannot be told from inserts where there are no old values."""

FEEDS = [
    (scenario, variant) for scenario in recordings.scenarios() for variant in recordings.variants(scenario, "open")
]


@pytest.mark.parametrize(("scenario", "variant"), FEEDS)
def test_every_recorded_message_is_decoded(scenario: str, variant: str, tmp_path: Path) -> None:
    """Each kind of event comes as often as TiCDC's recorder counted it."""
    found = counts(events(decoder_of(PROTOCOL, scenario, variant, tmp_path), scenario, variant))
    sent = recordings.manifest(scenario)["variants"][variant]["counts"]
    partitions = recordings.manifest(scenario)["variants"][variant]["records_per_partition"]
    assert found["rows"] == sum(count for kind, count in sent.items() if kind.startswith("dml_"))
    assert found["row DELETE"] == sent["dml_delete"]
    assert found["ddl"] == sum(count for kind, count in sent.items() if kind.startswith("ddl:")) * len(partitions)
    assert found["resolved"] == sent["watermark"] * len(partitions)
    assert 0 < found["bootstrap"] < 200


@pytest.mark.parametrize(("scenario", "variant"), [feed for feed in FEEDS if feed[0] in ROWS_ONLY])
def test_rows_lead_to_what_sql_shows_at_every_watermark(scenario: str, variant: str, tmp_path: Path) -> None:
    """At each resolved ts the model's tables hold exactly the cells that SQL showed."""
    blind = variant == "open-no-old-value"
    decoder = decoder_of(PROTOCOL, scenario, variant, tmp_path)
    mirror = Mirror(decoder, scenario, variant, without=KEYLESS if blind else frozenset())
    mirror.follow()
    assert mirror.compared > 500


@pytest.mark.parametrize("variant", ["open", "open-delete-handle-key", "open-no-old-value"])
def test_rows_alone_tell_their_values(variant: str, tmp_path: Path) -> None:
    """Without any DDL, decimals have the scale of their text and tables the handle key of their rows."""
    decoder = decoder_of(PROTOCOL, "txns", variant, tmp_path)
    Mirror(decoder, "txns", variant, typed=False).follow()


@pytest.mark.parametrize("variant", recordings.variants("pk", "open"))
def test_a_new_image_alone_is_no_insert_where_the_table_has_a_key(variant: str, tmp_path: Path) -> None:
    """Nothing tells an INSERT from an UPDATE without old values, so only rows without a key may count as new."""
    decoder = decoder_of(PROTOCOL, "pk", variant, tmp_path)
    inserted = {
        event.name.table
        for event in events(decoder, "pk", variant)
        if isinstance(event, RowChange) and event.op is Op.INSERT
    }
    assert {f"keys.{table}" for table in inserted} <= KEYLESS


@pytest.mark.parametrize("variant", ["open", "open-updated-columns"])
def test_rows_with_and_without_an_old_row_are_read_at_once(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most rows come in blocks, and only those that have an old row are updates."""
    monkeypatch.setattr(groups, "FEWEST", 1)
    decoder = decoder_of(PROTOCOL, "pk", variant, tmp_path)
    changes = [event for event in events(decoder, "pk", variant) if isinstance(event, RowChange)]
    found = list(recordings.records("pk", variant))
    assert decoder.bulk is not None
    blocks, _ = decoder.bulk.read([record["key"] for record in found], [record["value"] for record in found])
    count = {op: sum(len(block.places) for block in blocks if block.op is op) for op in Op}
    assert sum(count.values()) > 0.8 * len(changes)
    assert 0 < count[Op.UPDATE] <= sum(change.before is not None and change.op is Op.UPDATE for change in changes)
    assert 0 < count[Op.UPSERT] <= sum(change.op is Op.UPSERT for change in changes)


@pytest.mark.parametrize("scenario", sorted({scenario for scenario, _ in FEEDS}))
def test_statements_come_as_they_were_sent(scenario: str, tmp_path: Path) -> None:
    """DDL carries its statement, the database it is for, and the commit ts of its job."""
    decoder = decoder_of(PROTOCOL, scenario, "open", tmp_path)
    changes = [event for event in events(decoder, scenario, "open") if isinstance(event, SchemaChange)]
    ran = script(scenario)
    assert changes
    for change in changes:
        assert f"commit_ts={change.commit_ts} " in ran
        assert change.sql
        assert change.database
