"""Random batches, and the plain Python table that they must lead to."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession

from applier.changefeed.change_batch import ChangeBatch
from applier.sink.iceberg.catalog import Catalog, PartitionField, Table

Key: TypeAlias = tuple[Any, ...]
Row: TypeAlias = tuple[Any, ...]

KINDS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "int": (pa.int32(), lambda r: r.randint(-90, 90)),
    "long": (pa.int64(), lambda r: r.randint(-90, 90) << 33),
    "bool": (pa.bool_(), lambda r: r.random() < 0.5),
    "string": (pa.string(), lambda r: "k" * 20 + chr(r.randint(0x61, 0x90)) + r.choice(["", "ü", "😀"])),
    "binary": (pa.binary(), lambda r: bytes([r.randint(0, 255), r.randint(0, 1)])),
    "decimal": (pa.decimal128(20, 0), lambda r: Decimal(2**63 + r.randint(-60, 60))),
    "money": (pa.decimal128(9, 2), lambda r: Decimal(r.randint(-90, 90)) / 4),
    "date": (pa.date32(), lambda r: date(1970, 1, 1) + timedelta(days=r.randint(-70, 70))),
    "timestamp": (pa.timestamp("us"), lambda r: datetime(1969, 12, 31) + timedelta(hours=r.randint(-70, 70))),
    "timestamptz": (
        pa.timestamp("us", tz="UTC"),
        lambda r: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(microseconds=r.randint(-70, 70)),
    ),
    "double": (pa.float64(), lambda r: r.choice([0.0, 1e300, -1e-300, r.randint(-90, 90) / 4])),
}
"""Kinds of key columns: Arrow type, and values few enough that keys come again."""

VALUES = {"v": pa.int32(), "text": pa.string(), "vec": pa.list_(pa.float32())}


@dataclass
class Feed:
    """Makes batches for one table and keeps what the table must hold.

    Attributes:
        kinds: Kinds of the key columns.
        seed: Seed of all random choices.
        rows: Key -> other values.
    """

    kinds: Sequence[str]
    seed: int = 1
    rows: dict[Key, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.key = [f"k{index}" for index in range(len(self.kinds))]

    @property
    def columns(self) -> pa.Schema:
        """Columns of the table."""
        keys = zip(self.key, self.kinds, strict=True)
        fields: list[Any] = [pa.field(name, KINDS[kind][0], nullable=False) for name, kind in keys]
        return pa.schema([*fields, *(pa.field(name, kind) for name, kind in VALUES.items())])

    def create(
        self, lake: Catalog, name: tuple[str, ...], *, partition: Sequence[tuple[str, str]] = (), **options: Any
    ) -> Table:
        """Create the table, and load it as an applier would."""
        spec = [PartitionField(column, transform) for column, transform in partition]
        lake.create(name, self.columns, key=self.key, partition=spec, sort=self.key, **options)
        table = lake.load(name)
        assert table is not None
        return table

    def batch(self, changes: int = 60) -> ChangeBatch:
        """Random upserts of new, live and dead keys, and deletes of live, dead and unknown ones."""
        upserts: dict[Key, Row] = {}
        deletes: set[Key] = set()
        for _ in range(self.random.randint(1, changes)):
            key = tuple(KINDS[kind][1](self.random) for kind in self.kinds)
            if self.random.random() < 0.3:
                deletes.add(key)
                upserts.pop(key, None)
            else:
                deletes.discard(key)
                upserts[key] = self._values()
        return self.taken(upserts, deletes)

    def taken(self, upserts: dict[Key, Row], deletes: set[Key]) -> ChangeBatch:
        """The batch of some changes, which are kept as applied."""
        fresh = pa.array([key not in self.rows for key in upserts], pa.bool_())
        values = [
            pa.array([row[index] for row in upserts.values()], kind) for index, kind in enumerate(VALUES.values())
        ]
        rows = pa.Table.from_arrays([*self._keys(list(upserts)), *values], [*self.key, *VALUES])
        for key in deletes:
            self.rows.pop(key, None)
        self.rows.update(upserts)
        return ChangeBatch(rows, fresh, pa.Table.from_arrays(self._keys(sorted(deletes)), self.key))

    def check(self, rows: pa.Table) -> None:
        """Assert that a table's rows are those of the model, each once."""
        found = {tuple(row[name] for name in self.key): tuple(row[name] for name in VALUES) for row in rows.to_pylist()}
        assert rows.num_rows == len(found)
        assert found == self.rows

    def _values(self) -> Row:
        choose = self.random.choice
        return choose([None, 1, 2, 3]), choose([None, "", "x", "é" * 9]), choose([None, [], [1.5, -0.25]])

    def _keys(self, keys: list[Key]) -> list[Any]:
        return [pa.array([key[index] for key in keys], KINDS[kind][0]) for index, kind in enumerate(self.kinds)]


def read(spark: SparkSession, name: tuple[str, ...]) -> pa.Table:
    """All rows of a table, as Spark reads it."""
    return spark.table(sql_name(name)).toArrow()


def sql_name(name: tuple[str, ...]) -> str:
    """The table's name in SQL."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in ("lake", *name))
