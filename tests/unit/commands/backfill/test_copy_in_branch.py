"""A branch shows a copy, or says why not."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from applier.changefeed.table import TableName
from applier.commands.backfill.held_job import HeldJob
from applier.errors import RangeRefused

T = TableName("shop", "t")


@pytest.mark.parametrize("there", [[False], [True, False]], ids=["before it is settled", "after it"])
def test_a_copy_that_others_dropped_is_named(there: list[bool]) -> None:
    """The same command makes it again."""
    main, pipeline, copies, answers = MagicMock(), MagicMock(), MagicMock(), iter(there)
    main.state.resolved_ts = 5
    pipeline.state.completeness = {T: MagicMock()}
    copies.is_outdated.return_value = False
    copies.targets.identifier.return_value = copy = ("jobs", "t")
    main.targets.catalog.load = lambda identifier: MagicMock() if identifier != copy or next(answers) else None
    places: Any = {pipeline.state.completeness[T].origin.key: T}
    job = HeldJob(main, pipeline, copies, MagicMock(), span=MagicMock(upto=5), branch="again", begun_at=places)

    with pytest.raises(RangeRefused, match=r"Others have dropped the copy of table shop\.t") as refused:
        job.keep_in_branch(T)

    assert "give the same command again" in str(refused.value)
