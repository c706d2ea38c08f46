"""A RENAME that the configuration ignores: whose rows the table of the new name has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from applier.changefeed.completeness import LIVE, Completeness
from applier.changefeed.table import TableName
from applier.ddl.actions import RenameTable
from applier.pipeline.tables.completeness import follow

A, B = TableName("shop", "a"), TableName("shop", "b")


@pytest.mark.parametrize(
    ("ignored", "there", "state"),
    [(True, {A}, "incomplete"), (True, {B}, "live"), (False, {A}, "live")],
    ids=["left under the former name", "renamed by a user", "applied"],
)
def test_a_table_whose_rename_is_ignored_lacks_its_rows_unless_a_user_renamed_it(
    ignored: bool, there: set[TableName], state: str
) -> None:
    """Rows of the new name begin a table of their own, which must not pass for whole."""
    known: dict[TableName, Completeness] = {A: LIVE}
    targets: Any = SimpleNamespace(writer=lambda name: name if name in there else None)
    progress: Any = SimpleNamespace(completeness=known)

    follow(RenameTable(A, B), progress, targets, ignored=ignored)

    assert {name: item.state for name, item in known.items()} == {B: state}
