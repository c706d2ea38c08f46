"""`applier status --cut ENGINE`: queries that each engine takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from applier.changefeed.checkpoint import Cut
from applier.commands.catalog_reader import LakeTable
from applier.commands.status.cut import Engine, queries, remarks
from applier.config.settings import CatalogSection
from applier.sink.format.types import TableSchema
from applier.sink.iceberg.snapshot import Snapshot
from tests.unit.commands.status.reports import fresh, never, stale

_CUT: dict[tuple[str, ...], int] = {("shop", "order"): 7, ("My-shop", 'a"b'): 8}


def _queries(engine: Engine, kind: str = "rest", **keys: Any) -> list[str]:
    section = CatalogSection.model_validate({"name": "lake", "type": kind} | keys)
    return list(queries(engine, section, Cut(_CUT), {}, lambda identifier: f"file:/it's/{identifier[-1]}.json"))


def test_trino_takes_all_levels_of_a_namespace_as_a_schema() -> None:
    """Names are quoted: `order` is a word of SQL."""
    assert _queries("trino") == [
        'SELECT * FROM "lake"."My-shop"."a""b" FOR VERSION AS OF 8;',
        'SELECT * FROM "lake"."shop"."order" FOR VERSION AS OF 7;',
    ]


AT = 1_795_249_999_007


def _table(name: str, *snapshots: Snapshot, log: Sequence[tuple[int, int]], times: Mapping[int, int]) -> LakeTable:
    kept = {it.id: it for it in snapshots}
    return LakeTable(
        ("shop", name), TableSchema(0, (), (), pa.schema([])), 3, {}, True, snapshots=kept, times=times, log=log
    )


def _timed(engine: Engine, kind: str = "rest") -> list[str]:
    """Queries of a table that shows its head, one that is merged since, one of a later row, and one with a branch.

    Of the last two, one got its snapshot later, and one a fence, which is listed in the place of the rows below it.
    """
    rows, merged, later = Snapshot(1, "append", {}), Snapshot(2, "replace", {}, 1), Snapshot(3, "append", {}, 1)
    fence = Snapshot(4, "append", {"applier.epoch": "7", "total-records": "9"}, 1)
    tables = [
        _table("a", rows, later, log=[(AT, 1), (AT + 1, 3)], times={1: AT, 3: AT + 1}),
        _table("b", rows, merged, log=[(AT - 9, 1), (AT, 2)], times={1: AT - 9, 2: AT}),
        _table("c", rows, later, log=[(AT - 9, 1), (AT, 3)], times={1: AT - 9, 3: AT}),
        _table("d", rows, later, log=[(AT - 9, 1)], times={1: AT - 9, 3: AT - 2}),
        _table("e", rows, log=[(AT + 1, 1)], times={1: AT + 1}),
        _table("f", rows, fence, log=[(AT, 1), (AT + 1, 4)], times={1: AT, 4: AT + 1}),
    ]
    section, cut = (
        CatalogSection.model_validate({"name": "lake", "type": kind}),
        Cut({it.identifier: max({1, 4} & it.times.keys()) for it in tables}, AT),
    )
    return list(queries(engine, section, cut, {it.identifier: it for it in tables}, lambda it: f"{it[-1]}.json"))


def test_each_engine_is_asked_for_the_moment_where_it_shows_the_cut() -> None:
    """A compaction since shows the same rows; other rows are left out by reading the snapshot, and a comment says so.

    DuckDB goes by the times of all snapshots, those of a branch included.
    """
    note = " -- by its snapshot: the table shows other rows, or none, at that time"
    at = "2026-11-21 08:33:19.007"
    assert _timed("spark") == [
        f"SELECT * FROM lake.shop.a TIMESTAMP AS OF '{at} UTC';",
        f"SELECT * FROM lake.shop.b TIMESTAMP AS OF '{at} UTC';",
        f"SELECT * FROM lake.shop.c VERSION AS OF 1;{note}",
        f"SELECT * FROM lake.shop.d TIMESTAMP AS OF '{at} UTC';",
        f"SELECT * FROM lake.shop.e VERSION AS OF 1;{note}",
        f"SELECT * FROM lake.shop.f TIMESTAMP AS OF '{at} UTC';",
    ]
    assert _timed("trino")[0] == f'SELECT * FROM "lake"."shop"."a" FOR TIMESTAMP AS OF TIMESTAMP \'{at} UTC\';'
    assert _timed("duckdb")[2:4] == [
        f'SELECT * FROM "lake"."shop"."c" AT (VERSION => 1);{note}',
        f'SELECT * FROM "lake"."shop"."d" AT (VERSION => 1);{note}',
    ]
    assert _timed("duckdb")[1] == f'SELECT * FROM "lake"."shop"."b" AT (TIMESTAMP => TIMESTAMP \'{at}\');'
    assert _timed("duckdb", "jdbc")[2:4] == [
        f"SELECT * FROM iceberg_scan('b.json', snapshot_from_timestamp = TIMESTAMP '{at}'); -- shop.b",
        "SELECT * FROM iceberg_scan('c.json', snapshot_from_id = 1); -- shop.c",
    ]
    for engine in ("pyiceberg", "polars"):
        *_, first, second, third, _, _, _ = _timed(engine)
        assert all(f"table.snapshot_as_of_timestamp({AT}).snapshot_id" in line for line in (first, second))
        assert "snapshot_id=1" in third
        compile("\n".join(_timed(engine)), "cut", "exec")


def test_the_moment_and_empty_tables_are_named() -> None:
    """Time travel to it shows what the queries show, and an engine refuses a table that has no snapshot."""
    empty = replace(fresh().tables[0], table="shop.new", state="empty", cut_snapshot_id=None)
    report = replace(fresh(), cut_at="2026-11-21T08:33:19.007+00:00", tables=(empty,))

    assert list(remarks("trino", report)) == [
        f"-- Every table as of 2026-11-21T08:33:19.007+00:00, which is resolved ts {report.resolved_ts}.",
        "-- shop.new is empty: it has no snapshot yet.",
    ]


def test_duckdb_reads_by_metadata_file_what_it_cannot_attach() -> None:
    """REST and Glue it attaches."""
    attached = [
        'SELECT * FROM "lake"."My-shop"."a""b" AT (VERSION => 8);',
        'SELECT * FROM "lake"."shop"."order" AT (VERSION => 7);',
    ]

    assert _queries("duckdb", "rest") == _queries("duckdb", "glue") == attached
    assert (
        _queries("duckdb", "jdbc")
        == _queries("duckdb", "hive")
        == [
            "LOAD iceberg;",
            "SELECT * FROM iceberg_scan('file:/it''s/a\"b.json', snapshot_from_id = 8); -- My-shop.a\"b",
            "SELECT * FROM iceberg_scan('file:/it''s/order.json', snapshot_from_id = 7); -- shop.order",
        ]
    )


@pytest.mark.parametrize("engine", ["pyiceberg", "polars"])
@pytest.mark.parametrize(
    "keys",
    [
        {"kind": "rest", "uri": "https://me:secret@rest:8181", "credential": "secret", "token": "secret"},
        {"kind": "jdbc", "uri": "jdbc:postgresql://me:secret@db/lake?password=secret", "jdbc.password": "secret"},
        {"kind": "jdbc", "uri": "jdbc:postgresql://db/lake", "jdbc.user": "me", "jdbc.password": "secret"},
        {"kind": "glue", "glue.access-key-id": "secret", "s3.secret-access-key": "secret"},
    ],
)
def test_python_shows_no_login(engine: Engine, keys: dict[str, str]) -> None:
    """Two tables, one dict; the log-in comes from where the engine looks for it."""
    lines = _queries(engine, **keys)

    compile("\n".join(lines), "cut", "exec")
    assert "secret" not in "\n".join(lines)
    assert [line.partition(" = ")[0] for line in lines[-2:]] == ["tables['My-shop.a\"b']", "tables['shop.order']"]


@pytest.mark.parametrize(("engine", "mark"), [("spark", "--"), ("trino", "--"), ("duckdb", "--"), ("polars", "#")])
def test_a_table_that_is_not_in_the_cut_is_named_in_a_comment(engine: Engine, mark: str) -> None:
    """Whoever reads the tables there are learns that others are missing, and why."""
    lines = list(remarks(engine, stale()))

    assert len(lines) == 2
    assert lines[0].startswith(f"{mark} Table shop.orders is parked since resolved ts ")
    assert lines[0].endswith(": out of order.")
    assert lines[1].startswith(f"{mark} Table shop.users is incomplete: ")


def test_a_whole_cut_has_no_comment_and_none_at_all_says_so() -> None:
    """A file without a query is no mistake of the command."""
    assert list(remarks("spark", fresh())) == []
    assert list(remarks("pyiceberg", never())) == ["# There is no cut: there is no table yet."]


@pytest.mark.parametrize("engine", ["pyiceberg", "polars"])
@pytest.mark.parametrize("name", ["tables", "polars", "global"])
def test_python_takes_any_name_of_a_catalog(engine: Engine, name: str) -> None:
    """A name that the lines use themselves, or a word of Python, names the catalog alone."""
    lines = _queries(engine, name=name)

    compile("\n".join(lines), "cut", "exec")
    assert [line for line in lines if line.startswith(f"{name} =")] == (["tables = {}"] if name == "tables" else [])
    assert any(f"load_catalog({name!r}" in line for line in lines)
