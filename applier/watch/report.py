"""What is known of a changefeed at one moment: nouns, their JSON, and the exit code that follows from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from applier.changefeed.ts import wall_clock
from applier.runtime.exact_json import dumps
from applier.runtime.figures import counted, span
from applier.sink.control.rows import SchemaDecision
from applier.watch.history import Point


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


TableState: TypeAlias = Literal[
    "in step",
    "ahead",
    "catching up",
    "dropped",
    "empty",
    "expired",
    "incomplete",
    "loading",
    "missing",
    "parked",
    "rolled back",
]
"""`docs/operations.md` explains each, in its table of states."""

Pace: TypeAlias = Literal["", "complete", "ended", "catching up"]
"""`complete`: an archive is read to its end. `ended`: `run --once` came to its ends, and nothing runs now."""


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

TONES: Mapping[str, Literal["good", "bad", "wait", "held"]] = {
    "in step": "good",
    "applied": "good",
    "incomplete": "bad",
    "missing": "bad",
    "rolled back": "bad",
    "pending": "bad",
    "ahead": "wait",
    "catching up": "wait",
    "expired": "wait",
    "loading": "wait",
    "parked": "held",
}
"""What states of tables and decisions on DDL are for readers; what is not named is neither good nor bad."""

LACKING = ("catching up", "incomplete", "loading", "parked")
"""States of tables that lack rows."""


@dataclass(frozen=True, slots=True)
class HolderReport:
    """Who holds the changefeed, a process on a host. Times are ISO 8601.

    Attributes:
        epoch: Number of the hold.
        seen: Its last sign of life; `silent_seconds` have passed since then.
        released: It has stopped, and any applier may take the changefeed at once.
    """

    name: str
    host: str
    pid: int
    epoch: int
    since: str
    seen: str
    silent_seconds: float
    released: bool


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How far one table is.

    Attributes:
        iceberg: Identifier of the Iceberg table, its parts joined by dots.
        state: See `TableState`.
        resolved_ts: TSO of its last commit; None for a table that no commit has reached. A table without changes
            keeps its stamp while the changefeed goes on.
        resolved: Wall clock of it, ISO 8601.
        lag_seconds: Age of what it shows; None where that is not known.
        rows: Living rows, by the head's summary.
        files: Data files and delete files of the head, by its summary.
        committed: When the head was committed, ISO 8601; `commit_age_seconds` have passed since then.
        snapshot_id: Its head.
        cut_snapshot_id: The snapshot that the newest checkpoint lists.
        because: Why it is incomplete, missing, parked or rolled back; `way_out` says how it becomes whole again.
        is_wanted: `tables.include` admits it.
        since: Commit ts up to which a parked table is whole; None for others, and in offset order.
        is_on_purpose: A person parked it (`applier park`): it needs no hand.
        caught_up: Share of what it misses that a table has which is being brought back or loaded; None for others.
    """

    table: str
    iceberg: str
    state: TableState
    resolved_ts: int | None = None
    resolved: str | None = None
    lag_seconds: float | None = None
    rows: int = 0
    files: int = 0
    committed: str | None = None
    snapshot_id: int | None = None
    cut_snapshot_id: int | None = None
    because: str | None = None
    way_out: str | None = None
    is_wanted: bool = True
    since: int | None = None
    is_on_purpose: bool = False
    caught_up: float | None = None
    commit_age_seconds: float | None = None

    @property
    def urgency(self) -> int:
        """2 if it needs a hand or lacks rows, 1 if it is not in step for another reason, 0 if it is."""
        return 2 if self.because is not None or self.state in LACKING else int(self.state != "in step")


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A table that was dropped upstream, and whose Iceberg table is kept.

    Attributes:
        table: What it was upstream.
        iceberg: Identifier of the Iceberg table, its parts joined by dots.
        dropped_ts: Commit ts of the DDL that dropped it, and `dropped` its wall clock, ISO 8601.
        way_out: How it is brought back, renamed or removed.
        rows: Living rows, by its head's summary, and `files` its data files and delete files; None where not known.
    """

    table: str
    iceberg: str
    dropped_ts: int
    dropped: str | None
    way_out: str
    rows: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far one partition is read; its newest resolved ts is None before the first."""

    topic: str
    partition: int
    next_offset: int
    resolved_ts: int | None
    resolved: str | None


