"""A statement that renames several tables is sent in parts, each of which may follow the watermark of its commit ts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.changefeed.window import Window
from applier.ddl.actions import RenameTable
from applier.ddl.schema_tracker import Tables
from applier.decode.options import DecoderOptions
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.scan.window_scan import WindowScan
from applier.runtime.logs import Stopwatch
from applier.runtime.places import Where
from tests.known import known_at
from tests.lab import Memory
from tests.ticdc import Changefeed, Habits, Record
from tests.upstream import Column, Database, Name

A, B, BETWEEN = (Name("shop", table) for table in ("a", "b", "between"))


def _swap() -> tuple[list[Record], list[Record], int]:
    """The records that make two tables, those of the parts of a swap, and its commit ts."""
    database = Database()
    for name in (A, B):
        database.create(name, [Column("id")], ["id"])
    ts = database.rename((A, BETWEEN), (B, A), (BETWEEN, B))
    records = [*Changefeed(database, Habits(partitions=1, resolve=0.0)).send()]
    ddl = [record for record in records if json.loads(record["value"])["type"] != "WATERMARK"]
    return ddl[:2], ddl[2:], ts


def _survey(
    records: Sequence[Record],
    applied: int = 0,
    versions: Mapping[tuple[TableName, int], TableVersion] | None = None,
    tables: Tables | None = None,
) -> WindowScan:
    source = Memory([record | {"offset": number} for number, record in enumerate(records)])
    template = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (), upto=0)
    scanner = WindowScanner(source, template, rows_describe=False, keep_bad=False)
    ends = {place: span.end for place, span in source.bounds().items()}
    known = known_at(applied, tables, versions=versions or {})
    return scanner.scan(Window(source.bounds()), known, ends, Stopwatch(), where=Where.HERE)


def _resolved(like: Record, ts: int) -> Record:
    return like | {"value": json.dumps({"version": 1, "type": "WATERMARK", "commitTs": ts, "buildTs": 0}).encode()}


@pytest.mark.parametrize("there", [[1], [2], [0, 2], [1, 2], [2, 1]])
def test_parts_that_lack_another_one_wait_for_the_watermark_behind_them(there: list[int]) -> None:
    """A rename into a taken name, or of a table that is not there yet, is neither refused nor passed over."""
    creates, parts, ts = _swap()
    before = [*creates, _resolved(creates[0], ts), *(parts[place] for place in there)]

    found = _survey(before)
    assert found.upto == ts - 1
    assert [ddl.commit_ts for ddl in found.ddl if ddl.commit_ts == ts] == []

    rest = [part for place, part in enumerate(parts) if place not in there]
    found = _survey([*before, *rest, _resolved(creates[0], ts + 1)])
    assert found.upto == ts + 1
    whole = _survey([*creates, *parts, _resolved(creates[0], ts + 1)])
    assert [ddl.actions for ddl in found.ddl] == [ddl.actions for ddl in whole.ddl]


@pytest.mark.parametrize("there", [[0], [0, 1], [0, 1, 2]])
def test_parts_that_need_no_other_one_do_not_wait(there: list[int]) -> None:
    """What has come in the order of the statement is applied at the watermark of its commit ts."""
    creates, parts, ts = _swap()

    found = _survey([*creates, _resolved(creates[0], ts), *(parts[place] for place in there)])

    assert found.upto == ts
    assert len(found.ddl) == 2 + len(there)


def test_each_part_knows_the_name_that_its_table_has_in_the_end() -> None:
    """So a name in between that `tables.include` leaves out takes no table out of the changefeed."""
    creates, parts, ts = _swap()

    found = _survey([*creates, *parts, _resolved(creates[0], ts)])

    renames = [action for ddl in found.ddl for action in ddl.actions if isinstance(action, RenameTable)]
    assert [tuple(each.last) for each in renames] == [B, A, B]


def test_a_table_that_is_described_again_under_the_name_that_it_left_is_not_there() -> None:
    """A restart sends descriptions of before a rename again: the name that the table left is free for a swap."""
    database = Database()
    database.create(BETWEEN, [Column("id")], ["id"])
    database.rename((BETWEEN, Name("shop", "elsewhere")))
    database.create(A, [Column("id")], ["id"])
    applied = database.create(B, [Column("id")], ["id"])
    database.rename((A, BETWEEN), (B, A), (BETWEEN, B))
    records = [*Changefeed(database, Habits(partitions=1, resolve=0.0)).send()]
    ddl = [record for record in records if json.loads(record["value"])["type"] != "WATERMARK"]
    past = _survey([*ddl[:4], _resolved(ddl[0], applied)])
    tables = Tables(version for (name, _), version in past.versions.items() if name != TableName(*BETWEEN))
    schema = json.loads(ddl[0]["value"])["tableSchema"]
    again = ddl[0] | {"value": json.dumps({"version": 1, "type": "BOOTSTRAP", "tableSchema": schema}).encode()}

    found = _survey([again, *ddl[4:], _resolved(ddl[0], database.ts)], applied, past.versions, tables)

    assert [part.refused for part in found.ddl] == [None] * 3


def test_the_order_of_a_swap_is_the_same_when_a_first_step_that_failed_is_repeated() -> None:
    """The versions that it kept leave no table unknown: no checkpoint has the tables that they describe."""
    creates, parts, ts = _swap()
    described = []
    for record in creates:
        schema = json.loads(record["value"])["tableSchema"]
        message = {"version": 1, "type": "BOOTSTRAP", "tableSchema": schema}
        described.append(record | {"value": json.dumps(message).encode()})
    records = [*described, parts[2], parts[0], parts[1], _resolved(creates[0], ts + 1)]

    found = _survey(records)
    again = _survey(records, versions=found.versions)

    renames = [json.loads(part["value"])["sql"] for part in parts]
    assert [ddl.barrier.change.sql for ddl in found.ddl] == renames
    assert [ddl.barrier.change.sql for ddl in again.ddl] == renames
