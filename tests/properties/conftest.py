"""What goes wrong in the appliers of this process is put back in order afterwards."""

from __future__ import annotations

import pytest

from tests.disasters import Disasters


@pytest.fixture
def disasters(monkeypatch: pytest.MonkeyPatch) -> Disasters:
    """What goes wrong."""
    found = Disasters()
    found.install(monkeypatch)
    return found
