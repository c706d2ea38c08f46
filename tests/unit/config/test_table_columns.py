"""What the configuration says of the columns of the tables of a pattern."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from applier.changefeed.table import TableName
from applier.config import settings
from applier.errors import ConfigError
from tests.unit.config.test_settings import minimal, problems


def test_casts_reach_the_rules_of_types() -> None:
    """Of the pattern that names a table."""
    section = {"types": {"bigint unsigned": "long"}, "tinyint1": "boolean", "columns": {"cast": {"Price": "string"}}}
    shape = settings.parse(minimal(tables={"shop.*": section})).type_rules.shape_of(TableName("shop", "a"))
    assert (shape.casts, shape.types) == ({"price": "string"}, {"bigint unsigned": "long"})
    assert (shape.tinyint1, shape.zero_dates) == ("boolean", None)
    assert shape.record == ""


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"types": {"bigin": "long"}}, "types.bigin: is no type of TiDB that can be cast, did you mean bigint?"),
        ({"types": {"enum unsigned": "int"}}, "types.enum unsigned: is no type of TiDB that can be cast, types that"),
        ({"types": {"varchar": "int"}}, "types.varchar: is no type of TiDB that can be cast, did you mean"),
        (
            {"types": {"time": "int"}},
            "types.time: time has no exact cast to int: it can be cast to long, string.",
        ),
        (
            {"columns": {"cast": {"a": "strin"}}},
            "columns.cast.a: strin is no type to cast to: types are boolean, int, long, double, string, timestamp, ",
        ),
        ({"columns": {"cast": {"a": "decimal(39,2)"}}}, "columns.cast.a: decimal(39,2) is no type to cast to"),
        ({"columns": {"cast": {"a": "int", "A": "long"}}}, "columns.cast.A: TiDB takes it for one column with another"),
        ({"columns": {"casts": {"a": "int"}}}, "columns.casts: unknown key, did you mean cast?"),
    ],
)
def test_what_is_no_cast_is_refused(section: dict[str, Any], problem: str) -> None:
    """By name, before anything is written."""
    found = problems(minimal(tables={"shop.*": section}))
    assert any(each.startswith(f"tables.shop.*.{problem}") for each in found), found


def test_a_refusal_names_file_and_line(tmp_path: Path) -> None:
    """Of the key, also in the section of columns."""
    file = tmp_path / "a.toml"
    file.write_text(
        '[changefeed]\nname = "a"\nprotocol = "simple"\n[source]\narchive = "x"\n[catalog]\nname = "lake"\n'
        'type = "hadoop"\nwarehouse = "w"\n[tables."a.*".columns]\ncast = { b = "no" }\n'
    )
    with pytest.raises(ConfigError) as refused:
        settings.load(file)
    assert f"{file}:11: tables.a.*.columns.cast.b: no is no type to cast to" in str(refused.value)
