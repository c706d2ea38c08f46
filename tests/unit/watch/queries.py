"""What queries ask for, held against the metrics that a process serves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import get_args

from applier.runtime.outages import SYSTEMS
from applier.watch.metrics import METRICS, Metric
from applier.watch.report import TableState

PROCESS = (
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
    "python_info",
)
"""What Python's client says of the process, without the label `changefeed`."""

_TARGET = {"job", "instance"}
"""Labels that Prometheus itself gives to all that it scrapes."""


def series(metric: Metric) -> tuple[str, ...]:
    """Names of its series in queries."""
    if metric.kind != "histogram":
        return (metric.full_name,)
    return tuple(f"{metric.full_name}_{part}" for part in ("bucket", "sum", "count"))


LABELS = {
    name: _TARGET | {"changefeed", *metric.labels} | ({"le"} if name.endswith("_bucket") else set())
    for metric in METRICS
    for name in series(metric)
} | dict.fromkeys(PROCESS, _TARGET)
"""Labels of each series by its name."""

_VALUES = {"state": get_args(TableState), "order": ("resolved", "offset"), "system": SYSTEMS}

_SELECTOR = re.compile(r"\b((?:applier|process|python)_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+) *(?:=~|!~|!=|=) *"([^"]*)"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right) *\(([^)]*)\)")


def metrics_of(expressions: Iterable[str]) -> set[str]:
    """Names of all series that queries ask for."""
    return {name for expr in expressions for name, _ in _SELECTOR.findall(expr)}


def strangers(expr: str, shown: Iterable[str] = ()) -> set[str]:
    """What a query, or the text beside it that shows labels, names and no process serves."""
    found = _SELECTOR.findall(expr)
    labels = {label for name, _ in found for label in LABELS.get(name, ())}
    grouped = {label.strip() for part in _GROUPING.findall(expr) for label in part.split(",")}
    return {*_unmatched(found), *(({*grouped, *shown} - labels) - {""})}


def _unmatched(found: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, matchers in found:
        if name not in LABELS:
            yield name
            continue
        for label, value in _MATCHER.findall(matchers):
            if label not in LABELS[name]:
                yield f"{name}{{{label}}}"
            if label in _VALUES:
                yield from set(value.split("|")) - set(_VALUES[label])
