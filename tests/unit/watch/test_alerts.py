"""What deserves an alert: each change is told once, and what the last process left is known."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from applier.changefeed.table import TableName
from applier.commands.run import Reports, _ending
from applier.config import settings
from applier.errors import TerminalError, TransientError
from applier.pipeline.step import Pipeline
from applier.runtime.stop_requests import StopRequested
from applier.sink.control.rows import DeadLetter, Decision, SchemaDecision
from applier.sink.control.tables import DEAD_LETTERS, SCHEMA_CHANGES
from applier.watch.board import Board
from applier.watch.report import HolderReport, StatusReport, TableProgress, TableState, Trouble, View
from applier.watch.webhook import HOLD_SECONDS, START_SECONDS, Alerts

CONFIG = settings.parse(
    {
        "changefeed": {"name": "shop", "protocol": "simple"},
        "source": {"archive": "feed"},
        "catalog": {"name": "lake", "type": "hadoop", "warehouse": "lake"},
        "webhook": {"url": "https://hooks.example.org/T0/token"},
    }
).of_file("/etc/applier.toml")
NOW = 1_700_000_000.0
KEYS = ["event", "id", "changefeed", "at", "verdict", "sentence", "way_out", "table", "reasons", "ddl", "text"]
BEHIND = "The tables are 12 min behind (resolved ts 7), more than 300 s."


def _table(name: str, state: TableState = "parked") -> TableProgress:
    because = f"Table {name} is parked since resolved ts 7: a DDL was refused."
    way_out = f"mend what the reason names, then run `applier resume -c /etc/applier.toml --tables {name}`."
    if state == "parked":
        return TableProgress(name, name, state, because=because, way_out=way_out)
    return TableProgress(name, name, state)


def _view(
    *tables: TableProgress, stale: Sequence[str] = (), decisions: Sequence[SchemaDecision] = (), after: float = 0.0
) -> View:
    report = StatusReport(
        "shop", 300.0, "", tables=tables, stale=tuple(Trouble(*text.split(" Hint: ")) for text in stale)
    )
    return View(report, [], "running", None, NOW + after, decisions)


def _ddl(sql: str, decision: Decision = "refused", after: float = 1.0, reason: str = "no such type.") -> SchemaDecision:
    when = datetime.fromtimestamp(NOW + after, tz=UTC)
    return SchemaDecision(7, TableName("shop", "orders"), sql, "modify column", decision, reason, decided_at=when)


def _looks(alerts: Alerts, view: View, *times: float) -> list[tuple[float, str]]:
    return [(now, alert["verdict"]) for now in times for alert in alerts.look(view, now)]


def test_a_stale_verdict_is_told_once_when_it_has_held() -> None:
    """With its reasons and the command that shows more; then again when the tables are fresh."""
    alerts = Alerts(CONFIG, _view(), 0.0)
    stale = _view(stale=[BEHIND, "Another."], after=70)

    assert not list(alerts.look(stale, 70.0))
    (alert,) = alerts.look(stale, 70.0 + HOLD_SECONDS)
    assert not list(alerts.look(stale, 200.0))

    assert list(alert) == KEYS
    assert len(alert["id"]) == 32
    assert {**alert, "id": ""} == {
        "event": "verdict",
        "id": "",
        "changefeed": "shop",
        "at": "2023-11-14T22:14:30.000+00:00",
        "verdict": "stale",
        "sentence": f"{BEHIND} 1 more reason.",
        "way_out": "run `applier status -c /etc/applier.toml`, which shows each reason with its way out.",
        "table": None,
        "reasons": [BEHIND, "Another."],
        "ddl": None,
        "text": f"applier shop is stale: {BEHIND} 1 more reason. "
        "Way out: run `applier status -c /etc/applier.toml`, which shows each reason with its way out.",
    }
    (fresh,) = [alert for now in (300.0, 316.0) for alert in alerts.look(_view(), now)]
    assert (fresh["verdict"], fresh["sentence"]) == ("fresh", "The tables of changefeed shop are fresh again.")
    assert (fresh["way_out"], fresh["reasons"]) == (None, [])


def test_a_verdict_with_one_reason_has_its_way_out_and_no_other() -> None:
    """Two commands in one text would leave open which to run."""
    alerts = Alerts(CONFIG, _view(), 0.0)
    stale = _view(stale=["Table a is parked: x. Hint: run `applier resume`."])

    (alert,) = [alert for now in (70.0, 70.0 + HOLD_SECONDS) for alert in alerts.look(stale, now)]

    assert (alert["sentence"], alert["way_out"]) == ("Table a is parked: x.", "run `applier resume`.")
    assert alert["text"] == "applier shop is stale: Table a is parked: x. Way out: run `applier resume`."


def test_a_verdict_that_swings_does_not_ring() -> None:
    """A lag around its limit is stale at one look and fresh at the next."""
    alerts = Alerts(CONFIG, _view(), 0.0)
    stale, fresh = _view(stale=[BEHIND]), _view()

    told = [found for turn in range(20) for found in _looks(alerts, (stale, fresh)[turn % 2], 100 + turn * 10.0)]

    assert told == []


def test_tables_found_stale_are_told_once_after_the_first_minute() -> None:
    """A start after a pause is behind, and mostly catches up in that time."""
    alerts = Alerts(CONFIG, _view(stale=[BEHIND]), 0.0)

    assert _looks(alerts, _view(stale=[BEHIND]), 1.0, 30.0, 59.0, START_SECONDS, 65.0, 500.0) == [
        (START_SECONDS, "stale")
    ]


def test_tables_found_stale_that_catch_up_are_told_as_fresh() -> None:
    """The last process may have told that they are stale: whoever was called must hear the end of it."""
    alerts = Alerts(CONFIG, _view(stale=[BEHIND]), 0.0)

    assert _looks(alerts, _view(), 20.0, 30.0, 35.0, 90.0) == [(35.0, "fresh")]


def test_catching_up_rings_for_nobody() -> None:
    """Once it ends, what comes of it does; complete tables are as good as fresh ones."""
    behind, complete = _view(), _view()
    behind = replace(behind, report=replace(behind.report, pace="catching up"))
    complete = replace(complete, report=replace(complete.report, pace="complete"))
    alerts = Alerts(CONFIG, _view(), 0.0)

    assert not [*_looks(alerts, behind, 70, 90, 110), *_looks(alerts, complete, 130, 150), *_looks(alerts, behind, 170)]
    assert _looks(alerts, _view(stale=[BEHIND]), 200, 216) == [(216, "stale")]
    assert not _looks(alerts, behind, 230, 250)
    assert _looks(alerts, complete, 270, 286) == [(286, "complete")]
    assert not _looks(Alerts(CONFIG, behind, 0.0), behind, 1, 100)


def test_a_new_changefeed_is_not_fresh_again() -> None:
    """Its tables never were; after it has been stale they are so again."""
    holder = HolderReport("process 1 on h", "h", 1, 1, "", "", 1.0, released=False)
    new = _view(stale=["No resolved ts has been applied yet."])
    alerts = Alerts(CONFIG, replace(new, report=replace(new.report, holder=holder)), 0.0)
    looks = [(20.0, _view()), (40.0, _view()), (60.0, _view(stale=[BEHIND])), (80.0, _view(stale=[BEHIND]))]

    told = [
        alert["sentence"]
        for at, view in [*looks, (100.0, _view()), (120.0, _view())]
        for alert in alerts.look(view, at)
    ]

    assert told == [
        "The tables of changefeed shop are fresh.",
        BEHIND,
        "The tables of changefeed shop are fresh again.",
    ]


def test_tables_found_fresh_are_not_told() -> None:
    """A start rings nobody."""
    assert _looks(Alerts(CONFIG, _view(), 0.0), _view(), 1.0, 60.0, 120.0) == []


def test_a_table_rings_when_it_is_parked_and_not_again_until_it_is_back() -> None:
    """Those that were parked at the start are known, also while they come and go in other ways."""
    old, orders = _table("shop.old"), _table("shop.orders")
    alerts = Alerts(CONFIG, _view(old), 0.0)

    assert list(alerts.look(_view(old), 5.0)) == []
    (alert,) = alerts.look(_view(old, orders), 10.0)
    assert list(alerts.look(_view(old, orders), 15.0)) == []
    assert list(alerts.look(_view(old, replace(orders, state="in step")), 20.0)) == []
    assert len(list(alerts.look(_view(old, orders), 25.0))) == 1

    assert (alert["event"], alert["table"]) == ("table-parked", "shop.orders")
    assert (alert["sentence"], alert["way_out"]) == (orders.because, orders.way_out)


def test_a_table_that_is_loaded_is_not_parked_for_people() -> None:
    """`applier load` sets it aside on demand."""
    alerts = Alerts(CONFIG, _view(), 0.0)

    assert list(alerts.look(_view(_table("shop.orders", "loading")), 5.0)) == []


def test_a_refused_ddl_rings_with_its_text_and_the_way_past() -> None:
    """Once for each decision; those of an earlier process, and other decisions, do not ring."""
    refused = _ddl("ALTER TABLE orders MODIFY note GEOMETRY")
    decisions = [_ddl("ALTER TABLE orders ADD x INT", after=-60.0), _ddl("DROP TABLE b", "applied"), refused]
    alerts = Alerts(CONFIG, _view(), 0.0)

    (alert,) = alerts.look(_view(decisions=decisions), 5.0)
    assert list(alerts.look(_view(decisions=decisions), 10.0)) == []
    again = replace(refused, decided_at=refused.decided_at + timedelta(minutes=5))
    assert len(list(alerts.look(_view(decisions=[again]), 15.0))) == 1

    assert (alert["event"], alert["table"]) == ("ddl-refused", "shop.orders")
    assert alert["ddl"] == {"commit_ts": "7", "sql": "ALTER TABLE orders MODIFY note GEOMETRY"}
    assert alert["sentence"] == "A DDL of shop.orders was refused: no such type."
    assert alert["way_out"] == (
        "run `applier ddl skip 7 -c /etc/applier.toml --why TEXT` to pass it without its effect, "
        "or mend what the reason names; then start `applier run -c /etc/applier.toml`."
    )


def test_a_refused_ddl_that_parks_its_table_has_the_way_out_of_the_table() -> None:
    """Two alerts, for those who take one kind only."""
    orders = _table("shop.orders")
    alerts = Alerts(CONFIG, _view(), 0.0)

    found = list(alerts.look(_view(orders, decisions=[_ddl("ALTER TABLE orders ADD x INT")]), 5.0))

    assert [alert["event"] for alert in found] == ["ddl-refused", "table-parked"]
    assert {alert["way_out"] for alert in found} == {orders.way_out}


def test_only_the_events_that_are_asked_for_are_sent() -> None:
    """`events` of the section."""
    webhook = CONFIG.webhook.model_copy(update={"events": ("ddl-refused",)})
    alerts = Alerts(CONFIG.model_copy(update={"webhook": webhook}), _view(), 0.0)

    found = list(alerts.look(_view(_table("shop.orders"), decisions=[_ddl("ALTER TABLE a")]), 5.0))

    assert [alert["event"] for alert in found] == ["ddl-refused"]


def test_the_page_explains_each_event_and_shows_all_keys() -> None:
    """A receiver is written from it."""
    page = (Path(__file__).parents[3] / "docs/watching.md").read_text(encoding="utf-8")
    (shown,) = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]

    assert list(shown) == KEYS
    assert [name for name in (*KEYS, *CONFIG.webhook.events) if f"| `{name}` |" not in page] == []
    assert shown["text"].endswith(f" Way out: {shown['way_out']}")
    assert "Hint" not in shown["text"]
    assert "--tables 'shop.orders'`" in shown["way_out"]


def test_texts_of_upstream_are_cut_and_call_nobody() -> None:
    """A DDL of megabytes is no chat message, and a name must not mention everybody or hide a link."""
    hostile = _ddl("ALTER TABLE a " + "x" * 1_000_000, reason="<!channel> @here \x1b[31m & " + "y" * 5000)

    (alert,) = Alerts(CONFIG, _view(), 0.0).look(_view(stale=["z" * 9999] * 99, decisions=[hostile]), 5.0)

    shown: dict[str, Any] = dict(alert)
    assert len(shown["ddl"]["sql"]) == 2000
    assert len(shown["sentence"]) == 500
    assert [len(reason) for reason in shown["reasons"]] == [500] * 10
    assert len(shown["text"]) < 1000
    assert "&lt;!channel&gt; @\u200bhere \\x1b[31m &amp; " in shown["text"]


class _Recorded:
    """A pipeline with a refused DDL in its control tables."""

    def __init__(self, error: Exception | None = None) -> None:
        self.written = {SCHEMA_CHANGES: 1, DEAD_LETTERS: 0}
        self.state = SimpleNamespace(control=self)
        self.error = error

    def decisions(self) -> list[SchemaDecision]:
        """What became of each DDL."""
        if self.error is not None:
            raise self.error
        return [_ddl("ALTER TABLE a")]

    def letters(self, *, whole: bool) -> list[DeadLetter]:
        """None."""
        del whole
        return []


@pytest.mark.parametrize("error", [None, TerminalError("a policy stops the feed")])
def test_a_ddl_that_ends_the_run_is_read_at_the_end(error: TerminalError | None) -> None:
    """The step that met it failed, so no look came after it."""
    board, pipeline = Board(CONFIG), cast("Pipeline", _Recorded())
    with suppress(TerminalError), _ending(pipeline, Reports(lambda status: None, end=board.end)):
        if error is not None:
            raise error

    assert [item.sql for item in board._decisions] == ["ALTER TABLE a"]


def test_what_said_that_there_is_nothing_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known already waits for its turn."""
    board, recorded, clock = Board(CONFIG), _Recorded(), [0.0]
    monkeypatch.setattr("applier.watch.board.time", SimpleNamespace(monotonic=lambda: clock[0]))
    found: list[SchemaDecision] = []
    monkeypatch.setattr(recorded, "decisions", lambda: [*found])
    for now, ddl, read in [(0.0, "a", 0), (1.0, "a", 1), (2.0, "b", 1), (11.5, "c", 3)]:
        if now:
            found.append(_ddl(f"ALTER TABLE {ddl}", after=now))
            recorded.written[SCHEMA_CHANGES] += 1
        clock[0] = now
        board._read_control(cast("Any", recorded))
        assert (now, len(board._decisions)) == (now, read)
        assert (board._read[0] == recorded.written[SCHEMA_CHANGES]) == (read == len(found))


def test_an_outage_or_a_stop_ends_the_run_without_another_question() -> None:
    """The lake may not answer, and the connection to Java may be in mid-answer."""
    board, pipeline = Board(CONFIG), cast("Pipeline", _Recorded())
    for error in (TransientError("the lake is away"), StopRequested()):
        with pytest.raises(type(error)), _ending(pipeline, Reports(lambda status: None, end=board.end)):
            raise error

    assert board._decisions == ()


def test_a_board_that_cannot_read_at_the_end_hides_no_error() -> None:
    """What ended the run counts."""
    Board(CONFIG).end(cast("Pipeline", _Recorded(RuntimeError("no Java"))))