@dataclass(frozen=True, slots=True)
class StepProgress:
    """What one step did, and how long its stages took.

    Attributes:
        step: Number of its checkpoint.
        at: When that was written, ISO 8601.
        lag_seconds: Age of the resolved ts at that time; None without one.
        messages: Messages that it read; `rows` and `tables` are row changes and commits that it made.
        backlog: Messages that the source had beyond it; None where the checkpoint does not say.
        seconds: Wall seconds of each stage; {} where the checkpoint does not say.
    """

    step: int
    at: str
    lag_seconds: float | None
    messages: int
    rows: int
    tables: int
    backlog: int | None
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DdlReport:
    """What became of one DDL; see `docs/ddl.md`."""

    commit_ts: int
    committed: str
    table: str
    kind: str
    decision: str
    reason: str
    sql: str
    decided: str


@dataclass(frozen=True, slots=True)
class LetterReport:
    """A message that was passed over, without its bytes."""

    topic: str
    partition: int
    offset: int
    error: str
    step: int
    buried: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """What deserves a look, as one sentence.

    Attributes:
        way_out: What ends it, with its commands in backticks; "" where nothing has to be done.
        table: The table that it is about, if it is one alone.
        is_open: It names nothing of the database, so that whoever asks may read it.
        brief: What holds the whole changefeed, for the line of the verdict; "" for what concerns tables or their age.
    """

    because: str
    way_out: str = ""
    table: str = ""
    is_open: bool = field(default=False, kw_only=True)
    brief: str = field(default="", kw_only=True)

    def __str__(self) -> str:
        return f"{self.because} Hint: {self.way_out}" if self.way_out else self.because


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Everything that `applier status` and the page show.

    Attributes:
        max_lag_seconds: Age from which on the tables count as stale.
        pace: Why a greater age does not make them stale; "" where it does.
        now: When this was found out, ISO 8601.
        resolved_ts: Every table is at this TSO; None before the first, and for a feed that carries none.
        resolved: Wall clock of it, ISO 8601.
        lag_seconds: Age of what the tables show: of the resolved ts, and in offset order of the last sign of life.
        step: Number of the newest step, as the log has it, and `counts` its figures.
        steps: The newest steps that moved, newest first, and `explanation` why the lag is what it is by them, as one
            sentence; None where they do not show it.
        holder: Who holds the changefeed; None before its first applier.
        schema_changes: The newest decisions on DDL, newest first, of `schema_change_count`.
        dead_letters: The newest dead letters, newest first, of `dead_letter_count`.
        dropped: Tables that were dropped upstream and are kept, by name, those of one name by time; None where unknown.
        cut: Queries that read every table as of `resolved_ts`.
        cut_at: The moment as of which time travel shows every table at `resolved_ts`, ISO 8601; None where not known.
        stale: Why the tables are stale; () for fresh ones.
        notes: What else deserves a look.
    """

    changefeed: str
    max_lag_seconds: float
    now: str
    resolved_ts: int | None = None
    resolved: str | None = None
    lag_seconds: float | None = None
    pace: Pace = ""
    step: int | None = None
    holder: HolderReport | None = None
    counts: Mapping[str, int] | None = None
    steps: tuple[StepProgress, ...] = ()
    explanation: str | None = None
    tables: tuple[TableProgress, ...] = ()
    dropped: tuple[DroppedTable, ...] | None = None
    partitions: tuple[PartitionProgress, ...] = ()
    schema_changes: tuple[DdlReport, ...] = ()
    schema_change_count: int = 0
    dead_letters: tuple[LetterReport, ...] = ()
    dead_letter_count: int = 0
    cut: tuple[str, ...] = ()
    cut_at: str | None = None
    stale: tuple[Trouble, ...] = ()
    notes: tuple[Trouble, ...] = ()

    @property
    def verdict(self) -> Literal["fresh", "complete", "ended", "catching up", "stale"]:
        """In a word or two."""
        return "stale" if self.stale else self.pace or "fresh"

    @property
    def exit_code(self) -> int:
        """0 if the tables are fresh or complete, or a run to the ends has ended; 1 if they are stale or catch up."""
        return 0 if self.verdict in ("fresh", "complete", "ended") else 1

    @property
    def summary(self) -> str:
        """What holds the changefeed, and what the tables are; the moment follows these words."""
        return "; ".join([*(it.brief for it in self.stale[:1] if it.brief), self._tables])

    @property
    def _tables(self) -> str:
        living = [table for table in self.tables if table.state != "dropped"]
        held, all_tables = sum(table.is_on_purpose for table in living), counted(len(living), "table")
        bad = sum(table.because is not None for table in living) - held
        true = f"as step {self.step} left them" if self.resolved is None else "true"
        if self.holder is None:
            return "there is no table yet"
        if self.lag_seconds is None:
            return "nothing of the feed is applied yet"
        if not living:
            return "there is no table yet, and what the source sent is applied"
        if not bad and not held:
            return f"all {all_tables} are {true}" if len(living) > 1 else f"the only table is {true}"
        needs = [f"{bad:,} of {all_tables} need{'' if bad > 1 else 's'} a hand"] if bad else []
        needs += [f"{held:,} of {all_tables} {'are' if held > 1 else 'is'} parked on purpose"] if held else []
        return "; ".join([*needs, f"the others are {true}"] if bad + held < len(living) else needs)

    def to_json(self) -> str:
        """All of it; `docs/output.md` explains the keys, and none is ever left out."""
        shown = {"verdict": self.verdict, "exit_code": self.exit_code, "summary": self.summary, **asdict(self)}
        tables = [{**known, "urgency": of.urgency} for of, known in zip(self.tables, shown["tables"], strict=True)]
        reasons = [{"because": one.because, "way_out": one.way_out, "table": one.table} for one in self.stale]
        del shown["pace"]
        sentences = {"stale": [*map(str, self.stale)], "notes": [*map(str, self.notes)]}
        return dumps({**shown, **sentences, "tables": tables, "reasons": reasons}, indent=2)


def judged(report: StatusReport, start: str) -> Iterator[Trouble]:
    """Why the changefeed as a whole is stale; `start` is the way out where no applier runs, else ""."""
    if report.pace:
        return
    if report.holder is None:
        yield Trouble(f"Changefeed {report.changefeed} has never run: there is no checkpoint.", start)
    elif report.lag_seconds is None:
        yield Trouble("No resolved ts has been applied yet.", start)
    elif report.lag_seconds > report.max_lag_seconds:
        what = f"resolved ts {report.resolved_ts}" if report.resolved_ts else "the last sign of life"
        behind = f"The tables are {span(report.lag_seconds)} behind ({what})"
        yield Trouble(f"{behind}, more than {span(report.max_lag_seconds)}.", start)


def iso(milliseconds: int) -> str:
    """Unix milliseconds as ISO 8601 in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC).isoformat(timespec="milliseconds")


def iso_of(tso: int | None) -> str | None:
    """Wall clock of a TSO as ISO 8601; None for none."""
    return wall_clock(tso).isoformat(timespec="milliseconds") if tso else None


def spark_name(parts: Iterable[str]) -> str:
    """A name of several parts as Spark SQL takes it."""
    return ".".join(part if _PLAIN.fullmatch(part) else "`" + part.replace("`", "``") + "`" for part in parts)
