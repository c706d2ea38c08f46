"""What it costs to watch a job: CPU time of each step's figures, of the page and the metrics, and steps under load.

python -m bench.watching FILE: applies the topic of a configuration, first alone and then with a hundred open pages.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import requests

from applier.commands.follower import Follower
from applier.config import settings
from applier.pipeline.build import assembled
from applier.pipeline.step import Pipeline
from applier.watch import server
from applier.watch.board import Board
from applier.watch.watching import watching
from bench.contender import Feed, write_config
from bench.lake import Lake
from bench.meter import measure
from bench.topic.encoder import Encoder
from bench.topic.events import Workload, plan
from bench.topic.produce import produce
from bench.topic.stream import ENCODERS, PARTITIONS, stream
from tests.services.kafka import Broker

LIMIT = 0.01
"""Most that watching may cost, by the CPU time of a step."""

_STEP, _WARM, _STEPS = 1_000, 30, 100
_PAGES, _SLOW, _PAUSE = 100, 20, 5.0
"""Open pages, each of which asks anew after a pause in seconds, and clients that never read their answer."""

_SHOWN = ("status.json", "history.json")
"""What an open page asks for, again and again."""


def watched(folder: Path, broker: Broker) -> tuple[str, bool]:
    """Measure on a topic of its own; gives the result as text, and whether it keeps the limit."""
    workload = Workload((_WARM + 2 * _STEPS) * _STEP, tables=10)
    feed = Feed(broker.bootstrap, "watching", "canal-json")
    encoder: Encoder = ENCODERS[feed.protocol]()
    broker.create_topic(feed.topic, PARTITIONS)
    produce(feed.bootstrap, feed.topic, stream(workload, plan(workload), encoder))
    file = write_config(feed, Lake(folder / "lake"), _STEP)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file.write_text(f"{file.read_text('utf-8')}\n[http]\nport = {port}\n", encoding="utf-8")
    log = folder / "watching.log"
    measured = measure([sys.executable, "-m", "bench.watching", str(file)], log)
    found = measured.events("watched")
    if not found:
        return f"watching failed, see {log}", False
    figures = found[-1].fields
    lines = [
        "watching: ten tables, steps of 1,000 events, without and with a hundred open pages",
        "",
        f"CPU time of a step       {figures['step_ms']:8.1f} ms",
        f"its figures, for others  {figures['take_ms']:8.3f} ms, {figures['take_share']:.2%} of a step",
        f"metrics, once            {figures['metrics_ms']:8.1f} ms",
        f"page, once               {figures['page_ms']:8.1f} ms",
        f"a hundred open pages     {figures['http_share']:8.2%} of a core",
        f"a step beside them       {figures['slower']:8.2f} x its wall time alone",
    ]
    return "\n".join([*lines, ""]), figures["take_share"] <= LIMIT


def main(file: str) -> None:
    """Print the figures as an event."""
    config = settings.load(file)
    with watching(config) as board, assembled(config) as pipeline:
        follower = Follower(pipeline)
        board.begin(pipeline)
        http = _counted_requests()
        for _ in range(_WARM):
            _step(board, follower)
        alone = [_step(board, follower) for _ in range(_STEPS)]
        url = f"http://127.0.0.1:{config.http.port}/"
        with ExitStack() as stack:
            pages = subprocess.Popen([sys.executable, "-m", "bench.watching", "--pages", url])
            stack.callback(pages.wait)
            stack.callback(pages.terminate)
            before, start = http[0], time.monotonic()
            beside = [_step(board, follower) for _ in range(_STEPS)]
            share = (http[0] - before) / (time.monotonic() - start)
        step, take = (statistics.median(each[part] for each in alone) for part in (1, 2))
        slower = statistics.median(each[0] for each in beside) / statistics.median(each[0] for each in alone)
        once = {f"{path}_ms": 1000 * _cost(url + path) for path in ("metrics", *_SHOWN)}
        once["page_ms"] = sum(once.pop(f"{path}_ms") for path in _SHOWN)
        figures = {"step_ms": 1000 * step, "take_ms": 1000 * take, "take_share": take / step}
        print(json.dumps({"event": "watched", **figures, **once, "http_share": share, "slower": slower}), flush=True)


def _step(board: Board, follower: Follower) -> tuple[float, float, float]:
    """Wall and CPU seconds of a step, and CPU seconds of its figures."""
    jvm = _java(follower.pipeline)
    wall, cpu = time.monotonic(), time.process_time() + _cpu(jvm)
    step = follower.turn()
    wall, cpu = time.monotonic() - wall, time.process_time() + _cpu(jvm) - cpu
    begin = time.thread_time()
    board.take(follower.pipeline, step)
    return wall, cpu, time.thread_time() - begin


def _java(pipeline: Pipeline) -> int:
    return int(pipeline.targets.catalog.java.jvm.java.lang.ProcessHandle.current().pid())


def _cpu(pid: int) -> float:
    ticks = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(ticks[11]) + int(ticks[12])) / 100


def _counted_requests() -> list[float]:
    """CPU seconds of the threads that answer requests, as they add up."""
    spent = [0.0]
    answer: Any = server._Server.process_request_thread  # noqa: SLF001 - no public name for a thread of the server

    def counted(self: Any, *given: Any) -> None:
        begin = time.thread_time()
        answer(self, *given)
        spent[0] += time.thread_time() - begin

    server._Server.process_request_thread = counted  # type: ignore[method-assign, assignment]  # noqa: SLF001
    return spent


def _cost(url: str) -> float:
    """CPU seconds of this process for one answer that is not kept."""
    time.sleep(2 * server.KEPT_SECONDS)
    begin = time.process_time()
    requests.get(url, timeout=60).raise_for_status()
    return time.process_time() - begin


def open_pages(url: str) -> None:
    """Ask for the page as a hundred browsers do, beside clients that never read, until the process is ended."""
    host, _, port = url.removeprefix("http://").strip("/").partition(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(_SLOW)]
    for client in slow:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def browse(number: int) -> None:
        time.sleep(_PAUSE * number / _PAGES)
        while True:
            with suppress(OSError):
                for path in _SHOWN:
                    requests.get(url + path, timeout=60)
            time.sleep(_PAUSE)

    with ThreadPoolExecutor(_PAGES) as pool:
        list(pool.map(browse, range(_PAGES)))


if __name__ == "__main__":
    open_pages(sys.argv[2]) if sys.argv[1] == "--pages" else main(sys.argv[1])
