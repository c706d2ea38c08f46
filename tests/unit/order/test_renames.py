"""Renames of one statement come in any order; their names say which comes first."""

from __future__ import annotations

from itertools import permutations

import pytest

from applier.changefeed.table import TableName
from applier.order.renames import followed, sequence

Renames = list[tuple[TableName, TableName]]


def _key(name: str) -> TableName:
    return TableName("shop", name)


def _renames(text: str) -> Renames:
    pairs = [pair.split(">") for pair in text.split()]
    return [(_key(old), _key(new)) for old, new in pairs]


def _after(renames: Renames, order: list[int], there: str) -> dict[str, str]:
    """Where the rows of each table are afterwards, as MySQL would rename them."""
    rows = {_key(name): name for name in there}
    for place in order:
        old, new = renames[place]
        assert new not in rows
        rows[new] = rows.pop(old)
    return {name: key.table for key, name in rows.items()}


@pytest.mark.parametrize(
    ("text", "there"),
    [
        pytest.param("a>t b>a t>b", "ab", id="swap"),
        pytest.param("o>d g>o", "og", id="cut-over"),
        pytest.param("c>d b>c a>b", "abc", id="shift"),
        pytest.param("a>t b>a c>b t>c", "abc", id="turn of three"),
        pytest.param("a>t b>a t>b x>u y>x u>y", "abxy", id="two swaps"),
        pytest.param("a>b c>d", "ac", id="apart"),
    ],
)
def test_renames_in_any_order_are_put_in_that_of_the_statement(text: str, there: str) -> None:
    """Whatever order the topics bring them in, the tables end as the statement leaves them."""
    renames = _renames(text)
    wanted = _after(renames, list(range(len(renames))), there)

    for shuffled in permutations(renames):
        order = sequence(shuffled, {_key(name) for name in there})
        assert order is not None
        assert _after(list(shuffled), order, there) == wanted


@pytest.mark.parametrize(
    ("text", "there"),
    [
        pytest.param("a>b b>c", "a", id="a chain whose middle may be a table"),
        pytest.param("a>t b>a t>b", "a", id="a swap of which one table is known"),
        pytest.param("a>b c>a a>d", "ac", id="a name that is left twice"),
        pytest.param("a>b b>a", "ab", id="a swap without a free name"),
    ],
)
def test_order_that_names_do_not_determine_is_not_guessed(text: str, there: str) -> None:
    """Another order would leave the rows of one table under the name of another."""
    assert sequence(_renames(text), {_key(name) for name in there}) is None


def test_renames_of_tables_that_are_not_here_keep_their_order() -> None:
    """Nothing depends on the order where no table of the renames is known."""
    assert sequence(_renames("b>c a>b"), set()) == [0, 1]


@pytest.mark.parametrize(
    ("text", "there"),
    [
        pytest.param("a>t b>a t>b", "ab", id="swap"),
        pytest.param("a>t t>c b>a c>b", "ab", id="a swap by way of two names"),
        pytest.param("a>t t>c b>a c>b", "a", id="a swap of which one table is known"),
        pytest.param("a>t t>c", "a", id="a chain"),
        pytest.param("a>t t>c c>d b>a x>b", "abx", id="a shift with a chain"),
        pytest.param("a>t b>u t>v u>a v>b", "ab", id="two tables by way of their own names"),
    ],
)
def test_messages_that_name_the_last_name_of_a_table_tell_tables_apart(text: str, there: str) -> None:
    """Whatever order they come in, and where the known tables alone leave it open."""
    renames = _renames(text)
    lasts: dict[tuple[TableName, TableName], TableName] = {}
    for place, pair in enumerate(renames):
        last = pair[1]
        for old, new in renames[place + 1 :]:
            last = new if old == last else last
        lasts[pair] = last
    starts = "".join(name for name in "abx" if f"{name}>" in text)
    wanted = _after(renames, list(range(len(renames))), starts)

    for shuffled in permutations(renames):
        order = followed(shuffled, [lasts[pair] for pair in shuffled], {_key(name) for name in there})
        assert order is not None
        assert _after(list(shuffled), order, starts) == wanted


@pytest.mark.parametrize(
    ("text", "lasts", "there"),
    [
        pytest.param("a>b b>c", "bc", "a", id="each names its own new name"),
        pytest.param("a>b b>c", "cc", "ab", id="the name in between is a table"),
        pytest.param("a>t b>a", "ba", "ab", id="a part is missing"),
        pytest.param("a>b b>c", "ab", "a", id="each names its old name"),
    ],
)
def test_messages_that_prove_no_order_are_not_counted_on(text: str, lasts: str, there: str) -> None:
    """They may name something else than the last name, and a wrong order gives a table the rows of another."""
    assert followed(_renames(text), [_key(last) for last in lasts], {_key(name) for name in there}) is None
