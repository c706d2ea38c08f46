"""Finds what a Dumpling export holds: its TSO, its tables, and the files with their rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote

import fsspec
import pyarrow as pa

from applier.changefeed.table import TableName, TableVersion, fold
from applier.ddl.schema_files import is_schema_file, read_schemas
from applier.ddl.schema_tracker import Tables
from applier.errors import EXPORT, ConfigError, SchemaChangeRefused

_ROWS = re.compile(
    r"(?P<db>.+?)\.(?P<table>.+?)\.(?P<number>\d+)(?:\.(?:zstd|zst|gzip|gz|snappy|none))?"
    r"\.(?P<kind>csv|sql|parquet)(?P<packed>\.\w+)?"
)
"""`database.table.000000000.csv`, and what compressed it; a dot in a name is written as %2E.

TiDB Cloud names in `.zstd.parquet` what compressed the pages, which Parquet files say themselves."""

Packing: TypeAlias = Literal["", "gzip", "zstd", "lz4"]

_PACKED: Mapping[str, Packing] = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".lz4": "lz4"}
"""By the end of a file's name, Arrow's name of what compressed it."""

HEADER_BYTES = 1 << 20
"""Bytes in which the header of a file ends: 4096 columns, each with a name of 64 characters."""

_TSO = re.compile(r"SHOW MASTER STATUS:[^\n]*\n\s*Log:[^\n]*\n\s*Pos:\s*(\d+)")

_FINISHED = re.compile(r"^Finished dump at: (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)$", re.MULTILINE)

_FIRST = datetime(2015, 1, 1)
"""Before the first TiDB: the binlog positions of MySQL are such numbers."""

_NAMED = 3
"""Exports in folders below that are named."""

_GONE = "or if all of it is loaded, and the folder is gone, remove upstream.dump."

_AGAIN = "Export again with `tiup dumpling`, and keep all of its files."


class File(NamedTuple):
    """A file with rows of one table.

    Attributes:
        path: Its path in the file system of the export.
        kind: `csv`, `sql` or `parquet`.
        packed: Arrow's name of what compressed it; "" for nothing.
        size: Its bytes.
        start: Where a part of it begins.
        end: Where the last line of the part begins at the latest, not included; None for the end of the file.
    """

    path: str
    kind: str
    packed: Packing
    size: int
    start: int = 0
    end: int | None = None

    @property
    def name(self) -> str:
        """Its name without the folder."""
        return self.path.rsplit("/", 1)[-1]

    @contextmanager
    def opened(self, address: str) -> Iterator[Any]:
        """Its bytes, unpacked, from its start on; the address is that of the export."""
        system, _ = fsspec.core.url_to_fs(address)
        with system.open(self.path, "rb") as raw:
            if self.packed:
                with pa.CompressedInputStream(raw, self.packed) as unpacking:
                    yield unpacking
            else:
                raw.seek(self.start)
                yield raw

    def beginning(self, address: str) -> bytes:
        """Its first bytes: some more than `HEADER_BYTES` where it has more."""
        data = b""
        with self._replace(start=0).opened(address) as stream:
            while len(data) <= HEADER_BYTES and (read := stream.read(HEADER_BYTES + 1)):
                data += read
        return data


@dataclass(frozen=True, slots=True)
class Export:
    """An export of some tables, as of one moment.

    Attributes:
        address: Its folder: a path, or an address that fsspec knows.
        tso: The moment: it holds every change at or below this commit ts, and none above.
        tables: Its tables, as their CREATE TABLE texts declare them.
        texts: The CREATE TABLE text of each table that has a file of its own.
        files: The files of each table, in the order of their numbers; a table without rows has none.
    """

    address: str
    tso: int
    tables: Tables
    texts: Mapping[TableName, str]
    files: Mapping[TableName, tuple[File, ...]]

    @property
    def title(self) -> str:
        """What it is, for people."""
        return f"Export {self.address}"

    def version(self, name: TableName) -> TableVersion:
        """A table as the export declares it."""
        found = self.tables.get(name)
        if found is None:
            raise ConfigError([f"Export {self.address} declares no table {name}."])
        return found

    def size(self, name: TableName) -> int:
        """Bytes of the files of a table."""
        return sum(file.size for file in self.files.get(name, ()))

    @staticmethod
    def find(address: str, way: Callable[[str], str] = 'write upstream.dump = "{}"'.format) -> Export:
        """List an export; no row is read. `way` says what to do with that of a folder below, where this one is none.

        Raises:
            ConfigError: It cannot be read, is not finished, or holds files that belong to no table.
        """
        with _reading(address):
            system, root = fsspec.core.url_to_fs(address)
            found = {item["name"].rsplit("/", 1)[-1]: item for item in system.ls(root, detail=True)}
            _refuse_packing(address, found)
            texts = {
                name: _text(system, found[name]["name"])
                for name in found
                if name == "metadata" or is_schema_file(_plain(name)) or _plain(name).endswith("-schema-view.sql")
            }
            if "metadata" not in texts:
                _refuse_higher(address, system, found.values(), way)
        schemas = {_plain(name): text for name, text in texts.items() if name != "metadata"}
        tables = _declared(address, schemas)
        tso, files = _tso(address, texts.get("metadata")), _files(address, found, tables)
        return Export(address, tso, tables, _texts(schemas, tables), files)


@contextmanager
def _reading(address: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # Every fsspec backend raises errors of its own.
        if isinstance(error, ConfigError):
            raise
        # What other errors say may hold what they could not read.
        own = str(error) if isinstance(error, ImportError) else ""
        reason = getattr(error, "strerror", None) or own.rstrip(".") or type(error).__name__
        what = f"Export {address} cannot be read: {reason}."
        raise ConfigError(
            [f"{what} Give the folder that `{EXPORT}` wrote, as it is seen from here; {_GONE}"]
        ) from error


def _refuse_higher(address: str, system: Any, found: Iterable[Mapping[str, Any]], way: Callable[[str], str]) -> None:
    """Refuse a folder whose own folders hold exports."""
    own = [item["name"] for item in found if item["type"] == "directory"]
    below = sorted(path.rsplit("/", 1)[-1] for path in own if system.exists(f"{path}/metadata"))
    if not below:
        return
    folders = [f"{address.rstrip('/')}/{name}" for name in below]
    ways = "; or ".join(map(way, folders[:_NAMED]))
    more = f"; {len(folders) - _NAMED} more folders hold others" if len(folders) > _NAMED else ""
    what = f"Folder {address} is no export, as it has no file `metadata`, but a folder below it is one."
    raise ConfigError([f"{what} Hint: {ways}{more}."])


def _tso(address: str, metadata: str | None) -> int:
    if metadata is None:
        raise ConfigError([f"Export {address} has no file `metadata`, which holds its TSO. {_AGAIN}"])
    finished, found = _FINISHED.search(metadata), set(_TSO.findall(metadata))
    if finished is None:
        raise ConfigError([f"Export {address} is not finished: its file `metadata` has no end. {_AGAIN}"])
    # Dumpling writes its own wall clock, of any zone.
    last = datetime.fromisoformat(finished[1]) + timedelta(days=1)
    if len(found) == 1 and _FIRST <= _moment(tso := int(*found)) <= last:
        return tso
    what = f"File `metadata` of export {address} holds no TSO (Pos under SHOW MASTER STATUS)."
    raise ConfigError([f"{what} Export a TiDB, not a MySQL, with --consistency snapshot or auto."])


def _moment(tso: int) -> datetime:
    # A number of any size may stand there.
    return datetime(1970, 1, 1) + timedelta(milliseconds=min(tso >> 18, 1 << 47))


def _declared(address: str, texts: Mapping[str, str]) -> Tables:
    try:
        return read_schemas(texts)
    except SchemaChangeRefused as refusal:
        raise ConfigError([f"{refusal.what} {refusal.hint}".replace("upstream.schemas", address)]) from None


def _texts(schemas: Mapping[str, str], tables: Tables) -> dict[TableName, str]:
    own = {fold(unquote(file.removesuffix("-schema.sql"))): text for file, text in schemas.items()}
    return {name: own[key] for name, _ in tables.items() if (key := fold(str(name))) in own}


def _files(address: str, found: Mapping[str, Mapping[str, Any]], tables: Tables) -> dict[TableName, tuple[File, ...]]:
    names = {name: name for name, _ in tables.items()}
    files: dict[TableName, list[tuple[int, File]]] = {name: [] for name in names.values()}
    for own, item in found.items():
        match = _ROWS.fullmatch(own)
        if match is None or is_schema_file(_plain(own)):
            continue
        name = names.get(TableName(unquote(match["db"]), unquote(match["table"])))
        if name is None:
            what = f"File {own} of export {address} belongs to no table that the export declares."
            raise ConfigError([f"{what} Export again without --no-schemas, and keep all files; or remove the file."])
        file = File(item["name"], match["kind"], _PACKED.get(match["packed"], ""), int(item["size"]))
        files[name].append((int(match["number"]), file))
    return {name: _in_order(address, numbered) for name, numbered in files.items()}


def _in_order(address: str, numbered: list[tuple[int, File]]) -> tuple[File, ...]:
    for (number, file), (other, double) in pairwise(sorted(numbered)):
        if number == other or file.kind != double.kind:
            what = f"Files {file.name} and {double.name} of export {address} are of two exports"
            raise ConfigError([f"{what}, or one is a copy. Remove what does not belong to the last export."])
    return tuple(file for _, file in sorted(numbered))


def _refuse_packing(address: str, names: Iterable[str]) -> None:
    """Refuse what is packed in another way: of `--compress snappy` the CREATE TABLE texts as well."""
    for name in names:
        rows, end = _ROWS.fullmatch(name), f".{name.rpartition('.')[2]}"
        if end not in _PACKED and (end == ".snappy" or (rows is not None and rows["packed"])):
            what = f"File {name} of export {address} is compressed as {end}; known are {', '.join(_PACKED)}."
            raise ConfigError([f"{what} Export again with `tiup dumpling --compress zstd`, and keep all of its files."])


def _plain(name: str) -> str:
    """The name of a file before it was compressed."""
    return name[: -len(end)] if (end := next(filter(name.endswith, _PACKED), "")) else name


def _text(system: Any, path: str) -> str:
    data: bytes = system.cat_file(path)
    packed: Packing = next((kind for end, kind in _PACKED.items() if path.endswith(end)), "")
    plain = pa.CompressedInputStream(pa.BufferReader(data), packed).read() if packed else data
    return plain.decode("utf-8")
