"""What checkpoints before format 6 say in words is read as what it means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from applier import wording
from applier.changefeed.checkpoint import Checkpoint, Holder, RequestOutcome
from applier.changefeed.completeness import Completeness, Reason, Why
from applier.sink.control.checkpoint_form import from_json, to_json

NEW = json.loads(to_json(Checkpoint(1, 0, 0, 0, Holder("t", "h"))))


def _read(completeness: dict[str, Any], **members: Any) -> Completeness | None:
    table = {"database": "shop", "table": "t", "version": 4, "completeness": completeness}
    (found,) = from_json(json.dumps(NEW | {"format": 5, "tables": [table]} | members)).tables.values()
    return found.completeness


@pytest.mark.parametrize(
    ("state", "cause", "reason", "found"),
    [
        ("live", "", "", Reason(Why.WHOLE)),
        ("live", "", "adopted: it was new", Reason(Why.ADOPTED, "it was new")),
        ("live", "", "it was loaded before", Reason(Why.LOADED_BEFORE)),
        ("incomplete", "", "a DDL was skipped (commit ts 7)", Reason(Why.SKIPPED, "7")),
        (
            "incomplete",
            "",
            "it exchanged rows with table shop.a, which is incomplete",
            Reason(Why.EXCHANGED, "shop.a"),
        ),
        ("incomplete", "", "something else", Reason(Why.UNRECORDED, "something else")),
        ("parked", "include", "left out by tables.include", Reason(Why.LEFT_OUT)),
        ("parked", "include", "tables.include left it out until now", Reason(Why.LEFT_OUT_BEFORE)),
        ("parked", "include", "The feed is gone", Reason(Why.LEFT_OUT, "The feed is gone")),
        ("parked", "load", "rows of an export are still to be loaded", Reason(Why.LOADING)),
        ("parked", "load", "File 7 is damaged", Reason(Why.LOADING, "File 7 is damaged")),
        ("parked", "hand", "a look", Reason(Why.BY_HAND, "a look")),
        ("parked", "hand", "the feed changes rows that the table does not hold", Reason(Why.REBUILT)),
        ("parked", "ddl", "It narrows", Reason(Why.DDL, "It narrows")),
        ("parked", "lost", "It lacks rows", Reason(Why.LOST, "It lacks rows")),
    ],
)
def test_a_reason_in_words_is_the_reason_that_it_words(state: str, cause: str, reason: str, found: Reason) -> None:
    """An unknown sentence stays as the detail of what it can only be."""
    known = _read({"state": state, "cause": cause, "reason": reason, "lacked": ""})

    assert known == Completeness(found)


@pytest.mark.parametrize("why", [why for why in Why if why.state == "incomplete"])
def test_every_word_for_what_a_parked_table_lacked_is_recognised(why: Why) -> None:
    """It becomes that again once it is brought back."""
    reason = Reason(why, "7" if why in (Why.SKIPPED, Why.EXCHANGED) else "")
    known = _read({"state": "parked", "cause": "hand", "reason": "a look", "lacked": wording.clause(reason)})

    assert known == Completeness(Reason(Why.BY_HAND, "a look"), lacked=reason)


def test_outcomes_in_words_are_known_to_have_come() -> None:
    """The request is not carried out again, and a command that still waits shows what was refused."""
    handled = {"one": "parked: shop.a.", "two": "refused: Nothing to resume: shop.a is live."}
    found = from_json(json.dumps(NEW | {"format": 5, "handled": handled})).handled

    assert found["two"] == RequestOutcome("refused", notes=("Nothing to resume: shop.a is live.",))
    assert not found["one"].is_refused
