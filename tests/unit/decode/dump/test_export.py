"""What an export holds, and which exports are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from applier.changefeed.table import TableName
from applier.commands.load.outlook import opened
from applier.decode.dump.export import Export
from applier.errors import ConfigError
from tests.unit.commands.check.world import World
from tests.unit.decode.dump import dumpling

_T = TableName("d", "t")


def _problem(address: str) -> str:
    with pytest.raises(ConfigError) as refused:
        Export.find(address)
    return str(refused.value)


def test_files_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Numbers of a chunk within a table may have any width."""
    names = ["d.t.0000000100000.csv", "d.t.0000000020000.csv", "d.t.0000000000000.csv"]
    export = Export.find(dumpling.write(tmp_path, dict.fromkeys(names, b"")))
    assert export.tso == 470606910897520641
    assert [file.name for file in export.files[_T]] == sorted(names)


def test_tidb_cloud_names_the_compression_of_parquet(tmp_path: Path) -> None:
    """It is that of the pages, which the file itself shows."""
    export = Export.find(dumpling.write(tmp_path, {"d.t.0001.zstd.parquet": b""}))
    assert [(file.kind, file.packed) for file in export.files[_T]] == [("parquet", "")]


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (None, "has no file `metadata`"),
        (dumpling.METADATA.split("Finished")[0], "is not finished"),
        (dumpling.METADATA.replace("470606910897520641", "4"), "holds no TSO"),
        (dumpling.METADATA.replace("470606910897520641", "1" * 30), "holds no TSO"),
        (dumpling.METADATA.replace("2026-11-23", "2026-11-19"), "holds no TSO"),
        (dumpling.METADATA.replace("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"), "holds no TSO"),
    ],
    ids=["none", "unfinished", "MySQL", "no number of TiDB", "later than the export", "MySQL 8.4"],
)
def test_metadata_without_a_tso_is_refused(tmp_path: Path, metadata: str | None, said: str) -> None:
    """A binlog position of MySQL is no TSO."""
    problem = _problem(dumpling.write(tmp_path, {}, metadata))
    assert said in problem
    assert "Export" in problem


def test_an_export_one_folder_below_is_named(tmp_path: Path) -> None:
    """Dumpling is given a folder above it, or the user names one."""
    dumpling.write(tmp_path / "it's shop", {})
    (tmp_path / "else").mkdir()

    assert _problem(str(tmp_path)) == (
        f"Folder {tmp_path} is no export, as it has no file `metadata`, but a folder below it is one. "
        f'Hint: write upstream.dump = "{tmp_path}/it\'s shop".'
    )
    with pytest.raises(ConfigError) as refused:
        opened(World(tmp_path).config, f"{tmp_path}/", ["shop.a", "`d`.b"])
    assert str(refused.value).endswith(
        f"""Hint: run `applier load -c FILE --from '{tmp_path}/it'"'"'s shop' --tables 'shop.a,`d`.b'`."""
    )


def test_of_many_exports_below_some_are_named(tmp_path: Path) -> None:
    """Each is a way out, and the others are counted."""
    for name in "abcde":
        dumpling.write(tmp_path / name, {})

    assert _problem(str(tmp_path)).endswith(
        f'Hint: write upstream.dump = "{tmp_path}/a"; or write upstream.dump = "{tmp_path}/b"; or '
        f'write upstream.dump = "{tmp_path}/c"; 2 more folders hold others.'
    )


def test_tables_without_a_schema_file_are_refused(tmp_path: Path) -> None:
    """Nothing else shows the types of their columns."""
    problem = _problem(dumpling.write(tmp_path, {"d.t.000000000.csv": b""}, declared=""))
    assert "d.t.000000000.csv" in problem
    assert "--no-schemas" in problem


@pytest.mark.parametrize(
    "names",
    [
        ("d.t.000000000.csv", "d.t.000000000.csv.gz"),
        ("d.t.000000000.csv", "d.t.0.csv"),
        ("d.t.000000000.csv", "d.t.000000001.sql"),
    ],
)
def test_files_of_two_exports_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    """Their rows would come twice."""
    problem = _problem(dumpling.write(tmp_path, dict.fromkeys(names, b"")))
    assert "are of two exports" in problem


@pytest.mark.parametrize(
    ("name", "declared"),
    [("d.t.000000000.csv.xz", dumpling.DECLARED), ("d.t.000000000.sql.snappy", ""), ("d.t-schema.sql.snappy", "")],
)
def test_an_unknown_compression_is_refused(tmp_path: Path, name: str, declared: str) -> None:
    """The message lists the known ones, and how to get one, also where no CREATE TABLE can be read."""
    problem = _problem(dumpling.write(tmp_path, {name: b""}, declared=declared))
    end = name.rpartition(".")[2]
    assert f"File {name} of export {tmp_path} is compressed as .{end}; known are .gz, .zst, .zstd, .lz4." in problem
    assert "Export again with `tiup dumpling --compress zstd`, and keep all of its files." in problem


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The message shows its address."""
    assert "cannot be read" in _problem(str(tmp_path / "none"))
