"""A table that takes the name of a parked one in offset order lacks rows of that window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast
from unittest import mock

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease
from applier.changefeed.completeness import LIVE, Completeness, Reason, Why
from applier.changefeed.event import SchemaChange
from applier.changefeed.message import Position
from applier.changefeed.table import TableName, TableVersion
from applier.ddl.spelling import Spelling
from applier.order.barrier import Barrier
from applier.pipeline.apply_window import WindowApplier
from applier.pipeline.scan.statements import Ddl, read_all
from applier.pipeline.schema_changes.track import move_past
from applier.pipeline.state import State
from applier.runtime.logs import Stopwatch
from applier.runtime.places import Places

P, Q = TableName("a", "p"), TableName("a", "q")
PARKED = Completeness(Reason(Why.DDL, "7"))


@pytest.mark.parametrize(
    ("sqls", "has_watermark", "why"),
    [
        (["RENAME TABLE q TO p"], False, Why.MADE_WHILE_PARKED),
        (["CREATE TABLE p (id INT PRIMARY KEY)"], False, Why.MADE_WHILE_PARKED),
        (["DROP TABLE p", "CREATE TABLE p (id INT PRIMARY KEY)"], False, Why.MADE_WHILE_PARKED),
        (["RENAME TABLE p TO r", "RENAME TABLE q TO p"], False, Why.MADE_WHILE_PARKED),
        (["RENAME TABLE q TO p"], True, Why.WHOLE),
    ],
)
def test_a_table_that_takes_the_name_of_a_parked_one_lacks_rows_of_the_window(
    sqls: Sequence[str], *, has_watermark: bool, why: Why
) -> None:
    """All rows of the name were left out of the window. With a watermark the window ends with the DDL."""
    state, config = State(mock.MagicMock(), Checkpoint(Lease(1, Holder("t", "h")), 1, 0, 0)), mock.MagicMock()
    for name, known in ((P, PARKED), (Q, LIVE)):
        state.tables.put(TableVersion(name, 1, ()))
        state.completeness[name] = known
    targets, handler, scan = mock.MagicMock(), mock.MagicMock(), mock.MagicMock()
    targets.feed.order.has_watermark = targets.feed.order.parts_at_ddl = has_watermark
    handler.new_tables.in_turn = lambda ddl, _: ddl
    handler.apply.side_effect = lambda ddl: _apply(ddl, state, targets)
    barriers = [Barrier(SchemaChange(9 + at, sql, "a"), "t", Position(0, at, 0)) for at, sql in enumerate(sqls)]
    scan.ddl = read_all(barriers, Spelling([P, Q]))
    scan.parking = scan.versions = scan.topics = scan.results.late = scan.results.parts = {}
    scan.kept, scan.bad, scan.upto, scan.results.fates, scan.results.bad = None, [], 20, Counter(), []
    scan.results.measures, scan.results.waiting = {"entries": 0}, {}
    config.tables.include = ("*.*",)

    WindowApplier(config, mock.MagicMock(), targets, handler, state, Places()).apply(cast("Any", scan), [], Stopwatch())

    assert state.completeness[P].why is why


def _apply(ddl: Ddl, state: State, targets: mock.MagicMock) -> None:
    move_past(ddl.barrier.change, ddl.actions, state, targets)
