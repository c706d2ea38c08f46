"""examples/shapes: each folder gives the quickstart's tables what its first lines say."""

from __future__ import annotations

import hashlib
import hmac
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from applier.config import settings
from applier.pipeline.build import assembled
from tests import expected, recordings
from tests.spark.feeds import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SHAPES = Path(__file__).parents[2] / "examples" / "shapes"
KEY = "a key for this test"
Row = dict[str, Any]


def _accounts(row: Row) -> Row:
    owner = hmac.new(KEY.encode(), row["owner"].encode(), hashlib.sha256).hexdigest() if row["owner"] else row["owner"]
    return {**row, "owner": owner, "bal": None if row["bal"] is None else str(row["bal"])}


def _items(row: Row) -> Row:
    named = {"stock": "in_stock"}
    return {named.get(name, name): str(cell) if name in named else cell for name, cell in row.items() if name != "img"}


def _as_it_is(row: Row) -> Row:
    return row


CELLS: Mapping[str, Mapping[str, Callable[[Row], Row]]] = {
    "columns": {"bank.accounts": _accounts, "bank.items": _items}
}
"""What becomes of the rows of a table, by the shape."""


@pytest.mark.parametrize("shape", sorted(path.name for path in SHAPES.iterdir()))
def test_an_example_gives_the_tables_its_shape(
    shape: str, spark: SparkSession, lake: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with what SQL showed."""
    monkeypatch.setenv("MASK_KEY", KEY)
    raw = tomllib.loads((SHAPES / shape / "applier.toml").read_text(encoding="utf-8").replace("${MASK_KEY}", KEY))
    del raw["spark"]
    raw["source"]["archive"] = str(SHAPES.parent / "quickstart" / "topic")
    prefix = f"example_{shape.replace('-', '_')}"
    raw["changefeed"]["name"], raw["catalog"] = prefix, {"name": "lake", **lake}
    tables = raw.setdefault("tables", {}) | {"route": f"{prefix}__{{database}}.{{table}}"}
    for section in tables.values():
        if isinstance(section, dict) and "route" in section:
            section["route"] = f"{prefix}__{section['route']}"
    raw["tables"] = tables
    with assembled(settings.parse(raw), take_over=True) as pipeline:
        while pipeline.step(pipeline.ends()).moved:
            pass
        places = {name: pipeline.targets.identifier(name) for name in pipeline.state.tables}
    assert len(places) == 5
    for name, place in places.items():
        every = expected.rows(recordings.expected("txns")[-1]["tables"][str(name)])
        wanted = [CELLS.get(shape, {}).get(str(name), _as_it_is)(row) for row in every]
        rows = read(spark, place).to_pylist()
        if shape == "filter" and str(name) == "bank.orders":
            wanted = [row for row in wanted if row["qty"] >= 50 and row["sku"] != "s28"]
            assert len(wanted) < len(every)
        if shape == "soft-deletes":
            assert str(name) != "bank.orders" or any(row["_deleted_at"] for row in rows)
            rows = [row for row in rows if row.pop("_deleted_at") is None]
        if shape == "metadata" and name.database == "bank":
            assert {row["_source_table"] for row in rows} == {str(name)}
            rows = [{column: value for column, value in row.items() if column in every[0]} for row in rows]
        assert expected.bag(rows) == expected.bag(wanted), name
    if shape == "metadata":
        assert f"{prefix}__bank.audit_log" in map(".".join, places.values())
