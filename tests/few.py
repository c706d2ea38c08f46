"""How many cases of one claim `make test` takes; the longer verbs take all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet


def few(cases: Iterable[Any], number: int = 1) -> list[ParameterSet]:
    """The first cases as they are, and all others marked `soak`; a tuple gives several arguments."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if place < number else pytest.mark.soak)
        for place, case in enumerate(cases)
    ]
