"""JSON for programs that read numbers as doubles."""

from __future__ import annotations

import json

from applier.runtime.exact_json import dumps

TSO, SNAPSHOT = 470763097202622464 + 1, 5985792790090110723


def _as_doubles(text: str) -> object:
    """What a program finds that reads every number as a double, and prints a whole one without a point."""
    return json.loads(text, parse_int=lambda digits: int(float(digits)))


def test_a_program_that_reads_doubles_finds_every_digit() -> None:
    """TSOs, snapshot ids and what else a double would round, at any depth."""
    found = {"resolved_ts": TSO, "tables": [{"snapshot_id": SNAPSHOT, "since": TSO}], "pair": (2**53, -(2**53))}

    assert _as_doubles(dumps(found)) == {
        "resolved_ts": str(TSO),
        "tables": [{"snapshot_id": str(SNAPSHOT), "since": str(TSO)}],
        "pair": ["9007199254740992", "-9007199254740992"],
    }


def test_a_key_has_one_type() -> None:
    """A snapshot id is random, and a few are small; what is unknown stays null, and other numbers numbers."""
    found = {"snapshot_id": 7, "cut_snapshot_id": None, "commit_ts": 0, "next_offset": 2**53 - 1, "released": True}

    assert json.loads(dumps(found)) == {**found, "snapshot_id": "7", "commit_ts": "0"}
