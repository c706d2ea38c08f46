"""Memory that a rest does not need goes back to the system."""

from __future__ import annotations

import resource
from pathlib import Path

from applier.commands.run import give_back


def test_freed_memory_goes_back() -> None:
    """C's `malloc` keeps pages below one that is in use."""
    kept = [bytearray(60_000) for _ in range(2_000)]
    full = _resident()
    last = kept.pop()
    kept.clear()
    give_back()

    assert last
    assert _resident() < full - 80 * 2**20


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()
