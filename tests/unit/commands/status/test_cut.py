"""`applier status --cut ENGINE`: queries that each engine takes."""

from __future__ import annotations

from typing import Any

import pytest

from applier.changefeed.checkpoint import Cut
from applier.commands.status.cut import Engine, queries, remarks
from applier.config.settings import CatalogSection
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
    assert lines[0].startswith(f"{mark} shop.orders is parked: Table shop.orders is parked since resolved ts ")
    assert lines[0].endswith(": out of order.")
    assert lines[1].startswith(f"{mark} shop.users is incomplete: ")


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
