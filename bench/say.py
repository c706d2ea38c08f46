"""One line of JSON on standard output: how the processes of the benchmark talk to `bench.meter`."""

from __future__ import annotations

import json
from typing import Any


def say(event: str, **fields: Any) -> None:
    """Print one event now."""
    print(json.dumps({"event": event, **fields}, default=str), flush=True)
