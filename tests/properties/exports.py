"""A database and a TSO in, a folder as Dumpling writes it out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from applier.decode.dump.csv_form import CsvForm
from tests.unit.decode.dump import dumpling
from tests.upstream import Cell, Column, Database, Name, Row, Schema

FORM = CsvForm()
"""How the CSV files are written: as Dumpling does without options."""


def write(database: Database, names: Iterable[Name], tso: int, folder: Path, chance: random.Random) -> Path:
    """Export some tables as of a TSO.

    Args:
        database: The database.
        names: The tables; each is there at the TSO.
        tso: The export holds every change at or below it.
        folder: Where it goes.
        chance: Draws how many files a table has.
    """
    folder.mkdir(parents=True)
    (folder / "metadata").write_text(dumpling.METADATA.replace("470606910897520641", str(tso)))
    state = database.at(tso)
    for name in names:
        schema, rows = state[name]
        place = f"{name.database}.{name.table}"
        (folder / f"{place}-schema.sql").write_text(_declared(schema))
        is_sql = chance.random() < 0.4
        for number, part in enumerate(_parts(schema, rows, chance)):
            columns = [column.name for column in schema.columns]
            cells = [[row[column] for column in columns] for row in part]
            data = dumpling.sql(cells, escapes=True) if is_sql else dumpling.csv(cells, FORM, columns)
            (folder / f"{place}.{number:09}.{'sql' if is_sql else 'csv'}").write_bytes(data)
    return folder


def _parts(schema: Schema, rows: Sequence[Row], chance: random.Random) -> list[Sequence[Row]]:
    """The rows of each file, in the order of the key; a table without rows has no file."""
    ordered = sorted(rows, key=lambda row: repr([row[column] for column in schema.key]))
    size = chance.choice([1, 2, 100])
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def _declared(schema: Schema) -> str:
    """The text of SHOW CREATE TABLE."""
    parts = [f"  {_column(column, schema.key)}" for column in schema.columns]
    if schema.key:
        parts.append(
            f"  PRIMARY KEY ({', '.join(f'`{column}`' for column in schema.key)}) /*T![clustered_index] CLUSTERED */"
        )
    bounds = ",\n ".join(f"PARTITION `{part}` VALUES LESS THAN ({bound})" for part, bound in schema.bounds)
    partitions = f"\nPARTITION BY RANGE (`{schema.key[0]}`)\n({bounds})" if bounds else ""
    head = f"/*!40101 SET NAMES binary*/;\nCREATE TABLE `{schema.name.table}` (\n"
    return head + ",\n".join(parts) + f"\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin{partitions};\n"


def _column(column: Column, key: Sequence[str]) -> str:
    if column.name in key:
        return f"`{column.name}` {column.type} NOT NULL"
    return f"`{column.name}` {column.type} DEFAULT {_literal(column.default)}"


def _literal(value: Cell) -> str:
    return "NULL" if value is None else f"'{value}'"
