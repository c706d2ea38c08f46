"""Finds out which columns the rows of a file have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from applier.changefeed.table import Column, TableName, TableVersion, fold
from applier.changefeed.types import TypeRules
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.csv_rows import read_names
from applier.decode.dump.export import File
from applier.decode.dump.sql_rows import head_of

_UNFIT = re.compile(r'[\x00-\x1f%"*./:<>?\\|{}]|-(?=schema)')
"""What Dumpling writes as %XX in names of files, and braces."""


def columns_in(data: bytes, file: File, form: CsvForm, version: TableVersion) -> tuple[str, ...]:
    """Names of the columns of a CSV or SQL file in its own order, as the table declares them, from its beginning.

    Without a header, a file has the columns that are not generated.

    Raises:
        ValueError: Its header does not fit the table.
    """
    if file.kind == "sql":
        return declared(head_of(data), version)
    if not form.has_header or not data:
        return declared(None, version)
    if not (end := data.find(b"\n") + 1):
        raise ValueError("its header has no end")
    try:
        return declared(read_names(data[:end], form), version)
    except ValueError as error:
        msg = f"its first row does not hold the names of the columns (header), as {error}"
        raise ValueError(msg) from None


def declared(names: Sequence[str] | None, version: TableVersion) -> tuple[str, ...]:
    """The same names as the table declares them; None for those that are not generated.

    Raises:
        ValueError: They are not those of the table.
    """
    # Dumpling leaves generated columns out.
    own = [column.name for column in version.columns if column.generated is None]
    if names is None:
        return tuple(own)
    known = {fold(column.name): column.name for column in version.columns}
    found = [known.get(fold(name), "") for name in names]
    lacking = [name for name in own if name not in found]
    if lacking:
        msg = f"it lacks column {', '.join(lacking)} of table {version.name}"
        raise ValueError(msg)
    if "" in found or len(set(found)) < len(found):
        msg = f"its header has other columns than table {version.name}"
        raise ValueError(msg)
    return tuple(found)


def kept(version: TableVersion, names: Sequence[str], rules: TypeRules) -> list[Column]:
    """The columns of a file whose values its table takes."""
    found = [column for name in names if (column := version.column(name)) is not None]
    return [column for column in found if rules.takes(version.name, column)]


def missing(version: TableVersion, columns: Sequence[str], rules: TypeRules) -> tuple[str, ...]:
    """Stored generated columns of a table that a file does not hold: nothing else can give their values."""
    stored = (column for column in version.columns if column.generated == "stored" and column.name not in columns)
    return tuple(column.name for column in stored if rules.takes(version.name, column))


def export_of_missing(name: TableName, tso: int) -> str:
    """The command that exports a table with its generated columns, which Dumpling leaves out otherwise."""
    database, table = (own.replace("`", "``") for own in (name.database, name.table))
    query = shlex.quote(f"SELECT * FROM `{database}`.`{table}`")  # noqa: S608 - a user runs it
    template = shlex.quote(".".join((_in_file(name.database), _in_file(name.table), "{{.Index}}")))
    options = f"--params 'time_zone=+00:00' --snapshot {tso} --sql {query} --output-filename-template {template}"
    return f"tiup dumpling --filetype csv {options} -o DIR"


def _in_file(name: str) -> str:
    """A name as names of files have it; a brace would begin an action of the template."""
    return _UNFIT.sub(lambda found: f"%{ord(found[0]):02X}", name)
