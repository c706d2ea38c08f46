"""What a job knows of the DDL that its tables have."""

from __future__ import annotations

from typing import Any, cast
from unittest import mock

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease, Resuming
from applier.changefeed.position import DdlId
from applier.changefeed.table import TableName
from applier.pipeline.jobs.job import JobLedger
from applier.pipeline.state import State
from applier.sink.control.control import SchemaDecision
from applier.sink.control.rows import Decision

ORDERS = TableName("shop", "orders")
TS = 470_606_913_410_433_024


def truncated(ts: int, job: str | None = None, decision: Decision = "applied") -> SchemaDecision:
    """A TRUNCATE in the audit."""
    return SchemaDecision(ts, ORDERS, "TRUNCATE TABLE orders", "truncate-table", decision, job=job)


def changefeed(*decisions: SchemaDecision) -> State:
    """One that has a job, whose tables have the first of these DDL from before they were parked."""
    progress = Checkpoint(Lease(1, Holder("t", "h")), 1, 0, 0, ddl=(DdlId("TRUNCATE TABLE orders", "", TS + 1),))
    last = Checkpoint(Lease(1, Holder("t", "h")), 1, 0, 0, resuming=Resuming("ab", progress))
    control = mock.MagicMock()
    control.decisions.return_value = list(decisions)
    return State(cast("Any", control), last)


def test_a_job_knows_the_ddl_of_before_and_its_own() -> None:
    """A row that lies before one of them is late; what others did since says nothing of its tables."""
    before, since, own, another = truncated(TS + 1), truncated(TS + 2), truncated(TS + 3, "ab"), truncated(TS + 4, "cd")
    skip = truncated(TS + 5, decision="to skip")
    main = changefeed(before, since, own, another, skip)

    assert JobLedger(main, "ab").decisions() == [before, own, skip]
    assert JobLedger(main, "of another attempt").decisions() == [skip]


def test_the_changefeed_knows_what_a_job_has_taken() -> None:
    """It had refused the DDL; once the table is back, rows that lie before it are late."""
    main = changefeed()

    JobLedger(main, "ab").record_schema_changes([truncated(TS + 3)])

    assert [item.commit_ts for item in main.ddl.past] == [TS + 3]
