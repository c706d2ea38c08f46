"""A scenario in, its tables of measured runs out: topics, lakes, contenders in turns, verdicts."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.parquet as pq

from bench import freshness, parked
from bench.contender import Feed, Run, as_run, run_applier
from bench.lake import Footprint, Lake
from bench.limit import run_limit
from bench.meter import Measured, measure
from bench.peers import CLUSTER, CLUSTER_SMALL, PEERS
from bench.report import APPLIER, Entry, Table
from bench.say import tell
from bench.scenario import Case, Scenario
from bench.storage import counts
from bench.topic import avro
from bench.topic.encoder import Encoder
from bench.topic.events import Events, commit_ts, plan
from bench.topic.expected import write_expected, write_preloaded
from bench.topic.produce import Produced, produce
from bench.topic.schema import table_name
from bench.topic.stream import ENCODERS, PARTITIONS, continued, stream
from tests.services.kafka import Broker
from tests.services.registry import Registry

_LIMITS = {"read": "Spark: read only", "append": "Spark: read, decode, append"}


@dataclass(slots=True)
class Prepared:
    """A case that is ready to run.

    Attributes:
        case: The case.
        events: Its events.
        folder: Everything that belongs to it.
        feed: The topic.
        encoder: How the topic is written.
        names: Its tables.
        produced: What the measured runs read.
        table: What was measured.
        lakes: The lake of each contender's last run.
        before: Footprint of the lakes when the measured run starts.
    """

    case: Case
    events: Events
    folder: Path
    feed: Feed
    encoder: Encoder
    names: list[str]
    produced: Produced
    table: Table
    lakes: dict[str, Lake] = field(default_factory=dict)
    before: dict[str, Footprint] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Playground:
    """Runs scenarios.

    Args:
        folder: For all data.
        broker: A running Kafka.
        registry: Gives a running schema registry when one is needed.
        repeat: Runs of each contender.
        peers: Names of the peers to run.
    """

    folder: Path
    broker: Broker
    registry: Callable[[], Registry]
    repeat: int
    peers: Sequence[str]

    def measure(self, scenario: Scenario) -> list[Table]:
        """Run a scenario. A contender that fails or is wrong is reported as such."""
        prepared = [self._prepare(scenario, number) for number in range(len(scenario.cases))]
        for turn in range(self.repeat):
            for limit in scenario.limits:
                self._run_limit(scenario, limit, prepared)
            for ready in prepared:
                self._run_contenders(scenario, ready, turn)
        self._check(scenario, prepared)
        return [ready.table for ready in prepared]

    def _prepare(self, scenario: Scenario, number: int) -> Prepared:
        case = scenario.cases[number]
        workload = case.workload
        folder = self.folder / scenario.name / str(number)
        events = plan(workload)
        paths = write_expected(workload, events, folder / "expected")
        if workload.preloaded:
            write_preloaded(workload, folder / "preloaded")
        encoder, feed = self._open(scenario, number)
        self.broker.create_topic(feed.topic, PARTITIONS)
        first = events[: case.settled] if case.settled or scenario.live else events
        produced = produce(self.broker.bootstrap, feed.topic, stream(workload, first, encoder))
        tell(f"{scenario.name}, {case.label}: {produced.messages:,} messages made in {produced.seconds:.1f} s")
        rows = sum(pq.read_metadata(path).num_rows for path in paths)
        row_bytes = sum(path.stat().st_size for path in paths) / max(1, rows)
        measured = len(events) - case.settled
        table = Table(case.label, measured, produced.messages, produced.size, row_bytes)
        names = [table_name(each, workload.tables) for each in range(workload.tables)]
        return Prepared(case, events, folder, feed, encoder, names, produced, table)

    def _open(self, scenario: Scenario, number: int) -> tuple[Encoder, Feed]:
        case = scenario.cases[number]
        topic = f"{scenario.name}-{number}"
        if case.protocol != "avro":
            return ENCODERS[case.protocol](), Feed(self.broker.bootstrap, topic, case.protocol, settings=case.settings)
        registry = self.registry()
        tables = case.workload.tables
        keys = [registry.register(f"{topic}-key", avro.key_schema(each, tables)) for each in range(tables)]
        values = [registry.register(f"{topic}-value", avro.value_schema(each, tables)) for each in range(tables)]
        return avro.Avro(keys, values), Feed(self.broker.bootstrap, topic, case.protocol, registry.url)

    def _run_limit(self, scenario: Scenario, limit: str, prepared: Sequence[Prepared]) -> None:
        topics = [ready.feed.topic for ready in prepared]
        folder = self.folder / scenario.name / "limits"
        runs = run_limit(limit, self.broker.bootstrap, topics, prepared[0].feed.protocol, folder, passes=2)
        for number, ready in enumerate(prepared):
            cold, warm = runs[2 * number : 2 * number + 2]
            if len(prepared) == 1:
                _note(ready, f"{_LIMITS[limit]}", cold)
            _note(ready, f"{_LIMITS[limit]}, compiled", warm)
        tell(f"{scenario.name}: {_LIMITS[limit]}: {', '.join(f'{run.seconds:.1f} s' for run in runs)}")

    def _run_contenders(self, scenario: Scenario, ready: Prepared, turn: int) -> None:
        if scenario.live and turn:
            # A feed at its own pace cannot be sent twice.
            return
        peers = (CLUSTER, CLUSTER_SMALL) if scenario.clustered else self.peers if scenario.peers else ()
        lakes = {name: _lake(ready, name, turn) for name in [APPLIER, *peers]}
        self._preload(ready, lakes)
        if ready.case.settled:
            self._settle(ready, lakes[APPLIER])
        for name, lake in lakes.items():
            ready.before[name] = lake.footprint(ready.names)
            log, asked = ready.folder / f"{lake.name}.log", counts()
            steps = scenario.messages_per_step
            if scenario.live:
                run = self._run_live(scenario, ready, lake, log)
            else:
                run = (run_applier if name == APPLIER else PEERS[name].run)(ready.feed, lake, steps, log)
            run.requests.update(counts() - asked)
            _note(ready, name, run)
            ready.lakes[name] = lake
            outcome = run.failure or f"{run.seconds:.1f} s, {run.cpu_seconds:.1f} CPU s"
            tell(f"{scenario.name}, {ready.case.label}: {name}: {outcome}")

    def _run_live(self, scenario: Scenario, ready: Prepared, lake: Lake, log: Path) -> Run:
        """Let the job follow the topic while it is written, by a clock that begins now."""
        running = freshness.start(ready.feed, lake, scenario.messages_per_step, log)
        now_ms = time.time_ns() // 1_000_000
        workload = replace(ready.case.workload, start_ms=now_ms + freshness.LEAD_MS)
        write_expected(workload, ready.events, ready.folder / "expected")
        commands = parked.Commands(lake.folder / "applier.toml", workload, log.with_suffix(".commands.log"))
        if scenario.parks:
            commands.begin()
        ready.produced = freshness.feed_at_pace(ready.feed, workload, ready.events, ready.encoder)
        ready.table.messages, ready.table.size = ready.produced.messages, ready.produced.size
        stamps = commit_ts(workload, ready.events.number).tolist()
        if scenario.parks:
            commands.end()
            stamps = parked.others(workload, ready.events)
        measured = freshness.finish(running, log, stamps, words='"table resumed"' if scenario.parks else "")
        run = as_run(measured, log, started="changefeed taken", worked="step")
        run.freshness.extend(freshness.seconds_to_visible(stamps, run.steps))
        if not scenario.parks:
            return run
        beside = parked.compared(stamps, workload.start_ms, measured.lines)
        return replace(run, beside=beside, failure=run.failure or "; ".join(commands.failures))

    def _preload(self, ready: Prepared, lakes: dict[str, Lake]) -> None:
        if not ready.case.workload.preloaded:
            return
        command = [sys.executable, "-m", "bench.preload", "--rows", str(ready.folder / "preloaded")]
        for name, lake in lakes.items():
            version = 3 if name == APPLIER else PEERS[name].format_version
            command += ["--lake", f"{lake.folder}:{version}"]
        _demand(command, ready.folder / "preload.log")

    def _settle(self, ready: Prepared, lake: Lake) -> None:
        """Let the job apply what came before; then send the rest."""
        settled = run_applier(ready.feed, lake, ready.produced.messages, ready.folder / "settle.log")
        if settled.failure:
            tell(f"{ready.case.label}: what came before was not applied: {settled.failure}")
        blocks = continued(ready.case.workload, ready.events[ready.case.settled :], ready.encoder)
        ready.produced = produce(self.broker.bootstrap, ready.feed.topic, blocks)
        ready.table.messages, ready.table.size = ready.produced.messages, ready.produced.size

    def _check(self, scenario: Scenario, prepared: Sequence[Prepared]) -> None:
        """Compare the tables of all contenders with the expected ones."""
        owners = {lake.name: (ready, name) for ready in prepared for name, lake in _applied(ready).items()}
        jobs = [
            {
                "expected": str(ready.folder / "expected"),
                "tables": len(ready.names),
                "lakes": [str(lake.folder) for lake in _applied(ready).values()],
                "reads": 3 if scenario.reads else 0,
            }
            for ready in prepared
        ]
        file = self.folder / scenario.name / "jobs.json"
        file.write_text(json.dumps(jobs), encoding="utf-8")
        measured = measure([sys.executable, "-m", "bench.check", str(file)], file.with_name("check.log"))
        for line in measured.events("verdict"):
            ready, name = owners[line.fields["lake"]]
            _entry(ready, name).wrong = line.fields["wrong"]
        for ready, name in owners.values():
            entry = _entry(ready, name)
            if entry.wrong is None:
                entry.wrong = [f"it was not compared, see {file.with_name('check.log')}"]
            entry.read_cpu = _median_read(measured, ready.lakes[name].name)
            ready.table.compact_read_cpu = _median_read(measured, "compact")
            entry.footprint = ready.lakes[name].footprint(ready.names).since(ready.before[name])


def _entry(ready: Prepared, name: str) -> Entry:
    entry = ready.table.entry(name)
    if entry is None:
        entry = Entry(name)
        ready.table.entries.append(entry)
    return entry


def _lake(ready: Prepared, name: str, turn: int) -> Lake:
    """A lake of its own for one run; its folder names a catalog, and all of a scenario meet in one Spark session."""
    return Lake(ready.folder / f"{name.replace('-', '_')}_{ready.folder.name}_{turn}")


def _note(ready: Prepared, name: str, run: Run) -> None:
    _entry(ready, name).runs.append(run)


def _applied(ready: Prepared) -> dict[str, Lake]:
    """The lakes of the contenders whose last run ended well."""
    return {name: lake for name, lake in ready.lakes.items() if not _entry(ready, name).runs[-1].failure}


def _median_read(measured: Measured, lake: str) -> float | None:
    """CPU seconds of a full read of a lake's table."""
    reads = [line.fields["cpu"] for line in measured.events("read") if line.fields["lake"] == lake]
    return statistics.median(reads) if reads else None


def _demand(command: Sequence[str], log: Path) -> None:
    if measure(command, log).exit_code:
        msg = f"{' '.join(command)} failed, see {log}"
        raise RuntimeError(msg)
