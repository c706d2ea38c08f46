"""Other ways to apply the topic, measured beside applier on the same data.

Each is written as its own documentation shows it. They know one table, Canal-JSON, and no DDL, no restart, no replay.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.cluster import SMALL_STEP, run_on_cluster
from bench.contender import Feed, Run, as_run
from bench.lake import Lake
from bench.meter import measure
from bench.peers.flink import run_flink


@dataclass(frozen=True, slots=True)
class Peer:
    """One of them.

    Attributes:
        run: Applies a topic to a lake's table, in about so many messages per commit, or all at once, with a log file.
        format_version: Iceberg format of its table.
    """

    run: Callable[[Feed, Lake, int | None, Path], Run]
    format_version: int


def _merge(feed: Feed, lake: Lake, messages_per_step: int | None, log: Path, *, mode: str) -> Run:
    command = [sys.executable, "-m", "bench.peers.merge", "--lake", str(lake.folder), "--mode", mode]
    command += ["--bootstrap", feed.bootstrap, "--topic", feed.topic, "--messages", str(messages_per_step or 1_000_000)]
    return as_run(measure(command, log), log, started="started", worked="step")


def _in_small_steps(feed: Feed, lake: Lake, messages_per_step: int | None, log: Path) -> Run:
    return run_on_cluster(feed, lake, (messages_per_step or SMALL_STEP * 10) // 10, log)


CLUSTER, CLUSTER_SMALL = "applier-cluster", "applier-cluster-small-steps"

PEERS: Mapping[str, Peer] = {
    CLUSTER: Peer(run_on_cluster, 3),
    CLUSTER_SMALL: Peer(_in_small_steps, 3),
    "merge": Peer(partial(_merge, mode="merge-on-read"), 3),
    "merge-cow": Peer(partial(_merge, mode="copy-on-write"), 2),
    "flink": Peer(run_flink, 2),
}
"""By the names that the report uses."""
