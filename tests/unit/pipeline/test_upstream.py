from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.table import Column, TableName, TableVersion
from applier.changefeed.table import ColumnType as T
from applier.changefeed.types import TypeRules
from applier.config.login import Login
from applier.decode.tidb.rows_as_of import RowsAsOf
from applier.decode.tidb.session import SYSTEM
from applier.errors import SchemaChangeRefused, TransientError, Unreachable, ValueRefused
from applier.pipeline.schema_changes.upstream import AskedUpstream
from applier.runtime.retry import LATE_SECONDS, OUTAGE_SECONDS
from applier.sink.evolve.plan import plan
from applier.sink.evolve.upstream_rows import UpstreamRows

NAME = TableName("shop", "orders")
ID, CLOCK = Column("id", T("int")), Column("c", T("datetime", scale=0), default="CURRENT_TIMESTAMP")
EVOLUTION = plan(TableVersion(NAME, 1, (ID,)), TableVersion(NAME, 2, (ID, CLOCK)), (), TypeRules())


class Shown:
    """A TiDB whose rows all hold one time."""

    key = ("id",)

    def only_value(self, _: str, arrow: pa.DataType) -> pa.Scalar[Any] | None:
        """That time."""
        return pa.scalar(0, arrow)

    def values(self, name: str, kind: T, arrow: pa.DataType, keys: pa.Table) -> pa.ChunkedArray[Any]:
        """It is not asked for rows."""
        raise AssertionError


def finds(monkeypatch: pytest.MonkeyPatch, found: UpstreamRows | Exception) -> None:
    """Let TiDB answer so."""

    def find(*_: object) -> UpstreamRows:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(RowsAsOf, "find", find)


REFUSAL = SchemaChangeRefused("It is not known.", "Export it.")
MINUTE = 60.0


class Asking:
    """An upstream, and the time that passes while it is asked."""

    def __init__(self) -> None:
        self.now = 0.0
        self.upstream = AskedUpstream(Login("tidb", 4000, "u", ""), lambda: self.now)

    def ask(self, commit_ts: int = 7) -> None:
        """Ask for what the statement lacks."""
        with self.upstream.in_place_of(REFUSAL):
            self.upstream.completed(EVOLUTION, NAME, commit_ts, TypeRules())

    def fail(self) -> None:
        """TiDB is lost while rows are written anew with what it shows."""
        with self.upstream.in_place_of(REFUSAL):
            self.upstream.completed(EVOLUTION, NAME, 7, TypeRules())
            raise away()


def away() -> TransientError:
    """TiDB is down."""
    error = Unreachable("TiDB tidb:4000 cannot be reached: it is down.")
    error.system = SYSTEM
    return error


def test_a_tidb_that_does_not_answer_is_asked_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is repeated for two minutes from the first failure on; then each statement is refused at once."""
    asking = Asking()
    finds(monkeypatch, away())
    for asking.now in (0, LATE_SECONDS - 1):
        with pytest.raises(TransientError):
            asking.ask()

    for commit_ts in (7, 8):
        asking.now = LATE_SECONDS + commit_ts
        with pytest.raises(SchemaChangeRefused, match="TiDB was asked: TiDB tidb:4000 cannot be reached: it is down"):
            asking.ask(commit_ts)


def test_a_query_that_is_never_answered_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """All other tables wait for it: it has had its time, however late the connection notices."""
    asking = Asking()

    def find(*_: object) -> UpstreamRows:
        asking.now += 5 * MINUTE
        raise away()

    monkeypatch.setattr(RowsAsOf, "find", find)
    with pytest.raises(SchemaChangeRefused, match="it is down"):
        asking.ask()


def test_a_tidb_that_is_lost_in_each_rewrite_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it answers the first question each time."""
    asking = Asking()
    finds(monkeypatch, Shown())
    for asking.now in (0, LATE_SECONDS - 1):
        with pytest.raises(TransientError):
            asking.fail()

    asking.now = LATE_SECONDS
    with pytest.raises(SchemaChangeRefused, match="it is down"):
        asking.fail()


def test_an_outage_of_another_system_parks_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes, and the step is repeated."""
    asking = Asking()
    finds(monkeypatch, Shown())
    for asking.now in (0, LATE_SECONDS):
        with pytest.raises(TransientError), asking.upstream.in_place_of(REFUSAL):
            raise TransientError("The catalog does not answer.")


@pytest.mark.parametrize("is_answered", [True, False])
def test_the_next_outage_is_waited_for_again(monkeypatch: pytest.MonkeyPatch, *, is_answered: bool) -> None:
    """It begins behind an answer, or a while after the last failure."""
    asking = Asking()
    finds(monkeypatch, away())
    with pytest.raises(TransientError):
        asking.ask()
    asking.now = LATE_SECONDS if is_answered else OUTAGE_SECONDS + 1
    if is_answered:
        finds(monkeypatch, Shown())
        asking.ask()
    finds(monkeypatch, away())

    with pytest.raises(TransientError):
        asking.ask()


def test_a_refusal_says_what_tidb_said() -> None:
    """With the command that loads the table again from there."""
    with pytest.raises(SchemaChangeRefused) as caught, Asking().upstream.in_place_of(REFUSAL):
        raise ValueRefused("TiDB does not show it.")

    assert caught.value.what == "It is not known. TiDB was asked: TiDB does not show it."
    assert "`applier load -c FILE --tables TABLE`" in caught.value.hint
