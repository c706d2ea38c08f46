"""Files lie where Iceberg's own location providers would place them; the places are those that Iceberg 1.12 gave."""

from __future__ import annotations

import json
from typing import Any

import pytest

from applier.errors import TableMismatch
from applier.sink.format.file_layout import FileLayout
from applier.sink.format.types import TableSchema

HASHED = {"write.object-storage.enabled": "true"}
FLAT = HASHED | {"write.object-storage.partitioned-paths": "false"}
ELSEWHERE = {"write.data.path": "s3://other/x/"}
ROOT = "s3://lake/shop/t"


def place(
    root: str,
    properties: dict[str, str],
    values: list[Any],
    name: str,
    transform: str = "identity",
    kind: str = "string",
    part: str = "s",
) -> str:
    """Where a file lies in a table that is partitioned by a transform of one column."""
    column = {"id": 1, "name": "s", "type": kind, "required": False}
    schema = TableSchema.parse(json.dumps({"type": "struct", "schema-id": 0, "fields": [column]}))
    spec = {"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "name": part, "transform": transform}]}
    return FileLayout("shop.t", root, schema, spec, {"order-id": 0, "fields": []}, properties, 3).place(name, values)


@pytest.mark.parametrize(
    ("properties", "values", "expected"),
    [
        ({}, [], f"{ROOT}/data/u.parquet"),
        ({}, ["ab"], f"{ROOT}/data/s=ab/u.parquet"),
        (ELSEWHERE, ["ab"], "s3://other/x/s=ab/u.parquet"),
        ({"write.object-storage.path": "s3://f"}, [], f"{ROOT}/data/u.parquet"),
        (HASHED, [], f"{ROOT}/data/1101/0100/0100/10011001/u.parquet"),
        (HASHED, ["ab"], f"{ROOT}/data/0111/0001/0001/00000010/s=ab/u.parquet"),
        (FLAT, ["ab"], f"{ROOT}/data/1101/0100/0100/10011001-u.parquet"),
        (HASHED | ELSEWHERE, ["ab"], "s3://other/x/0111/0001/0001/00000010/shop/t/s=ab/u.parquet"),
        (FLAT | ELSEWHERE, ["ab"], "s3://other/x/1101/0100/0100/10011001/shop/t/u.parquet"),
    ],
)
@pytest.mark.parametrize("root", [ROOT, f"{ROOT}/"])
def test_files_lie_where_iceberg_would_place_them(
    root: str, properties: dict[str, str], values: list[Any], expected: str
) -> None:
    """Orphan removal and people look for them there."""
    assert place(root, properties, values, "u.parquet") == expected


@pytest.mark.parametrize(
    ("transform", "kind", "value", "expected"),
    [
        ("identity", "string", "a b/c~*%é=+", "a+b%2Fc%7E*%25%C3%A9%3D%2B"),
        ("identity", "long", -3, "-3"),
        ("identity", "long", None, "null"),
        ("identity", "boolean", True, "true"),
        ("identity", "decimal(12, 2)", "-0.05", "-0.05"),
        ("identity", "timestamptz", "2020-01-02T03:04:05.000000+00:00", "2020-01-02T03%3A04%3A05%2B00%3A00"),
        ("identity", "timestamptz", "2020-01-02T03:04:05.120000+00:00", "2020-01-02T03%3A04%3A05.12%2B00%3A00"),
        ("truncate[2]", "binary", "00FF", "AP8%3D"),
        ("year", "date", -1969, "0001"),
        ("month", "date", -1, "1969-12"),
        ("day", "date", "2020-01-02", "2020-01-02"),
        ("hour", "timestamp", -25, "1969-12-30-23"),
        ("bucket[4]", "string", 3, "3"),
    ],
)
def test_folders_of_partitions_are_named_as_iceberg_names_them(
    transform: str, kind: str, value: Any, expected: str
) -> None:
    """Both the name and the value are escaped."""
    found = place(ROOT, {}, [value], "u.parquet", transform, kind, "a=b")

    assert found == f"{ROOT}/data/a%3Db={expected}/u.parquet"


def test_a_java_class_that_places_files_is_refused() -> None:
    """Files that lie elsewhere than it says may be lost to whoever chose it."""
    with pytest.raises(TableMismatch) as caught:
        place(ROOT, {"write.location-provider.impl": "com.example.Places"}, [], "u.parquet")

    assert str(caught.value) == (
        "Files of table shop.t are placed by the Java class com.example.Places, which applier does not run. "
        "Hint: Remove the table property write.location-provider.impl."
    )


@pytest.mark.parametrize(
    ("key", "properties"), [("write.folder-storage.path", {}), ("write.object-storage.path", HASHED)]
)
def test_a_property_that_iceberg_refuses_is_refused(key: str, properties: dict[str, str]) -> None:
    """Where the new property stands beside it, that one counts."""
    with pytest.raises(TableMismatch) as caught:
        place(ROOT, properties | {key: "s3://f"}, [], "u.parquet")

    assert str(caught.value) == (
        f"Table shop.t says by {key} where its files belong, which Iceberg does not read any more. "
        f"Hint: Set the table property write.data.path instead, and remove {key}."
    )
    assert place(ROOT, properties | ELSEWHERE | {key: "s3://f"}, [], "u").startswith("s3://other/x/")
