from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

from applier.errors import CheckpointConflict, TableMismatch
from applier.sink.commit.stamp import Stamp, guard, progress, read


class FakeTable:
    """Only what the stamp needs of a table."""

    branch = "main"

    def __init__(self, **properties: str) -> None:
        self.properties = {f"applier.{key.replace('_', '-')}": value for key, value in properties.items()}

    def __str__(self) -> str:
        return "shop.orders"


def test_stamp_reads_back_from_its_entries() -> None:
    """What is set as properties is what a restart finds, the caller's own entries included."""
    stamp = Stamp("shop", 3, 450, {"applier.ddl-ts": "440"})

    assert read({**stamp.entries(), "write.format.default": "parquet"}) == stamp
    assert read({"owner": "somebody"}) is None


def test_a_stamp_names_the_release_and_not_the_one_before() -> None:
    """A table that another release wrote last gets the name of this one, and without a name is as good."""
    theirs = {**Stamp("shop", 3, 450).entries(), "applier.version": "9.9.9"}

    found = read(theirs)

    assert found == Stamp("shop", 3, 450)
    assert found.entries()["applier.version"] == version("applier")
    assert read({key: theirs[key] for key in theirs if key != "applier.version"}) == found


def test_damaged_or_foreign_stamp_is_refused() -> None:
    """A table of another changefeed, or with a stamp that makes no sense, is not touched."""
    foreign: Any = FakeTable(changefeed="other", epoch="1", resolved_ts="2")
    damaged: Any = FakeTable(changefeed="shop", epoch="one", resolved_ts="2")
    cut: Any = FakeTable(changefeed="shop")

    with pytest.raises(TableMismatch, match="Table shop.orders belongs to changefeed other, not to shop"):
        progress(foreign, "shop")
    for table in (damaged, cut):
        with pytest.raises(TableMismatch, match="damaged"):
            progress(table, "shop")


@pytest.mark.parametrize(
    ("found", "known", "said"),
    [
        (Stamp("shop", 9, 20), Stamp("shop", 5, 10), "epoch 9, resolved ts 20; this one has epoch 5"),
        (Stamp("shop", 4, 20), Stamp("shop", 5, 10), "epoch 4 moved table shop.orders from 10 to 20"),
        (Stamp("shop", 4, 20), None, "epoch 4 moved table shop.orders to 20"),
    ],
)
def test_guard_refuses_a_table_that_another_applier_moved(found: Stamp, known: Stamp | None, said: str) -> None:
    """A newer applier holds the table; an older one that still writes must be stopped first."""
    table: Any = FakeTable()

    with pytest.raises(CheckpointConflict, match=said):
        guard(table, found, known, 5)


@pytest.mark.parametrize("found", [None, Stamp("shop", 4, 10), Stamp("shop", 5, 99)])
def test_guard_lets_own_and_unchanged_stamps_pass(found: Stamp | None) -> None:
    """A stamp that was there before, or that this applier's own schema changes left, is no conflict."""
    table: Any = FakeTable()

    guard(table, found, Stamp("shop", 4, 10), 5)
