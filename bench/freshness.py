"""A feed that goes on at the pace of its own clock in, how long after its commit each change can be read out."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from bench.contender import Feed, write_config
from bench.lake import Lake
from bench.meter import Line, Measured, Running, begin
from bench.topic.encoder import Encoder
from bench.topic.events import Events, Workload, commit_ts
from bench.topic.produce import Produced, produce
from bench.topic.stream import Block, block_size, continued

LEAD_MS = 5_000
"""From now to the first event: the messages are made meanwhile."""

_START_SECONDS = 240.0
_LATE_SECONDS = 120.0
_POLL_SECONDS = 0.2


def start(feed: Feed, lake: Lake, messages_per_step: int | None, log: Path) -> Running:
    """`applier run`, once it has made the tables: a first step pays for a cold JVM, which no later one does.

    Raises:
        RuntimeError: It has not in four minutes.
    """
    file = write_config(feed, lake, messages_per_step)
    running = begin([sys.executable, "-m", "applier", "run", "-c", str(file)], log)
    if not _said(log, '"event": "step"', _START_SECONDS, running):
        running.end(stop=True)
        msg = f"the job did not start, see {log}"
        raise RuntimeError(msg)
    return running


def feed_at_pace(feed: Feed, workload: Workload, events: Events, encoder: Encoder) -> Produced:
    """Send each block of messages at the moment at which its last row was committed, and its watermark with it."""
    blocks = list(continued(workload, events, encoder))
    return produce(feed.bootstrap, feed.topic, _at_pace(blocks, _ends(workload, events, len(blocks))))


def finish(running: Running, log: Path, stamps: Sequence[int], *, words: str = "") -> Measured:
    """Wait until the last change can be read, and end the job.

    Args:
        running: The job.
        log: What it prints.
        stamps: Commit ts of all changes, ascending.
        words: What it has to print before it may end.
    """
    _said(log, f'"resolved_ts": "{stamps[-1]}"', _LATE_SECONDS, running)
    if words:
        _said(log, words, _LATE_SECONDS, running)
    return running.end(stop=True)


def seconds_to_visible(stamps: Sequence[int], steps: Sequence[Line]) -> list[float]:
    """Seconds from each commit to the status line of the step that made it readable; none for what never was.

    Args:
        stamps: Commit ts, ascending.
        steps: Lines of the job; those of steps have a resolved ts and a time.
    """
    return [at - committed for committed, at in readable(stamps, steps)]


def readable(stamps: Sequence[int], steps: Sequence[Line]) -> list[tuple[float, float]]:
    """When each change was committed and when it could be read, in Unix seconds; see `seconds_to_visible`."""
    done = [line.fields for line in steps if line.fields.get("resolved_ts") is not None]
    resolved = np.array([int(fields["resolved_ts"]) for fields in done], np.int64)
    shown = [datetime.fromisoformat(fields["timestamp"]).timestamp() for fields in done]
    places = np.searchsorted(resolved, np.array(stamps, np.int64)).tolist()
    return [
        ((stamp >> 18) / 1000, shown[place]) for stamp, place in zip(stamps, places, strict=True) if place < len(shown)
    ]


def _ends(workload: Workload, events: Events, blocks: int) -> list[float]:
    """When the last row of each block was committed, Unix seconds."""
    stamps = commit_ts(workload, events.number)
    size = block_size(workload)
    return [(int(stamps[min(len(events), (block + 1) * size) - 1]) >> 18) / 1000 for block in range(blocks)]


def _at_pace(blocks: Sequence[Block], due: Sequence[float]) -> Iterator[Block]:
    for block, moment in zip(blocks, due, strict=True):
        time.sleep(max(0.0, moment - time.time()))
        yield block


def _said(log: Path, words: str, seconds: float, running: Running) -> bool:
    """Wait until the job has printed some words; False if it ended or the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and running.process.poll() is None:
        if log.exists() and words in log.read_text(encoding="utf-8", errors="replace"):
            return True
        time.sleep(_POLL_SECONDS)
    return False
