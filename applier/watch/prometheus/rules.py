"""The alerts on the metrics of a changefeed, as rules of Prometheus; `docs/runbook.md` has a section for each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

RUNBOOK = "docs/runbook.md"
"""Where the sections are; whoever keeps the docs elsewhere puts an address in front."""

NOT_IN_STEP = "incomplete|missing|parked|rolled back"
"""States of tables that need a person; the others end by themselves, or are as the user wants them."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert, which needs a person.

    Attributes:
        lasts: How long it must be so before it fires.
        severity: `critical`: tables fall behind now. `warning`: it can wait until the morning.
        summary: What is so, in one sentence with labels.
        description: What that means, and where to look.
    """

    name: str
    expr: str
    lasts: str
    severity: Literal["critical", "warning"]
    summary: str
    description: str


_FEED = "Changefeed {{ $labels.changefeed }}"

ALERTS = (
    Alert(
        "ApplierDown",
        "max by (changefeed) (last_over_time(applier_up[1d])) unless on (changefeed) applier_up "
        "or absent_over_time(applier_up[1d])",
        "5m",
        "critical",
        "No process of applier{{ with $labels.changefeed }} for changefeed {{ . }}{{ end }} answers Prometheus.",
        "The tables stand still and stay readable. Start the process again, or let Prometheus reach it. "
        "A changefeed that you ended on purpose is silent after a day.",
    ),
    Alert(
        "ApplierLagHigh",
        "applier_lag_seconds > applier_max_lag_seconds",
        "10m",
        "critical",
        f"{_FEED} is {{{{ $value | humanizeDuration }}}} behind its database.",
        "Readers see the tables as they were at that time, without gaps. TiCDC, Kafka, the lake or the process itself "
        "may be the cause.",
    ),
    Alert(
        "ApplierStuck",
        "time() - applier_last_progress_timestamp_seconds > 1800",
        "5m",
        "critical",
        f"{_FEED} has shown no progress for {{{{ $value | humanizeDuration }}}}.",
        "The process runs, but no stage, no commit and no task of Spark has ended. A restart loses nothing.",
    ),
    Alert(
        "ApplierWatermarkStands",
        "increase(applier_messages_total[15m]) > 0 "
        'and on (changefeed) (applier_changefeed_info{order="resolved"} == 1) '
        "unless on (changefeed) (changes(applier_resolved_timestamp_seconds[15m]) > 0)",
        "15m",
        "warning",
        f"{_FEED} reads messages, but its resolved ts stands still.",
        "Rows wait for a watermark that one partition, or TiCDC, holds back. No table advances until it comes.",
    ),
    Alert(
        "ApplierBacklogGrows",
        "delta(applier_backlog_messages[1h]) > 0 and min_over_time(applier_backlog_messages[1h]) > 0",
        "1h",
        "warning",
        f"{_FEED} falls behind: messages wait, and {{{{ $value | humanize }}}} more than an hour ago.",
        "More comes than is applied. If the backlog grows older than the retention of the topic, messages are lost.",
    ),
    Alert(
        "ApplierTableNotInStep",
        f'applier_table_state{{state=~"{NOT_IN_STEP}"}} == 1',
        "15m",
        "warning",
        "Table {{ $labels.table }} of changefeed {{ $labels.changefeed }} is {{ $labels.state }}.",
        "A parked table shows its last true state, an incomplete one may lack rows. All other tables go on.",
    ),
    Alert(
        "ApplierDdlRefused",
        "applier_ddl_refused_pending > 0",
        "5m",
        "warning",
        "DDL of changefeed {{ $labels.changefeed }} that were refused and wait for your decision: {{ $value }}.",
        "The tables of these statements are parked, and show their last state from before them.",
    ),
    Alert(
        "ApplierDeadLettersOpen",
        "applier_dead_letters_open > 0",
        "5m",
        "warning",
        "Messages of changefeed {{ $labels.changefeed }} that are set aside as dead letters: {{ $value }}.",
        "The tables lack what these messages say, and count as incomplete until that is made up for.",
    ),
    Alert(
        "ApplierOutageLasts",
        "max by (changefeed, system) (avg_over_time(applier_outage[10m])) > 0.5",
        "0m",
        "warning",
        f"{_FEED} gets no answer from its {{{{ $labels.system }}}}.",
        "The process asks again and ends after five minutes; a supervisor that starts it again loses nothing. "
        "The tables stand still until the system answers.",
    ),
    Alert(
        "ApplierLeaseNotHeld",
        "applier_lease_held == 0",
        "10m",
        "warning",
        "A process of changefeed {{ $labels.changefeed }} runs, but does not hold it.",
        "It is still starting, cannot write its checkpoint, or has lost the changefeed to another process.",
    ),
    Alert(
        "ApplierRestartsOften",
        "max by (changefeed) (max_over_time(applier_lease_epoch[1h])) "
        "- min by (changefeed) (min_over_time(applier_lease_epoch[1h])) > 3",
        "0m",
        "warning",
        f"{_FEED} was taken {{{{ $value }}}} times within an hour, by restarts or by other processes.",
        "Each start repeats at most one step, so rows are safe, but the cause does not go away by itself. "
        "Two deployments of one changefeed look like this, too.",
    ),
    Alert(
        "ApplierFilesNearLimit",
        "max by (changefeed) (process_open_fds / process_max_fds "
        "* on (job, instance) group_left (changefeed) applier_up) > 0.9",
        "15m",
        "warning",
        "Changefeed {{ $labels.changefeed }} has {{ $value | humanizePercentage }} of the files open that it may.",
        "At the limit its process can read and write nothing more, and ends.",
    ),
)
"""Few, and none that fires in an ordinary hour with its restarts and maintenance."""


def rules() -> str:
    """The rules file."""
    return "\n".join([_HEAD, *(line for alert in ALERTS for line in _rule(alert)), ""])


_HEAD = f"""\
# Alerts on the metrics of applier, generated from applier/watch/prometheus/rules.py by `make schemas`.
# What to do about each is in {RUNBOOK}; deploy/README.md shows how the rules are loaded.
groups:
  - name: applier
    rules:"""


def _rule(alert: Alert) -> Iterator[str]:
    # Texts of JSON are texts of YAML, too.
    yield f"      - alert: {alert.name}"
    yield f"        expr: {json.dumps(alert.expr)}"
    yield f"        for: {alert.lasts}"
    yield f"        labels: {{ severity: {alert.severity} }}"
    yield "        annotations:"
    yield f"          summary: {json.dumps(alert.summary)}"
    yield f"          description: {json.dumps(alert.description)}"
    yield f"          runbook_url: {RUNBOOK}#{alert.name.lower()}"
