"""What is said of tables that are not whole."""

from __future__ import annotations

from applier.changefeed.completeness import Completeness
from applier.changefeed.table import TableName


def test_a_parked_table_says_since_when_and_that_it_resumes() -> None:
    """The resolved ts is that of the parking, not of the resume."""
    parked = Completeness("parked", since=7, reason="a look", cause="hand")
    resuming = Completeness("parked", since=7, reason="a look", cause="hand", is_due=True)
    name = TableName("shop", "a")

    assert parked.sentence(name) == "Table shop.a is parked since resolved ts 7: a look."
    assert resuming.sentence(name) == "Table shop.a is parked since resolved ts 7 and resumes: a look."
