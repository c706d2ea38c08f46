"""The metrics of a changefeed, and their values for Prometheus; tests hold docs, alerts and panels to `METRICS`."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, get_args

from prometheus_client import (
    CollectorRegistry,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family

from applier.changefeed.completeness import Why
from applier.changefeed.fate import Fate
from applier.changefeed.table import TableName
from applier.changefeed.ts import unix_ms
from applier.config.settings import Config
from applier.pipeline.state import State
from applier.pipeline.step import Step
from applier.runtime.logs import Stage
from applier.runtime.outages import OUTAGES, SYSTEMS
from applier.runtime.pulse import PULSE
from applier.runtime.versions import versions
from applier.sink.control.rows import Decision, SchemaDecision
from applier.watch.report import StatusReport, TableProgress, TableState, View

Kind: TypeAlias = Literal["gauge", "counter", "histogram"]

_BEGUN = "before the checkpoint is read"
_STEPPED = "before the first step"
_UNMARKED = "without a watermark"
_COMMITTED = "before the first commit"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; all have the label `changefeed`.

    Attributes:
        name: Its name without `applier_` and without the ending `_total` of counters.
        meaning: What it says, as one sentence.
        labels: What it has beside `changefeed`.
        absent: When it has no series, as it is not known; "" if it always has.
        buckets: Upper bounds of a histogram.
    """

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    absent: str = ""
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """The name in queries; that of a histogram is `_bucket`, `_sum` or `_count` longer there."""
        return f"applier_{self.name}{'_total' if self.kind == 'counter' else ''}"


_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_COMMIT_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_TABLE = ("table",)

METRICS = (
    Metric("up", "gauge", "1 while the process runs, from before Spark starts."),
    Metric("build_info", "gauge", "1, with the versions as labels.", labels=("version", "python", "spark", "iceberg")),
    Metric("changefeed_info", "gauge", "1, with order and protocol as labels.", labels=("order", "protocol")),
    Metric("fresh", "gauge", "1 if they are fresh, complete or ended, 0 if they are stale or catch up.", absent=_BEGUN),
    Metric(
        "resolved_timestamp_seconds",
        "gauge",
        "Wall clock of the watermark that all tables have reached.",
        absent=_UNMARKED,
    ),
    Metric(
        "lag_seconds",
        "gauge",
        "Age of that watermark at the time of the scrape: it grows while nothing comes.",
        absent=_UNMARKED,
    ),
    Metric("max_lag_seconds", "gauge", "Lag from which on the tables are stale: `http.max_lag_seconds`."),
    Metric("backlog_messages", "gauge", "Messages that the source has beyond the newest step.", absent=_STEPPED),
    Metric("waiting_rows", "gauge", "Row changes above the watermark or without a schema.", absent=_STEPPED),
    Metric("last_step_timestamp_seconds", "gauge", "When the newest step that moved was finished.", absent=_STEPPED),
    Metric(
        "last_progress_timestamp_seconds",
        "gauge",
        "Last sign of progress, within a step too; also while nothing is new.",
    ),
    Metric("steps", "counter", "Steps that moved."),
    Metric("messages", "counter", "Messages read."),
    Metric("rows", "counter", "Row changes applied."),
    Metric("changes", "counter", "Row changes by what became of them.", labels=("fate",)),
    Metric("commits", "counter", "Commits of rows."),
    Metric("dead_letters", "counter", "Messages that were set aside."),
    Metric("not_found", "counter", "Rows to update or delete that the table did not hold."),
    Metric("step_duration_seconds", "histogram", "Time of each step that moved.", buckets=_SECONDS),
    Metric("stage_duration_seconds", "histogram", "Time of each stage of it.", labels=("stage",), buckets=_SECONDS),
    Metric(
        "commit_duration_seconds",
        "histogram",
        "Time of each commit of rows to a table.",
        _TABLE,
        _BEGUN,
        _COMMIT_SECONDS,
    ),
    Metric(
        "table_state", "gauge", "1 for the state that the table is in, 0 for all others.", ("table", "state"), _BEGUN
    ),
    Metric(
        "table_lag_seconds",
        "gauge",
        "Age of what the table shows at the time of the scrape: the lag, or the time since it was parked.",
        _TABLE,
        "where that is not known",
    ),
    Metric("table_rows", "gauge", "Living rows, by the summary of its head.", _TABLE, _COMMITTED),
    Metric("table_files", "gauge", "Data files and delete files of its head.", _TABLE, _COMMITTED),
    Metric("table_last_commit_timestamp_seconds", "gauge", "When its head was committed.", _TABLE, _COMMITTED),
    Metric("table_commits", "counter", "Snapshots that it got, those of maintenance too.", _TABLE, _COMMITTED),
    Metric("table_failures", "counter", "Times that an error parked it.", _TABLE, _BEGUN),
    Metric(
        "dropped_tables",
        "gauge",
        "Tables that were dropped upstream and are kept.",
        absent="before the checkpoint is read, and where the catalog does not list its tables",
    ),
    Metric("ddl_decisions", "counter", "DDL by what became of them.", labels=("decision",)),
    Metric("ddl_refused_pending", "gauge", "Refused DDL whose tables are parked still.", absent=_BEGUN),
    Metric("dead_letters_open", "gauge", "Dead letters that are not made up for.", absent=_BEGUN),
    Metric("outages", "counter", "Outages of outside systems that began.", labels=("system",)),
    Metric("outage", "gauge", "1 while the outside system does not answer.", labels=("system",)),
    Metric("lease_held", "gauge", "1 while this process holds the changefeed and shows it in time."),
    Metric(
        "lease_epoch",
        "gauge",
        "Number of the hold: each process that takes the changefeed gets the next.",
        absent=_BEGUN,
    ),
    Metric(
        "last_heartbeat_timestamp_seconds",
        "gauge",
        "When the newest checkpoint was written, which shows that the process lives.",
        absent=_BEGUN,
    ),
    Metric("maintenance_behind", "gauge", "Tables a fifth or more beyond a limit of maintenance.", absent=_STEPPED),
    Metric("compacted_files", "counter", "Data files that maintenance rewrote."),
    Metric("removed_delete_files", "counter", "Deletion vectors, or position delete files, that went with them."),
    Metric("merged_manifests", "counter", "Manifests that maintenance merged."),
    Metric("expired_snapshots", "counter", "Snapshots that expired."),
    Metric("removed_orphan_files", "counter", "Removed files that no snapshot referenced."),
)
"""All metrics, in the order in which they are shown."""

