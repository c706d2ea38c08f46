"""What `applier plan` tells of the DDL of the next step is what `run` would decide on them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from applier.changefeed.event import SchemaChange
from applier.changefeed.filter import TableFilter
from applier.changefeed.message import Position
from applier.changefeed.table import TableName
from applier.changefeed.types import TypeRules
from applier.commands.plan.command import _ddl
from applier.ddl.schema_tracker import Tables
from applier.ddl.spelling import Spelling
from applier.order.barrier import Barrier
from applier.pipeline.ddl_progress import DdlProgress
from applier.pipeline.scan.statements import read_all
from tests.builders import ACCOUNT, version

if TYPE_CHECKING:
    from applier.pipeline.step import Pipeline

SKIPPED = "ALTER TABLE account FROBNICATE TWICE"


def told(sql: str, *parked: TableName) -> tuple[str, str]:
    """Decision and reason on a statement, where the account table is known."""
    state = SimpleNamespace(parked=frozenset(parked), ddl=DdlProgress(to_skip={(20, SKIPPED)}))
    config = SimpleNamespace(ddl={"truncate-table": "stop"}, filter=TableFilter(["shop.*"]))
    targets = SimpleNamespace(maker=SimpleNamespace(rules=TypeRules()))
    pipeline = cast("Pipeline", SimpleNamespace(config=config, state=state, targets=targets))
    tables = Tables([version(("id", "bigint"), ("a", "varchar"), number=10)])
    barrier = Barrier(SchemaChange(20, sql, "shop"), "t", Position(0, 0, 0))
    [due] = _ddl(pipeline, read_all([barrier], Spelling(tables)), tables)
    return due.decision, due.reason


@pytest.mark.parametrize(
    ("sql", "parked", "decision", "reason"),
    [
        ("ALTER TABLE account ADD COLUMN b INT", (), "apply", ""),
        ("ALTER TABLE account ADD COLUMN b INT", (ACCOUNT,), "ignore", "the table is parked"),
        ("ALTER TABLE account RENAME COLUMN x TO y", (), "refuse", "column x"),
        ("ALTER TABLE account ADD COLUMN b INT, DROP PARTITION p0", (), "apply", ""),
        ("TRUNCATE TABLE account", (), "stop", "configured under [ddl]"),
        ("DROP TABLE else.t, shop.account", (), "apply", ""),
        ("DROP TABLE else.t", (), "ignore", "left out by tables.include"),
        ("ALTER TABLE account FROBNICATE", (), "refuse", "FROBNICATE"),
        (SKIPPED, (), "skip", ""),
    ],
)
def test_a_ddl_is_shown_with_its_decision(sql: str, parked: tuple[TableName, ...], decision: str, reason: str) -> None:
    """Parked and left out tables, policies, skips, and what no table can follow."""
    found = told(sql, *parked)
    assert found[0] == decision
    assert reason in found[1] if reason else not found[1]
