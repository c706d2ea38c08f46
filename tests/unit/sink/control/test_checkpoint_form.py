from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from applier.changefeed.checkpoint import (
    Checkpoint,
    Cut,
    Feed,
    Holder,
    Lease,
    Moving,
    RequestOutcome,
    Resuming,
    Stop,
    Tracked,
)
from applier.changefeed.completeness import LIVE, Completeness, Reason, Why
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import DdlId, FeedPosition, Reading
from applier.changefeed.table import Partition, Partitioning, TableName
from applier.errors import TableMismatch, TerminalError
from applier.sink.control.checkpoint_form import FORMAT, from_json, to_json
from applier.sink.control.tables import CONTROL_TABLES, ControlTable
from applier.sink.format.types import TableSchema, iceberg_type
from applier.wording import WAY_FROM_NEWER_FORM, WAY_FROM_OTHER_FORM

SCHEMA = Path(__file__).parents[4] / "schemas" / "checkpoint" / "v2.json"

FULL = Checkpoint(
    Lease(
        epoch=3,
        holder=Holder("t1", "host-a", "m", "b", "pid:[1]", 12, 345, 1795249000000),
        released=True,
        unfenced=2,
        fenced=1,
    ),
    step=17,
    resolved_ts=470606911607668736,
    written_at=1795250000000,
    partitions={TopicPartition("shop", 0): Reading(41, 470606911607668736), TopicPartition("shop", 1): Reading(7)},
    cut=Cut({("shop", "orders"): -5218431879254321, ("a.b", "c d"): 9}, 1795249999999),
    feed=Feed(
        topic_ids={"shop": "q3Xl5cEGTbSdiAVFJkXW0g"},
        passed={
            TableName("shop", "orders"): {TopicPartition("shop", 0): 7, TopicPartition("shop", 2): 7},
            TableName("shop", "items"): {TopicPartition("shop", 0): 7, TopicPartition("audit", 0): 9},
        },
    ),
    counts={"rows": 12},
)


PLACE, DDL = TopicPartition("shop", 0), DdlId("TRUNCATE TABLE t", "shop.t", 5)
BY_RANGE = Partitioning("range", "a", (Partition("p0", ("5",)), Partition("p1", (), (("1", None),))))
POSITION = FeedPosition(
    TableName("shop", "old"), 5, (DDL,), {PLACE: Reading(3, 4)}, 0, BY_RANGE, {PLACE: 5}, table="NCIYXA7W"
)
PARKED = Completeness(
    Reason(Why.BY_HAND, "by hand"), 5, POSITION, Reason(Why.UNRECORDED), (TableName("shop", "t"),), True, POSITION
)
TABLES = replace(
    FULL,
    tables={
        TableName("shop", "orders"): Tracked(0, "shop", BY_RANGE, LIVE),
        TableName("shop", "items"): Tracked(-1, completeness=PARKED),
        TableName("shop", "other"): Tracked(
            2, completeness=Completeness(Reason(Why.DDL), position=replace(POSITION, ts=0))
        ),
        TableName("shop", "new"): Tracked(
            2,
            completeness=Completeness(
                Reason(Why.LOADING), position=replace(POSITION, is_loaded=True), is_due=True, is_misnamed=True
            ),
        ),
        TableName("shop", "old"): Tracked(3, loaded=470606913376878593, identity="pm8_EZ-0"),
    },
    ddl=(DDL,),
    feed=replace(FULL.feed, protocol="simple", homes={TableName("shop", "or_ders"): ("a", "b")}),
    handled={"id": RequestOutcome("parked", (TableName("shop", "items"),), notes=("x.",))},
    moving=Moving({TableName("shop", "orders"): 7, TableName("shop", "tmp"): 7}, {PLACE: 41}),
    stopped=Stop("Its registry was rebuilt.", "begin anew.", 1795250000001, 7),
    control_rows={"schema_changes": 7},
)
FULLEST = replace(TABLES, resuming=Resuming("job", TABLES))
WRITTEN: dict[str, object] = json.loads(to_json(FULL))
MEMBERS = ("unfenced", "homes", "places", "cut_at")


@pytest.mark.parametrize("checkpoint", [FULL, FULLEST, Checkpoint(Lease(1, Holder("t", "h")), 0, 0, 0)])
def test_a_checkpoint_survives_its_json_form(checkpoint: Checkpoint) -> None:
    """What is read is what was written, with dots in names, negative snapshot ids and missing resolved ts."""
    assert from_json(to_json(checkpoint)) == checkpoint


def test_the_json_form_is_the_published_one() -> None:
    """The JSON Schema in the repository describes every member that is written; others need another format version."""
    schema = json.loads(SCHEMA.read_bytes())
    for described in schema["$defs"].values():
        described["additionalProperties"] = False
    jsonschema.validate(json.loads(to_json(FULLEST)), schema)
    assert schema["$defs"]["Checkpoint"]["properties"].keys() == json.loads(to_json(FULLEST)).keys()


