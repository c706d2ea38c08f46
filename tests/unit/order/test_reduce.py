"""Per key, the last change wins and the first one tells whether the key is new."""

from __future__ import annotations

from typing import Any

import pytest

from applier.changefeed.event import Op, RowChange
from applier.changefeed.message import Position
from applier.changefeed.table import Keyed, Keyless, TableName
from applier.errors import DecodeError, IncompleteRow
from applier.order.feed_order import undated
from applier.order.reduce import KeyedGroup, KeylessGroup, group
from tests.builders import delete, insert, update, upsert, version

TABLE = version(("id", "bigint"), ("v", "int"))
BAG = version(("a", "int"), key=())


def reduced(*changes: RowChange) -> dict[Any, tuple[Any, ...]]:
    """Key -> (present, kind of the first change, v) after the changes in reading order; no v where the row is gone."""
    rows = KeyedGroup(TABLE)
    for offset, change in enumerate(changes):
        rows.add(change, Position(0, offset, 0))
    meta, values = rows.columns()
    shown = zip(meta["\0present"].to_pylist(), meta["\0first_op"].to_pylist(), strict=True)
    images = zip(values["id"], values.get("v", [None] * len(meta)), strict=True)
    return {key: (present, op, v) for (present, op), (key, v) in zip(shown, images, strict=True)}


def test_the_shape_of_a_table_decides_how_its_changes_are_grouped() -> None:
    """By key, or each for itself."""
    assert (TABLE.shape, BAG.shape) == (Keyed(("id",)), Keyless())
    assert (type(group(TABLE)), type(group(BAG))) == (KeyedGroup, KeylessGroup)


def test_last_commit_ts_wins_over_reading_order() -> None:
    """The place in a partition is not ordered by commit ts."""
    assert reduced(update(9, id="1", v="9"), update(5, id="1", v="5")) == {"1": (True, Op.UPDATE, "9")}


def test_insert_first_makes_the_key_fresh() -> None:
    """Whatever follows, a key whose first event is an INSERT was not there."""
    assert reduced(insert(5, id="1", v="5"), update(7, id="1", v="7")) == {"1": (True, Op.INSERT, "7")}


def test_insert_read_late_is_still_first() -> None:
    """The first event is the one with the smallest commit ts."""
    assert reduced(update(7, id="1", v="7"), insert(5, id="1", v="5")) == {"1": (True, Op.INSERT, "7")}


def test_an_upsert_first_leaves_open_whether_the_key_was_there() -> None:
    """Whatever follows, and in whatever order it is read."""
    changes = upsert(5, id="1", v="5"), delete(7, id="1", v="5")

    assert reduced(*changes) == reduced(*reversed(changes)) == {"1": (False, Op.UPSERT, None)}


def test_a_delete_before_an_upsert_shows_that_the_key_was_there() -> None:
    """Earlier, or as the other half of a split update."""
    for ts in (3, 5):
        assert reduced(upsert(5, id="1", v="new"), delete(ts, id="1")) == {"1": (True, Op.DELETE, "new")}


def test_delete_before_insert_at_one_commit_ts() -> None:
    """Halves of a split update: the row is there afterwards, and its key was there before."""
    assert reduced(insert(5, id="1", v="new"), delete(5, id="1", v="old")) == {"1": (True, Op.DELETE, "new")}


def test_key_changing_update_deletes_the_old_key() -> None:
    """Raw change events keep the update whole; no row had the new key before."""
    changes = update(5, before={"id": "1", "v": "x"}, id="2", v="x")

    assert reduced(changes) == {"1": (False, Op.DELETE, None), "2": (True, Op.INSERT, "x")}


def test_swap_of_two_keys_by_raw_updates() -> None:
    """All deletes of a commit ts come before its upserts, so both rows survive."""
    found = reduced(
        update(5, before={"id": "1", "v": "a"}, id="2", v="a"),
        update(5, before={"id": "2", "v": "b"}, id="1", v="b"),
    )

    assert found == {"1": (True, Op.DELETE, "b"), "2": (True, Op.DELETE, "a")}


def test_duplicates_change_nothing() -> None:
    """An event read twice counts once."""
    once = (insert(5, id="1", v="5"), delete(7, id="1", v="5"))

    assert reduced(*once, *once) == reduced(*once) == {"1": (False, Op.INSERT, None)}


@pytest.mark.parametrize(("ts", "present"), [(0, False), (7 << 18, False), ((7 << 18) + 1, True)])
def test_without_commit_ts_the_offset_decides(ts: int, present: bool) -> None:
    """In offset order a delete after an upsert stays a delete, unless an exact commit ts says that it is its half."""
    rows = KeyedGroup(TABLE, by_place=True)
    for offset, change in enumerate((insert(ts, id="1", v="5"), delete(ts, id="1", v="5"))):
        rows.add(change, Position(0, offset, 0))

    assert rows.columns()[0]["\0present"].to_pylist() == [present]


def test_missing_key_column_is_refused() -> None:
    """A row without its key names no row."""
    with pytest.raises(IncompleteRow, match="lacks the key column 'id'"):
        reduced(update(5, v="1"))


def test_a_key_that_is_no_value_is_refused() -> None:
    """JSON holds a list where a damaged message has one."""
    with pytest.raises(DecodeError, match="holds no value of a column"):
        reduced(update(5, id=["1"], v="5"))


def test_delete_without_image_is_refused() -> None:
    """A delete without an old image names no row."""
    with pytest.raises(IncompleteRow, match="does not hold the old row"):
        KeyedGroup(TABLE).add(RowChange(TABLE.name, 1, 5, delete(5).op, None, None), Position(0, 0, 0))


def test_bag_update_is_a_delete_and_an_insert() -> None:
    """Without a key an update names its row by the whole old image."""
    rows = group(BAG)
    assert isinstance(rows, KeylessGroup)
    rows.add(update(5, before={"a": "1"}, a="2"), Position(0, 0, 0))

    meta, values = rows.columns()

    assert (meta["\0present"].to_pylist(), values) == ([False, True], {"a": ["1", "2"]})


@pytest.mark.parametrize(
    ("op", "begins"),
    [
        (Op.DELETE, "A delete of table"),
        (Op.UPDATE, "An update of table"),
        (Op.UPSERT, "An insert or update of table"),
        (Op.INSERT, "An insert of table"),
    ],
)
def test_a_sentence_on_a_change_begins_with_its_article(op: Op, begins: str) -> None:
    """Also where the message does not show whether the row is new."""
    assert undated(TableName("shop", "orders"), op).what.startswith(f"{begins} shop.orders has no commit ts")


def test_one_change_without_a_commit_ts_lets_the_place_decide_among_all_of_its_key() -> None:
    """Two by two, a later change by commit ts would hide that the last one in the topic is an INSERT."""
    rows = KeyedGroup(TABLE, by_place=True)
    for offset, change in enumerate((delete(0, id="1"), delete(7, id="1"), insert(6, id="1", v="6"))):
        rows.add(change, Position(0, offset, 0))

    assert rows.columns()[0]["\0present"].to_pylist() == [True]
