"""What goes wrong in the appliers of this process is put back in order afterwards."""

from __future__ import annotations

import pytest

from applier.pipeline import maintenance
from tests.disasters import Disasters


@pytest.fixture
def disasters(monkeypatch: pytest.MonkeyPatch) -> Disasters:
    """What goes wrong."""
    found = Disasters()
    found.install(monkeypatch)
    # What is due is begun at once, where a schedule has any.
    monkeypatch.setattr(maintenance, "LOOK_COMMITS", 1)
    monkeypatch.setattr(maintenance, "OVERDUE", 1.0)
    return found
