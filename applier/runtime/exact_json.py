"""JSON for other programs, many of which read numbers as doubles: what a double may round is a string."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_EXACT = 2**53
"""From here on doubles do not have every whole number."""

_LARGE = ("_ts", "snapshot_id")
"""Ends of the keys of TSOs and snapshot ids, which are strings also where they are small: a key has one type."""


def dumps(value: Any, **options: Any) -> str:
    """A value as JSON, with the options of `json.dumps`."""
    return json.dumps(_exact(value), **options)


def _exact(value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {name: _exact(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_exact(item, key) for item in value]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number and (key.endswith(_LARGE) or abs(value) >= _EXACT) else value
