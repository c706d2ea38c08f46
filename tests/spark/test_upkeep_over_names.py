"""The whole pipeline over tables that trade names, with maintenance of every table days later after each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.lab import Lab
from tests.ticdc import Changefeed, Habits
from tests.upkeep import contents, days_later
from tests.upstream import Column, Database, Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

A, B, GHOST, OLD = (Name("shop", table) for table in ("a", "b", "_a_gho", "_a_del"))

COLUMNS = (Column("id"), Column("v", "varchar(20)"))

HOSTILE = [
    Name("shop", "t"),
    Name("sho'p", 'o"rders'),
    Name("a.b", "c.d"),
    Name("..", ".."),
    Name("sl/ash", "../../../../tmp/esc"),
    Name("shop", "x/y"),
    Name("shop", "x_2Fy"),
    Name("shop", "x%2Fy"),
    Name("shop", "new\nline"),
    Name("shop", "\x1b[31mred"),
    Name("shop", "日本語テーブル"),
    Name("shop", "colon:t"),
    Name("shop", "q?x#y"),
    Name("shop", " lead"),
    Name("shop", "${HOME}"),
    Name("shop", "{table}"),
    Name("shop", "semi;DROP TABLE x--"),
    Name("shop", "表" * 64),
    Name("😀" * 64, "t"),
    Name("shop", "表" * 63 + "名"),
]


def _rows(database: Database, name: Name, *keys: int, tag: str) -> None:
    for key in keys:
        database.insert(name, {"id": key, "v": f"{tag}{key}"})


def _created(database: Database, name: Name, tag: str) -> None:
    database.create(name, COLUMNS, ["id"])
    _rows(database, name, 1, 2, 3, tag=tag)


def _renamed_and_created(database: Database) -> None:
    """RENAME a TO b, CREATE a, and both go on."""
    _created(database, A, "first ")
    database.rename((A, B))
    _created(database, A, "second ")
    _rows(database, B, 8, 9, tag="old ")
    _rows(database, A, 8, 9, tag="new ")


def _dropped_and_created(database: Database) -> None:
    """DROP a, CREATE a, twice."""
    _created(database, B, "other ")
    for tag in ("first ", "second ", "third "):
        _created(database, A, tag)
        if tag != "third ":
            database.drop(A)


def _online_schema_change(database: Database) -> None:
    """What gh-ost and pt-osc do: a ghost table takes the name, the former one gets another and is dropped later."""
    _created(database, A, "plain ")
    _created(database, GHOST, "ghost ")
    database.rename((A, OLD), (GHOST, A))
    _rows(database, A, 7, tag="after ")
    database.drop(OLD)
    _created(database, GHOST, "again ")
    _rows(database, A, 8, tag="after ")


def _alike(database: Database) -> None:
    """Two names that are one folder once their characters are escaped."""
    for name in (Name("shop", "x/y"), Name("shop", "x_2Fy")):
        _created(database, name, name.table)


HISTORIES: list[Any] = [
    _renamed_and_created,
    pytest.param(_dropped_and_created, marks=pytest.mark.soak),
    pytest.param(_online_schema_change, marks=pytest.mark.soak),
    pytest.param(_alike, marks=pytest.mark.soak),
]


def _lab(spark: SparkSession, name: str, database: Database, messages: int) -> Lab:
    feed = Changefeed(database, Habits(partitions=2, resolve=0.5), seed=1)
    feed.send()
    return Lab(spark, name, database, feed.records, messages)


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__.strip("_"))
def test_maintenance_days_later_loses_nothing_of_tables_that_trade_names(
    history: Callable[[Database], None], spark: SparkSession
) -> None:
    """After every step all files are days old and every table is maintained: no table loses a row, orphans go."""
    database = Database()
    history(database)
    lab = _lab(spark, f"upkeep{history.__name__}", database, messages=12)
    pipeline = lab.start()
    complete, tended = False, 0
    while not complete:
        step = pipeline.step()
        complete = step.complete and not step.moved
        if not step.moved:
            continue
        lab.check(pipeline)
        before = contents(pipeline)
        orphans, gone = days_later(pipeline, days=30)
        assert gone == orphans
        assert contents(pipeline) == before
        lab.check(pipeline)
        tended += orphans

    assert pipeline.state.resolved_ts == database.ts
    assert tended > 3
    lab.start()
    assert contents(pipeline) == before


@pytest.mark.soak
def test_tables_of_any_name_arrive_and_are_maintained(spark: SparkSession) -> None:
    """Names with slashes, dots, quotes, line breaks or too many bytes for a folder are tables like all others."""
    database = Database()
    for name in HOSTILE:
        _created(database, name, name.table[:9])
    lab = _lab(spark, "upkeep_hostile", database, messages=1000)
    pipeline = lab.start()
    while pipeline.step().moved:
        lab.check(pipeline)
    assert pipeline.state.resolved_ts == database.ts

    before = contents(pipeline)
    orphans, gone = days_later(pipeline, days=30)

    assert (orphans, gone) == (len(HOSTILE), len(HOSTILE))
    assert len(before) == len(HOSTILE)
    assert contents(pipeline) == before
    lab.check(pipeline)
