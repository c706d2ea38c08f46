"""Every test of this folder is a recovery test."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker("recovery")