def test_a_checkpoint_from_before_the_moment_of_the_cut_does_not_know_it() -> None:
    """Format 1 of earlier builds is read, also in a checkpoint that is in one; the next step finds it out."""
    old = json.loads(to_json(FULLEST), object_hook=_of_format_1)

    found = from_json(json.dumps(old))

    unknown = Cut(FULL.cut.heads)
    assert (found.cut, found.resuming) == (unknown, Resuming("job", replace(TABLES, cut=unknown)))
    assert replace(found, cut=FULL.cut, resuming=FULLEST.resuming) == FULLEST


def _of_format_1(found: dict[str, object]) -> dict[str, object]:
    """A checkpoint as that format has it; anything else as it is."""
    return {**{name: found[name] for name in found if name != "cut_at"}, "format": 1} if "format" in found else found


def test_what_many_tables_share_and_what_is_empty_is_not_written_again() -> None:
    """Tables that left at one place name it by its number."""
    written = json.loads(to_json(TABLES))
    items, new, old, orders, other = written["tables"]
    assert len(written["places"]) == 1
    assert new["completeness"]["position"]["is_loaded"] is True
    assert old.items() >= {"database": "shop", "table": "old", "version": 3, "identity": "pm8_EZ-0"}.items()
    assert "completeness" not in old
    assert (items["version"], orders["completeness"], other["completeness"]["position"]["place"]) == (
        -1,
        {"reason": {"why": "whole"}},
        0,
    )
    assert "ts" not in other["completeness"]["position"]


@pytest.mark.parametrize(
    "other",
    [
        *({**WRITTEN, "format": number} for number in (-1, 0, 1)),
        {**WRITTEN, "new": 1},
        *(
            {name: WRITTEN[name] for name in WRITTEN if name != missing}
            for missing in ("unfenced", "homes", "places", "cut_at")
        ),
        {**WRITTEN, "resuming": {"job": "job", "progress": {**WRITTEN, "format": 0}}},
    ],
)
def test_a_checkpoint_of_another_form_is_refused_in_one_sentence(other: dict[str, object]) -> None:
    """No member is guessed at or dropped, whichever build wrote it."""
    with pytest.raises(TableMismatch, match="do not have the form that this build of applier reads") as refused:
        from_json(json.dumps(other))
    assert refused.value.hint == WAY_FROM_OTHER_FORM


@pytest.mark.parametrize("number", [FORMAT + 1, FORMAT + 7])
def test_a_checkpoint_of_a_newer_release_is_refused_by_name(number: int) -> None:
    """A downgrade drops nothing, also where the newer form has other members."""
    with pytest.raises(TableMismatch) as refused:
        from_json(json.dumps({"format": number, "unheard_of": {}}))

    assert str(refused.value).startswith(
        f"The newest checkpoint of this changefeed was written by a newer release of applier, in format {number}; "
        f"applier {version('applier')} reads up to format {FORMAT}."
    )
    assert refused.value.hint == WAY_FROM_NEWER_FORM


@pytest.mark.parametrize("kind", CONTROL_TABLES)
def test_columns_of_a_newer_release_lead_back_to_it(kind: ControlTable) -> None:
    """They are looked at before the checkpoint; what lacks a column was written by no newer release."""
    wanted = [(column.name, iceberg_type(column.type)) for column in kind.columns]

    def schema(columns: Sequence[tuple[str, Any]]) -> TableSchema:
        fields = [{"id": at, "name": name, "type": of, "required": False} for at, (name, of) in enumerate(columns, 1)]
        return TableSchema.parse(json.dumps({"type": "struct", "schema-id": 0, "fields": fields}), {})

    kind.check("lake.t", schema(wanted))
    with pytest.raises(TableMismatch) as refused:
        kind.check("lake.t", schema([*wanted, ("novel", "string")]))
    assert refused.value.what == (
        f"Control table lake.t has novel beside the columns that applier {version('applier')} knows: a newer release "
        "wrote it."
    )
    assert refused.value.hint == WAY_FROM_NEWER_FORM
    with pytest.raises(TableMismatch) as refused:
        kind.check("lake.t", schema([*wanted[1:], ("novel", "string")]))
    assert refused.value.hint == WAY_FROM_OTHER_FORM


DAMAGE: list[dict[str, object]] = [
    {"epoch": 0},
    {"step": -1},
    {"partitions": {}},
    {"partitions": [{"topic": "shop", "partition": 0}]},
    {"partitions": [{"topic": "shop", "partition": -1, "next_offset": 0}]},
    {"snapshots": [{"table": [], "snapshot_id": 1}]},
    {"tables": ["t"]},
    {"tables": [{"database": "shop", "table": "t", "version": 1, "completeness": {"state": "odd"}}]},
    {"resuming": {"job": "job", "progress": {}}},
]


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "{}", to_json(FULL)[:-9]),
        *(json.dumps(json.loads(to_json(FULL)) | changed) for changed in DAMAGE),
    ],
)
def test_a_damaged_checkpoint_is_refused(text: str) -> None:
    """Whatever is wrong with the text, the error is one of ours and says what to do."""
    with pytest.raises(TerminalError, match="damaged"):
        from_json(text)


def test_offsets_and_watermarks_are_given_by_partition() -> None:
    """Partitions that never sent a resolved ts have an offset, but no watermark."""
    assert FULL.next_offsets == {TopicPartition("shop", 0): 41, TopicPartition("shop", 1): 7}
    assert FULL.resolved == {TopicPartition("shop", 0): 470606911607668736}
