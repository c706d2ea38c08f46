"""The alerts: each fires in its case with sentences that can be read, and none in an ordinary hour."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.promtool import NEEDS_PROMTOOL, PROMTOOL
from tests.unit.watch.queries import strangers

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy/prometheus/applier.rules.yml"
ALERTS: list[dict[str, Any]] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]
RUNBOOK = "docs/runbook.md"
HOURS = 4
AT = 239
"""Minute at which a case is looked at."""

_INSTANCE = '{changefeed="shop", instance="a:9180", job="applier"}'


def _of(name: str, **labels: str) -> str:
    shown = ", ".join(f'{label}="{value}"' for label, value in {"changefeed": "shop", **labels}.items())
    return f"{name}{{{shown}}}"


def _like(value: float, minutes: int = HOURS * 60) -> list[float | str]:
    return [value] * minutes


def _growing(step: float) -> list[float | str]:
    return [minute * step for minute in range(HOURS * 60)]


_GAP: list[float | str] = ["_"] * 3

ORDINARY: dict[str, list[float | str]] = {
    # It is restarted at 3 h 40, and scraped again three minutes later.
    f"applier_up{_INSTANCE}": [*_like(1, 220), *_GAP, *_like(1, 17)],
    _of("applier_lag_seconds"): [*_like(8, 220), *_GAP, 400, 350, 200, *_like(8, 14)],
    _of("applier_max_lag_seconds"): _like(300),
    _of("applier_last_progress_timestamp_seconds"): _growing(60),
    _of("applier_messages_total"): _growing(1000),
    _of("applier_resolved_timestamp_seconds"): _growing(60),
    _of("applier_changefeed_info", order="resolved", protocol="simple"): _like(1),
    _of("applier_backlog_messages"): [(0, 900, 20_000)[minute % 3] for minute in range(HOURS * 60)],
    _of("applier_table_state", table="shop.a", state="in step"): _like(1),
    _of("applier_table_state", table="shop.a", state="parked"): _like(0),
    _of("applier_table_state", table="shop.b", state="loading"): _like(1),
    # A DDL is refused and skipped at once.
    _of("applier_ddl_refused_pending"): [*_like(0, 236), 1, 1, 0],
    _of("applier_maintenance_behind"): [*_like(0, 200), *_like(3, 20), *_like(0, 20)],
    _of("applier_dead_letters_open"): _like(0),
    _of("applier_outage", system="lake"): [*_like(0, 230), 1, 1, 1, 1, *_like(0, 6)],
    _of("applier_lease_held"): [*_like(1, 220), *_GAP, 0, 0, *_like(1, 15)],
    _of("applier_lease_epoch"): [*_like(3, 220), *_GAP, *_like(4, 17)],
    'process_open_fds{instance="a:9180", job="applier"}': _like(200),
    'process_max_fds{instance="a:9180", job="applier"}': _like(1024),
}
"""Four hours with a restart, an outage of four minutes, and a table that is being loaded."""


class Case(NamedTuple):
    """What differs from ordinary hours, and the alert that fires: its labels and its summary."""

    changed: Mapping[str, list[float | str]]
    labels: Mapping[str, str]
    summary: str


CASES = {
    "ApplierDown": Case(
        {f"applier_up{_INSTANCE}": _like(1, 200)}, {}, "No process of applier for changefeed shop answers Prometheus."
    ),
    "ApplierLagHigh": Case(
        {_of("applier_lag_seconds"): [*_like(8, 200), *(minute * 60 for minute in range(40))]},
        {},
        "Changefeed shop is 39m 0s behind its database.",
    ),
    "ApplierStuck": Case(
        {_of("applier_last_progress_timestamp_seconds"): [*(minute * 60 for minute in range(199)), *_like(11_940, 41)]},
        {},
        "Changefeed shop has shown no progress for 40m 0s.",
    ),
    "ApplierWatermarkStands": Case(
        {_of("applier_resolved_timestamp_seconds"): _like(7)},
        {},
        "Changefeed shop reads messages, but its resolved ts stands still.",
    ),
    "ApplierBacklogGrows": Case(
        {_of("applier_backlog_messages"): _growing(100)},
        {},
        "Changefeed shop falls behind: messages wait, and 6k more than an hour ago.",
    ),
    "ApplierTableNotInStep": Case(
        {
            _of("applier_table_state", table="shop.a", state="in step"): [*_like(1, 220), *_like(0, 20)],
            _of("applier_table_state", table="shop.a", state="parked"): [*_like(0, 220), *_like(1, 20)],
        },
        {"table": "shop.a", "state": "parked"},
        "Table shop.a of changefeed shop is parked.",
    ),
    "ApplierDdlRefused": Case(
        {_of("applier_ddl_refused_pending"): [*_like(0, 220), *_like(2, 20)]},
        {},
        "DDL of changefeed shop that were refused and wait for your decision: 2.",
    ),
    "ApplierDeadLettersOpen": Case(
        {_of("applier_dead_letters_open"): [*_like(0, 220), *_like(1, 20)]},
        {},
        "Messages of changefeed shop that are set aside as dead letters: 1.",
    ),
    "ApplierOutageLasts": Case(
        # A process that ends for it and is started again does not hide it.
        {_of("applier_outage", system="lake"): [*_like(0, 228), *_like(1, 5), "_", 0, *_like(1, 5)]},
        {"system": "lake"},
        "Changefeed shop gets no answer from its lake.",
    ),
    "ApplierLeaseNotHeld": Case(
        {_of("applier_lease_held"): [*_like(1, 220), *_like(0, 20)]},
        {},
        "A process of changefeed shop runs, but does not hold it.",
    ),
    "ApplierRestartsOften": Case(
        {_of("applier_lease_epoch"): [*_like(3, 220), 4, "_", 5, "_", 6, "_", "_", 7, *_like(8, 12)]},
        {},
        "Changefeed shop was taken 5 times within an hour, by restarts or by other processes.",
    ),
    "ApplierMaintenanceBehind": Case(
        {_of("applier_maintenance_behind"): [*_like(0, 170), *_like(2, 70)]},
        {},
        "Changefeed shop has tables whose maintenance is behind: 2.",
    ),
    "ApplierFilesNearLimit": Case(
        {'process_open_fds{instance="a:9180", job="applier"}': _like(973)},
        {},
        "Changefeed shop has 95.02% of the files open that it may.",
    ),
}


def _test(name: str, series: Mapping[str, list[float | str]], fires: str | None, minute: int) -> dict[str, Any]:
    """A test of promtool that expects one alert or none."""
    checks = []
    for alert in ALERTS:
        expected = []
        if fires is not None and alert["alert"] == fires:
            case = CASES[fires]
            summary = case.summary if series else "No process of applier answers Prometheus."
            annotations = alert["annotations"] | {"summary": summary}
            labels = {**alert["labels"], **({"changefeed": "shop"} if series else {}), **case.labels}
            expected = [{"exp_labels": labels, "exp_annotations": annotations}]
        checks.append({"eval_time": f"{minute}m", "alertname": alert["alert"], "exp_alerts": expected})
    shown = [{"series": key, "values": " ".join(str(value) for value in values)} for key, values in series.items()]
    return {"name": name, "interval": "1m", "input_series": shown, "alert_rule_test": checks}


@NEEDS_PROMTOOL
def test_each_alert_fires_in_its_case_and_no_other(tmp_path: Path) -> None:
    """Prometheus itself evaluates them: ordinary hours are silent, and each case has its one alert."""
    tests = [_test("ordinary", ORDINARY, None, minute) for minute in (61, 120, 222, 226, 233, 239)]
    tests += [_test(name, {**ORDINARY, **case.changed}, name, AT) for name, case in CASES.items()]
    tests.append(_test("never scraped", {}, "ApplierDown", AT))
    given = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    file = tmp_path / "applier.rules.test.yml"
    file.write_text(json.dumps(given), encoding="utf-8")

    found = subprocess.run([str(PROMTOOL), "test", "rules", str(file)], capture_output=True, check=False)

    assert found.returncode == 0, found.stdout.decode() + found.stderr.decode()


@NEEDS_PROMTOOL
def test_prometheus_takes_the_rules() -> None:
    """And its linter finds nothing."""
    found = subprocess.run(
        [str(PROMTOOL), "check", "rules", "--lint-fatal", str(RULES)], capture_output=True, check=False
    )

    assert found.returncode == 0, found.stdout.decode() + found.stderr.decode()


def test_each_alert_has_a_case_and_a_section() -> None:
    """The runbook has a section of its name, and this file a case in which it fires."""
    sections = re.findall(r"^### (Applier\w+)$", (ROOT / RUNBOOK).read_text(encoding="utf-8"), re.MULTILINE)
    names = [alert["alert"] for alert in ALERTS]
    links = [alert["annotations"]["runbook_url"] for alert in ALERTS]

    assert sorted(sections) == sorted(names)
    assert list(CASES) == names
    assert links == [f"{RUNBOOK}#{name.lower()}" for name in names]
    assert {alert["labels"]["severity"] for alert in ALERTS} == {"critical", "warning"}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_alerts_ask_for_what_exists(alert: dict[str, Any]) -> None:
    """A metric, a label or a state that is renamed does not leave an alert behind that can never fire."""
    shown = re.findall(r"\$labels\.(\w+)", " ".join(alert["annotations"].values()))

    assert strangers(alert["expr"], shown) == set()


@pytest.mark.parametrize(
    ("expr", "shown", "found"),
    [
        ("applier_lag > 0", [], "applier_lag"),
        ("rate(applier_steps[1m])", [], "applier_steps"),
        ("applier_step_duration_seconds > 0", [], "applier_step_duration_seconds"),
        ('applier_lag_seconds{table="a"} > 0', [], "applier_lag_seconds{table}"),
        ('applier_table_state{state=~"parked|lost"} == 1', [], "lost"),
        ("max by (system, table) (applier_outage) > 0", [], "table"),
        ("process_open_fds > 100", ["changefeed"], "changefeed"),
    ],
)
def test_a_stranger_in_a_query_is_found(expr: str, shown: list[str], found: str) -> None:
    """A check that finds nothing wrong in the rules is one that could."""
    assert found in strangers(expr, shown)
