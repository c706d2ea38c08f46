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
        ({"types": {"json": "variant"}}, "types.json: variant is no type to cast to: PyIceberg, by which applier"),
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


def test_masks_reach_the_rules_with_the_key_from_outside(tmp_path: Path) -> None:
    """A file holds it; tables keep a fingerprint, and nothing prints it."""
    (tmp_path / "key").write_text("sixteen letters!\n")
    file = tmp_path / "a.toml"
    file.write_text(
        '[changefeed]\nname = "a"\nprotocol = "simple"\n[source]\narchive = "x"\n[catalog]\nname = "lake"\n'
        'type = "hadoop"\nwarehouse = "w"\n[tables]\nmask_key = "${file:key}"\n'
        '[tables."a.*".columns]\nmask = { Email = "hash", note = "redact" }\n'
        '[tables."b.*".columns]\nmask = { c = "last4" }\n'
    )
    config = settings.load(file)
    shape = config.type_rules.shape_of(TableName("a", "t"))
    assert (shape.masks, shape.secret) == ({"email": "hash", "note": "redact"}, b"sixteen letters!")
    assert len(shape.mask_key) == 16
    assert config.type_rules.shape_of(TableName("b", "t")).mask_key == ""
    assert "sixteen" not in repr(config) + repr(config.type_rules) + shape.record


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        (
            {"shop.*": {"columns": {"mask": {"a": "hash"}}}},
            (
                'tables.mask_key: missing: a mask of [tables."shop.*".columns] is "hash"; set it to "${file:PATH}" or '
                '"${NAME}".'
            ),
        ),
        ({"mask_key": "too short"}, "tables.mask_key: must have 16 characters or more, or it can be guessed."),
        (
            {"shop.*": {"columns": {"mask": {"a": "redact"}, "cast": {"A": "int"}}}},
            "tables.shop.*.columns.mask.a: is cast as well, and a masked column is text: leave one of them.",
        ),
        (
            {"shop.*": {"columns": {"mask": {"a": "redact", "A": "last4"}}}},
            "tables.shop.*.columns.mask.a: TiDB takes it for one column with another key: leave one of them.",
        ),
    ],
)
def test_what_is_no_mask_is_refused(tables: dict[str, Any], problem: str) -> None:
    """By name."""
    found = problems(minimal(tables=tables))
    assert problem in found, found


def test_names_in_iceberg_reach_the_rules() -> None:
    """By names upstream, in any letters; they are no part of the shape of rows."""
    section = {"columns": {"rename": {"OrderId": "order_id", "V": "v"}}}
    shape = settings.parse(minimal(tables={"shop.*": section})).type_rules.shape_of(TableName("shop", "a"))
    assert [shape.renamed(name) for name in ("ORDERID", "v", "w")] == ["order_id", "v", "w"]
    assert shape.record == ""


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"rename": {"a": "x", "b": "X"}}, "rename.b: is X, and so is another one: two columns cannot have one name"),
        ({"rename": {"a": "b", "B": "a"}}, "rename.a: is b, which is a column upstream: choose a name that none has"),
        ({"rename": {"a": "x", "A": "y"}}, "rename.A: TiDB takes it for one column with another key: leave one of"),
        ({"rename": {"a": ""}}, "rename.a: has an empty name of a column"),
        ({"rename": {"a": "_OP"}}, "rename.a: is _OP, the name of a metadata column: choose another one"),
        ({"rename": {"a": "_row_id"}}, "rename.a: is _row_id, the name of a metadata column: choose another one"),
        ({"rename": {"A": "x"}, "exclude": ["a"]}, "rename.A: is excluded as well: leave one of them"),
    ],
)
def test_what_is_no_name_is_refused(columns: dict[str, Any], problem: str) -> None:
    """By name, before anything is written."""
    found = problems(minimal(tables={"shop.*": {"columns": columns}}))
    assert any(each.startswith(f"tables.shop.*.columns.{problem}") for each in found), found


def test_a_name_of_the_columns_of_changes_is_refused_where_changes_are_kept() -> None:
    """Their table has the columns of its table, under the same names."""
    section = {"columns": {"rename": {"a": "_Image"}}}
    (found,) = problems(minimal(tables={"shop.*": {**section, "history": "changes"}}))
    assert found == "tables.shop.*.columns.rename.a: is _Image, the name of a metadata column: choose another one."
    assert settings.parse(minimal(tables={"shop.*": section})) is not None
