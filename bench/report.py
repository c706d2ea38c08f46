"""Measured runs in, text out: one table per topic, and what follows from it in sentences."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bench.cluster import LARGEST_STEP, MANY, Outlook, by_cost, by_waiting
from bench.contender import Run
from bench.lake import Footprint
from bench.parked import part

APPLIER = "applier"
_FEW_STEPS = 5


@dataclass(slots=True)
class Entry:
    """One row of a table: a contender, or a limit.

    Attributes:
        name: Its name.
        runs: One per repetition.
        wrong: What is wrong with its tables, in words; None where there is none to compare.
        footprint: What its last run left.
        read_cpu: CPU seconds of one full read of its table, where that was measured.
    """

    name: str
    runs: list[Run] = field(default_factory=list)
    wrong: list[str] | None = None
    footprint: Footprint | None = None
    read_cpu: float | None = None

    @property
    def run(self) -> Run:
        """The run with the median time, of those that ended well."""
        good = [run for run in self.runs if not run.failure] or self.runs
        return sorted(good, key=lambda run: run.seconds)[(len(good) - 1) // 2]

    @property
    def verdict(self) -> str:
        """What the table says of the result."""
        failures = [run.failure for run in self.runs if run.failure]
        if failures:
            return "FAILED"
        return "" if self.wrong is None else "WRONG" if self.wrong else "exact"


@dataclass(slots=True)
class Table:
    """What was measured on one topic.

    Attributes:
        label: The case.
        events: Row events that the measured runs applied.
        messages: Messages that they read.
        size: Bytes of the messages' values.
        row_bytes: Bytes of a row in the expected table, compact.
        entries: Limits and contenders.
        compact_read_cpu: CPU seconds of one full read of a compact copy.
    """

    label: str
    events: int
    messages: int
    size: int
    row_bytes: float
    entries: list[Entry] = field(default_factory=list)
    compact_read_cpu: float | None = None

    def entry(self, name: str) -> Entry | None:
        """The row of one name."""
        return next((entry for entry in self.entries if entry.name == name), None)


def render(title: str, tables: Sequence[Table]) -> str:
    """A scenario as text."""
    lines = [title, "=" * len(title), ""]
    for table in tables:
        lines += [*_table(table), ""]
    if len(tables) > 1:
        lines += [*_across(tables), ""]
    return "\n".join(lines)


def _table(table: Table) -> list[str]:
    head = f"{table.label}: {table.events:,} row events, {table.messages:,} messages, {table.size / 1e6:,.0f} MB"
    columns = ("", "messages/s", "per CPU s", "seconds", "CPU s", "session s", "all CPU s", "peak MB", "result")
    rows = [columns, *(_cells(table, entry) for entry in table.entries)]
    lines = [head, "", *aligned(rows), ""]
    for entry in table.entries:
        lines += _failures(entry)
    applied = [entry for entry in table.entries if entry.footprint is not None and not entry.run.failure]
    for entry in applied:
        lines += _stages(entry) + _steps(entry) + _freshness(table, entry) + _beside(entry) + _left(table, entry)
        lines += _places(entry) + _requests(entry)
    return lines + _shares(table) + _ratios(table) + _outlook(table)


def _requests(entry: Entry) -> list[str]:
    """What a run asked of the object storage, in all and for each commit of a table."""
    asked, left = entry.run.requests, entry.footprint
    if not asked or left is None:
        return []
    commits, lines = max(1, left.commits), list[str]()
    for purpose in sorted({key.partition(" ")[0] for key in asked}):
        kinds = {key.partition(" ")[2]: count for key, count in asked.items() if key.startswith(f"{purpose} ")}
        shown = ", ".join(f"{kind} {count / commits:.1f}" for kind, count in sorted(kinds.items()))
        lines.append(f"  {purpose}: {sum(kinds.values()) / commits:.1f} ({shown})")
    return [f"{entry.name} requests: {asked.total():,}, {asked.total() / commits:.1f} a commit of a table:", *lines]


def _cells(table: Table, entry: Entry) -> tuple[str, ...]:
    run = entry.run
    speed = f"{table.messages / run.seconds:,.0f}" if run.seconds else ""
    by_cpu = f"{table.messages / run.cpu_seconds:,.0f}" if run.cpu_seconds else ""
    numbers = (run.seconds, run.cpu_seconds, run.start_seconds, run.whole_cpu_seconds)
    return (entry.name, speed, by_cpu, *(f"{n:.1f}" for n in numbers), f"{run.peak_mb:,.0f}", entry.verdict)


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Cells as lines, the first column to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in rows
    ]


def _failures(entry: Entry) -> list[str]:
    failed = [f"{entry.name} FAILED: {run.failure}" for run in entry.runs if run.failure]
    return failed + [f"{entry.name} is WRONG: {wrong}" for wrong in entry.wrong or ()]


def _stages(entry: Entry) -> list[str]:
    """Seconds and share of each stage, as its status lines tell them."""
    spent: dict[str, float] = {}
    for line in entry.run.steps:
        for name, value in line.fields.items():
            if name.endswith("_seconds") and name != "lag_seconds":
                stage = name.removesuffix("_seconds")
                spent[stage] = spent.get(stage, 0.0) + float(value)
    whole = entry.run.seconds
    if not spent or not whole:
        return []
    shown = [f"{stage} {seconds:.2f} s ({seconds / whole:.0%})" for stage, seconds in spent.items()]
    return [f"{entry.name} stages: {', '.join(shown)}"]


def _steps(entry: Entry) -> list[str]:
    """What one step costs, and whether it costs more as the table is changed."""
    pairs = list(pairwise(entry.run.steps))
    if len(pairs) < _FEW_STEPS:
        return []
    # The first one compiles.
    wall = [end.at - start.at for start, end in pairs[1:]]
    cpu = [end.cpu - start.cpu for start, end in pairs[1:]]
    half = len(cpu) // 2
    growth = statistics.median(cpu[half:]) / max(statistics.median(cpu[:half]), 1e-9)
    p95 = sorted(wall)[min(len(wall) - 1, round(0.95 * len(wall)))]
    middle = f"median {statistics.median(cpu):.2f} CPU s and {statistics.median(wall):.2f} s, p95 {p95:.2f} s"
    return [f"{entry.name} steps: {len(pairs)}, after the first: {middle}, second half / first half {growth:.2f}"]


def _freshness(table: Table, entry: Entry) -> list[str]:
    """How long a change took from its commit to where it can be read."""
    seconds = sorted(entry.run.freshness)
    if not seconds:
        return []
    median, p95 = (seconds[min(len(seconds) - 1, int(len(seconds) * part))] for part in (0.5, 0.95))
    seen = f"{len(seconds):,} of {table.events:,} changes"
    return [f"{entry.name} freshness: {seen}, p50 {median:.2f} s, p95 {p95:.2f} s, longest {seconds[-1]:.2f} s"]


def _beside(entry: Entry) -> list[str]:
    """What all other tables waited while one was brought back, beside what they waited shortly before and after."""
    found = entry.run.beside
    if found is None:
        return []
    if not found.around or not found.meanwhile:
        return [f"{entry.name} resume: the table did not come back while the feed went on"]
    ends = [(part(found.around, share), part(found.meanwhile, share)) for share in (0.5, 0.95)]
    named = zip(("p50", "p95"), ends, strict=True)
    times = ", ".join(f"{name} {around:.2f} s, meanwhile {meanwhile:.2f} s" for name, (around, meanwhile) in named)
    ratios = " and ".join(f"{meanwhile / max(around, 1e-9):.2f}" for around, meanwhile in ends)
    return [f"{entry.name} resume: {found.seconds:.2f} s; freshness of all others {times}: {ratios} x"]


def _places(entry: Entry) -> list[str]:
    """What the driver and the executors used."""
    found = entry.run.places
    if found is None or not found.messages:
        return []
    driver, every = (seconds * 1e6 / found.messages for seconds in (found.cost.driver, found.cost.whole))
    commit = f"{found.applying.driver:.1f} CPU s in the driver of {found.applying.whole:.1f}"
    million = f"{driver:.2f} CPU s a million in the driver of {every:.1f}"
    return [
        f"{entry.name}, {found.messages:,} messages in {found.steps} steps once warm: {million}",
        f"{entry.name}, rows to commits: {found.rows:,} rows, {commit}",
    ]


def _outlook(table: Table) -> list[str]:
    """What large and small steps on a cluster say of many executors."""
    runs = [entry.run.places for entry in table.entries if entry.run.places is not None]
    if len(runs) < len(("large", "small")) or not all(run.messages for run in runs):
        return []
    return [
        _gain("a step costs the driver {} CPU s and {} for each million of messages", by_cost(*runs)),
        _gain("executors wait {} s of a step for the driver, and {} for each million of messages", by_waiting(*runs)),
    ]


def _gain(said: str, found: Outlook) -> str:
    costs = said.format(f"{found.of_step:.2f}", f"{found.of_million:.2f}")
    return f"computed: {costs}, so {MANY} executors are {found.gain:.0f} x as fast as one, in steps of {LARGEST_STEP:,}"


def _left(table: Table, entry: Entry) -> list[str]:
    left = entry.footprint
    assert left is not None
    ratio = left.added_bytes / (table.events * table.row_bytes) if table.row_bytes else 0.0
    added = f"{left.added_bytes / 1e6:.1f} MB added ({ratio:.2f} x the bytes of as many rows)"
    files = f"to read {left.data_files} data files and {left.delete_files} files of deletes"
    most = f"the table with most has {left.most_files} data files, or {left.most_snapshots} snapshots"
    lines = [f"{entry.name} left: {left.commits} commits, {added}, {files}; {most}"]
    if waits := [float(line.fields.get("maintain_seconds", 0)) for line in entry.run.steps]:
        lines.append(f"{entry.name} maintenance: the longest wait of a step for it {max(waits):.2f} s")
    if entry.read_cpu is not None and table.compact_read_cpu:
        times = entry.read_cpu / table.compact_read_cpu
        lines.append(f"{entry.name} full read: {entry.read_cpu:.1f} CPU s, {times:.2f} x that of a compact copy")
    return lines


def _shares(table: Table) -> list[str]:
    """The job's speed as a share of the limits."""
    job = table.entry(APPLIER)
    if job is None or job.run.failure:
        return []
    return [
        f"applier reaches {limit.run.seconds / job.run.seconds:.0%} of the speed of '{limit.name}', "
        f"{limit.run.cpu_seconds / job.run.cpu_seconds:.0%} by CPU seconds"
        for limit in table.entries
        if limit.footprint is None and limit.run.seconds
    ]


