"""Recorded Canal-JSON feeds against the tables that SQL showed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from applier.changefeed.event import SchemaChange
from applier.errors import IncompleteRow
from tests import recordings
from tests.unit.decode.described import Mirror, counts, decoder_of, events, script

pytestmark = pytest.mark.slow

PROTOCOL = "canal-json"
ROWS_ONLY = ("types", "pk", "txns", "midstream", "workload")
"""Scenarios whose rows say all; in the others DDL changes rows."""
REDUCED = "canal-json-handlekey"
PLAIN = "canal-json"

FEEDS = [
    (scenario, variant)
    for scenario in recordings.scenarios()
    for variant in recordings.variants(scenario, "canal-json")
]
WHOLE = [feed for feed in FEEDS if feed[1] != REDUCED]
RESOLVED = [feed for feed in WHOLE if feed[0] in ROWS_ONLY and feed[1] != PLAIN]
UNRESOLVED = [feed for feed in WHOLE if feed[0] in ROWS_ONLY and feed[1] == PLAIN]


def drawn(feeds: Iterable[tuple[str, str]]) -> list[ParameterSet]:
    """All of them but for the large one, which the test of rows alone reads in `make test`."""
    return [pytest.param(*feed, marks=pytest.mark.soak if feed[0] == "workload" else ()) for feed in feeds]


@pytest.mark.parametrize(("scenario", "variant"), drawn(WHOLE))
def test_every_recorded_message_is_decoded(scenario: str, variant: str, tmp_path: Path) -> None:
    """Each kind of event comes as often as TiCDC's recorder counted it."""
    found = counts(events(decoder_of(PROTOCOL, scenario, variant, tmp_path), scenario, variant))
    sent = recordings.manifest(scenario)["variants"][variant]["counts"]
    assert found["rows"] == sent["messages_async"]
    assert found["ddl"] == sum(count for kind, count in sent.items() if kind.startswith("ddl:"))
    partitions = recordings.manifest(scenario)["variants"][variant]["records_per_partition"]
    assert found["resolved"] == sent.get("watermark", 0) * len(partitions)
    assert 0 < found["bootstrap"] < 200


@pytest.mark.parametrize(("scenario", "variant"), drawn(RESOLVED))
def test_rows_lead_to_what_sql_shows_at_every_watermark(scenario: str, variant: str, tmp_path: Path) -> None:
    """At each resolved ts the model's tables hold exactly the cells that SQL showed."""
    mirror = Mirror(decoder_of(PROTOCOL, scenario, variant, tmp_path), scenario, variant)
    mirror.follow()
    assert mirror.compared > 500


@pytest.mark.parametrize(("scenario", "variant"), UNRESOLVED)
def test_rows_without_commit_ts_lead_to_what_sql_shows_at_the_end(scenario: str, variant: str, tmp_path: Path) -> None:
    """In the order of sending, a feed without the extension ends at the same contents."""
    mirror = Mirror(decoder_of(PROTOCOL, scenario, variant, tmp_path), scenario, variant)
    mirror.finish()
    assert mirror.compared > 100


def test_content_compatible_rows_tell_all_types(tmp_path: Path) -> None:
    """With full types, members of enums and digits of decimals need no DDL."""
    variant = "canal-json-content-compatible"
    mirror = Mirror(decoder_of(PROTOCOL, "types", variant, tmp_path), "types", variant, typed=False)
    mirror.follow()


@pytest.mark.slow
def test_rows_alone_tell_their_values(tmp_path: Path) -> None:
    """Without any DDL, decimals have the scale of their text and tables the primary key of their rows."""
    decoder = decoder_of(PROTOCOL, "workload", "canal-json-ext", tmp_path)
    Mirror(decoder, "workload", "canal-json-ext", typed=False).follow()


@pytest.mark.parametrize("scenario", ["types", "txns"])
def test_rows_reduced_to_their_key_are_refused(scenario: str, tmp_path: Path) -> None:
    """A handle-key-only row is refused unless it is a DELETE, which needs no more than the key."""
    decoder = decoder_of(PROTOCOL, scenario, REDUCED, tmp_path)
    refused = 0
    for record in recordings.records(scenario, REDUCED):
        if b'"onlyHandleKey":true' in record["value"] and b'"DELETE"' not in record["value"]:
            with pytest.raises(IncompleteRow, match="handle-key-only"):
                decoder.decode(record["key"], record["value"])
            refused += 1
        else:
            decoder.decode(record["key"], record["value"])
    assert refused > 0


@pytest.mark.parametrize("scenario", recordings.scenarios())
def test_statements_come_as_they_were_sent(scenario: str, tmp_path: Path) -> None:
    """DDL carries its statement, the database it is for and, with the extension, the commit ts of its job."""
    decoder = decoder_of(PROTOCOL, scenario, "canal-json-ext", tmp_path)
    changes = [event for event in events(decoder, scenario, "canal-json-ext") if isinstance(event, SchemaChange)]
    ran = script(scenario)
    assert changes
    for change in changes:
        assert f"commit_ts={change.commit_ts} " in ran
        assert change.sql
        assert change.database
