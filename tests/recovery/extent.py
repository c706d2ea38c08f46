"""How much of a product of cases a run takes: a few, or with RECOVERY=all, as `make test-recovery` does, all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")

EVERYTHING = os.environ.get("RECOVERY") == "all"


def every(cases: Sequence[_T], step: int) -> list[_T]:
    """All cases, or where not everything is wanted each n-th."""
    return list(cases if EVERYTHING else cases[::step])
