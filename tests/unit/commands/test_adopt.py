"""`adopt` beside a process that holds the changefeed: what is live already costs that process nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease, Tracked
from applier.changefeed.completeness import LIVE, Completeness, Why, incomplete
from applier.changefeed.table import TableName
from applier.commands import adopt as command
from applier.commands.adopt import adopt
from applier.commands.control_reader import ControlView
from applier.config.settings import Config
from applier.errors import CheckpointConflict, ConfigError
from applier.sink.control.control import unix_ms
from tests.unit.commands.check.world import World

ORDERS = TableName("shop", "orders")
Held = Callable[[Completeness | None], Config]


class Taken(Exception):
    """The changefeed would be taken."""


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Held:
    """A changefeed that a living process holds, with a table of which something is known."""

    def take(*_: object, **__: object) -> AbstractContextManager[NoReturn]:
        raise Taken

    def with_table(known: Completeness | None) -> Config:
        tables = {ORDERS: Tracked(1, completeness=known)}
        last = Checkpoint(Lease(1, Holder("token", "elsewhere")), 1, 7, 0, tables=tables)
        monkeypatch.setattr(ControlView, "checkpoint", lambda _: replace(last, written_at=unix_ms()))
        return World(tmp_path).config

    monkeypatch.setattr(command, "assembled", take)
    return with_table


@pytest.mark.parametrize("take_over", [False, True])
def test_nothing_to_adopt_takes_no_lease(held: Held, *, take_over: bool) -> None:
    """A run that is at work would end for nothing."""
    assert adopt(held(LIVE), ["shop.orders"], "it is", take_over=take_over) == []


@pytest.mark.parametrize("known", [incomplete(Why.SKIPPED), None])
def test_what_lacks_rows_needs_the_changefeed(known: Completeness | None, held: Held) -> None:
    """The holder is named; one that the user gives up is taken over from."""
    with pytest.raises(CheckpointConflict, match="elsewhere"):
        adopt(held(known), ["shop.orders"], "it is")
    with pytest.raises(Taken):
        adopt(held(known), ["shop.orders"], "it is", take_over=True)


def test_a_table_that_there_is_not_is_refused_beside_a_holder(held: Held) -> None:
    """With the tables that there are."""
    with pytest.raises(ConfigError, match="has no such table; its tables are: shop.orders"):
        adopt(held(LIVE), ["shop.other"], "it is")
