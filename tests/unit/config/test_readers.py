"""The key `tables.readers`: which format follows, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from applier.config import settings
from applier.config.readers import FORMATS, Reader, refuse_unreadable, unreadable
from applier.config.tables import TablesSection
from applier.errors import ConfigError
from tests import readers

_BASE = {
    "changefeed": {"name": "shop", "protocol": "simple"},
    "source": {"archive": "topic"},
    "catalog": {"name": "lake", "type": "hadoop", "warehouse": "lake"},
}


def _tables(**keys: Any) -> TablesSection:
    return settings.parse({**_BASE, "tables": keys}).tables


@pytest.mark.parametrize(
    ("keys", "number"),
    [
        ({}, 3),
        ({"readers": []}, 3),
        ({"readers": ["spark", "duckdb", "polars"]}, 3),
        ({"readers": ["duckdb", "daft"]}, 2),
        ({"readers": ["daft"], "format_version": 3}, 3),
        ({"readers": ["spark"], "format_version": 2}, 2),
    ],
)
def test_the_format_follows_from_the_readers(keys: dict[str, Any], number: int) -> None:
    """The newest one that all of them read, unless the configuration names one."""
    assert _tables(**keys).format_version == number


@pytest.mark.parametrize(
    ("readers", "what"),
    [
        (["duckbd"], "tables.readers: must be .*, did you mean duckdb?"),
        ("duckdb", r"tables.readers: must be a list: \[ … \]"),
        ([3], "tables.readers: must be 'spark'"),
        ([["daft"]], "tables.readers: must be 'spark'"),
    ],
)
def test_a_reader_that_nobody_knows_is_one_problem(readers: object, what: str) -> None:
    """It is said of the key alone."""
    with pytest.raises(ConfigError, match=what) as error:
        _tables(readers=readers)

    assert len(error.value.problems) == 1


@pytest.mark.parametrize(("reader", "formats"), FORMATS.items())
def test_every_reader_gets_a_format_that_it_reads(reader: Reader, formats: tuple[int, ...]) -> None:
    """Where it reads any: all that follow from the readers alone are accepted."""
    section = _tables(readers=[reader])

    assert (unreadable(section.readers, section.format_version) is None) == bool(formats)
    assert (unreadable(section.readers, 3) is None) == (3 in formats)


def test_a_format_that_a_reader_cannot_read_is_refused() -> None:
    """The sentence names the reader and what to change."""
    with pytest.raises(ConfigError) as error:
        refuse_unreadable(["duckdb", "daft", "clickhouse"], 3)

    assert str(error.value) == (
        "tables.readers: daft and clickhouse cannot read Iceberg format 3. Hint: take daft and clickhouse out of "
        "tables.readers (docs/reading.md names the engines that read it), or leave tables.format_version out, so that "
        "its format follows from the readers."
    )


def test_a_table_that_has_another_format_already_is_refused() -> None:
    """A table keeps its format, so the key cannot mend it."""
    found = unreadable(["daft"], 3, "shop.orders")

    assert found == (
        "tables.readers: daft cannot read table shop.orders, which has Iceberg format 3. Hint: take daft out of "
        "tables.readers (docs/reading.md names the engines that read it), or drop the table in your engine, start "
        "`applier run` and bring it back as `applier status` says, so that its format follows from the readers."
    )


def test_a_reader_of_neither_format_has_one_way_out() -> None:
    """No format helps it."""
    for number in (2, 3):
        found = unreadable(["polars-native"], number)

        assert found is not None
        assert found.endswith(
            "Hint: take polars-native out of tables.readers (docs/reading.md names the engines that read it)."
        )


def test_the_formats_are_those_that_a_test_found() -> None:
    """What decides is what docs/reading.md shows: of each engine that is tried, the formats of which it read all."""
    found = {name: readers.readable(result) for name, result in readers.recorded().items()}

    assert {name: FORMATS[name] for name in FORMATS if name in found} == found
    assert set(readers.BLOCKS) == set(found)
