"""A feed without DDL in, what its rows alone say of the tables out: their columns, and the rows in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from applier.changefeed.message import TopicPartition
from applier.pipeline.step import Pipeline
from tests.lab import Lab, bag, own_rows
from tests.properties.histories import History
from tests.ticdc import Changefeed
from tests.upstream import Cell, Change, Column, Ddl, Name, Row, Rows, Schema

TYPES = ("int", "bigint", "varchar(20)")
"""Types that all protocols show whole."""


class RowsHistory(History):
    """A history in which rows alone show what becomes of the columns: each change of them is followed by rows."""

    def _ddl(self) -> None:
        if not self.database.tables:
            super()._ddl()
            return
        name = self.random.choice(sorted(self.database.tables))
        known = [column.name for column in self.database.tables[name].schema.columns if column.name != "id"]
        free = [letter for letter in "abcdefgh" if letter not in known]
        if len(known) > 1 and self.random.random() < 0.4:
            self.database.drop_column(name, self.random.choice(known))
        else:
            column = self.random.choice(free)
            # A column of a name has one type: rows of another one are refused.
            kind = TYPES[ord(column) % 3]
            self.database.add_column(name, Column(column, kind, self.random.choice([None, self._cell(kind)])))
        for _ in range(2):
            if changes := self._changes(name):
                self.database.transact({name: changes})

    def _create(self, name: Name) -> None:
        if name not in self.database.tables:
            self.database.create(name, [Column("id"), Column("v", "varchar(20)")], ["id"])
            rows: list[dict[str, int | str | Decimal | None]] = [{"id": at, "v": f"first {at}"} for at in range(4)]
            self.database.insert(name, *rows)


@dataclass(frozen=True, slots=True)
class ToldByRows:
    """What the rows say that a pipeline has read.

    Args:
        feed: The feed.
        has_defaults: Its rows show the defaults of columns.
        by_key: A DELETE holds the key alone, and shows no column.
    """

    feed: Changefeed
    has_defaults: bool
    by_key: bool

    def problems(self, lab: Lab, pipeline: Pipeline, shown: Mapping[Name, bool], *, is_end: bool) -> list[str]:
        """Tables that are shown as whole, and are not what the rows say; [] if all are.

        While some partitions lag, a table may have more columns than its newest row.
        """
        found, tables = [], lab.tables()
        shows = self._shows(pipeline)
        for name, held in self._held(pipeline).items():
            if not shown.get(name):
                continue
            if name not in tables:
                found += [f"{name} is missing"] if held else []
                continue
            latest = shows[name][-1]
            newest = max((of.version for of, _ in held.values()), default=latest.version)
            # What only a row showed that is gone may not be known: the step that read it read its DELETE by key too.
            schemas = [of for of in shows[name] if of.version >= newest] if self.by_key else [latest]
            has, rows = set(tables[name].schema().column_names), own_rows(tables[name])
            wrong = [self._wrong(rows, held, schema) for schema in schemas]
            more = has - {column.name for of in (latest, schemas[0]) for column in of.columns} if is_end else set()
            if all(wrong) or more:
                found.append(f"{name} has {sorted(has)}{wrong[-1]}")
        return found

    def _wrong(self, rows: Sequence[Row], held: Mapping[Cell, tuple[Schema, Row]], schema: Schema) -> str:
        """Rows of a table that are not those that it holds in the columns of a schema; "" if all are."""
        wants = {column.name for column in schema.columns}
        here = bag({column: row.get(column, "no column") for column in wants} for row in rows)
        there = bag(self._now(row, of, schema) for of, row in held.values())
        extra, lost = sorted(set(here) - set(there)), sorted(set(there) - set(here))
        return f"\n  has   {extra[:3]}\n  wants {lost[:3]}" if here != there else ""

    def _read(self, pipeline: Pipeline) -> Iterator[tuple[Rows, Change]]:
        for record in self.feed.records:
            place = TopicPartition(record["topic"], record["partition"])
            if record["change"] is not None and record["offset"] < pipeline.state.next_offsets.get(place, 0):
                yield record["change"]

    def _held(self, pipeline: Pipeline) -> Mapping[Name, Mapping[Cell, tuple[Schema, Row]]]:
        """The rows of each table by key, each with the schema in which it was written."""
        held: dict[Name, dict[Cell, tuple[Schema, Row]]] = {}
        for item, change in self._read(pipeline):
            rows = held.setdefault(item.schema.name, {})
            if change.old is not None:
                rows.pop(change.old["id"], None)
            if change.new is not None:
                rows[change.new["id"]] = item.schema, change.new
        return held

    def _shows(self, pipeline: Pipeline) -> Mapping[Name, Sequence[Schema]]:
        """The schemas of each table that its rows show, from the oldest on, also of rows that are gone."""
        found: dict[Name, dict[int, Schema]] = {}
        for item, change in self._read(pipeline):
            schemas = found.setdefault(item.schema.name, {})
            if not (schemas and self.by_key and change.new is None):
                schemas[item.schema.version] = item.schema
        return {name: [of for _, of in sorted(schemas.items())] for name, schemas in found.items()}

    def _now(self, row: Row, of: Schema, schema: Schema) -> Row:
        """A row in the columns of a newer schema: columns that came since then have their defaults."""
        born = self._born(schema)
        return {
            column.name: row[column.name]
            if column.name in row and born[column.name] <= of.version
            else column.default
            if self.has_defaults
            else None
            for column in schema.columns
        }

    def _born(self, schema: Schema) -> Mapping[str, int]:
        """Since which version a table has had each of its columns."""
        born: dict[str, int] = {}
        for item in self.feed.database.log:
            of = item.schema
            if isinstance(item, Ddl) and of is not None and of.id == schema.id and of.version <= schema.version:
                born = {column.name: born.get(column.name, of.version) for column in of.columns}
        return born