NOTES = {
    "dead_letters": "dead_letters",
    "not_found": "not_found",
    "compacted_files": "compacted",
    "removed_delete_files": "vectors",
    "merged_manifests": "manifests",
    "expired_snapshots": "expired",
    "removed_orphan_files": "orphans",
}
"""Counters by name, with the note of the status line that each adds up."""


Value: TypeAlias = tuple[str, tuple[str, ...], float]
"""Name of a metric, its labels beside the changefeed, and its value."""

_FATES = (Fate.APPLIED, Fate.HAD, Fate.LEFT_OUT, Fate.DOUBTED)

_FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


class Exposition:
    """The metrics of one changefeed; they are put together when Prometheus asks, save for the counts of steps.

    `view` gives what is known now.
    """

    def __init__(self, config: Config, view: Callable[[], View]) -> None:
        self._config, self._view = config, view
        self._own = config.changefeed.name
        self._build = versions()
        self._sums = Counter[str](dict.fromkeys(("steps", "messages", "rows", "commits", *NOTES), 0))
        self._fates = Counter[str](dict.fromkeys(_FATES, 0))
        self._left: dict[str, float] = {}
        self._failures: dict[TableName, int] = {}
        self._failed: frozenset[TableName] = frozenset()
        self._decided: tuple[Counter[str], Counter[str]] | None = None
        self._refused: Sequence[TableName] = ()
        self._state: State | None = None
        # The time at which a counter began is of use to no query here, and would double the series.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._histograms = {
            metric.name: Histogram(
                metric.full_name,
                metric.meaning,
                ("changefeed", *metric.labels),
                registry=self.registry,
                buckets=metric.buckets,
            )
            for metric in METRICS
            if metric.kind == "histogram"
        }
        self._step = self._histograms["step_duration_seconds"].labels(self._own)
        stages = self._histograms["stage_duration_seconds"]
        self._stages: dict[str, Histogram] = {stage: stages.labels(self._own, stage) for stage in get_args(Stage)}
        self._commits: dict[TableName, Histogram] = {}
        self.registry.register(self)

    def text(self) -> bytes:
        """All of them, in the format of Prometheus."""
        return generate_latest(self.registry)

    def begin(self, state: State, config: Config) -> None:
        """The checkpoint is read: what is parked now failed in another process."""
        self._config, self._state, self._failed = config, state, _failed(state)
        self._meet(state.checkpoint.tables)

    def take(self, state: State, step: Step) -> None:
        """Count what a step did, or how much is left where it found nothing to do."""
        status = step.status
        # Made anew each time, as another thread may be reading it.
        behind = status.notes.get("maintenance_behind", 0)
        left = {"backlog_messages": status.backlog, "waiting_rows": status.waiting, "maintenance_behind": behind}
        self._left = self._left | left
        failed = _failed(state)
        for table in failed - self._failed:
            self._failures[table] = self._failures.get(table, 0) + 1
        self._failed = failed
        if not step.moved:
            return
        self._left = self._left | {"last_step_timestamp_seconds": status.now_ms / 1000}
        sums = self._sums
        sums["steps"] += 1
        sums["messages"] += status.messages
        sums["rows"] += status.rows
        sums["commits"] += status.tables
        for fate in _FATES:
            self._fates[fate] += status.rows if fate is Fate.APPLIED else status.notes.get(fate, 0)
        for name, note in NOTES.items():
            # Bringing manifests together may leave more of them.
            sums[name] += max(0, status.notes.get(note, 0))
        for stage, spent in status.seconds.items():
            self._stages[stage].observe(spent)
        self._step.observe(sum(status.seconds.values()))
        self._meet(state.checkpoint.tables)
        for table, spent in step.commits:
            if table in self._commits:
                self._commits[table].observe(spent)

    def decide(self, decisions: Sequence[SchemaDecision], last: Sequence[SchemaDecision]) -> None:
        """Count all decisions; `last` are those that stand. Those of the first call were made before."""
        now = Counter[str](item.decision for item in decisions)
        self._decided = (now if self._decided is None else self._decided[0], now)
        self._refused = [item.table for item in last if item.decision == "refused"]

    def collect(self) -> Iterator[Family]:
        """The metrics that are no histograms, as the registry asks for them."""
        found: dict[str, list[tuple[tuple[str, ...], float]]] = defaultdict(list)
        for name, labels, value in self._values():
            found[name].append((labels, value))
        for metric in METRICS:
            if metric.kind == "histogram":
                continue
            family = _FAMILIES[metric.kind](metric.full_name, metric.meaning, labels=("changefeed", *metric.labels))
            for labels, value in found[metric.name]:
                family.add_metric([self._own, *labels], value)
            yield family

    def describe(self) -> Iterator[Family]:
        """Nothing: the registry need not ask for values to learn the names."""
        return iter(())

    def _meet(self, tables: Mapping[TableName, object]) -> None:
        """Begin the series of tables that are new, and end those of tables that are gone."""
        if self._commits.keys() == tables.keys():
            return
        histogram = self._histograms["commit_duration_seconds"]
        for gone in self._commits.keys() - tables.keys():
            histogram.remove(self._own, str(gone))
            self._failures.pop(gone, None)
            del self._commits[gone]
        for name in tables.keys() - self._commits.keys():
            self._commits[name] = histogram.labels(self._own, str(name))

    def _values(self) -> Iterator[Value]:
        changefeed, view = self._config.changefeed, self._view()
        yield "up", (), 1
        yield "build_info", self._build, 1
        yield "changefeed_info", (changefeed.order, changefeed.protocol), 1
        yield "max_lag_seconds", (), view.report.max_lag_seconds
        yield "last_progress_timestamp_seconds", (), time.time() - PULSE.age
        for name, value in (*self._left.items(), *self._sums.items()):
            yield name, (), value
        for fate, count in self._fates.items():
            yield "changes", (fate,), count
        for system in SYSTEMS:
            yield "outages", (system,), OUTAGES.counts[system]
            yield "outage", (system,), OUTAGES.system == system
        before, now = self._decided or (Counter(), Counter())
        for decision in get_args(Decision):
            yield "ddl_decisions", (decision,), now[decision] - before[decision]
        yield from self._of_report(view.report)
        failures = {str(name): count for name, count in dict(self._failures).items()}
        for table in view.report.tables:
            yield from _of_table(table)
            yield "table_failures", (table.table,), failures.get(table.table, 0)
            if (commits := view.commits.get(table.iceberg)) is not None:
                yield "table_commits", (table.table,), commits

    def _of_report(self, report: StatusReport) -> Iterator[Value]:
        holder = report.holder
        limit = self._config.run.lease_seconds
        yield "lease_held", (), holder is not None and not holder.released and holder.silent_seconds <= limit
        if holder is None or self._state is None:
            return
        tables = self._state.checkpoint.tables
        parked = [tables[name].completeness for name in self._refused if name in tables]
        yield "ddl_refused_pending", (), sum(found is not None and found.why is Why.DDL for found in parked)
        yield "lease_epoch", (), holder.epoch
        yield "last_heartbeat_timestamp_seconds", (), _unix(holder.seen)
        yield "fresh", (), report.exit_code == 0
        yield "dead_letters_open", (), report.dead_letter_count
        if report.dropped is not None:
            yield "dropped_tables", (), len(report.dropped)
        # In offset order the lag is the time since the last sign of life, and no metric.
        if report.resolved_ts is not None and report.lag_seconds is not None:
            yield "resolved_timestamp_seconds", (), unix_ms(report.resolved_ts) / 1000
            yield "lag_seconds", (), report.lag_seconds


def _of_table(table: TableProgress) -> Iterator[Value]:
    label = (table.table,)
    for state in get_args(TableState):
        yield "table_state", (table.table, state), table.state == state
    if table.lag_seconds is not None:
        yield "table_lag_seconds", label, table.lag_seconds
    if table.committed is not None:
        yield "table_rows", label, table.rows
        yield "table_files", label, table.files
        yield "table_last_commit_timestamp_seconds", label, _unix(table.committed)


def _failed(state: State) -> frozenset[TableName]:
    return frozenset(name for name, found in state.completeness.items() if found.why.is_error)


def _unix(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()
