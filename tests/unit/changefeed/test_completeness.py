"""What is said of tables that are not whole."""

from __future__ import annotations

from applier import wording
from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.table import TableName


def test_a_parked_table_says_since_when_and_that_it_resumes() -> None:
    """The resolved ts is that of the parking, not of the resume."""
    parked = Completeness(Reason(Why.BY_HAND, "a look"), since=7)
    resuming = Completeness(Reason(Why.BY_HAND, "a look"), since=7, is_due=True)
    name = TableName("shop", "a")

    assert wording.sentence(name, parked) == "Table shop.a is parked since resolved ts 7: a look."
    assert wording.sentence(name, resuming) == "Table shop.a is parked since resolved ts 7 and resumes: a look."
