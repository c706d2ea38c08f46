"""Lets the pipelines of a test decide by other thresholds where rows run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from applier.consume.spark import places
from applier.pipeline import build


def place_by(monkeypatch: pytest.MonkeyPatch, **thresholds: Any) -> None:
    """From here on, with these fields of `Places`."""
    monkeypatch.setattr(build, "places", lambda spark, engine: replace(places(spark, engine), **thresholds))
