"""Numbers of the status line, as Prometheus reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from applier.changefeed.ts import from_unix_ms
from applier.runtime.logs import StatusLine
from applier.watch.metrics import Metrics

LINE = StatusLine(
    step=4,
    resolved_ts=from_unix_ms(1_700_000_000_000),
    now_ms=1_700_000_002_500,
    messages=398,
    rows=301,
    waiting=43,
    tables=5,
    backlog=71,
    seconds={"decode": 0.25, "apply": 0.75},
    notes={"dead_letters": 2, "replayed": 9, "not_found": 4},
)
LABELS = {"changefeed": "shop"}


def _value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"applier_{name}", LABELS | labels)


def test_counters_add_up_and_gauges_show_the_newest_step() -> None:
    """Two steps: what was done is summed, what is left is what the second says."""
    metrics = Metrics("shop")
    metrics.take(LINE)
    metrics.take(replace(LINE, backlog=0, waiting=1, notes={}))

    assert _value(metrics, "messages_total") == 796
    assert _value(metrics, "rows_total") == 602
    assert _value(metrics, "commits_total") == 10
    assert _value(metrics, "dead_letters_total") == 2
    assert _value(metrics, "not_found_total") == 4
    assert _value(metrics, "stage_seconds_total", stage="decode") == 0.5
    assert _value(metrics, "backlog_messages") == 0
    assert _value(metrics, "waiting_rows") == 1
    assert _value(metrics, "resolved_timestamp_seconds") == 1_700_000_000
    assert _value(metrics, "last_step_timestamp_seconds") == 1_700_000_002.5


def test_lag_grows_while_no_step_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that hangs must not look fresh: the lag is taken when it is asked for."""
    metrics = Metrics("shop")
    metrics.take(LINE)
    monkeypatch.setattr("applier.watch.metrics.time.time", lambda: 1_700_000_060.0)

    assert _value(metrics, "lag_seconds") == 60


def test_a_feed_in_offset_order_has_no_lag() -> None:
    """Without a watermark nobody knows it, and 0 would be a lie."""
    metrics = Metrics("shop")
    metrics.take(replace(LINE, resolved_ts=None))

    assert _value(metrics, "messages_total") == 398
    assert _value(metrics, "resolved_timestamp_seconds") is None
    assert _value(metrics, "lag_seconds") is None


def test_every_metric_is_explained() -> None:
    """The page on output has each by its name."""
    metrics = Metrics("shop")
    metrics.take(LINE)
    page = (Path(__file__).parents[3] / "docs/output.md").read_text(encoding="utf-8")
    names = {sample.name for family in metrics.registry.collect() for sample in family.samples}

    assert {name for name in names if not name.endswith("_created") and f"`{name}`" not in page} == set()


def test_numbers_are_there_before_the_first_step() -> None:
    """An alert sees a process that never comes to a step: it is up, and its lag counts from the checkpoint."""
    metrics = Metrics("shop")
    assert _value(metrics, "up") == 1
    assert _value(metrics, "rows_total") == 0
    assert _value(metrics, "lag_seconds") is None, "nothing is known before the checkpoint"

    metrics.begin(from_unix_ms(1_700_000_000_000))

    assert _value(metrics, "resolved_timestamp_seconds") == 1_700_000_000
    assert (_value(metrics, "lag_seconds") or 0) > 0
