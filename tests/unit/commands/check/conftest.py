"""A registry that answers from a script, and a folder with a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_registry import FakeRegistry, fake_registry
from tests.unit.commands.check.world import World


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    """One running server."""
    with fake_registry() as running:
        yield running


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A changefeed whose catalog is empty."""
    return World(tmp_path)
