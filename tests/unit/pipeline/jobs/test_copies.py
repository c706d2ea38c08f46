"""A table and its copy are what they say of themselves: a name is only where they are looked up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock, Mock

import pyarrow as pa
import pytest

from applier.changefeed.completeness import LIVE, Completeness, Reason, Why
from applier.changefeed.position import FeedPosition
from applier.changefeed.route import Route
from applier.changefeed.table import TableName
from applier.errors import TableMismatch
from applier.order.feed_order import ORDERS
from applier.pipeline.jobs.copies import Copies, CopyOutdated
from applier.pipeline.jobs.handover import Handover
from applier.pipeline.jobs.resumption import Replay
from applier.pipeline.tables import parking
from applier.pipeline.tables.changefeed import Changefeed
from applier.pipeline.tables.loads import place_of, route
from applier.pipeline.tables.table_maker import TableMaker
from applier.pipeline.tables.target_tables import TargetTables
from applier.sink.iceberg import clone
from tests.unit.commands.check.world import World

A = TableName("shop", "a")


def copies(found: Any = None, *, identity: str = "of-a", is_stamped: bool = True) -> Copies:
    """Those of job `ab`; the catalog has this table under every name of readers, and no copy."""
    made: Any = object.__new__(Copies)
    made.job, made._namespace, made._origins = "ab", ("jobs",), {}
    writer = MagicMock()
    writer.table.identity, writer.table.has_snapshot = identity, lambda snapshot: snapshot == -7
    writer.known = object() if is_stamped else None
    made.main, made.targets = MagicMock(), MagicMock()
    made.main.writer.return_value, made.main.damage.return_value = writer, None
    made.main.identifier.return_value, made.targets.identifier.return_value = ("shop", "a"), ("jobs", "a__ab")
    made.main.catalog.load = lambda identifier: found if identifier == ("shop", "a") else None
    return cast("Copies", made)


@pytest.mark.parametrize(
    ("parked", "is_stamped", "is_it"),
    [
        ("of-a", False, True),
        ("of-b", True, False),
        ("@-7", True, True),
        ("@-8", True, False),
        ("", True, True),
        ("", False, False),
    ],
    ids=["its identity", "another", "its snapshot", "of another", "unknown, stamped", "unknown, of others"],
)
def test_a_table_that_is_not_the_one_that_was_parked_is_not_copied(
    monkeypatch: pytest.MonkeyPatch, parked: str, is_stamped: bool, is_it: bool
) -> None:
    """The rows that the table missed would come to another one, which lacks all rows of before."""
    monkeypatch.setattr(clone, "clone", made := Mock())
    place = FeedPosition(A, 5, version=1, table=parked)
    if is_it:
        copies(is_stamped=is_stamped).make(A, place)
    else:
        with pytest.raises(TableMismatch, match="is not the one that was parked: it was replaced") as refused:
            copies(is_stamped=is_stamped).make(A, place)
        assert "Give the one that was parked its name back" in refused.value.hint
    assert made.called is is_it


@pytest.mark.parametrize(
    ("listed", "written", "known", "head", "identity"),
    [
        ("l", "u", object(), 7, "l"),
        ("l", None, None, 7, "l"),
        ("", "u", object(), 7, "u"),
        ("", "u", None, None, "u"),
        ("", "u", None, 7, "@7"),
        ("", None, None, 7, "@7"),
        ("", None, None, None, ""),
    ],
    ids=["another", "gone, listed", "its own", "adopted", "of others", "gone", "never there"],
)
def test_a_parked_table_is_what_the_checkpoint_lists_or_known_by_a_snapshot_that_it_must_have(
    listed: str, written: str | None, known: object, head: int | None, identity: str
) -> None:
    """The UUID of another table that has its name says nothing."""
    table = SimpleNamespace(identity=written, snapshot_id=head)
    writer = None if written is None else SimpleNamespace(known=known, table=table)
    targets: Any = SimpleNamespace(
        damage=lambda name: None,
        writer=lambda name: writer,
        identifier=lambda name: ("shop", name.table),
        listed=SimpleNamespace(head=lambda identifier: head, identity=lambda identifier: listed),
    )
    assert parking.identity(targets, A) == identity


def test_a_copy_that_is_gone_is_not_begun_anew_with_a_part_of_its_rows() -> None:
    """Only a CREATE TABLE makes one, once."""
    job = copies()
    job.expect(A, A)
    job._make(("jobs", "a__ab"), pa.schema([]), properties={})
    with pytest.raises(CopyOutdated, match="is gone"):
        job._make(("jobs", "a__ab"), pa.schema([]), properties={})


@pytest.mark.parametrize(
    ("mark", "is_shown"), [("ab-1 x", True), ("cd-1 x", False), (None, False)], ids=["its own", "another job", "none"]
)
def test_a_copy_that_is_gone_was_shown_only_if_its_table_says_so(mark: str | None, is_shown: bool) -> None:
    """Else the table would count as whole, without what its copy had."""
    job = copies(SimpleNamespace(setting=lambda key: mark if key == clone.BUILT_ON else None))
    assert (job.is_shown(A, A), job.is_outdated(A, A)) == (is_shown, not is_shown)
    if is_shown:
        job.show(A, A, LIVE)
    else:
        with pytest.raises(CopyOutdated, match="is gone"):
            job.show(A, A, LIVE)


def test_a_job_of_an_earlier_process_whose_copy_is_gone_begins_anew() -> None:
    """Its next row would make the copy anew, without those of before."""
    at = FeedPosition(A, 5, version=1)
    main: Any = SimpleNamespace(completeness={A: Completeness(Reason(Why.DDL), position=at, is_due=True)})
    state: Any = SimpleNamespace(completeness={A: Completeness(Reason(Why.WHOLE), origin=at)}, tables=[])
    held: Any = SimpleNamespace(is_outdated=lambda name, own: True)
    replay = Replay(SimpleNamespace(state=main), SimpleNamespace(state=state), held, cast("Any", None))  # type: ignore[arg-type]
    replay.refuse_outdated()
    state.tables = [A]
    with pytest.raises(CopyOutdated):
        replay.refuse_outdated()


def test_a_table_whose_create_is_refused_has_no_copy_to_show() -> None:
    """Asked for one, the job would begin anew again and again."""
    at = FeedPosition(A, 5)
    main, job, shown = MagicMock(), MagicMock(), Mock()
    main.state.completeness = {A: Completeness(Reason(Why.LEFT_OUT), 5, at, is_due=True)}
    job.completeness, job.tables = {A: Completeness(Reason(Why.DDL), 6, at, origin=at)}, MagicMock()
    job.tables.__contains__.return_value = False
    job.checkpoint = SimpleNamespace()
    handover = Handover(main, job, shown)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("applier.pipeline.jobs.handover.replace", lambda item, **changes: item)
        patch.setattr("applier.pipeline.jobs.handover.Resuming", Mock())
        patch.setattr(Handover, "_with_late", lambda self, name, known: known)
        patch.setattr(Handover, "_doubt_others", Mock())
        handover.parked({A: A})
    shown.show.assert_not_called()


@pytest.mark.parametrize("letters", [("Shop", "UPPER"), ("shop", "upper")], ids=".".join)
@pytest.mark.parametrize("made", [None, TableName("Shop", "UPPER")])
def test_copies_and_loads_are_placed_where_they_are_looked_for(
    made: TableName | None, letters: tuple[str, str]
) -> None:
    """A file, a statement and a request may spell a table in any letters, and a table made again may have others."""
    table, catalog = TableName(*letters), cast("Any", None)
    config = World(Path("/nowhere")).config
    maker = TableMaker(catalog, config.tables, config.type_rules)
    feed = Changefeed("shop", 1, ORDERS["resolved"])
    main = TargetTables(catalog, feed, maker, Route("x.{table}"), config.sink, spelt=lambda _: made)

    assert Copies(main, "load", route("shop")).targets.identifier(table) == place_of("shop", TableName("shop", "upper"))
    assert Copies(main, "ab").targets.identifier(table) == ("applier_shop__resume", "shop__upper__ab")
