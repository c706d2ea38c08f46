"""Says why a watermark stands still, and refuses to go on where no later step moves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from applier import wording
from applier.changefeed.message import TopicPartition
from applier.changefeed.ts import wall_clock
from applier.errors import WatermarkStalled
from applier.pipeline.scan.task_result import Waiting
from applier.pipeline.step import Step

_FAR = "No newer watermark comes within {messages:,} messages, the most that a step may read. The backlog is longer."


def stall(step: Step) -> str:
    """Why the watermark does not move, in one sentence; "" if nothing holds it back."""
    return held_back(step.waiting, step.silent) or behind(step.resolved, step.mark)


def held_back(waiting: Sequence[Waiting], silent: Sequence[TopicPartition]) -> str:
    """What holds a watermark back, in one sentence: rows without a schema, or partitions without a resolved ts."""
    if waiting:
        rows = "; ".join(
            f"{row.rows} of table {row.name} from {row.partition}, first at commit ts {_moment(row.commit_ts)}, "
            f"schema version {row.version}"
            for row in waiting[:10]
        )
        return f"Rows wait for a schema that has not come: {rows}."
    if silent:
        return wording.silent(silent)
    return ""


def behind(resolved: Mapping[TopicPartition, int], mark: int | None) -> str:
    """Which partitions have stopped sending resolved ts, in one sentence; "" for a feed without any."""
    if mark is None or not resolved:
        return ""
    newest = max(resolved.values())
    if newest <= mark:
        return wording.stands_still(newest)
    late = sorted(place for place, ts in resolved.items() if ts == mark)
    names = ", ".join(str(place) for place in late[:10])
    return f"The watermark is held at {_moment(mark)} by {names}; others have come to {_moment(newest)}."


def is_still(step: Step) -> bool:
    """Whether the feed as a whole brings no newer watermark: no rows, and no partition alone, hold it back."""
    is_held = bool(step.waiting or step.silent or step.mark is None)
    return not is_held and 0 < max(step.resolved.values(), default=0) <= (step.mark or 0)


def _moment(tso: int) -> str:
    return f"{tso} ({wall_clock(tso).isoformat(timespec='seconds')})"


def refuse_stall(step: Step) -> None:
    """Raise WatermarkStalled if rows or partitions are waited for."""
    if step.waiting or step.silent:
        raise WatermarkStalled(stall(step), way_out(step))


def way_out(step: Step) -> str:
    """What ends a stall, in one sentence; "" where nothing but waiting does."""
    if step.waiting:
        return wording.WAY_TO_SCHEMAS
    if step.silent:
        return wording.way_past_silent("FILE") if step.resolved else wording.WAY_TO_WATERMARKS
    return wording.WAY_TO_A_LIVING_FEED if is_still(step) else ""


def refuse_far(step: Step) -> None:
    """Raise WatermarkStalled if the next watermark is further away than a step may read: no other step gets there."""
    if step.is_longest and not step.moved:
        refuse_stall(step)
        raise WatermarkStalled(_FAR.format(messages=step.status.messages), wording.WAY_TO_FAR_WATERMARKS)
