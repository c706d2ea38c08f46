"""What a scan knows, by the fields that a test is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

from applier.changefeed.checkpoint import Checkpoint, Feed, Holder, Lease
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.ddl.schema_tracker import Tables
from applier.pipeline.state import State


def known_at(
    applied: int = 0,
    tables: Tables | None = None,
    *,
    resolved: Mapping[TopicPartition, int] | None = None,
    passed: Mapping[Any, Any] | None = None,
    **fields: Any,
) -> State:
    """What is known at a resolved ts.

    Args:
        applied: The resolved ts.
        tables: The tables.
        resolved: As of `Checkpoint`.
        passed: As of `Feed`.
        fields: Others of `State`, and `applied_of`, which is `State.ahead`.
    """
    readings = {place: Reading(0, ts) for place, ts in (resolved or {}).items()}
    state = State(Mock(), Checkpoint(Lease(1, Holder("t", "h")), 1, applied, 0, readings, Feed(passed=passed or {})))
    state.tables, state.ahead = tables or Tables(), fields.pop("applied_of", {})
    for name, value in fields.items():
        setattr(state, name, value)
    return state
