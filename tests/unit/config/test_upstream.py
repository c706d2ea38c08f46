"""A folder of CREATE TABLE texts in, the tables that are replicated out, or one sentence that names what is wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from applier.config.settings import parse
from applier.config.upstream import UpstreamSection, supplied_tables
from applier.errors import ConfigError

TEXT = "CREATE TABLE `t` (`id` int NOT NULL, PRIMARY KEY (`id`));"


def test_without_a_folder_nothing_is_supplied() -> None:
    """The section may be absent."""
    assert not len(supplied_tables(UpstreamSection(), ["*.*"]))


def test_tables_that_are_left_out_are_not_supplied(tmp_path: Path) -> None:
    """Plain and compressed files are read; those of other tables, and files of rows, do no harm."""
    (tmp_path / "yard.t-schema.sql").write_text(TEXT)
    (tmp_path / "mill.t-schema.sql.gz").write_bytes(gzip.compress(TEXT.encode()))
    (tmp_path / "yard.t.000000000.sql").write_text("INSERT INTO `t` VALUES (1);")

    tables = supplied_tables(UpstreamSection(schemas=str(tmp_path)), ["*.*", "!yard.*"])

    assert list(map(str, tables)) == ["mill.t"]


def test_an_absent_folder_is_refused(tmp_path: Path) -> None:
    """The sentence names the folder and the command that makes one."""
    with pytest.raises(ConfigError) as refusal:
        supplied_tables(UpstreamSection(schemas=f"{tmp_path}/none"), ["*.*"])

    assert str(refusal.value) == (
        f"Cannot read folder {tmp_path}/none of upstream.schemas: No such file or directory. Export the tables with "
        "`tiup dumpling --no-data -o DIR`, and name that folder as upstream.schemas."
    )


def test_a_folder_without_schema_files_is_refused(tmp_path: Path) -> None:
    """An empty folder supplies nothing, and that is no success."""
    (tmp_path / "metadata").write_text("")
    with pytest.raises(ConfigError, match=r"holds no schema file \(\*\.sql\)\. Export the tables with"):
        supplied_tables(UpstreamSection(schemas=str(tmp_path)), ["*.*"])


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """The sentence names the file."""
    (tmp_path / "yard.t-schema.sql").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"Cannot read file yard\.t-schema\.sql .*: it is no text in UTF-8\. Export"):
        supplied_tables(UpstreamSection(schemas=str(tmp_path)), ["*.*"])


def test_a_text_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """The sentence names the file and the statement."""
    (tmp_path / "yard.t-schema.sql").write_text("CREATE TABLE t (id NUMBRE)")
    with pytest.raises(ConfigError, match=r"File yard\.t-schema\.sql of upstream\.schemas cannot be read: .*NUMBRE"):
        supplied_tables(UpstreamSection(schemas=str(tmp_path)), ["*.*"])


def test_simple_needs_no_supplied_schemas() -> None:
    """Its messages describe each table, so the key would have no effect."""
    raw = {"changefeed": {"name": "a", "protocol": "simple"}, "source": {"archive": "x"}, "upstream": {"schemas": "y"}}

    with pytest.raises(ConfigError, match=r"upstream\.schemas: is not for protocol simple, whose messages describe"):
        parse({**raw, "catalog": {"name": "lake", "type": "hadoop", "warehouse": "lake"}})
