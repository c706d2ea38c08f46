"""A table that the checkpoint lists is the one with its identity, under the name that its DDL have given it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from applier.changefeed.checkpoint import Checkpoint, Cut, Holder, Lease, Tracked
from applier.changefeed.route import Route
from applier.changefeed.table import TableName
from applier.errors import TableMismatch
from applier.pipeline.tables.listed_tables import ListedTables
from applier.sink.iceberg.table import Table

if TYPE_CHECKING:
    from applier.sink.write.table_writer import TableWriter

ROUTE = "{database}.{table}"
A, B, OTHER = ("shop", "a"), ("shop", "b"), ("shop", "between")


def writer(identity: str, *, is_stamped: bool = True) -> TableWriter:
    """A writer of a table that the catalog has."""
    known = object() if is_stamped else None
    return cast(
        "TableWriter", SimpleNamespace(table=SimpleNamespace(identity=identity), known=known, hold_to=lambda head: None)
    )


def listed(**identities: str) -> ListedTables:
    """What a checkpoint lists."""
    found = ListedTables()
    tables = {TableName("shop", name): Tracked(1, identity=identity) for name, identity in identities.items()}
    found.restore(
        Checkpoint(Lease(1, Holder("t", "h")), 1, 5, 0, cut=Cut({A: 1, B: 2}), tables=tables), Route(ROUTE).identifier
    )
    return found


def is_refused(tables: ListedTables, identifier: tuple[str, ...], found: TableWriter) -> bool:
    """Whether neither a start nor a commit takes a table."""
    damage = tables.damage(identifier, found, is_listed=True)
    if damage is None:
        tables.refuse_lost(identifier, found)
        return False
    assert "`applier load " in damage.hint
    assert "its name back" in damage.hint
    what = "is not the one that the checkpoint lists: it was replaced, or another one has its name"
    with pytest.raises(TableMismatch, match=what):
        tables.refuse_lost(identifier, found)
    return True


def test_another_table_of_the_changefeed_that_has_the_name_is_refused() -> None:
    """Its stamps and its snapshots are as good as those of the right one."""
    tables = listed(a="of-a", b="of-b")
    assert [is_refused(tables, A, writer("of-a")), is_refused(tables, A, writer("of-b"))] == [False, True]


def test_what_a_table_is_follows_tables_that_trade_their_names() -> None:
    """A statement of the feed is not the work of others."""
    tables = listed(a="of-a", b="of-b")
    for identifier, to in [(A, OTHER), (B, A), (OTHER, B)]:
        tables.rename(identifier, to)
    assert not is_refused(tables, A, writer("of-b"))
    assert not is_refused(tables, B, writer("of-a"))
    assert is_refused(tables, A, writer("of-a"))


def test_a_table_that_was_dropped_or_made_anew_may_be_another() -> None:
    """Its identity went with it, also where the name comes from a table that nothing is known of."""
    tables = listed(a="of-a", b="of-b")
    tables.forget(A)
    tables.rename(OTHER, B)
    assert not is_refused(tables, A, writer("new"))
    assert not is_refused(tables, B, writer("new"))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(writer("of-a"), "of-a", id="written by this changefeed"),
        pytest.param(writer("x", is_stamped=False), "", id="written by others alone"),
    ],
)
def test_a_checkpoint_without_identities_takes_that_of_the_table_that_is_there(
    found: TableWriter, expected: str
) -> None:
    """As one of format 6; it takes no table that it lists and that this changefeed has not written."""
    tables = listed()
    tables.meet(A, found)
    tables.meet(A, writer("of-b"))
    assert tables.identity(A) == (expected or "of-b")


def test_a_new_table_has_its_identity_before_its_first_snapshot() -> None:
    """The cut does not list it yet, and its name may already be another table's."""
    tables = ListedTables()
    tables.meet(A, writer("of-a", is_stamped=False))
    assert is_refused(tables, A, writer("of-b"))


def test_a_table_is_not_asked_for_its_identity_twice() -> None:
    """It is compared at each commit."""
    handle = Mock()
    handle.uuid.return_value.toString.return_value = "6a9b5a0c-2d43-4c3e-9df1-0b1f3c9a7e55"
    table = Table(cast("Any", None), handle, A)
    assert (len(table.identity), table.identity, handle.uuid.call_count) == (8, table.identity, 1)
