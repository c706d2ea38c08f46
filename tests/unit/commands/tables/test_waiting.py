"""What a command says that asked the process which holds the changefeed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease, RequestOutcome, Tracked
from applier.changefeed.completeness import LIVE, Completeness, Reason, Why
from applier.changefeed.table import TableName
from applier.commands.tables import command
from applier.config import settings
from applier.errors import TerminalError, TransientError
from applier.sink.control.rows import TableRequest

ORDERS, ITEMS = TableName("shop", "orders"), TableName("shop", "items")
RESUMES = RequestOutcome("resumes", (ORDERS,))
PARKED = Completeness(Reason(Why.BY_HAND, "a look"), since=7)
REQUEST = TableRequest("one", "resume", ("shop.*",), "", "me")
CONFIG = settings.parse(
    {
        "changefeed": {"name": "shop", "protocol": "canal-json"},
        "source": {"archive": "/nowhere"},
        "catalog": {"name": "lake", "type": "jdbc", "uri": "jdbc:sqlite:/nowhere/catalog.db", "warehouse": "/nowhere"},
    }
)


def last(
    orders: Completeness, items: Completeness = LIVE, handled: RequestOutcome | None = None, *, released: bool = False
) -> Checkpoint:
    """The checkpoint of a changefeed of two tables."""
    holder = Holder("token", "elsewhere", pid=4)
    tables = {ORDERS: Tracked(1, completeness=orders), ITEMS: Tracked(1, completeness=items)}
    done = {"one": handled} if handled is not None else {}
    return Checkpoint(Lease(1, holder, released), 1, 9, 0, tables=tables, handled=done)


class Waiting:
    """A command that waits: what it finds, look by look, what it says, and what it writes."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *looks: Checkpoint | Exception | type[KeyboardInterrupt]
    ) -> None:
        self.said: list[str] = []
        self.written: list[str | None] = []
        self._looks = iter(looks)
        self._last: Any = None
        monkeypatch.setattr(command, "_checkpoint", self._look)
        monkeypatch.setattr(command, "append", self._append)
        monkeypatch.setattr(command, "_holds", lambda last, config: not last.lease.released)
        monkeypatch.setattr("applier.commands.tables.command.time.sleep", lambda seconds: None)
        monkeypatch.setattr(command, "assembled", lambda *_, **__: pytest.fail("it takes the changefeed"))

    def result(self) -> str:
        """What `waited` returns."""
        return command.waited(CONFIG, REQUEST, self.said.append, comes_back=True)

    def _look(self, config: object) -> Checkpoint:
        self._last = next(self._looks, self._last)
        if isinstance(self._last, Checkpoint):
            return self._last
        error, self._last = self._last, last(PARKED)
        raise error

    def _append(self, section: object, where: object, rows: Any) -> bool:
        self.written += rows["outcome"].to_pylist()
        return True


def test_a_request_outlives_the_process_that_it_was_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command leaves the changefeed to the next process, and says that nothing is done yet."""
    waiting = Waiting(monkeypatch, last(PARKED), last(PARKED, released=True))

    with pytest.raises(TerminalError) as raised:
        waiting.result()

    assert str(raised.value) == (
        "No process holds changefeed shop, so nothing is done yet. The request is kept, and "
        "`applier run -c applier.toml` carries it out, once. Hint: start `applier run -c applier.toml`; the command "
        "need not be given again."
    )
    assert waiting.written == [None]


def test_the_next_process_carries_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two the command waits."""
    gone = [last(PARKED, released=True)] * 5
    waiting = Waiting(monkeypatch, last(PARKED), *gone, last(PARKED), last(LIVE, handled=RESUMES))

    assert waiting.result() == "resumed: shop.orders."
    assert waiting.said[1].startswith("No process holds the changefeed now. The request is kept")


def test_tables_that_are_due_need_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is gone after it took the request: the checkpoint has it."""
    due = Completeness(Reason(Why.BY_HAND, "a look"), since=7, is_due=True)
    waiting = Waiting(monkeypatch, last(PARKED), last(due, handled=RESUMES, released=True))

    assert waiting.result() == "resumes: shop.orders; `applier run` does the rest."


def test_an_outage_withdraws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the user does, with Ctrl-C."""
    monkeypatch.setattr("applier.runtime.retry.OUTAGE_SECONDS", 0.0)
    waiting = Waiting(monkeypatch, last(PARKED), TransientError("The catalog does not answer."))

    with pytest.raises(TransientError):
        waiting.result()

    assert waiting.written == [None]
    assert waiting.said[-1] == "The request is kept, and `applier run -c applier.toml` carries it out, once."


@pytest.mark.parametrize(("found", "written"), [(None, [None, "withdrawn"]), (RESUMES, [None])])
def test_ctrl_c_withdraws_a_request_that_nobody_took(
    monkeypatch: pytest.MonkeyPatch, found: RequestOutcome | None, written: list[str | None]
) -> None:
    """One that was taken goes on."""
    waiting = Waiting(monkeypatch, last(PARKED), KeyboardInterrupt, last(PARKED, handled=found))

    with pytest.raises(KeyboardInterrupt):
        waiting.result()

    assert waiting.written == written


def test_a_table_that_was_refused_is_an_exit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are back, and the sentence says which is not and why."""
    why = "Table shop.items is parked since resolved ts 7: a look. Export it."
    outcome = RequestOutcome("resumes", (ORDERS,), (ITEMS,), (why,))
    waiting = Waiting(monkeypatch, last(PARKED, PARKED), last(LIVE, PARKED, handled=outcome))

    with pytest.raises(TerminalError) as raised:
        waiting.result()

    assert str(raised.value) == (
        "Resumed: shop.orders. Refused: Table shop.items is parked since resolved ts 7: a look. Export it."
    )


def test_a_table_that_is_loaded_need_not_be_known_yet() -> None:
    """While the holder has not taken the request, no checkpoint has the table."""
    request: Iterator[TableRequest] = iter([TableRequest("one", "load", ("shop.new",), "", "me")])

    assert command._say_progress(last(LIVE), next(request), pytest.fail, "") == "0 tables to bring back."


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (REQUEST, "bring shop.* back"),
        (TableRequest("one", "park", ("shop.a", "shop.b"), "a look", "me"), "park shop.a and shop.b"),
        (TableRequest("one", "load", ("`shop`.`orders`",), "", "me"), "leave shop.orders to this load"),
        (TableRequest("one", "load", ("`shop`.`orders`",), "a value is bad", "me"), None),
        (TableRequest("one", "loaded", ("`shop`.`orders`",), "", "me"), "take over what was loaded of shop.orders"),
        (TableRequest("one", "reload", (), "", "me"), "read its configuration file again"),
    ],
)
def test_what_was_asked_is_named(request_: TableRequest, said: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load asks for more than one thing; that it has failed it notes without a word."""
    waiting = Waiting(monkeypatch, last(PARKED), last(PARKED, handled=RESUMES))

    command.waited(CONFIG, request_, waiting.said.append, comes_back=False)

    line = [] if said is None else [f"Asked process 4 on elsewhere to {said}, between two of its steps …"]
    assert waiting.said == line
