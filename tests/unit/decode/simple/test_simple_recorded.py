"""The Simple decoder on every recorded changefeed of the protocol."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.event import Bootstrap, Event, Op, Resolved, RowChange, SchemaChange
from applier.changefeed.table import TableVersion
from applier.changefeed.types import TypeRules
from applier.decode.options import DecoderOptions
from applier.decode.simple import avro_form
from applier.decode.simple.decoder import SimpleDecoder
from applier.decode.values.convert import to_array
from applier.errors import DecodeError, IncompleteRow
from tests import recordings

pytestmark = pytest.mark.slow

ALL = [
    (scenario, variant) for scenario in recordings.scenarios() for variant in recordings.variants(scenario, "simple")
]
AVRO = [(scenario, variant) for scenario, variant in ALL if "avro" in variant]
CLAIM_CHECKS = [(scenario, variant) for scenario, variant in ALL if "claimcheck" in variant]
PACKAGE = Path(avro_form.__file__).parent


def events_of(scenario: str, variant: str, claim_check: Path | None = None) -> list[Event]:
    """All events of a recording, in the order of sending."""
    location = None if claim_check is None else str(recordings.claim_check(scenario, variant, claim_check))
    decoder = SimpleDecoder(DecoderOptions(claim_check=location))
    return [
        event
        for record in recordings.records(scenario, variant)
        for event in decoder.decode(record["key"], record["value"])
    ]


@pytest.mark.parametrize(("scenario", "variant"), [pair for pair in ALL if "handlekey" not in pair[1]])
def test_every_recorded_message_is_one_event_of_its_kind(scenario: str, variant: str, tmp_path: Path) -> None:
    """The counts of inserts, updates, deletes and bootstraps are those that the recorder noted."""
    events = events_of(scenario, variant, tmp_path if "claimcheck" in variant else None)
    facts = recordings.manifest(scenario)["variants"][variant]
    assert len(events) == facts["records"]
    rows = Counter(event.op for event in events if isinstance(event, RowChange))
    wanted = {op: facts["counts"].get(f"dml_{op.name.lower()}", 0) for op in Op}
    assert {op: rows[op] for op in Op} == wanted
    bootstraps = facts["counts"].get("bootstrap", 0) + facts["counts"].get("bootstrap_at_start", 0)
    assert sum(isinstance(event, Bootstrap) for event in events) == bootstraps
    assert any(isinstance(event, Resolved) for event in events)


@pytest.mark.parametrize("scenario", sorted({scenario for scenario, _ in AVRO}))
def test_json_and_avro_say_the_same(scenario: str) -> None:
    """The same DDL, the same table versions, and row for row the same arrays."""
    json_events, avro_events = events_of(scenario, "simple-json"), events_of(scenario, "simple-avro")
    assert len(json_events) == len(avro_events)
    versions: dict[Any, TableVersion] = {}
    for left, right in zip(json_events, avro_events, strict=True):
        if isinstance(left, Bootstrap | SchemaChange):
            assert left == right
            version = left.version if isinstance(left, Bootstrap) else left.after
            if version is not None:
                versions[version.name, version.version] = version
        elif isinstance(left, RowChange):
            assert isinstance(right, RowChange)
            assert _identity(left) == _identity(right)
            known = versions[left.name, left.version]
            assert _arrays(left, known) == _arrays(right, known)


def _identity(change: RowChange) -> tuple[Any, ...]:
    return change.name, change.version, change.commit_ts, change.op


def _arrays(change: RowChange, version: TableVersion) -> dict[str, pa.Array[Any]]:
    wire = SimpleDecoder(DecoderOptions()).wire
    arrays = {}
    for side, image in (("before", change.before), ("after", change.after)):
        for name, value in (image or {}).items():
            column = version.column(name)
            assert column is not None
            arrays[f"{side}.{name}"], _ = to_array([value], column, wire, TypeRules(), name)
    return arrays


@pytest.mark.parametrize(("scenario", "variant"), CLAIM_CHECKS)
def test_claim_checks_give_the_rows_that_small_messages_give(scenario: str, variant: str, tmp_path: Path) -> None:
    """Large rows in files, wrapped or bare, lz4 or snappy, are the rows of the plain recording."""
    plain = "simple-avro" if "avro" in variant else "simple-json"
    events = [event for event in events_of(scenario, variant, tmp_path) if isinstance(event, RowChange)]
    assert events == [event for event in events_of(scenario, plain) if isinstance(event, RowChange)]
    assert any(tmp_path.iterdir())


@pytest.mark.parametrize("scenario", ["types", "txns"])
def test_large_rows_without_their_columns_are_incomplete(scenario: str) -> None:
    """With handle-key-only some rows are refused, and all others are read."""
    decoder = SimpleDecoder(DecoderOptions())
    refused: list[str] = []
    for record in recordings.records(scenario, "simple-json-handlekey-snappy"):
        try:
            decoder.decode(None, record["value"])
        except IncompleteRow as error:
            refused.append(error.what)
    assert refused
    assert all("holds key columns only, because large-message-handle-option" in what for what in refused)


def test_columns_that_a_selector_removed_are_absent() -> None:
    """Absent is not NULL: such columns do not appear in any image."""
    columns: dict[str, set[str]] = {}
    for event in events_of("types", "simple-json-column-selector"):
        if isinstance(event, RowChange):
            columns.setdefault(str(event.name), set()).update(event.after or {}, event.before or {})
    plain: dict[str, set[str]] = {}
    for event in events_of("types", "simple-json"):
        if isinstance(event, RowChange):
            plain.setdefault(str(event.name), set()).update(event.after or {}, event.before or {})
    assert all(columns[name] <= plain[name] for name in plain)
    assert columns != plain


@pytest.mark.parametrize("name", [b"t_real", b"c_float_u", b"primary"])
def test_broken_names_in_a_schema_are_refused(name: bytes) -> None:
    """A name is never mended: the schema would be of another table, column or index."""
    schemas = (r["value"] for r in recordings.records("types", "simple-avro") if r["value"].startswith(b"\x16\x02\x02"))
    value = next(value for value in schemas if b"t_real" in value)
    assert len(avro_form.read(value).table_schema.columns) > 5  # type: ignore[union-attr]  # a BOOTSTRAP has one

    with pytest.raises(DecodeError, match="The message holds text that is not UTF-8"):
        avro_form.read(value.replace(name, b"\xff" + name[1:]))


def test_the_published_schema_is_the_one_in_use() -> None:
    """`schemas/simple/message.avsc` is the same text that the decoder reads."""
    published = Path(__file__).parents[4] / "schemas" / "simple" / "message.avsc"
    assert published.read_bytes() == (PACKAGE / "message.avsc").read_bytes()
