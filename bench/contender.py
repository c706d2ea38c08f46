"""A topic and a lake in, one measured run of something that applies it out."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.lake import SPARK, Lake
from bench.meter import Line, Measured, measure
from bench.topic.schema import DATABASE

if TYPE_CHECKING:
    from bench.cluster import Places
    from bench.parked import Beside

_WIRE = {"simple-json": "simple", "simple-avro": "simple"}
"""`changefeed.protocol` of the protocols whose names differ from it."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A topic.

    Attributes:
        bootstrap: The broker.
        topic: Its name.
        protocol: As `bench.scenario` names it.
        registry: Address of the schema registry, for Avro.
        settings: Sections of the job's configuration beside those that every run has.
    """

    bootstrap: str
    topic: str
    protocol: str
    registry: str | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run.

    Attributes:
        start_seconds: Until Spark, or whatever it runs on, was up.
        seconds: From there to the end of the work.
        cpu_seconds: CPU seconds of all its processes in that time.
        whole_cpu_seconds: The same from start to exit.
        peak_mb: Highest resident memory of all its processes.
        steps: Per step of the work: its end, CPU seconds by then, and what was said of it.
        freshness: Seconds from the commit of each change to the moment at which it could be read, where that counts.
        beside: What it cost all other tables that one was parked and brought back, where that counts.
        places: What its driver and its executors used, where it has executors.
        failure: Why there is no result; "" for a run that ended well.
        requests: Requests to the object storage from its start to its exit, where the lake is there, by purpose and
            kind.
    """

    start_seconds: float
    seconds: float
    cpu_seconds: float
    whole_cpu_seconds: float
    peak_mb: float
    steps: Sequence[Line] = field(default_factory=list)
    failure: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    freshness: list[float] = field(default_factory=list)
    beside: Beside | None = None
    places: Places | None = None


def run_applier(feed: Feed, lake: Lake, messages_per_step: int | None, log: Path) -> Run:
    """`applier run --once`, as a user would start it."""
    file = write_config(feed, lake, messages_per_step)
    measured = measure([sys.executable, "-m", "applier", "run", "--once", "-c", str(file)], log)
    return as_run(measured, log, started="changefeed taken", worked="step")


def as_run(measured: Measured, log: Path, *, started: str, worked: str) -> Run:
    """What was measured, cut at the events `started` and, for the last time, `worked`."""
    starts, steps = measured.events(started), measured.events(worked)
    if measured.exit_code or not starts or not steps:
        failure = f"exit code {measured.exit_code}: {_last_words(log)}"
        return Run(0, measured.seconds, measured.cpu_seconds, measured.cpu_seconds, measured.peak_mb, steps, failure)
    start, end = starts[0], steps[-1]
    return Run(
        start_seconds=start.at,
        seconds=end.at - start.at,
        cpu_seconds=end.cpu - start.cpu + end.beside - start.beside,
        whole_cpu_seconds=measured.cpu_seconds + measured.lines[-1].beside - measured.lines[0].beside,
        peak_mb=measured.peak_mb,
        steps=[start, *steps],
    )


def write_config(feed: Feed, lake: Lake, messages_per_step: int | None, spark: Mapping[str, str] | None = None) -> Path:
    """The job's configuration file, beside its lake; `spark` in the place of this machine's own."""
    lake.folder.mkdir(parents=True, exist_ok=True)
    protocol = _WIRE.get(feed.protocol, feed.protocol)
    # Rows that no applier has written are taken for its table's only where the feed is to go on behind a load.
    is_loaded = lake.loaded.exists() or next(lake.folder.rglob("*.parquet"), None) is not None
    sections: dict[str, Mapping[str, Any]] = {
        "changefeed": {"name": "bench", "protocol": protocol, "start": "midstream" if is_loaded else "beginning"},
        "source": {} if messages_per_step is None else {"messages_per_step": messages_per_step},
        "source.kafka": {"topics": [feed.topic], "kafka.bootstrap.servers": feed.bootstrap},
        "catalog": {"name": lake.name, **lake.properties},
        "tables": {"include": [f"{DATABASE}.*"]},
        "spark": spark or SPARK,
        **feed.settings,
    }
    if feed.registry:
        sections["registry"] = {"url": feed.registry}
    file = lake.folder / "applier.toml"
    file.write_text("\n".join(_section(name, members) for name, members in sections.items()), encoding="utf-8")
    return file


def _section(name: str, members: Mapping[str, Any]) -> str:
    # JSON's strings, numbers and arrays of strings are TOML's as well.
    return "\n".join([f"[{name}]", *(f'"{key}" = {json.dumps(value)}' for key, value in members.items()), ""])


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it said nothing"
