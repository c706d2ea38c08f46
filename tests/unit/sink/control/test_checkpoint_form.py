from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder, Reading
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.errors import TerminalError
from applier.sink.control.checkpoint_form import from_json, json_schema, to_json

SCHEMA = Path(__file__).parents[4] / "schemas" / "checkpoint" / "v3.json"

FULL = Checkpoint(
    epoch=3,
    step=17,
    resolved_ts=470606911607668736,
    written_at=1795250000000,
    holder=Holder("t1", "host-a", "m", "b", "pid:[1]", 12, 345, 1795249000000),
    released=True,
    unfenced=2,
    fenced=1,
    partitions={TopicPartition("shop", 0): Reading(41, 470606911607668736), TopicPartition("shop", 1): Reading(7)},
    snapshots={("shop", "orders"): -5218431879254321, ("a.b", "c d"): 9},
    passed={
        TableName("shop", "orders"): {TopicPartition("shop", 0): 7, TopicPartition("shop", 2): 7},
        TableName("shop", "items"): {TopicPartition("shop", 0): 7, TopicPartition("audit", 0): 9},
    },
    topic_ids={"shop": "q3Xl5cEGTbSdiAVFJkXW0g"},
    counts={"rows": 12},
)


@pytest.mark.parametrize("checkpoint", [FULL, Checkpoint(1, 0, 0, 0, Holder("t", "h"))])
def test_a_checkpoint_survives_its_json_form(checkpoint: Checkpoint) -> None:
    """What is read is what was written, with dots in names, negative snapshot ids and missing resolved ts."""
    assert from_json(to_json(checkpoint)) == checkpoint


def test_the_json_form_is_the_published_one() -> None:
    """The JSON Schema in the repository is that of the code; another shape needs another format version."""
    assert SCHEMA.read_bytes() == json_schema()


def test_a_checkpoint_of_a_newer_format_is_refused() -> None:
    """An older applier does not guess at what a newer one wrote."""
    text = json.dumps(json.loads(to_json(FULL)) | {"format": 4})
    with pytest.raises(TerminalError, match="has format 4, but this applier reads formats 1 to 3"):
        from_json(text)


def test_members_added_later_are_ignored() -> None:
    """A later applier may add members within a format, and an older one still starts."""
    assert from_json(json.dumps(json.loads(to_json(FULL)) | {"new": 1})) == FULL


def test_members_that_an_older_applier_did_not_write_are_empty() -> None:
    """Its checkpoint is taken as it is: no fence is known of, no topic, and not whether a table is whole."""
    written = json.loads(to_json(FULL))
    for name in ("unfenced", "fenced", "topic_ids", "passed"):
        del written[name]
    assert from_json(json.dumps(written)) == replace(FULL, unfenced=0, fenced=0, topic_ids={}, passed={})


@pytest.mark.parametrize(
    "text", ["", "null", "{}", '{"format":1}', json.dumps(json.loads(to_json(FULL)) | {"epoch": 0})]
)
def test_a_damaged_checkpoint_is_refused(text: str) -> None:
    """Whatever is wrong with the text, the error is one of ours and says what to do."""
    with pytest.raises(TerminalError, match="damaged"):
        from_json(text)


def test_offsets_and_watermarks_are_given_by_partition() -> None:
    """Partitions that never sent a resolved ts have an offset, but no watermark."""
    assert FULL.next_offsets == {TopicPartition("shop", 0): 41, TopicPartition("shop", 1): 7}
    assert FULL.resolved == {TopicPartition("shop", 0): 470606911607668736}
