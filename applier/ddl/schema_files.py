"""Reads the tables that CREATE TABLE statements declare, from files named as Dumpling names them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import unquote

from applier.changefeed.table import Partitioning, TableName, TableVersion
from applier.ddl.actions import CreateDatabase, CreateTable
from applier.ddl.parser import parse
from applier.ddl.schema_tracker import Tables
from applier.errors import SchemaChangeRefused

SUPPLIED = 0
"""`TableVersion.version` of a supplied table: no message refers to it, and every version that messages have is newer.

The upper half of no hash and no pair of schema ids is compared with it; see `sink.evolve.row_columns.is_older`."""

_SETTINGS = frozenset({"SET"})
"""Statements that a schema file holds beside CREATE: they declare nothing."""

_NO_DATABASE = "\uffff"
"""Stands for the database of a name that has none, where the file does not show it, either."""

_NOT_TABLES = re.compile(r"(-schema-(create|view|sequence|triggers|post|placement)|\.\d+)\.sql$")
"""Dumpling's files of databases, views, sequences and rows."""

_HINT = "Write the text of SHOW CREATE TABLE into the file, or remove the file."


def is_schema_file(name: str) -> bool:
    """Whether a file of that name holds CREATE TABLE texts."""
    return name.endswith(".sql") and _NOT_TABLES.search(name) is None


def read_schemas(texts: Mapping[str, str]) -> Tables:
    """The tables that files declare; `texts` has the text of each file by its name.

    Raises:
        SchemaChangeRefused: A file cannot be read, holds no CREATE TABLE, or two declare one table differently.
    """
    # In place of a view, Dumpling writes a table that exists until all tables are loaded.
    stand_ins = {name.removesuffix("-view.sql") + ".sql" for name in texts if name.endswith("-schema-view.sql")}
    known: dict[TableName, tuple[str, TableVersion, Partitioning | None]] = {}
    for name in sorted(name for name in texts if is_schema_file(name) and name not in stand_ins):
        for version, partitioning in _declared(name, texts[name]):
            file, *before = known.setdefault(version.name, (name, version, partitioning))
            if before != [version, partitioning]:
                what = f"Files {file} and {name} of upstream.schemas declare table {version.name} differently."
                hint = "Keep the one of the moment at which the changefeed starts, and remove the other."
                raise SchemaChangeRefused(what, hint)
    tables = Tables()
    for _, version, partitioning in known.values():
        tables.put(version, partitioning)
    return tables


def _declared(file: str, text: str) -> list[tuple[TableVersion, Partitioning | None]]:
    try:
        actions = parse(text, _database(file), passed=_SETTINGS)
    except SchemaChangeRefused as refusal:
        what = f"File {file} of upstream.schemas cannot be read: {refusal.what}"
        raise SchemaChangeRefused(what, _HINT) from None
    found = []
    for action in actions:
        if isinstance(action, CreateDatabase):
            continue
        if not isinstance(action, CreateTable) or action.version is None:
            what = f"File {file} of upstream.schemas holds a statement that declares no columns of a table."
            raise SchemaChangeRefused(what, _HINT)
        if action.table.database == _NO_DATABASE:
            what = f"File {file} of upstream.schemas does not name the database of table {action.table.table}."
            hint = f"Rename the file to DATABASE.{action.table.table}-schema.sql, or name the database in its text."
            raise SchemaChangeRefused(what, hint)
        found.append((replace(action.version, version=SUPPLIED), action.partitioning))
    if not found:
        raise SchemaChangeRefused(f"File {file} of upstream.schemas holds no CREATE TABLE.", _HINT)
    return found


def _database(file: str) -> str:
    """The database that Dumpling's name of a file holds, its own escapes undone."""
    parts = file.removesuffix(".sql").removesuffix("-schema").split(".")
    return unquote(parts[0]) if len(parts) == 2 else _NO_DATABASE
