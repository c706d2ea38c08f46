"""Every test of this folder is a recovery test; what goes wrong in it is put back in order afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.disasters import Disasters

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker("recovery")


@pytest.fixture
def disasters(monkeypatch: pytest.MonkeyPatch) -> Disasters:
    """What goes wrong in the appliers of this process."""
    found = Disasters()
    found.install(monkeypatch)
    return found
