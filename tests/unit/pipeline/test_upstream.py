from __future__ import annotations

import pytest

from applier.changefeed.table import Column, TableName, TableVersion
from applier.changefeed.table import ColumnType as T
from applier.changefeed.types import TypeRules
from applier.config.login import Login
from applier.decode.tidb.rows_as_of import RowsAsOf
from applier.errors import OutsideRefused, SchemaChangeRefused, TransientError, Unreachable, ValueRefused
from applier.pipeline.schema_changes.upstream import Upstream
from applier.runtime.retry import LATE_SECONDS, Deadline
from applier.sink.evolve.plan import plan
from applier.sink.evolve.upstream_rows import UpstreamRows

NAME = TableName("shop", "orders")
ID, CLOCK = Column("id", T("int")), Column("c", T("datetime", scale=0), default="CURRENT_TIMESTAMP")
EVOLUTION = plan(TableVersion(NAME, 1, (ID,)), TableVersion(NAME, 2, (ID, CLOCK)), (), TypeRules())


def finds(monkeypatch: pytest.MonkeyPatch, found: UpstreamRows | Exception) -> None:
    """Let TiDB answer so."""

    def find(*_: object) -> UpstreamRows:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(RowsAsOf, "find", find)


def completed(upstream: Upstream, commit_ts: int = 7) -> None:
    """Ask for what the statement lacks."""
    upstream.completed(EVOLUTION, NAME, commit_ts, TypeRules())


def test_a_tidb_that_does_not_answer_is_asked_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is repeated for two minutes from the first failure on, for each statement; then it is refused."""
    times = iter([0, LATE_SECONDS - 1, LATE_SECONDS, LATE_SECONDS])
    upstream = Upstream(Login("tidb", 4000, "u", ""), Deadline(lambda: next(times)))
    finds(monkeypatch, Unreachable("TiDB tidb:4000 cannot be reached: it is down."))
    for _ in range(2):
        with pytest.raises(TransientError):
            completed(upstream)

    with pytest.raises(OutsideRefused, match="it is down"):
        completed(upstream)
    with pytest.raises(TransientError):
        completed(upstream, 8)


def test_a_refusal_says_what_tidb_said() -> None:
    """With the command that loads the table again from there."""
    upstream, refusal = Upstream(Login("tidb", 4000, "u", "")), SchemaChangeRefused("It is not known.", "Export it.")

    with pytest.raises(SchemaChangeRefused) as caught, upstream.in_place_of(refusal):
        raise ValueRefused("TiDB does not show it.")

    assert caught.value.what == "It is not known. TiDB was asked: TiDB does not show it."
    assert "`applier load -c FILE --tables TABLE`" in caught.value.hint
