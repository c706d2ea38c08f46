from __future__ import annotations

import pytest

from applier.sink.iceberg.location import FileExtent, folder_name, has_uuid, own


def test_two_tables_of_one_name_get_two_locations() -> None:
    """A location of its own is never the same twice."""
    assert own("s3://lake/shop/a/") != own("s3://lake/shop/a")


@pytest.mark.parametrize(
    ("location", "name", "expected"),
    [
        ("s3://lake/shop/a", "a", False),
        ("s3://lake/0190c9f0-7e1c-7c5b-a3a1-0242ac120002", "a", True),
        ("s3://lake/shop/a-0190c9f07e1c7c5ba3a10242ac120002/", "a", True),
        ("s3://lake/0190c9f07e1c7c5ba3a10242ac120002/a", "a", False),
        ("s3://lake/shop/t_0190c9f07e1c7c5ba3a10242ac120002", "t_0190c9f07e1c7c5ba3a10242ac120002", False),
    ],
)
def test_a_uuid_counts_where_the_catalog_put_it(location: str, name: str, expected: bool) -> None:
    """A UUID in the last folder is the catalog's, unless it belongs to the name of the table."""
    assert has_uuid(location, name) is expected


@pytest.mark.parametrize("part", ["表" * 64, "表" * 63 + "名", "a" * 400])
def test_long_names_are_cut_and_stay_different(part: str) -> None:
    """A folder name leaves room for a suffix within 255 bytes, and differs where names differ anywhere."""
    assert len(folder_name(part)) <= 255 - 33
    assert folder_name(part) != folder_name(part[:-1] + "x")


OURS = "s3://lake/shop/a/data"


@pytest.mark.parametrize(
    ("location", "properties", "expected"),
    [
        ("s3://lake/shop/a", {}, True),
        ("s3a://lake/shop/a/", {}, True),
        ("s3://lake/shop/b", {}, False),
        ("s3://lake/shop", {}, False),
        ("s3://lake/shop/a/data/x", {}, True),
        ("s3://lake/shop/b", {"write.data.path": "s3://lake/shop/a/data"}, True),
        ("s3://lake/shop/b", {"write.data.path": "s3://lake/shop"}, True),
        ("s3://lake/shop/b", {"write.object-storage.path": "s3n://lake/shop/a/data/y"}, True),
        ("s3://lake/shop/a2", {}, False),
    ],
)
def test_a_folder_is_reached_by_whoever_may_write_into_it(
    location: str, properties: dict[str, str], expected: bool
) -> None:
    """A table reaches a folder if it lies in it, writes into it, or writes into a folder that holds it."""
    assert FileExtent.of(location, properties).reaches(OURS) is expected
