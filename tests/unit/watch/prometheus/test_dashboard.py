"""The dashboard: a model that Grafana takes, and queries of what exists."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from applier.watch.prometheus.dashboard import expressions
from applier.watch.prometheus.metrics import METRICS, PROCESS
from tests.promtool import NEEDS_PROMTOOL, PROMTOOL


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    """The file that users import."""
    file = Path(__file__).parents[4] / "deploy/grafana/applier.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def test_panels_have_places_of_their_own(model: dict[str, Any]) -> None:
    """Each has its number, and none lies on another or beside the page."""
    panels = model["panels"]
    places = [panel["gridPos"] for panel in panels]

    assert model["schemaVersion"] >= 39
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not any(_overlap(one, other) for one, other in combinations(places, 2))


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
        for start, size in (("x", "w"), ("y", "h"))
    )


def test_a_user_chooses_source_and_changefeed(model: dict[str, Any]) -> None:
    """No panel is bound to the Prometheus of those who made it, and each shows the one changefeed."""
    assert [variable["name"] for variable in model["templating"]["list"]] == ["datasource", "changefeed"]
    panels = [panel for panel in model["panels"] if panel["type"] != "row"]
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert [expr for expr in expressions() if '{changefeed="$changefeed"' not in expr] == []


def test_panels_ask_for_what_exists() -> None:
    """And whatever is served is shown somewhere."""
    known = {name for metric in METRICS for name in metric.series} | set(PROCESS)
    asked = {name for expr in expressions() for name in re.findall(r"\b(?:applier|process)_\w+", expr)}

    assert asked <= known
    shown = {metric.full_name for metric in METRICS if asked & set(metric.series)}
    assert {metric.full_name for metric in METRICS} - shown == {"applier_changefeed_info"}


@NEEDS_PROMTOOL
def test_prometheus_parses_every_query(tmp_path: Path) -> None:
    """As the expressions of recording rules, once Grafana has put in what it knows."""
    filled = [expr.replace("$changefeed", "shop").replace("$__rate_interval", "1m") for expr in expressions()]
    given = [{"record": f"panel:{place}", "expr": expr} for place, expr in enumerate(filled)]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": given}]}), encoding="utf-8")
    found = subprocess.run([str(PROMTOOL), "check", "rules", str(file)], capture_output=True, check=False)

    assert found.returncode == 0, found.stdout.decode() + found.stderr.decode()
