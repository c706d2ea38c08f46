"""The dashboard: a model that Grafana takes, and queries of what exists."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import pytest

from applier.watch.metrics import METRICS
from applier.watch.report import TONES, TableState
from tests.promtool import NEEDS_PROMTOOL, PROMTOOL
from tests.unit.watch.queries import metrics_of, series, strangers

MODEL: dict[str, Any] = json.loads((Path(__file__).parents[3] / "deploy/grafana/applier.json").read_text("utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in MODEL["panels"] if panel["type"] != "row"]
TARGETS: list[dict[str, str]] = [target for panel in PANELS for target in panel["targets"]]
EXPRESSIONS = [target["expr"] for target in TARGETS]


def test_panels_have_places_of_their_own() -> None:
    """Each has its number, and none lies on another or beside the page."""
    panels = MODEL["panels"]
    places = [panel["gridPos"] for panel in panels]

    assert MODEL["schemaVersion"] >= 39
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not any(_overlap(one, other) for one, other in combinations(places, 2))


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
        for start, size in (("x", "w"), ("y", "h"))
    )


def test_a_user_chooses_source_and_changefeed() -> None:
    """No panel is bound to the Prometheus of those who made it, and each shows the one changefeed."""
    source, changefeed = MODEL["templating"]["list"]

    assert (source["name"], changefeed["name"]) == ("datasource", "changefeed")
    assert changefeed["query"]["query"] == changefeed["definition"] == "label_values(applier_up, changefeed)"
    assert {part["datasource"]["uid"] for part in (changefeed, *PANELS, *TARGETS)} == {"${datasource}"}
    # Python's client knows no changefeed: its series are joined with one that does.
    whole = [re.findall(r"\bapplier_\w+(?:\{changefeed=\"\$changefeed\"[,}])?", expr) for expr in EXPRESSIONS]
    assert [names for names in whole if not names or any("{" not in name for name in names)] == []


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: str(target["expr"]))
def test_panels_ask_for_what_exists(target: dict[str, str]) -> None:
    """A metric, a label or a state that is renamed leaves no panel behind that stays empty."""
    assert strangers(target["expr"], re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) == set()


def test_whatever_is_served_is_shown_somewhere() -> None:
    """A metric that is added gets its place; only that of order and protocol has none."""
    asked = metrics_of(EXPRESSIONS)

    assert [metric.name for metric in METRICS if not asked & set(series(metric))] == ["changefeed_info"]


def test_the_timeline_has_a_number_a_word_and_a_colour_for_each_state() -> None:
    """Those of the query are those of the legend, and no state of a table is left out."""
    panel = next(panel for panel in PANELS if panel["title"] == "State of each table")
    numbers = re.findall(r'state="([^"]+)"\} == 1\) \* (\d+)', panel["targets"][0]["expr"])
    words = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]

    assert {state for state, _ in numbers} == set(get_args(TableState))
    assert {number: word["text"] for number, word in words.items()} == {number: state for state, number in numbers}
    colours = {"good": "green", "bad": "red", "wait": "orange", "held": "orange", None: "blue"}
    assert {word["text"]: word["color"] for word in words.values()} == {
        state: colours[TONES.get(state)] for state in get_args(TableState)
    }


@NEEDS_PROMTOOL
def test_prometheus_parses_every_query(tmp_path: Path) -> None:
    """As the expressions of recording rules, once Grafana has put in what it knows."""
    filled = [expr.replace("$changefeed", "shop").replace("$__rate_interval", "1m") for expr in EXPRESSIONS]
    given = [{"record": f"panel:{place}", "expr": expr} for place, expr in enumerate(filled)]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": given}]}), encoding="utf-8")
    found = subprocess.run([str(PROMTOOL), "check", "rules", str(file)], capture_output=True, check=False)

    assert found.returncode == 0, found.stdout.decode() + found.stderr.decode()
