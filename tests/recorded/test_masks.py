"""Masks: each cell of recorded transactions is what plain Python leaves of what SQL showed, and no file holds more."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from applier.changefeed.table import TableName
from tests import expected, recordings
from tests.recorded.test_protocols import replaying
from tests.secret_watch import SecretWatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIANTS = [
    ("simple", "simple-json", "resolved"),
    ("open", "open", "offset"),
    pytest.param("canal-json", "canal-json-ext", "resolved", marks=pytest.mark.soak),
    ("avro", "avro-before-value", "resolved"),
    ("debezium", "debezium", "resolved"),
    pytest.param("simple", "simple-avro", "offset", marks=pytest.mark.soak),
]

KEY = "a key of a test, and long"
MASKS = {
    "ID": "hash",
    "sku": "hash",
    "bal": "hash",
    "img": "hash",
    "owner": "last4",
    "qty": "last4",
    "msg": "redact",
    "attrs": "redact",
    "b": "hash",
    "v": "last4",
}
"""Keys of all tables but one, and parts of keys, are among them."""


def _masked(cell: Any, how: str | None) -> Any:
    if cell is None or how is None:
        return cell
    text = f"{cell:f}" if isinstance(cell, Decimal) else cell if isinstance(cell, bytes) else str(cell)
    if how == "redact":
        return "***"
    if how == "hash":
        content = text if isinstance(text, bytes) else text.encode()
        return hmac.new(KEY.encode(), content, hashlib.sha256).hexdigest()
    assert isinstance(text, str)
    return "*" * len(text[:-4] if len(text) > 4 else text) + (text[-4:] if len(text) > 4 else "")


def _wanted(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    masks = {name.lower(): how for name, how in MASKS.items()}
    return [{name: _masked(cell, masks.get(name)) for name, cell in row.items()} for row in expected.rows(table)]


@pytest.mark.spark
@pytest.mark.parametrize(("protocol", "variant", "order"), VARIANTS)
def test_each_cell_is_masked(
    protocol: str, variant: str, order: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Rows are updated and deleted by masked keys; the applier is started again in the middle."""
    state = recordings.expected("txns")[-1]
    with replaying("txns", protocol, variant, lake, tmp_path, name=f"masks-{variant}-{order}") as found:
        found.raw["tables"] |= {"mask_key": KEY, "*.*": {"columns": {"mask": MASKS}}}
        found.raw["changefeed"].update(order=order, on_table_error="stop")
        for parts in (2, 1):
            with found.running(spark) as pipeline:
                ends = {place: end // parts for place, end in pipeline.ends().items()}
                while (step := pipeline.step(ends)).moved:
                    pass
                assert step.error is None
        compared, names = 0, set[str]()
        for text, table in state["tables"].items():
            name = TableName(*text.split("."))
            if name in found.not_replicated():
                continue
            rows = found.contents(name)
            assert rows is not None
            assert expected.bag(rows) == expected.bag(_wanted(table)), text
            compared += len(rows)
            names |= {str(row["owner"]) for row in expected.rows(table) if row.get("owner")}
        assert compared > 100
        assert len(names) > 10
        _find_none_of(names | {KEY}, Path(lake["warehouse"]), found.prefix)


def _find_none_of(secrets: set[str], warehouse: Path, prefix: str) -> None:
    """No file of the tables, and none of the control tables, holds a hidden value."""
    watch = SecretWatch({text: text for text in secrets if len(text) > 6})
    files = [path for path in warehouse.rglob("*") if path.is_file() and prefix in str(path).replace("-", "_")]
    for path in files:
        watch.look_into(path.read_bytes(), path.name)
    assert len(files) > 20
    assert watch.found == set()
