"""Types that rows alone show: the wider one counts, in whatever order its rows and those of the former one arrive."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import permutations, product
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.message import MESSAGE_SCHEMA, by_place
from applier.changefeed.shape import Shape
from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.changefeed.types import TypeRules, arrow_type
from applier.decode.avro.decoder import AvroDecoder
from applier.decode.debezium.json_decoder import DebeziumDecoder
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions
from applier.errors import SchemaChangeRefused
from applier.order.feed_order import OffsetOrder
from applier.pipeline.batches.batch import Batch, ReadExtent
from applier.pipeline.scan import decode_task
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.task_result import Part, TaskResult
from applier.pipeline.scan.task_versions import DdlMarks
from applier.pipeline.schema_changes.follow_rows import follow
from applier.sink.evolve.plan import plan
from applier.sink.evolve.steps import ConvertField, PromoteField
from tests.unit.decode.avro_messages import EXTENSION, ID, Schemas, column, record
from tests.unit.decode.debezium import test_debezium as debezium

NAME = TableName("shop", "t")
TS = debezium.TS

_MILLISECOND = 1 << 18
"""Ticks of a commit ts."""


@dataclass(frozen=True)
class Kind:
    """A type, and a value that no narrower type holds."""

    declared: dict[str, Any]
    wire: object
    value: object


def kind(connect: str, tidb: str, value: float) -> Kind:
    """A type whose wire value is the value."""
    return Kind(debezium.field("v", connect, tidb_type=tidb), value, value)


def avro(tidb: str, written: str, value: float | Decimal, **more: Any) -> Kind:
    """A type of the protocol Avro; decimals are their unscaled number there."""
    wire = value if not isinstance(value, Decimal) else int(value.scaleb(2)).to_bytes(9, "big", signed=True)
    return Kind(column("v", tidb, written, **more), wire, value)


def decimal(digits: int, value: str) -> Kind:
    """A DECIMAL of Avro with two digits after the point."""
    return avro("DECIMAL", "bytes", Decimal(value), logicalType="decimal", precision=digits, scale=2)


TINY, INT, BIG = kind("int16", "tinyint", -100), kind("int32", "int", -(2**30)), kind("int64", "bigint", 2**60)
DOUBLE_TENTH = kind("double", "double", 0.1)
FLOAT, DOUBLE = kind("float", "float", 0.5), kind("double", "double", 1e300)
MEDIUM_U, INT_U, BIG_U = (
    kind("int32", "mediumint unsigned", 2**24 - 1),
    kind("int64", "int unsigned", 2**32 - 1),
    kind("int64", "bigint unsigned", 2**62),
)
WIDENINGS = {
    "int": (INT, BIG),
    "three ints": (TINY, INT, BIG),
    "float": (FLOAT, DOUBLE),
    "unsigned": (MEDIUM_U, INT_U, BIG_U),
    "unsigned to a signed one that holds it": (INT_U, BIG),
    "avro int": (avro("INT", "int", 2**30), avro("BIGINT", "long", 2**60)),
    "avro float": (avro("FLOAT", "float", 0.5), avro("DOUBLE", "double", 1e300)),
    "avro decimal": (decimal(5, "999.99"), decimal(9, "-9999999.99"), decimal(18, "9999999999999999.99")),
    "avro unsigned": (avro("INT UNSIGNED", "int", 2**24 - 1), avro("INT UNSIGNED", "long", 2**32 - 1)),
}


@dataclass(frozen=True)
class Row:
    """A row that is the only one of its partition."""

    key: int
    ts: int
    kind: Kind


Step = Sequence[Sequence[Row]]
"""The rows of each task."""


@dataclass
class Lake:
    """A table in memory that follows its rows as a changefeed in offset order does."""

    newest: int = 0
    tracked: TableVersion | None = None
    versions: dict[tuple[TableName, int], TableVersion] = field(default_factory=dict)
    rows: dict[int, object] = field(default_factory=dict)
    is_key: bool = False
    schemas: Schemas | None = None
    changed_at: int = 0

    @property
    def type(self) -> ColumnType:
        """The type of the column."""
        found = cast("TableVersion", self.tracked).column("id" if self.is_key else "v")
        assert found is not None
        return found.type

    def track(self, found: TableVersion) -> None:
        """Take note of the table as it is."""
        self.tracked = found
        self.versions[found.name, found.version] = found

    def follow(self, found: TableVersion) -> None:
        """Evolve the table; only steps that keep each value may be needed."""
        assert self.tracked is not None
        evolution = plan(self.tracked, found.completed(self.tracked), (), TypeRules())
        if evolution.only_empty:
            raise SchemaChangeRefused(evolution.only_empty[0].reason)
        assert all(isinstance(step, PromoteField | ConvertField) for step in evolution.steps)
        self.track(found)

    def apply(self, step: Step) -> None:
        """Apply one step."""
        parts = self._parts(step)
        batch = Batch(NAME, parts, 0, extent=ReadExtent({}, {}))
        state: Any = SimpleNamespace(
            versions=self.versions,
            tables={NAME: self.tracked},
            loaded={},
            changed_at=lambda _: self.changed_at,
            track=self.track,
        )
        state.tables = SimpleNamespace(get=lambda _: self.tracked)
        targets: Any = SimpleNamespace(
            covered=lambda _: AppliedOffsets(newest=self.newest), maker=SimpleNamespace(rules=TypeRules())
        )
        is_new = self.tracked is None
        if is_new:
            self.track(batch.newest)
        follow(batch, state, targets, cast("Any", self), is_new=is_new)
        merged = cast("Any", batch.merging(Shape(), by_place=True, exact=False).merged([part.here for part in parts]))
        column = merged.upserts["id" if self.is_key else "v"].cast(arrow_type(self.type))
        self.rows |= dict(zip(merged.upserts["id"].to_pylist(), column.to_pylist(), strict=True))
        self.newest = max(self.newest, batch.newest_ts)

    def _parts(self, step: Step) -> list[Part]:
        typed = {} if self.tracked is None else {NAME: [self.tracked]}
        known = tuple(self.versions.values())
        job = DecodeTask(
            "avro" if self.schemas else "debezium",
            DecoderOptions(),
            TypeRules(),
            ("*.*",),
            known,
            TS * 2,
            order=OffsetOrder(),
            marks=DdlMarks(typed=typed, changed={NAME: self.changed_at} if self.changed_at else {}),
        )
        found = TaskResult.sum([job(by_place(self._messages(rows))) for rows in step])
        if found.bad:
            raise found.bad[0].error
        self.versions |= {key: version for key, version in found.versions.items() if key not in self.versions}
        return found.parts[NAME, 0]

    def _messages(self, rows: Sequence[Row]) -> pa.Table:
        lines = []
        for row in rows:
            key, value = self._debezium(row) if self.schemas is None else _avro(row, self.schemas)
            place = {"topic": "t", "partition": row.key, "offset": 0, "timestamp": None}
            lines.append(place | {"key": key, "value": value})
        return pa.Table.from_pylist(lines, schema=MESSAGE_SCHEMA)

    def _debezium(self, row: Row) -> tuple[bytes, bytes]:
        shown = [row.kind.declared | {"field": "id"}] if self.is_key else [debezium.ID, row.kind.declared]
        image = {"id": row.kind.wire} if self.is_key else {"id": row.key, "v": row.kind.wire}
        payload = {"source": debezium.source(commit_ts=row.ts), "op": "c", "before": None, "after": image}
        key = json.dumps({"payload": {"id": image["id"]}, "schema": {"type": "struct"}}, separators=(",", ":"))
        return key.encode(), debezium.value(payload, *shown)


def _avro(row: Row, schemas: Schemas) -> tuple[bytes, bytes]:
    (name,) = [name for name, found in schemas.ids.items() if row.kind.declared in schemas.schemas[found]["fields"]]
    stamps = {"_tidb_op": "c", "_tidb_commit_ts": row.ts, "_tidb_commit_physical_time": 1}
    return schemas.message("key", id=row.key), schemas.message(name, id=row.key, v=row.kind.wire, **stamps)


def arrivals(rows: Sequence[Row]) -> Iterator[list[list[list[Row]]]]:
    """The rows in each order, and each of them in the task of the one before, in another task, or in the next step."""
    for order, gaps in product(permutations(rows), product(("task", "tasks", "step"), repeat=len(rows) - 1)):
        steps = [[[order[0]]]]
        for row, gap in zip(order[1:], gaps, strict=True):
            if gap == "step":
                steps.append([[row]])
            elif gap == "tasks":
                steps[-1].append([row])
            else:
                steps[-1][-1].append(row)
        yield steps


def schemas_of(kinds: Sequence[Kind]) -> Schemas | None:
    """The schemas of Avro with rising ids; None for Debezium."""
    values = {f"v{number}": record(ID, each.declared, *EXTENSION) for number, each in enumerate(kinds)}
    return Schemas(key=record(ID), **values) if "name" in kinds[0].declared else None


@pytest.mark.parametrize(
    ("case", "is_key", "tick"),
    [
        *((case, False, 1) for case in WIDENINGS),
        ("three ints", True, 1),
        ("three ints", False, _MILLISECOND),
        ("avro int", False, _MILLISECOND),
    ],
)
def test_the_wider_type_counts_in_any_order_of_arrival(
    case: str, tick: int, monkeypatch: pytest.MonkeyPatch, *, is_key: bool
) -> None:
    """In one task, in two of them, and in two steps; also where the type became narrower upstream."""
    kinds = WIDENINGS[case]
    for upstream in (kinds, kinds[::-1]):
        schemas = schemas_of(upstream)
        monkeypatch.setattr(decode_task, "decoder_of_thread", partial(_decoder, schemas))
        rows = [Row(number, TS - TS % _MILLISECOND + (number + 1) * tick, each) for number, each in enumerate(upstream)]
        last = Lake(is_key=is_key, schemas=schemas)
        last.apply([[row for row in rows if row.kind is kinds[-1]]])
        for steps in arrivals(rows):
            lake = Lake(is_key=is_key, schemas=schemas)
            for step in steps:
                lake.apply(step)
            assert lake.type == last.type
            assert set(lake.rows.values()) == {each.value for each in kinds}


def _decoder(schemas: Schemas | None, *_: object) -> Decoder:
    return DebeziumDecoder(DecoderOptions()) if schemas is None else AvroDecoder(schemas)


@pytest.mark.parametrize(
    ("kinds", "sentence"),
    [
        ((INT, kind("int64", "bigint unsigned", 2**62)), "shop.t.v cannot be read as int"),
        ((INT, Kind(debezium.field("v", "string", tidb_type="varchar"), "x", "x")), "shop.t.v cannot be read as int"),
    ],
    ids=["signed to unsigned", "text"],
)
def test_what_is_no_widening_is_refused_as_before(kinds: Sequence[Kind], sentence: str) -> None:
    """No type of the two holds the values of both."""
    lake = Lake()
    lake.apply([[Row(0, TS + 1, kinds[0])]])
    with pytest.raises(Exception, match=sentence):
        lake.apply([[Row(1, TS + 2, kinds[1])]])


def test_types_of_a_ddl_are_not_widened_by_rows() -> None:
    """Rows from before a MODIFY to a narrower type may lag behind it."""
    lake = Lake()
    lake.apply([[Row(0, TS + 1, BIG)]])
    narrow = cast("TableVersion", lake.tracked)
    columns = (narrow.columns[0], type(narrow.columns[1])("v", ColumnType("int")))
    lake.track(TableVersion(NAME, TS + 5, columns, handle_key=("id",)))
    lake.rows.clear()
    lake.apply([[Row(1, TS + 3, kind("int64", "bigint", 7))]])
    assert (lake.type, lake.rows) == (ColumnType("int"), {1: 7})


def told(kind: ColumnType, at: int, *, changed_at: int = 0) -> Lake:
    """The table as a load or a DDL shows it."""
    lake = Lake(newest=at, changed_at=changed_at)
    columns = (Column("id", ColumnType("int"), nullable=False), Column("v", kind))
    lake.track(TableVersion(NAME, at, columns, handle_key=("id",)))
    return lake


_DOUBLE, _UNSIGNED = ColumnType("double"), ColumnType("bigint", unsigned=True)


@pytest.mark.parametrize("changed_at", [0, TS + 3], ids=["loaded", "behind a DDL"])
@pytest.mark.parametrize(
    ("known", "shown", "real", "value"),
    [
        (ColumnType("float"), _DOUBLE, DOUBLE_TENTH, 0.1),
        (ColumnType("float"), _DOUBLE, avro("DOUBLE", "double", 0.1), 0.1),
        (ColumnType("bigint"), _UNSIGNED, kind("int64", "bigint unsigned", -1), Decimal(2**64 - 1)),
        (ColumnType("bigint"), _UNSIGNED, avro("BIGINT UNSIGNED", "long", -1), Decimal(2**64 - 1)),
    ],
    ids=["double", "avro double", "unsigned", "avro unsigned"],
)
def test_a_value_of_newer_rows_is_not_taken_for_another_in_the_type_of_a_load_or_a_ddl(
    known: ColumnType, shown: ColumnType, real: Kind, value: object, changed_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error would show it: a DOUBLE passes for a FLOAT, rounded, and a large unsigned number for a negative one."""
    schemas = schemas_of([real])
    monkeypatch.setattr(decode_task, "decoder_of_thread", partial(_decoder, schemas))
    lake = told(known, TS + 3, changed_at=changed_at)
    lake.schemas = schemas
    lake.apply([[Row(1, TS + 5, real)]])
    assert (lake.type, lake.rows) == (shown, {1: value})


@pytest.mark.parametrize(
    ("known", "shown", "at"),
    [
        (ColumnType("float"), DOUBLE_TENTH, TS + 1),
        (ColumnType("float"), kind("float", "float", 0.1), TS + 5),
        (ColumnType("float", length=7, scale=2), DOUBLE_TENTH, TS + 5),
    ],
    ids=["a row from before the MODIFY", "a row that shows a FLOAT", "FLOAT(M,D), which some builds show as DOUBLE"],
)
def test_a_float_stays_one_where_a_ddl_or_the_rows_show_it(known: ColumnType, shown: Kind, at: int) -> None:
    """TiDB holds the rounded value then."""
    lake = told(known, TS + 3, changed_at=TS + 3)
    lake.apply([[Row(1, at, shown)]])
    assert (lake.type, lake.rows) == (known, {1: 0.10000000149011612})
