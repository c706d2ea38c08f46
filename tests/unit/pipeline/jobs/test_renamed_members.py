"""A table that is brought back under a name that it has no longer is let go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName
from applier.pipeline.jobs.handover import Handover
from applier.ways_out import WaysOut

A, B = TableName("shop", "a"), TableName("shop", "b")
AT_56 = FeedPosition(A, 56, version=1)


@pytest.mark.parametrize(("own", "is_let_go"), [(B, True), (TableName("SHOP", "A"), False)], ids=["renamed", "letters"])
def test_a_table_whose_rename_the_changefeed_refused_does_not_come_back_under_its_former_name(
    own: TableName, is_let_go: bool
) -> None:
    """Another table has the name: readers would see the rows of this one as its rows."""
    known = {A: Completeness(Reason(Why.DDL), 56, AT_56, is_due=True)}
    state = SimpleNamespace(tables=[A], completeness=known, ways=WaysOut())
    order = SimpleNamespace(has_watermark=False)
    main: Any = SimpleNamespace(state=state, targets=SimpleNamespace(feed=SimpleNamespace(order=order)))
    job: Any = SimpleNamespace(completeness={own: Completeness(Reason(Why.DDL), origin=AT_56)})

    with mock.patch.object(Handover, "show") as show:
        Handover(main, job, cast("Any", None)).all({own: A})

    show.assert_called_once_with({} if is_let_go else {own: A})
    assert (known[A].is_due, known[A].position) == ((False, None) if is_let_go else (True, AT_56))
    assert known[A].reason.detail == ("Table shop.a was renamed to shop.b since" if is_let_go else "")
