"""What becomes of a DDL by what is configured and known, before any table is asked."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast
from unittest import mock

import pytest

from applier.changefeed.checkpoint import Checkpoint, Holder, Lease, Moving
from applier.changefeed.completeness import Completeness, Reason, Why
from applier.changefeed.event import SchemaChange
from applier.changefeed.filter import TableFilter
from applier.changefeed.message import Position
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.ddl.actions import by_table
from applier.ddl.parser import parse
from applier.ddl.spelling import Spelling
from applier.errors import DdlStopped, SchemaChangeRefused
from applier.order.barrier import Barrier
from applier.pipeline.ddl_progress import DdlProgress
from applier.pipeline.scan.statements import Ddl, read_all
from applier.pipeline.scan.window_tables import spelling
from applier.pipeline.schema_changes.apply import DdlApplier
from applier.pipeline.schema_changes.decision import DdlRules, Verdict, at_its_place, past
from applier.pipeline.schema_changes.decision import decided as record
from applier.pipeline.schema_changes.whole_tables import TableDdl
from applier.pipeline.state import State
from applier.sink.control.checkpoint_form import from_json, to_json
from applier.sink.control.rows import Decision, IgnoredFor, SchemaDecision

RULES = DdlRules({"truncate-table": "stop", "drop-column": "ignore"}, TableFilter(["a.*"]))
CONFIGURED = IgnoredFor.CONFIGURED
P, Q = TableName("a", "p"), TableName("a", "q")


def decided(sql: str, *parked: TableName, progress: DdlProgress | None = None) -> Verdict:
    """The verdict on a statement of database `a` that is one group."""
    change = SchemaChange(5, sql, "a")
    [group] = by_table(parse(sql, "a"))
    return RULES.decide(change, group, frozenset(parked), progress or DdlProgress())


@pytest.mark.parametrize(
    ("sql", "parked", "found"),
    [
        ("CREATE TABLE p (id INT PRIMARY KEY)", (), Verdict("applied")),
        ("ALTER TABLE p ADD COLUMN x INT, DROP COLUMN y", (), Verdict("ignored", IgnoredFor.CONFIGURED)),
        ("CREATE TABLE other.copy LIKE a.p", (), Verdict("ignored", IgnoredFor.LEFT_OUT)),
        ("DROP TABLE other.p", (), Verdict("ignored", IgnoredFor.LEFT_OUT)),
        ("DROP DATABASE other", (), Verdict("ignored", IgnoredFor.LEFT_OUT)),
        ("DROP DATABASE a", (P,), Verdict("applied")),
        ("RENAME TABLE a.p TO other.p", (), Verdict("applied")),
        ("RENAME TABLE p TO q", (P,), Verdict("ignored", IgnoredFor.PARKED)),
        ("RENAME TABLE q TO p", (P,), Verdict("applied")),
        ("TRUNCATE TABLE p", (P,), Verdict("ignored", IgnoredFor.PARKED)),
        ("DROP TABLE p", (P,), Verdict("applied")),
        ("DROP TABLE other.p", (TableName("other", "p"),), Verdict("applied")),
        ("CREATE TABLE p (id INT)", (P,), Verdict("applied")),
        ("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE q", (P, Q), Verdict("ignored", IgnoredFor.PARKED)),
    ],
)
def test_a_statement_is_decided_by_its_tables_and_the_policies(
    sql: str, parked: tuple[TableName, ...], found: Verdict
) -> None:
    """Parked tables pass what does not end them, tables that are left out all of it; then the policies are asked."""
    assert decided(sql, *parked) == found


def test_a_statement_is_refused_with_the_reason() -> None:
    """A policy may stop the feed; a parked table and one that is not exchange no rows."""
    stopped = decided("TRUNCATE TABLE p")
    assert (stopped.decision, stopped.ignored_for, type(stopped.refusal)) == (
        "refused",
        IgnoredFor.CONFIGURED,
        DdlStopped,
    )
    exchange = decided("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE q", Q)
    assert exchange.decision == "refused"
    assert exchange.refusal is not None
    assert exchange.refusal.what.startswith("Tables a.p and a.q exchange rows, and one of them is parked")


@pytest.mark.parametrize("sql", ["TRUNCATE TABLE p", "ALTER TABLE p DROP COLUMN y", "ALTER TABLE p ADD COLUMN y INT"])
@pytest.mark.parametrize(
    ("before", "why", "found"),
    [
        ("applied", None, Verdict("applied")),
        ("rewritten", None, Verdict("applied")),
        ("without a table", None, Verdict("applied")),
        ("ignored", CONFIGURED, Verdict("ignored", CONFIGURED)),
    ],
)
def test_what_a_failed_step_decided_counts_more_than_the_policies(
    sql: str, before: Decision, why: IgnoredFor | None, found: Verdict
) -> None:
    """The tables have it so, or their rows lie as if they had not."""
    [group] = by_table(parse(sql, "a"))
    progress = DdlProgress()
    progress.note([record(SchemaChange(5, sql, "a"), group, before, ignored_for=why)])

    assert decided(sql, progress=progress) == found


def test_what_users_skip_and_what_was_given_up_passes() -> None:
    """A skip counts before a policy; a DDL that could not be applied in this step is not decided again."""
    sql = "TRUNCATE TABLE p"
    assert decided(sql, progress=DdlProgress(to_skip={(5, sql)})) == Verdict("skipped")
    given_up = DdlProgress(refused={SchemaChange(5, "DROP TABLE p", "a").id})
    assert decided("DROP TABLE p", P, progress=given_up) == Verdict("ignored", IgnoredFor.PARKED, is_given_up=True)
    assert decided("DROP TABLE p", progress=given_up) == Verdict("applied")


@pytest.mark.parametrize(
    ("sql", "parked", "found"),
    [
        ("ALTER TABLE a.p FROBNICATE", (), "refused"),
        ("ALTER TABLE a.p FROBNICATE", (P,), Verdict("ignored", IgnoredFor.PARKED)),
        ("ALTER TABLE other.p FROBNICATE", (), Verdict("ignored", IgnoredFor.LEFT_OUT)),
    ],
)
def test_a_statement_that_is_not_understood_is_refused_where_it_counts(
    sql: str, parked: tuple[TableName, ...], found: Verdict | str
) -> None:
    """It passes where every table that it names is left out or parked, or a person says so."""
    ddl = Ddl.of(Barrier(SchemaChange(5, sql, "a"), "t", Position(0, 0, 0)), Spelling([P]))
    verdict = RULES.decide_unread(ddl, frozenset(parked), DdlProgress())
    assert verdict == (Verdict("refused", refusal=ddl.refused) if found == "refused" else found)
    skipped = RULES.decide_unread(ddl, frozenset(), DdlProgress(to_skip={(5, sql)}))
    assert skipped.decision == ("ignored" if "other" in sql else "skipped")


@pytest.mark.parametrize(
    ("said", "ignored_for", "sql", "found"),
    [
        ("ignored", CONFIGURED, "ALTER TABLE p ADD COLUMN x INT", Verdict("ignored", CONFIGURED)),
        ("applied", None, "ALTER TABLE p DROP COLUMN x", Verdict("applied")),
        ("rewritten", None, "TRUNCATE TABLE p", Verdict("applied")),
        ("ignored", IgnoredFor.PARKED, "ALTER TABLE p DROP COLUMN x", Verdict("ignored", CONFIGURED)),
        ("ignored", IgnoredFor.PARKED, "ALTER TABLE p ADD COLUMN x INT", Verdict("applied")),
        ("ignored", IgnoredFor.LEFT_OUT, "ALTER TABLE p ADD COLUMN x INT", Verdict("applied")),
        ("refused", None, "ALTER TABLE p ADD COLUMN x INT", Verdict("applied")),
    ],
)
def test_what_the_feed_did_counts_more_than_the_policies_of_now(
    said: Decision, ignored_for: IgnoredFor | None, sql: str, found: Verdict
) -> None:
    """A table that is brought back reads a DDL again; what was decided while it was parked shows no policy."""
    change = SchemaChange(5, sql, "a")
    [group] = by_table(parse(sql, "a"))
    before = past([record(change, group, said, ignored_for=ignored_for)])
    assert replace(RULES, past=before).decide(change, group, frozenset(), DdlProgress()) == found


def test_a_statement_that_is_not_understood_stays_ignored() -> None:
    """The policy that let it pass may be gone."""
    sql = "ALTER TABLE a.p ADD COLUMN x GEOMETRY"
    ddl = Ddl.of(Barrier(SchemaChange(5, sql, "a"), "t", Position(0, 0, 0)), Spelling((), (P,)))
    before = past([SchemaDecision(5, P, sql, "unread", "ignored", ignored_for=CONFIGURED)])
    assert RULES.decide_unread(ddl, frozenset(), DdlProgress()).decision == "refused"
    assert replace(RULES, past=before).decide_unread(ddl, frozenset(), DdlProgress()).decision == "ignored"


@pytest.mark.parametrize("is_moving", [True, False])
def test_a_table_that_a_failed_step_has_purged_shows_that_its_drop_was_begun(*, is_moving: bool) -> None:
    """The other tables of the statement follow, although `[ddl]` ignores it since; others may have dropped it, too."""
    moving = Moving({P: 5}, {}) if is_moving else None
    state = State(cast("Any", None), Checkpoint(Lease(1, Holder("t", "h")), 1, 0, 0, moving=moving))
    state.tables.put(TableVersion(P, 1, ()))
    targets = mock.MagicMock()
    targets.writer.return_value = None
    change = SchemaChange(5, "DROP TABLE p, q", "a")
    ddl = Ddl.of(Barrier(change, "t", Position(0, 0, 0)), Spelling(()))

    assert DdlApplier(targets, state, {})._is_made(ddl) is is_moving


@pytest.mark.parametrize(
    ("texts", "is_known"),
    [
        (["RENAME TABLE a.p TO a.between", "RENAME TABLE a.between TO a.q"], False),
        (["ALTER TABLE a.p FROBNICATE"], True),
    ],
)
def test_the_next_windows_do_not_count_on_a_name_that_renames_of_an_open_order_may_have_left(
    texts: list[str], *, is_known: bool
) -> None:
    """The checkpoint keeps it: a later swap must not be ordered by the name."""
    state = State(mock.MagicMock(), Checkpoint(Lease(1, Holder("t", "h")), 1, 0, 0))
    state.tables.put(TableVersion(P, 1, ()))
    state.completeness |= dict.fromkeys((P, Q, TableName("a", "between")), Completeness(Reason(Why.DDL, "7")))
    parts = [Barrier(SchemaChange(5, sql, "a"), "t", Position(0, place, 0)) for place, sql in enumerate(texts)]
    applier = DdlApplier(mock.MagicMock(), state, {})

    for ddl in read_all(parts, Spelling([P])):
        applier.apply(ddl)
    state.checkpoint = from_json(to_json(replace(state.checkpoint, tables=state.tracked())))
    state.restore()
    names = spelling(cast("Any", mock.MagicMock(versions=(), results=mock.MagicMock(parts=()))), state)

    assert (P in names, P in state.parked) == (is_known, True)
    assert str(names.of(TableName("a", "P"))) == "a.p", "it is this table that statements name all the same"


@pytest.mark.parametrize(("tso", "is_there"), [(1, True), (2, False)], ids=["loaded", "loaded as of a later moment"])
def test_a_table_that_an_export_alone_shows_takes_part_in_a_swap(tso: int, *, is_there: bool) -> None:
    """It was parked before its first row came: the swap would park both tables, under names that they have left."""
    state = State(mock.MagicMock(), Checkpoint(Lease(1, Holder("t", "h")), 1, 1, 0))
    place = FeedPosition(P, tso, is_loaded=True)
    state.tables.put(TableVersion(Q, 1, ()))
    state.completeness[P] = Completeness(Reason(Why.BY_HAND, "a test"), since=1, position=place)
    between = TableName("a", "between")
    swap = [(between, Q), (P, between), (Q, P)]
    parts = [
        Barrier(SchemaChange(5, f"RENAME TABLE {old} TO {new}", "a"), "t", Position(0, offset, 0))
        for offset, (old, new) in enumerate(swap)
    ]
    names = spelling(cast("Any", mock.MagicMock(versions=(), results=mock.MagicMock(parts=()))), state)

    found = [ddl.barrier.position.offset for ddl in read_all(parts, names) if ddl.refused is None]

    assert found == ([1, 2, 0] if is_there else [])


def test_a_table_that_is_made_behind_such_renames_has_letters_of_its_own() -> None:
    """What has the name here is another table, in other letters: the new one must not lie where that one is."""
    state, targets = State(mock.MagicMock(), Checkpoint(Lease(1, Holder("t", "h")), 1, 0, 0)), mock.MagicMock()
    state.tables.put(TableVersion(P, 1, ()))
    state.completeness[P] = Completeness(Reason(Why.DDL, "7"), is_misnamed=True)
    targets.writer.return_value = None
    found: list[TableName | None] = []
    targets.make.side_effect = lambda version, _: found.append(state.tables.spelt(version.name) or version.name)
    [create] = parse("CREATE TABLE P (id INT PRIMARY KEY)", "a")

    TableDdl(targets, state).apply(SchemaChange(9, "CREATE TABLE P (id INT PRIMARY KEY)", "a"), create)

    assert list(map(str, found)) == ["a.P"]


@pytest.mark.parametrize("is_misnamed", [True, False])
def test_a_rename_into_a_name_that_is_another_tables_here_alone_takes_it(*, is_misnamed: bool) -> None:
    """Upstream the name is free: the feed must not stop for what is parked under it."""
    state, targets = State(mock.MagicMock(), Checkpoint(Lease(1, Holder("t", "h")), 1, 0, 0)), mock.MagicMock()
    for name in (P, Q):
        state.tables.put(TableVersion(name, 1, ()))
    state.completeness[P] = Completeness(Reason(Why.DDL, "7"), is_misnamed=is_misnamed)
    writers = {P: mock.MagicMock(), Q: mock.MagicMock()}
    targets.writer.side_effect = writers.get
    targets.forget.side_effect = writers.pop
    change = SchemaChange(9, "RENAME TABLE q TO p", "a")
    names = spelling(cast("Any", mock.MagicMock(versions=(), results=mock.MagicMock(parts=()))), state)
    [ddl] = read_all([Barrier(change, "t", Position(0, 0, 0))], names)

    for table in writers.values():
        table.known.extra, table.known.resolved_ts, table.table.setting.return_value = {}, 1, None
    targets.dropped.return_value = None
    targets.maker.rules = TypeRules()
    with nullcontext() if is_misnamed else pytest.raises(SchemaChangeRefused, match="another table has that name"):
        TableDdl(targets, state).apply(change, ddl.actions[0])

    assert (targets.catalog.rename.called, ddl.is_loose) == (is_misnamed, True)


@pytest.mark.parametrize("what", ["Column c of t was a note.", "Column c of t was a note"])
def test_the_place_of_a_refusal_is_part_of_its_sentence(what: str) -> None:
    """The full stop comes behind the bracket."""
    change = SchemaChange(7, "ALTER TABLE t DROP c", "a")

    placed = at_its_place(SchemaChangeRefused(what), change, "a.toml", may_pass=False)

    assert placed.what == "Column c of t was a note (commit ts 7: ALTER TABLE t DROP c)."