def _ratios(table: Table) -> list[str]:
    """The job's cost beside that of its peers."""
    job = table.entry(APPLIER)
    if job is None or job.run.failure:
        return []
    peers = [e for e in table.entries if e.footprint is not None and e.name != APPLIER and not e.run.failure]
    return [
        f"{peer.name} needs {peer.run.cpu_seconds / job.run.cpu_seconds:.1f} x the CPU seconds of applier and "
        f"{peer.run.seconds / job.run.seconds:.1f} x its time"
        for peer in peers
    ]


def _across(tables: Iterable[Table]) -> list[str]:
    """The job on each topic of a scenario, beside the first."""
    jobs = [(table, job.run) for table in tables if (job := table.entry(APPLIER)) and not job.run.failure]
    if not jobs:
        return []
    first = jobs[0][1]
    rows = [("", "messages/s", "CPU s", "x the first", "peak MB", "read-only limit reached")]
    for table, run in jobs:
        limit = next((e for e in table.entries if e.footprint is None), None)
        share = f"{limit.run.seconds / run.seconds:.0%}" if limit else ""
        times = f"{run.cpu_seconds / first.cpu_seconds:.2f}"
        speed, cpu = f"{table.messages / run.seconds:,.0f}", f"{run.cpu_seconds:.1f}"
        rows.append((table.label, speed, cpu, times, f"{run.peak_mb:,.0f}", share))
    return aligned(rows)
