"""The DDL of all recorded changefeeds: read in every protocol, replayed against the tables that Simple describes."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import pytest

from applier.changefeed.event import Bootstrap, SchemaChange
from applier.changefeed.table import Column, TableVersion
from applier.changefeed.types import arrow_type
from applier.ddl.actions import Action
from applier.ddl.parser import parse
from applier.ddl.schema_tracker import Tables
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from tests import recordings

SCENARIOS = ["ddl", "midstream", "partition", "pk", "txns", "types"]
PROTOCOLS = {"open": "open", "canal-json-ext": "canal-json", "debezium": "debezium"}
STATEMENT = re.compile(r"(CREATE|ALTER|DROP|RENAME|TRUNCATE|RECOVER|FLASHBACK) ")


@lru_cache
def changes(scenario: str, variant: str, protocol: str) -> list[SchemaChange | Bootstrap]:
    """DDL and bootstraps of a recording, each once, in order."""
    decoder = build(protocol, DecoderOptions())
    seen: dict[object, SchemaChange | Bootstrap] = {}
    for record in recordings.records(scenario, variant):
        for event in decoder.decode(record["key"], record["value"]):
            if isinstance(event, SchemaChange):
                seen.setdefault((event.commit_ts, event.sql), event)
            elif isinstance(event, Bootstrap):
                seen.setdefault((event.version.name, event.version.version), event)
    return list(seen.values())


def simple(scenario: str) -> list[SchemaChange | Bootstrap]:
    """The same of the Simple protocol, whose messages describe the table after each DDL."""
    return changes(scenario, "simple-json", "simple")


def replayed(scenario: str) -> Iterator[tuple[SchemaChange, Tables]]:
    """Each DDL with all tables after it; tables that were there before the recording come from bootstraps."""
    tables = Tables()
    for event in simple(scenario):
        if isinstance(event, Bootstrap):
            if event.version.name not in tables:
                tables.put(event.version)
            continue
        for action in parse(event.sql, event.database):
            tables.apply(action, event.commit_ts)
        yield event, tables


def bare(column: Column) -> Column:
    """A column without what Simple does not tell: generated, comment, digits of FLOAT, that a vector has any length."""
    length = column.type.length if column.type.length != -1 else None
    scale = None if column.type.name in ("float", "double") else column.type.scale
    return replace(column, type=replace(column.type, length=length, scale=scale), generated=None, comment="")


def written(scenario: str) -> list[str]:
    """Statements as they were typed upstream."""
    with gzip.open(recordings.GOLDEN / scenario / "script.sql.gz", "rt", encoding="utf-8") as lines:
        return [line for line in lines if STATEMENT.match(line)]


@pytest.mark.parametrize("scenario", [*SCENARIOS, "workload"])
def test_every_statement_that_was_typed_is_understood(scenario: str) -> None:
    """Statements as people type them, comments included, give at least one action."""
    assert all(parse(sql, "test") for sql in written(scenario))


def plain(action: Action) -> str:
    """An action without what the printer changes: letters of options, backticks of expressions."""
    return repr(action).lower().replace("`", "")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_typed_and_printed_statements_say_the_same(scenario: str) -> None:
    """A statement gives the same actions as typed and as TiCDC prints it, but for backticks inside expressions."""
    typed = {action for sql in written(scenario) for action in parse(sql, "test")}
    printed = {
        action
        for event in simple(scenario)
        if isinstance(event, SchemaChange)
        for action in parse(event.sql, event.database)
    }
    assert set(map(plain, printed)) <= set(map(plain, typed))


@pytest.mark.parametrize("variant", PROTOCOLS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_all_protocols_carry_the_same_actions(scenario: str, variant: str) -> None:
    """The SQL of Open, Canal-JSON and Debezium gives the actions that the SQL of Simple gives."""
    both = (simple(scenario), changes(scenario, variant, PROTOCOLS[variant]))
    ours, theirs = (
        {(event.commit_ts, parse(event.sql, event.database)) for event in events if isinstance(event, SchemaChange)}
        for events in both
    )
    assert theirs == ours


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_replay_gives_the_tables_that_simple_describes(scenario: str) -> None:
    """After each DDL the tracked table has the columns, in order and with types, defaults and key, of the message."""
    for event, tables in replayed(scenario):
        if event.after is None or event.sql.startswith("DROP"):
            continue
        known = tables.get(event.after.name)
        assert known is not None, event.sql
        assert [bare(column) for column in known.columns] == [bare(column) for column in event.after.columns], event.sql
        assert known.key == event.after.key, event.sql
        assert arrow_types(known) == arrow_types(event.after), event.sql


def arrow_types(version: TableVersion) -> list[object]:
    """Arrow types of all columns."""
    return [arrow_type(column.type) for column in version.columns]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_replay_gives_the_indexes_that_simple_describes(scenario: str) -> None:
    """Indexes have the names that TiDB gives them; TiCDC lists a not-null unique key once more, as `primary`."""
    for event, tables in replayed(scenario):
        if event.after is None or event.sql.startswith("DROP"):
            continue
        known = tables.get(event.after.name)
        assert known is not None
        ours = {(index.name.lower(), index.columns, index.unique, index.primary) for index in known.indexes}
        theirs = {(index.name.lower(), index.columns, index.unique, index.primary) for index in event.after.indexes}
        assert ours <= theirs, event.sql
        assert all(index[0] == "primary" for index in theirs - ours), event.sql


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_dropped_tables_are_gone(scenario: str) -> None:
    """After DROP TABLE and DROP DATABASE the tracker knows none of their tables."""
    for event, tables in replayed(scenario):
        if event.sql.startswith("DROP TABLE") and event.after is not None:
            assert event.after.name not in tables
        if event.sql.startswith("DROP DATABASE"):
            assert not tables.of_database(event.sql.split("`")[1])


def test_what_is_left_is_what_sql_shows() -> None:
    """At the end of `ddl` exactly the tables of the last watermark are known, each with its columns and key."""
    *_, (_, tables) = replayed("ddl")
    shown = recordings.expected("ddl")[-1]["tables"]
    assert {str(name) for name in tables} == set(shown)
    for name, version in tables.items():
        assert [column.name for column in version.columns] == [column["name"] for column in shown[str(name)]["columns"]]
        assert list(version.key) == shown[str(name)]["primary_key"]


def test_partitions_are_tracked() -> None:
    """At the end of `partition` the tracker knows each table's partitions."""
    *_, (_, tables) = replayed("partition")
    found = {
        name.table: partitioning and (partitioning.method, [partition.name for partition in partitioning.partitions])
        for name, _ in tables.items()
        for partitioning in [tables.partitioning(name)]
    }
    assert found == {
        "p_range": ("range", ["p1", "pr"]),
        "p_hash": ("hash", ["p0", "p1", "p2", "p3"]),
        "p_key": None,
        "p_norm": ("hash", ["p0", "p1"]),
    }
