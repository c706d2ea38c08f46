"""`applier check` warns of patterns and columns that fit nothing it has seen."""

from __future__ import annotations

from typing import Any

import pytest

from applier.changefeed.table import TableName
from applier.commands.check import systems
from applier.commands.check.command import check
from applier.commands.check.systems import ask
from applier.commands.check.unmatched import unmatched
from applier.config.tables import TablesSection
from applier.errors import ConfigError
from tests.unit.commands.check.test_systems import followed, records
from tests.unit.commands.check.world import World

ORDERS, ITEMS = TableName("shop", "orders"), TableName("shop", "items")
SEEN = {ORDERS: ("id", "Created"), ITEMS: ()}
ROW = (
    b'{"id":0,"database":"shop","table":"orders","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1,"ts":1,"sql":"",'
    b'"sqlType":{"id":-5,"created":93},"mysqlType":{"id":"bigint","created":"datetime"},'
    b'"data":[{"id":"1","created":"2024-01-01 00:00:00"}],"old":null,"_tidb":{"commitTs":300}}'
)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"include": ["*.*"], "shop.orders": {"partition_by": ["day(created)"]}}, []),
        ({"include": ["shop.*", "!shop.tmp_*"]}, []),
        ({"shop.*": {"columns": {"exclude": ["CREATED"]}}}, []),
        ({"shop.items": {"columns": {"exclude": ["secret"]}}}, []),
        ({"shop.*": {"columns": {"rename": {"CREATED": "made"}}}}, []),
        (
            {"shop.*": {"columns": {"rename": {"create": "made"}}}},
            ['[tables."shop.*".columns] renames column create, which no table seen has: did you mean Created?'],
        ),
        (
            {"shop.*": {"columns": {"exclude": ["create", "xyz"]}}},
            [
                '[tables."shop.*".columns] excludes column create, which no table seen has: did you mean Created?',
                (
                    '[tables."shop.*".columns] excludes column xyz, which no table seen has: correct it, unless the '
                    "column is to come."
                ),
            ],
        ),
        (
            {"include": ["shpo.*"]},
            [
                (
                    'tables.include "shpo.*" fits no table seen so far. Nearest are shop.*: correct it, unless its '
                    "tables are to come."
                )
            ],
        ),
        (
            {"include": ["qqq.*"]},
            [
                (
                    'tables.include "qqq.*" fits no table seen so far. Nearest are shop.*: correct it, unless its '
                    "tables are to come."
                )
            ],
        ),
        (
            {"shop.ordres": {"sort_by": ["id"]}},
            [
                (
                    '[tables."shop.ordres"] fits no table seen so far. Nearest are shop.orders, shop.items: correct '
                    "it, unless its tables are to come."
                )
            ],
        ),
        (
            {"shop.*": {"partition_by": ["day(creatd)"], "sort_by": ["creatd desc", "xyz"]}},
            [
                "The layout of shop.orders names column creatd, which the table lacks: did you mean Created?",
                ("The layout of shop.orders names column xyz, which the table lacks: its columns are id, Created."),
            ],
        ),
    ],
)
def test_what_fits_nothing_is_named_with_what_is_near(tables: dict[str, Any], said: list[str]) -> None:
    """A table of which no row was seen has no columns that a layout could miss."""
    assert list(unmatched(TablesSection.model_validate(tables), SEEN)) == said


def test_nothing_is_said_where_no_table_was_seen() -> None:
    """The topics may be empty."""
    assert list(unmatched(TablesSection(include=("shpo.*",)), {})) == []


def test_messages_show_tables_and_columns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first run nothing else does; the verdict stays, as a table may be to come."""
    followed(world, monkeypatch, records(ROW))
    world.raw["changefeed"]["protocol"] = "canal-json"
    world.raw["tables"] = {"include": ["shpo.*"], "shop.*": {"partition_by": ["day(creatd)"]}}

    report = check(world.config, systems=ask(world.config))

    assert [text for text in report.warnings if "creatd" in text or "shpo" in text] == [
        (
            'tables.include "shpo.*" fits no table seen so far. Nearest are shop.*: correct it, unless its tables are '
            "to come."
        ),
        "The layout of shop.orders names column creatd, which the table lacks: did you mean created?",
    ]
    assert report.verdict == "fits"


def test_a_library_that_is_missing_leaves_open_all_that_is_read_by_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` does without it, so that neither the offsets nor the catalog are wrong."""

    def missing(*_: object) -> Any:
        raise ConfigError(["Cannot open catalog lake without Spark: psycopg2 is not installed."])

    followed(world, monkeypatch, records(ROW))
    world.raw["changefeed"]["protocol"] = "canal-json"
    monkeypatch.setattr(systems, "open_lake", missing)
    monkeypatch.setattr(systems, "newest_checkpoint", missing)

    found = ask(world.config)

    told = {item.checked: item for item in found.answers}
    assert (told["offsets"].verdict, told["offsets"].result) == (told["catalog"].verdict, told["catalog"].result)
    assert told["catalog"].verdict == "cannot tell"
    assert check(world.config, systems=found).exit_code == 2
