"""A topic in, the measured passes of one of Spark's limits out."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

from bench.contender import Run
from bench.meter import measure


def run_limit(limit: str, bootstrap: str, topics: list[str], protocol: str, folder: Path, passes: int) -> list[Run]:
    """Start `bench.limits` on topics; every pass over every topic is one run, in this order.

    Only the very first is a cold one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "bench.limits", limit, "--bootstrap", bootstrap, "--folder", str(folder)]
    for topic in topics:
        command += ["--topic", topic]
    log = folder / f"{limit}.log"
    measured = measure([*command, "--protocol", protocol, "--passes", str(passes)], log)
    started, ends = measured.events("started"), measured.events("pass")
    if measured.exit_code or len(ends) != passes * len(topics):
        msg = f"limit {limit} failed, see {log}"
        raise RuntimeError(msg)
    return [
        Run(started[0].at, end.fields["seconds"], end.cpu - begin.cpu, measured.cpu_seconds, measured.peak_mb)
        for begin, end in pairwise([*started, *ends])
    ]
