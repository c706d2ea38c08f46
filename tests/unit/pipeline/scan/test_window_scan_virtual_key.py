"""Simple does not say that a column is virtual: the statement does, and rows are read by the key that TiCDC takes."""

from __future__ import annotations

from typing import Any

import pytest

from applier.changefeed.types import TypeRules
from applier.ddl.schema_tracker import Tables
from applier.decode.options import DecoderOptions
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.scanner import WindowScanner
from applier.pipeline.scan.window_scan import WindowScan
from applier.pipeline.state import State
from applier.runtime.logs import Stopwatch
from applier.runtime.places import Where
from tests.known import known_at
from tests.unit.pipeline.scan.test_window_scan_dead_letters import _INT, TS, MessageSource, _message, _row

COLUMNS = "`id` INT NOT NULL, `left` INT, `v` INT AS (`id` + 1) VIRTUAL NOT NULL"


def _schema(*keys: str) -> dict[str, Any]:
    indexes = [{"name": key, "unique": True, "primary": False, "nullable": False, "columns": [key]} for key in keys]
    columns = [
        {"name": name, "dataType": _INT, "nullable": name == "left", "default": None} for name in ("id", "left", "v")
    ]
    known = {"schema": "shop", "table": "stock", "tableID": 1, "version": 1}
    return {**known, "columns": columns, "indexes": indexes}


def _survey(source: MessageSource, known: State, end: int | None = None) -> WindowScan:
    ends = {place: end or span.end for place, span in source.window.ranges.items()}
    template = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (), upto=0)
    scanner = WindowScanner(source, template, rows_describe=False, keep_bad=False)
    return scanner.scan(source.window, known, ends, Stopwatch(), where=Where.TASKS)


@pytest.mark.parametrize(("keys", "key"), [(("v", "id"), ("id",)), (("v",), ())])
def test_rows_are_read_by_the_key_that_they_hold(keys: tuple[str, ...], key: tuple[str, ...]) -> None:
    """In the window of the CREATE, and behind a description that comes again in a later one."""
    uniques = "".join(f", UNIQUE (`{name}`)" for name in keys)
    sql = f"CREATE TABLE `shop`.`stock` ({COLUMNS}{uniques})"
    create = _message("CREATE", 0, sql=sql, tableSchema=_schema(*keys))
    again = {**_message("BOOTSTRAP", 0, tableSchema=_schema(*keys)), "commitTs": 0}
    source = MessageSource(
        [create, _row("INSERT", 1, "1", 1), again, _row("INSERT", 2, "2", 2), _message("WATERMARK", 9)]
    )
    found = _survey(source, known_at())

    assert found.error is None
    assert {part.version.key for parts in found.results.parts.values() for part in parts} == {key}
    assert found.results.counts["applied"] == 2

    tables, versions = Tables(found.versions.values()), dict(found.versions)
    later = MessageSource([again, _row("UPDATE", 1, "5", 11), _message("WATERMARK", 19)])
    known = known_at(TS + 9, tables, versions=versions)

    found = _survey(later, known, 3)

    assert found.error is None
    assert {part.version.key for parts in found.results.parts.values() for part in parts} == {key}
    assert all(versions[key] == version for key, version in found.versions.items())
