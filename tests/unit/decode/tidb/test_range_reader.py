"""Rows of a cursor in, blocks of a bounded size out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from types import SimpleNamespace
from typing import Any, cast

import pytest

from applier.changefeed.filter import TablePattern
from applier.changefeed.shape import Shape
from applier.changefeed.types import TypeRules
from applier.config.login import Login
from applier.ddl.schema_files import read_schemas
from applier.decode.tidb import range_reader
from applier.decode.tidb.range_reader import BLOCK_BYTES, RangeReader
from applier.decode.tidb.table_ranges import TableRange, order_of

TEXT = "CREATE TABLE `t` (\n  `id` int NOT NULL,\n  `a` longblob,\n  PRIMARY KEY (`id`)\n)"


def _sizes(rows: list[tuple[bytes, bytes | None]], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each block."""
    left = iter(rows)

    @contextmanager
    def asked(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(streamed=lambda _: streamed())

    @contextmanager
    def streamed() -> Iterator[Any]:
        yield SimpleNamespace(fetchmany=lambda number: list(islice(left, number)))

    monkeypatch.setattr(range_reader, "session", asked)
    ((_, version),) = read_schemas({"shop.t-schema.sql": TEXT}).items()
    reader = RangeReader(cast("Login", None), 1, version, TypeRules(), order_of(version, TEXT))
    return [table.num_rows for table in reader.texts(TableRange(1, "TRUE", 0))]


def test_large_rows_behind_small_ones_are_few_in_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of them at once would not fit the memory of a task."""
    large = b"x" * (BLOCK_BYTES // 2)

    sizes = _sizes([(b"1", None)] * 1600 + [(b"2", large)] * 40, monkeypatch)

    assert sizes == [1616, 16, 8]


def test_rows_of_null_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take memory though they have no text."""
    sizes = _sizes([(b"1", None)] * 400_000, monkeypatch)

    assert sum(sizes) == 400_000
    assert len(sizes) > 1


def test_a_range_without_rows_has_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written for it."""
    assert _sizes([], monkeypatch) == []


def test_an_excluded_column_is_not_even_asked_for() -> None:
    """TiDB sends no value of it."""
    ((_, version),) = read_schemas({"shop.t-schema.sql": TEXT}).items()
    rules = TypeRules(shapes=[(TablePattern("shop.*"), Shape("shop.*", frozenset({"a"})))])
    reader = RangeReader(cast("Login", None), 1, version, rules, order_of(version, TEXT))
    assert reader.query(TableRange(1, "TRUE", 0)).startswith("SELECT `id` FROM `shop`.`t` WHERE TRUE")
