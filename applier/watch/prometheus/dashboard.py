"""A dashboard of Grafana for the metrics of a changefeed, as its JSON model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from applier.watch.prometheus.metrics import METRICS
from applier.watch.prometheus.rules import NOT_IN_STEP
from applier.watch.report import TableState

_WIDTH = 24
_HEIGHT = 8

_COLOURS = {
    "in step": "green",
    "ahead": "green",
    "empty": "blue",
    "catching up": "blue",
    "loading": "blue",
    "expired": "yellow",
    "incomplete": "orange",
    "parked": "red",
    "rolled back": "red",
    "missing": "red",
    "dropped": "text",
}
"""Colour of each state of a table."""


class Panel(NamedTuple):
    """One panel.

    Attributes:
        title: What it shows.
        queries: By what each shows, an expression in which `@name` stands for that metric of the changefeed.
        unit: As Grafana calls it.
        width: Of the 24 columns.
        kind: As Grafana calls it.
        words: What values mean, each with a colour.
        description: What the title does not say.
    """

    title: str
    queries: Mapping[str, str]
    unit: str = "short"
    width: int = 12
    kind: str = "timeseries"
    words: Mapping[str, tuple[str, str]] = {}
    description: str = ""


_STATES = dict(enumerate(get_args(TableState), start=1))
"""A timeline shows one number a table: that of its state."""

_STATE_NUMBERS = " or ".join(f'(@table_state{{state="{state}"}} == 1) * {number}' for number, state in _STATES.items())

_SECONDS = "sum by ({1}) (rate(@{0}_sum[$__rate_interval])) / sum by ({1}) (rate(@{0}_count[$__rate_interval]))"
_SHARE = "histogram_quantile({}, sum by (le) (rate(@step_duration_seconds_bucket[$__rate_interval])))"
# Python's client knows no changefeed, but its target has one.
_PROCESS = "{} * on (job, instance) group_left (changefeed) @up"

_MAINTENANCE = {
    metric.name.replace("_", " "): f"increase(@{metric.name}_total[1h])"
    for metric in METRICS
    if metric.name.startswith(("compacted", "removed", "merged", "expired"))
}
_ON_OFF = {"0": ("no", "green"), "1": ("yes", "red")}

ROWS: Mapping[str, Sequence[Panel]] = {
    "Are the tables true": (
        Panel("Fresh", {"": "@fresh"}, "short", 4, "stat", {"0": ("stale", "red"), "1": ("fresh", "green")}),
        Panel("Lag", {"": "@lag_seconds"}, "s", 4, "stat"),
        Panel("Backlog", {"": "@backlog_messages"}, "short", 4, "stat"),
        Panel("Tables that need you", {"": f'sum(@table_state{{state=~"{NOT_IN_STEP}"}})'}, "short", 4, "stat"),
        Panel("Resolved ts", {"": "@resolved_timestamp_seconds * 1000"}, "dateTimeAsIso", 8, "stat"),
        Panel("Lag and its limit", {"lag": "@lag_seconds", "limit": "@max_lag_seconds"}, "s"),
        Panel("Backlog", {"messages not read": "@backlog_messages", "rows that wait": "@waiting_rows"}),
    ),
    "Throughput": (
        Panel(
            "Messages and rows a second",
            {
                "messages read": "rate(@messages_total[$__rate_interval])",
                "rows applied": "rate(@rows_total[$__rate_interval])",
            },
        ),
        Panel(
            "Steps and commits a second",
            {"steps": "rate(@steps_total[$__rate_interval])", "commits": "rate(@commits_total[$__rate_interval])"},
        ),
    ),
    "Stages": (
        Panel("Seconds a step, by stage", {"{{stage}}": _SECONDS.format("stage_duration_seconds", "stage")}, "s"),
        Panel(
            "Duration of steps",
            {
                "median": _SHARE.format(0.5),
                "95 of 100": _SHARE.format(0.95),
                "since the last step": "time() - @last_step_timestamp_seconds",
            },
            "s",
        ),
    ),
    "Tables": (
        Panel(
            "State of each table",
            {"{{table}}": f"max by (table) ({_STATE_NUMBERS})"},
            width=24,
            kind="state-timeline",
            words={str(number): (state, _COLOURS[state]) for number, state in _STATES.items()},
        ),
        Panel(
            "Lag by table",
            {"{{table}}": "@table_lag_seconds"},
            "s",
            description="Of a parked table, since it was parked.",
        ),
        Panel("Seconds a commit, by table", {"{{table}}": _SECONDS.format("commit_duration_seconds", "table")}, "s"),
        Panel("Rows by table", {"{{table}}": "@table_rows"}),
        Panel("Files by table", {"{{table}}": "@table_files"}),
        Panel("Snapshots in an hour, by table", {"{{table}}": "increase(@table_commits_total[1h])"}),
        Panel(
            "Since the last commit, by table",
            {"{{table}}": "time() - @table_last_commit_timestamp_seconds"},
            "s",
            description="A table without changes gets no commits.",
        ),
    ),
    "DDL, dead letters, outages": (
        Panel("DDL refused and pending", {"": "@ddl_refused_pending"}, "short", 4, "stat"),
        Panel("Dead letters open", {"": "@dead_letters_open"}, "short", 4, "stat"),
        Panel("DDL in an hour", {"{{decision}}": "increase(@ddl_decisions_total[1h])"}, "short", 8),
        Panel("Outage", {"{{system}}": "@outage"}, "short", 8, "state-timeline", _ON_OFF),
        Panel(
            "Failures in an hour",
            {
                "dead letters": "increase(@dead_letters_total[1h])",
                "rows not found": "increase(@not_found_total[1h])",
                "tables parked by an error": "sum(increase(@table_failures_total[1h]))",
                "outages": "sum(increase(@outages_total[1h]))",
            },
        ),
        Panel("Maintenance in an hour", _MAINTENANCE),
    ),
    "Process": (
        Panel(
            "Holds the changefeed",
            {"": "@lease_held"},
            "short",
            8,
            "state-timeline",
            {"0": ("no", "red"), "1": ("yes", "green")},
        ),
        Panel("Number of the hold", {"": "@lease_epoch"}, "short", 4, "stat"),
        Panel(
            "Since the last sign of life",
            {
                "checkpoint": "time() - @last_heartbeat_timestamp_seconds",
                "progress": "time() - @last_progress_timestamp_seconds",
            },
            "s",
        ),
        Panel(
            "CPU of Python", {"cores": _PROCESS.format("rate(process_cpu_seconds_total[$__rate_interval])")}, "short", 8
        ),
        Panel("Memory of Python", {"resident": _PROCESS.format("process_resident_memory_bytes")}, "bytes", 8),
        Panel(
            "Open files of Python",
            {"open": _PROCESS.format("process_open_fds"), "limit": _PROCESS.format("process_max_fds")},
            "short",
            8,
        ),
        Panel(
            "Versions",
            {"applier {{version}}, Python {{python}}, Spark {{spark}}, Iceberg {{iceberg}}": "@build_info"},
            width=24,
            kind="stat",
        ),
    ),
}
"""The rows of the dashboard, from the question of every day to the cause."""


def dashboard() -> str:
    """The JSON model, to be imported into Grafana."""
    model = {
        "title": "applier",
        "uid": "applier",
        "tags": ["applier"],
        "description": "Generated from applier/watch/prometheus/dashboard.py by `make schemas`.",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": list(_placed()),
    }
    return json.dumps(model, indent=2) + "\n"


def expressions() -> list[str]:
    """All queries of the panels."""
    return [_filled(expr) for panels in ROWS.values() for panel in panels for expr in panel.queries.values()]


def _filled(expr: str) -> str:
    """An expression with the metrics of the changefeed that is chosen."""
    filled = re.sub(r"@(\w+)", r'applier_\1{changefeed="$changefeed"}', expr)
    return filled.replace("}{", ", ")


_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _variables() -> list[dict[str, Any]]:
    query = "label_values(applier_up, changefeed)"
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        {
            "name": "changefeed",
            "type": "query",
            "label": "Changefeed",
            "datasource": _SOURCE,
            "definition": query,
            "query": {"query": query, "refId": "changefeeds"},
            "refresh": 2,
            "sort": 1,
        },
    ]


def _placed() -> Iterator[dict[str, Any]]:
    """All panels, each row below the one before, from left to right."""
    number = x = y = 0
    for title, panels in ROWS.items():
        number += 1
        y, x = y + (_HEIGHT if x else 0), 0
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
        }
        y += 1
        for panel in panels:
            if x + panel.width > _WIDTH:
                x, y = 0, y + _HEIGHT
            number += 1
            place = {"x": x, "y": y, "w": panel.width, "h": _HEIGHT}
            yield {"id": number, "gridPos": place, **_panel(panel)}
            x += panel.width


def _panel(panel: Panel) -> dict[str, Any]:
    words = {value: {"text": word, "color": colour} for value, (word, colour) in panel.words.items()}
    defaults = {"unit": panel.unit, "mappings": [{"type": "value", "options": words}] if words else []}
    is_plain = panel.kind == "stat" and not words
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": _SOURCE,
            "expr": _filled(expr),
            "legendFormat": legend or "__auto",
            "instant": panel.kind == "stat",
            "range": panel.kind != "stat",
        }
        for place, (legend, expr) in enumerate(panel.queries.items())
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "fieldConfig": {
            "defaults": defaults | ({"color": {"mode": "fixed", "fixedColor": "text"}} if is_plain else {}),
            "overrides": [],
        },
        # Versions are in the name of their series, whose value says nothing.
        "options": {"textMode": "name"} if panel.title == "Versions" else {},
        "targets": targets,
    }
