"""Stored generated columns that an export lacks: computed where they are certain, refused by name where not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from applier.changefeed.table import TableVersion
from applier.changefeed.types import TypeRules
from applier.ddl.schema_files import read_schemas
from applier.pipeline.load.generated import Generated, expressions
from applier.sink.tidb_partitions.expression import Inexact

HEAD = """CREATE TABLE `t` (
  `id` int NOT NULL,
  `a` bigint DEFAULT NULL,
  `b``b` varchar(9) COLLATE utf8mb4_bin DEFAULT NULL COMMENT ') STORED',
  `c` char(9) DEFAULT NULL,
  `d` date DEFAULT NULL,
"""


def _generated(column: str) -> Generated:
    text = f"{HEAD}  {column},\n  PRIMARY KEY (`id`)\n)"
    ((_, version),) = read_schemas({"d.t-schema.sql": text}).items()
    assert isinstance(version, TableVersion)
    return Generated(version, TypeRules(), text)


ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int32()),
        "a": pa.array([7, None], pa.int64()),
        "b`b": pa.array(["x,y", "z"]),
        "c": pa.array(["q", "q"]),
        "d": pa.array([0, 1], pa.date32()),
    }
)


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ("`g` varchar(40) GENERATED ALWAYS AS (concat(_utf8mb4'v', `a`)) STORED", ["v7", None]),
        (
            "`g` varchar(40) GENERATED ALWAYS AS (concat(`b``b`, _utf8mb4') STORED', `id`)) STORED",
            ["x,y) STORED1", "z) STORED2"],
        ),
        ("`g` int GENERATED ALWAYS AS (`id`) STORED NOT NULL", [1, 2]),
        ("`g` varchar(9) GENERATED ALWAYS AS (`b``b`) STORED COMMENT 'a copy'", ["x,y", "z"]),
    ],
)
def test_what_is_certain_is_computed(column: str, wanted: list[object]) -> None:
    """As TiDB does."""
    assert _generated(column).added(ROWS)["g"].to_pylist() == wanted


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("`g` varchar(40) GENERATED ALWAYS AS (lower(`b``b`)) STORED", "function LOWER are not known"),
        ("`g` varchar(40) GENERATED ALWAYS AS (concat(`c`, `id`)) STORED", "made of column c"),
        ("`g` varchar(40) GENERATED ALWAYS AS (concat(`d`)) STORED", "made of column d"),
        ("`g` int GENERATED ALWAYS AS (year(`d`)) STORED", "made of column d"),
        ("`g` double GENERATED ALWAYS AS (`a` / 2) STORED", "has a form that is not known"),
        ("`g` double GENERATED ALWAYS AS (`a`) STORED", "made of column g"),
        ("`g` int GENERATED ALWAYS AS (`id` * 2) STORED", "has a form that is not known"),
        (r"`g` varchar(40) GENERATED ALWAYS AS (concat(_utf8mb4'\n', `a`)) STORED", "form that is not known"),
        ("`g` varchar(40) GENERATED ALWAYS AS (concat(_latin1'v', `a`)) STORED", "form that is not known"),
        (
            "`g` varchar(40) GENERATED ALWAYS AS (json_extract(`b``b`, _utf8mb4'$.a')) STORED",
            "JSON_EXTRACT are not known",
        ),
    ],
)
def test_what_is_not_certain_is_refused(column: str, reason: str) -> None:
    """A wrong cell would pass for a right one."""
    with pytest.raises(Inexact, match=reason):
        _generated(column).added(ROWS)


def test_columns_that_a_file_has_stay() -> None:
    """Whatever their expression is."""
    generated = _generated("`g` varchar(40) GENERATED ALWAYS AS (lower(`b``b`)) STORED")
    rows = ROWS.append_column("g", pa.array(["p", "q"]))
    assert generated.added(rows)["g"].to_pylist() == ["p", "q"]


def test_virtual_columns_are_no_matter() -> None:
    """No feed has their values."""
    assert expressions(f"{HEAD}  `g` int GENERATED ALWAYS AS (`a`) VIRTUAL") == {}
