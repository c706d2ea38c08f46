"""What a request does to tables that are parked already."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from applier.changefeed.completeness import Cause, Completeness
from applier.changefeed.table import TableName
from applier.pipeline.requests import Requests
from applier.pipeline.step import Pipeline
from applier.sink.control.rows import TableRequest

ORDERS = TableName("shop", "orders")


@pytest.mark.parametrize("cause", ["ddl", "row", "include", "load", "hand"])
def test_a_parked_table_keeps_its_reason(cause: Cause) -> None:
    """On the cause it depends whether the next start resumes it."""
    known = Completeness("parked", since=7, reason="a DDL was refused", cause=cause)
    state = SimpleNamespace(completeness={ORDERS: known}, tables={ORDERS: 1}, checkpoint=SimpleNamespace(moving=None))
    main = cast("Pipeline", SimpleNamespace(state=state, targets=None))

    outcome = Requests(main)._done(TableRequest("one", "park", ("shop.*",), "a look", "me"))

    assert state.completeness == {ORDERS: known}
    assert outcome == (
        "nothing to park. Left as they were: Table shop.orders is parked since resolved ts 7: a DDL was refused."
    )
