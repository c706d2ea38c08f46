"""What the page shows: the report on a changefeed, and what only a running process knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from applier.sink.control.rows import SchemaDecision
from applier.watch.history import Point
from applier.watch.report import StatusReport


@dataclass(frozen=True, slots=True)
class View:
    """What is known at one moment.

    Attributes:
        report: The same as `applier status` shows, as far as the process knows it: others may have changed a table
            since, or dropped it.
        points: The last hours, the oldest first.
        phase: What the process does, in words: `starting`, `running`, `stopping`; "" where none does.
        outage: What does not answer now; None while all is well.
        now: Unix time in seconds.
        decisions: The last decision on each DDL, in order of commit ts.
        commits: Snapshots that each Iceberg table got since the start, by its identifier joined by dots.
        is_behind: This process has written decisions on DDL, or dead letters, that are still to be read.
    """

    report: StatusReport
    points: Sequence[Point]
    phase: str
    outage: str | None
    now: float
    decisions: Sequence[SchemaDecision] = ()
    commits: Mapping[str, int] = field(default_factory=dict)
    is_behind: bool = False
