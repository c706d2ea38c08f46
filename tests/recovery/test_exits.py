"""How `applier run` ends as a process of its own: its exit code, its last sentence, and what it leaves."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests import recordings
from tests.recovery.process import Applier, once
from tests.replay import Replay, differences, replay


def test_bad_message_stops_with_its_place_and_keeps_what_came_before(tmp_path: Path) -> None:
    """Exit 3 with topic, partition and offset, and all before it applied; as a dead letter it is passed and kept."""
    found = _feed("pk", tmp_path)
    archive = tmp_path / "topic.jsonl"
    with gzip.open(recordings.GOLDEN / "pk" / "simple-json.jsonl.gz", "rt") as lines:
        records = [json.loads(line) for line in lines]
    last = max(record["offset"] for record in records if record["partition"] == 0)
    bad = {**records[0], "partition": 0, "offset": last + 1, "value": base64.b64encode(b"no message").decode()}
    archive.write_text("".join(json.dumps(record) + "\n" for record in [*records, bad]))
    found.raw["source"]["archive"] = str(archive)

    stopped = once(found.raw, tmp_path)

    assert stopped.code == 3
    assert f"Cannot decode simple message at {bad['topic']}/0:{last + 1}" in stopped.everything
    assert "To go on without it" in stopped.everything
    assert differences(found, recordings.expected("pk")[-1]) == []

    found.raw["changefeed"]["on_bad_message"] = "dead_letter"
    assert once(found.raw, tmp_path).code == 0


def test_a_wrong_protocol_writes_nothing(tmp_path: Path) -> None:
    """Messages that are none of the protocol end the first start with exit 3, before there is any table."""
    found = _feed("pk", tmp_path)
    found.raw["changefeed"]["protocol"] = "open"

    refused = once(found.raw, tmp_path)

    assert refused.code == 3, refused.everything
    assert refused.said.startswith("Cannot decode open message at ")
    assert refused.said.endswith("check changefeed.protocol and the topics under [source]; nothing was written.")
    assert found.catalog.list_namespaces() == []


def test_configuration_error_is_exit_2(tmp_path: Path) -> None:
    """Every problem is one sentence on standard error."""
    refused = once({"changefeed": {"name": "x", "protocl": "simple"}}, tmp_path)

    assert refused.code == 2
    assert "changefeed.protocl: unknown key, did you mean protocol?" in refused.everything


@pytest.mark.soak
def test_second_applier_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    """Who holds the changefeed, since when, and the ways out are in one sentence; one that has ended holds nothing."""
    config: dict[str, Any] = _feed("pk", tmp_path).raw
    first = Applier(config, tmp_path)
    try:
        first.until("changefeed taken")
        refused = once(config, tmp_path)
    finally:
        ended = first.end()

    assert refused.code == 3, refused.everything
    assert f"is held by process {first.pid} on " in refused.everything
    assert "--take-over" in refused.everything
    assert ended.code == 0


def _feed(scenario: str, folder: Path) -> Replay:
    """A replay with a catalog of its own."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/tables"}
    return replay(scenario, "simple-json", lake, folder, "simple")
