"""The metrics of a changefeed: each is defined here, and tests hold exposition, docs, alerts and panels to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

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
    Metric(
        "fresh",
        "gauge",
        "1 if they are fresh, complete or ended, 0 if they are stale or catch up.",
        absent=_BEGUN,
    ),
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
