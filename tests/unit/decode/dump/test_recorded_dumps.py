"""Exports that Dumpling itself wrote, in four forms, hold what SQL showed at their TSO."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from applier.changefeed.types import TypeRules
from applier.config.upstream import CsvSection
from applier.decode.dump.chosen_form import form_of
from applier.decode.dump.export import Export
from applier.decode.dump.part_reader import PartReader
from tests import expected, recordings

_DUMPS = sorted(recordings.GOLDEN.glob("*/dump-*.tar.gz"))

ODD = CsvSection(separator="|+|", delimiter="'", null_value="NIL", header=False, backslash_escapes=False)
"""Options that the recorded `csv-odd` exports were made with."""

_UNLIKE: Mapping[str, frozenset[str]] = {"types.t_def": frozenset({"ts"}), "types.t_real": frozenset({"c_float_u"})}
"""Columns that differ upstream: a DEFAULT CURRENT_TIMESTAMP, as the script ran once more for the dumps, and a FLOAT of
3.4028235e38, of which TiDB shows 3.40282e38 in the text protocol."""


@pytest.mark.parametrize("path", _DUMPS, ids=lambda path: f"{path.parent.name}-{path.name.removesuffix('.tar.gz')}")
def test_a_dump_holds_what_sql_showed(path: Path, tmp_path: Path) -> None:
    """Each table has its rows, and none more."""
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path, filter="data")
    address = str(tmp_path / path.name.removesuffix(".tar.gz"))
    export = Export.find(address)
    form = form_of(export, ODD if address.endswith("-odd") else CsvSection())
    line = next(line for line in recordings.expected(path.parent.name) if line["resolved_ts"] == export.tso)
    shown = {expected.name_of(name).folded for name in line["tables"]}
    assert shown == {name.folded for name, _ in export.tables.items()}
    for name, table in line["tables"].items():
        own = next(own for own, _ in export.tables.items() if str(own).lower() == name.lower())
        reader = PartReader(address, form, export.version(own), TypeRules())
        found: list[dict[str, Any]] = [
            row for file in export.files[own] for rows, _ in reader.read(file) for row in rows.to_pylist()
        ]
        left_out = frozenset(column["name"] for column in table["columns"] if column.get("generated"))
        left_out |= _UNLIKE.get(name, frozenset())
        found = [{key: _value(value) for key, value in row.items() if key not in left_out} for row in found]
        assert expected.bag(found) == expected.bag(expected.rows(table, without=left_out)), name


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
