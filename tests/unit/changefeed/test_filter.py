"""TiCDC's filter rules."""

from __future__ import annotations

import shlex

import pytest

from applier.changefeed.filter import TableFilter, exactly, option, rules_of
from applier.changefeed.table import TableName


@pytest.mark.parametrize(
    ("rules", "name", "admitted"),
    [
        (["shop.*"], "shop.orders", True),
        (["shop.*"], "SHOP.Orders", True),
        (["shop.*"], "other.orders", False),
        (["*.*", "!shop.tmp_?"], "shop.tmp_1", False),
        (["*.*", "!shop.tmp_?"], "shop.tmp_12", True),
        (["!shop.a", "shop.*"], "shop.a", True),
        (["s[a-h]op.*"], "shop.x", True),
        (["s[!a-h]op.*"], "shop.x", False),
        (["/^s.*p$/./[0-9]+/"], "shop.t12", True),
        (["/^s.*p$/./[0-9]+/"], "shop.t", False),
        (["`a`.`b*`"], "a.b*", True),
        (["`a`.`b*`"], "a.bc", False),
    ],
)
def test_last_rule_that_fits_decides(rules: list[str], name: str, admitted: bool) -> None:
    """Wildcards, regular expressions, quoted names and exclusions."""
    database, _, table = name.partition(".")

    assert TableFilter(rules).admits(TableName(database, table)) is admitted


def test_quoted_names_may_hold_dots() -> None:
    """A dot inside backticks is part of the name."""
    assert TableFilter(["`a.b`.*"]).admits(TableName("a.b", "c"))


@pytest.mark.parametrize("rule", ["shop", "shop.", ".t", "`a.b", "/x.y", "a.b.c"])
def test_malformed_rules_are_refused(rule: str) -> None:
    """A rule that means nothing would silently leave tables out."""
    with pytest.raises(ValueError, match="not of the form database.table"):
        TableFilter([rule])


def test_the_option_of_tables_means_exactly_these() -> None:
    """A shell passes it on as one word, and as filter rules it admits the tables and no other."""
    names = [TableName("shop", "orders"), TableName("a.b", "it's"), TableName("x y", "`q`"), TableName("a, b", ",c")]
    for chosen in (names[:1], names, names[3:]):
        (word,) = shlex.split(option(chosen))
        admits = TableFilter(rules_of(word)).admits
        assert [name for name in [*names, TableName("shop", "other")] if admits(name)] == chosen


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", ()),
        (" , ,", ()),
        ("shop.a, shop.b*,!shop.c", ("shop.a", "shop.b*", "!shop.c")),
        ('/^a{1,2}$/./,/,`x,y`.*, !"p,q".`,`', ("/^a{1,2}$/./,/", "`x,y`.*", '!"p,q".`,`')),
        ("shop.a/b,shop.c/d", ("shop.a/b", "shop.c/d")),
        ("shop.it`s,shop.b", ("shop.it`s", "shop.b")),
        ("`shop.a,shop.b", ("`shop.a", "shop.b")),
    ],
)
def test_commas_part_the_rules_of_an_option(text: str, rules: tuple[str, ...]) -> None:
    """Save those within the quotes of a name or a pattern; what has no second quote is refused as a rule."""
    assert rules_of(text) == rules


def test_what_the_option_says_comes_back() -> None:
    """The way out that is printed means the same tables when it is given."""
    name = TableName("a, `b`", "x,y")

    assert rules_of(shlex.split(option([name]))[0]) == exactly([name])
