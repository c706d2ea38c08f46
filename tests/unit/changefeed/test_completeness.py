"""What is said of tables that are not whole."""

from __future__ import annotations

import json
from pathlib import Path

from applier import wording
from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.table import TableName
from tests.spark.table_states import STATES, WITHOUT


def test_a_parked_table_says_since_when_and_that_it_resumes() -> None:
    """The resolved ts is that of the parking, not of the resume."""
    parked = Completeness(Reason(Why.BY_HAND, "a look"), since=7)
    resuming = Completeness(Reason(Why.BY_HAND, "a look"), since=7, is_due=True)
    name = TableName("shop", "a")

    assert wording.sentence(name, parked) == "Table shop.a is parked since resolved ts 7: a look."
    assert wording.sentence(name, resuming) == "Table shop.a is parked since resolved ts 7 and resumes: a look."


def test_every_reason_has_words_and_a_place_in_the_json_schema() -> None:
    """One without a detail says something too, and a new one is published."""
    schema = json.loads((Path(__file__).parents[3] / "schemas/checkpoint/v2.json").read_bytes())
    name = TableName("shop", "a")
    said = [
        wording.sentence(name, Completeness(Reason(why, "7" if "{}" in wording.CLAUSES[why] else ""))) for why in Why
    ]
    assert not [text for text in said if text.endswith(": .")]
    assert schema["$defs"]["Reason"]["properties"]["why"]["enum"] == sorted(Why)


def test_the_way_out_of_each_reason_is_walked() -> None:
    """A sentence that names a command has a test that gives it as printed; a new reason needs one, too."""
    walked = {state.why for state in STATES.values()}
    assert walked.isdisjoint(WITHOUT)
    assert walked | WITHOUT.keys() == {why for why in Why if why.state != "live"}
