"""What a job costs that has nothing to do: its memory, and its CPU time without messages and with watermarks alone."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from applier.commands.run import REST_SECONDS
from bench.contender import Feed
from bench.freshness import start
from bench.lake import Lake
from bench.meter import tree, tree_cpu
from bench.topic.encoder import Encoder
from bench.topic.events import Workload, commit_ts, plan
from bench.topic.produce import produce
from bench.topic.stream import ENCODERS, PARTITIONS, stream
from tests.services.kafka import Broker

_EVENTS, _SECONDS, _SETTLE_SECONDS = 20_000, 30.0, 10.0


def idle(folder: Path, broker: Broker) -> str:
    """Measure on a topic of its own; gives the result as text."""
    workload = Workload(_EVENTS, tables=10)
    feed = Feed(broker.bootstrap, "idle", "canal-json")
    encoder: Encoder = ENCODERS[feed.protocol]()
    events = plan(workload)
    broker.create_topic(feed.topic, PARTITIONS)
    produce(feed.bootstrap, feed.topic, stream(workload, events, encoder))
    running = start(feed, Lake(folder / "lake"), None, folder / "idle.log")
    try:
        # Until it rests, and has given back what the work took.
        time.sleep(REST_SECONDS + 2 * _SETTLE_SECONDS)
        nothing = _share(running.process.pid)
        memory = _resident_mb(running.process.pid)
        with _watermarks(feed, encoder, int(commit_ts(workload, events.number)[-1])):
            time.sleep(_SETTLE_SECONDS)
            watermarks = _share(running.process.pid)
    finally:
        running.end(stop=True)
    lines = [
        f"idle: ten tables, {_SECONDS:g} seconds each, after {_EVENTS:,} events and a minute's rest",
        "",
        *(f"resident memory, {name:12} {mb:6.0f} MB, {own:.0f} MB of it its own" for name, mb, own in memory),
        f"CPU, without a message        {nothing:7.2%} of a core",
        f"CPU, a watermark each second  {watermarks:7.2%} of a core",
    ]
    return "\n".join([*lines, ""])


def _share(root: int) -> float:
    """CPU time of all processes below one, as a share of a core."""
    since, before = time.monotonic(), tree_cpu(root)
    time.sleep(_SECONDS)
    return (tree_cpu(root) - before) / (time.monotonic() - since)


def _resident_mb(root: int) -> list[tuple[str, float, float]]:
    """Name of each process below one, its resident memory and what no other process shares, in MB."""
    found = []
    for pid in tree(root):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        except OSError:
            continue  # It has ended.
        kb = {name: int(size) for name, size in re.findall(r"^(\w+): +(\d+) kB$", rollup, re.MULTILINE)}
        own = kb["Private_Clean"] + kb["Private_Dirty"]
        found.append((Path(f"/proc/{pid}/comm").read_text("utf-8").strip(), kb["Rss"] / 1024, own / 1024))
    return found


@contextmanager
def _watermarks(feed: Feed, encoder: Encoder, last_ts: int) -> Iterator[None]:
    """Send a watermark to every partition each second, of a clock that goes on from `last_ts`."""
    stop = threading.Event()

    def send() -> None:
        ts = last_ts
        while not stop.wait(1.0):
            ts += 1000 << 18
            record = encoder.watermark(ts)
            block = [[{"key": record.key, "value": record.value}] for _ in range(PARTITIONS)]
            produce(feed.bootstrap, feed.topic, [block])

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
