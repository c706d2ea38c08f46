from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.table import Column, TableName, TableVersion
from applier.changefeed.table import ColumnType as T
from applier.changefeed.types import TypeRules
from applier.config.login import Login
from applier.decode.tidb.rows_as_of import RowsAsOf
from applier.errors import OutsideRefused, SchemaChangeRefused, TransientError, Unreachable, ValueRefused
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


def completed(upstream: AskedUpstream, commit_ts: int = 7) -> None:
    """Ask for what the statement lacks."""
    upstream.completed(EVOLUTION, NAME, commit_ts, TypeRules())


def test_a_tidb_that_does_not_answer_is_asked_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is repeated for two minutes from the first failure on; then each statement is refused at once."""
    times = iter([0, LATE_SECONDS - 1, LATE_SECONDS, LATE_SECONDS + 1])
    upstream = AskedUpstream(Login("tidb", 4000, "u", ""), lambda: next(times))
    finds(monkeypatch, Unreachable("TiDB tidb:4000 cannot be reached: it is down."))
    for _ in range(2):
        with pytest.raises(TransientError) as caught:
            completed(upstream)
        assert caught.value.system == "other"

    for commit_ts in (7, 8):
        with pytest.raises(OutsideRefused, match="it is down"):
            completed(upstream, commit_ts)


@pytest.mark.parametrize("is_answered", [True, False])
def test_the_next_outage_is_waited_for_again(monkeypatch: pytest.MonkeyPatch, *, is_answered: bool) -> None:
    """It begins behind an answer, or a while after the last failure."""
    times = iter([0, LATE_SECONDS if is_answered else OUTAGE_SECONDS + 1])
    upstream = AskedUpstream(Login("tidb", 4000, "u", ""), lambda: next(times))
    away = Unreachable("TiDB tidb:4000 cannot be reached: it is down.")
    finds(monkeypatch, away)
    with pytest.raises(TransientError):
        completed(upstream)
    if is_answered:
        finds(monkeypatch, Shown())
        completed(upstream)
    finds(monkeypatch, away)

    with pytest.raises(TransientError):
        completed(upstream)


def test_a_refusal_says_what_tidb_said() -> None:
    """With the command that loads the table again from there."""
    upstream, refusal = (
        AskedUpstream(Login("tidb", 4000, "u", "")),
        SchemaChangeRefused("It is not known.", "Export it."),
    )

    with pytest.raises(SchemaChangeRefused) as caught, upstream.in_place_of(refusal):
        raise ValueRefused("TiDB does not show it.")

    assert caught.value.what == "It is not known. TiDB was asked: TiDB does not show it."
    assert "`applier load -c FILE --tables TABLE`" in caught.value.hint
