"""What processes of the benchmark print: lines of JSON for `bench.meter`, sentences for people."""

from __future__ import annotations

import json
import sys
from typing import Any


def say(event: str, **fields: Any) -> None:
    """Print one event now."""
    print(json.dumps({"event": event, **fields}, default=str), flush=True)


def tell(sentence: str) -> None:
    """Say on standard error how far it is."""
    print(sentence, file=sys.stderr, flush=True)
