"""Which lakes are copies: by where the control table lies, where its metadata does, and which catalog made it."""

from __future__ import annotations

from pathlib import Path

import pytest

from applier.config.settings import CatalogSection
from applier.sink.control.whereabouts import ForeignLake, is_other, refuse_foreign


def _section(kind: str, warehouse: str, uri: str = "jdbc:postgresql://db/lake") -> CatalogSection:
    return CatalogSection.model_validate({"name": "lake", "type": kind, "uri": uri, "warehouse": warehouse})


def _look(section: CatalogSection, location: str, metadata: str = "", file: str | None = None) -> None:
    metadata = metadata or f"{location.rstrip('/')}/metadata/v3.metadata.json"
    refuse_foreign(section, "applier_shop.checkpoints", location, metadata, file)


@pytest.mark.parametrize(
    ("kind", "warehouse", "location"),
    [
        ("jdbc", "/lake", "/lake/applier_shop/checkpoints"),
        ("jdbc", "/lake/", "file:/lake/applier_shop/checkpoints/"),
        ("jdbc", "file:///lake", "file:/lake/applier_shop/checkpoints"),
        ("hadoop", "s3a://bucket/lake", "s3://bucket/lake/applier_shop/checkpoints"),
        ("rest", "prod", "s3://elsewhere/applier_shop/checkpoints"),
        ("rest", "s3://bucket/lake", "s3://elsewhere/applier_shop/checkpoints"),
        ("glue", "s3://bucket/lake", "s3://database-of-its-own/checkpoints"),
    ],
)
def test_a_lake_is_its_own(kind: str, warehouse: str, location: str) -> None:
    """However its places are written; other catalogs choose the places of tables themselves."""
    _look(_section(kind, warehouse), location)


@pytest.mark.parametrize(
    ("kind", "warehouse", "location"),
    [
        ("jdbc", "/copy/lake", "/lake/applier_shop/checkpoints"),
        ("jdbc", "/lake", "/lake2/applier_shop/checkpoints"),
        ("jdbc", "s3://copy/lake", "s3://lake/applier_shop/checkpoints"),
        ("jdbc", "s3://bucket/lake", "gs://bucket/lake/applier_shop/checkpoints"),
        ("hadoop", "/copy", "file:/lake/applier_shop/checkpoints"),
    ],
)
def test_a_table_outside_of_the_warehouse_is_that_of_another_lake(kind: str, warehouse: str, location: str) -> None:
    """Both places are named, and what to set."""
    with pytest.raises(ForeignLake) as refusal:
        _look(_section(kind, warehouse), location)
    (problem,) = refusal.value.problems
    assert problem == (
        f"Catalog lake names table applier_shop.checkpoints at {location}, which is not below catalog.warehouse, "
        f"{warehouse}: it is a copy of the catalog of another lake, whose files it would change. To go on with that "
        "lake, set catalog.uri and catalog.warehouse to those of it. docs/backup.md says how a lake is copied and "
        "moved; nothing was written."
    )


def test_metadata_that_was_copied_names_the_files_of_another_lake() -> None:
    """As in a catalog in which copied metadata files were registered."""
    with pytest.raises(ForeignLake, match="by s3://copy/c/metadata/v3.metadata.json, a copy of a file of s3://lake/c:"):
        _look(_section("rest", "prod"), "s3://lake/c", "s3://copy/c/metadata/v3.metadata.json")


def test_a_link_is_no_copy(tmp_path: Path) -> None:
    """A warehouse that was moved and linked to where it was."""
    (tmp_path / "new" / "c").mkdir(parents=True)
    (tmp_path / "old").symlink_to(tmp_path / "new")
    _look(_section("jdbc", f"{tmp_path}/new"), f"{tmp_path}/old/c")
    _look(_section("jdbc", f"{tmp_path}/old"), f"{tmp_path}/new/c")


def test_of_two_catalogs_of_the_same_files_one_is_a_copy(tmp_path: Path) -> None:
    """As long as the other one is there: one that is gone was moved here."""
    own, other = tmp_path / "copy.db", tmp_path / "catalog.db"
    own.touch()
    other.touch()
    section = _section("jdbc", "/lake", f"jdbc:sqlite:{own}")
    _look(section, "/lake/c", file=str(own))
    _look(section, "/lake/c", file=None)
    with pytest.raises(ForeignLake, match=f"Catalog {own} is a copy of {other}, which is still there, and both name"):
        _look(section, "/lake/c", file=str(other))
    other.unlink()
    _look(section, "/lake/c", file=str(other))
    other.symlink_to(own)
    assert not is_other(own, other)
