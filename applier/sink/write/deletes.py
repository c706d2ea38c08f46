"""Writes delete files: one Puffin file of merged deletion vectors, or position deletes for format 2."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from applier.errors import TableMismatch, TransientError
from applier.sink.format.storage import Storage, read_each, read_ranges, reported, write_bytes
from applier.sink.format.types import FIELD_ID
from applier.sink.iceberg.files import DataFile, DeleteFile
from applier.sink.write.file_index import IndexedFile
from applier.sink.write.parquet import Positions

VECTOR_MAGIC = 1681511377
"""First word of a deletion vector, little-endian (Iceberg's Puffin specification, `deletion-vector-v1`)."""

PUFFIN_MAGIC = b"PFA1"
"""Begins and ends a Puffin file and its footer."""

ROW_POSITION_ID = 2147483645
FILE_PATH_ID = 2147483546
POSITION_ID = 2147483545
"""Field ids that Iceberg's table specification reserves."""

_POSITION_FIELDS: list[pa.Field[Any]] = [
    pa.field("file_path", pa.string(), False, {FIELD_ID: str(FILE_PATH_ID).encode()}),
    pa.field("pos", pa.int64(), False, {FIELD_ID: str(POSITION_ID).encode()}),
]


@dataclass(frozen=True, slots=True)
class Deletes:
    """The delete files of one commit.

    Attributes:
        files: New delete files.
        replaced: Deletion vectors that they take the place of.
        state: By path of a data file: the delete files that apply to it after the commit, and its dead positions.
    """

    files: list[DeleteFile] = field(default_factory=list)
    replaced: list[DeleteFile] = field(default_factory=list)
    state: dict[str, tuple[tuple[DeleteFile, ...], BitMap64]] = field(default_factory=dict)


def alive(hits: Mapping[str, Positions], files: Mapping[str, IndexedFile], storage: Storage) -> dict[str, Positions]:
    """Leave out of the hits the rows that are dead already; files without a hit left are left out too.

    What is read of old deletes is kept in `files`, so that the next batch does not read it again.
    """
    load_deleted([files[path] for path in hits], storage)
    result = {}
    for path, positions in hits.items():
        dead = files[path].deleted or BitMap64()
        living = np.asarray((BitMap64(positions) - dead).to_array()).astype(np.int64) if dead else positions
        if len(living):
            result[path] = living
    return result


def stage_vectors(
    hits: Mapping[str, BitMap64], files: Mapping[str, IndexedFile], storage: Storage, locate: Callable[[str], str]
) -> Deletes:
    """Write the deletion vectors of a commit: for each file the positions of living rows and all that were dead before.

    There must never be two vectors for one data file: readers refuse such a table. So the old one goes. `locate` gives
    the location of a new file of some name.
    """
    result = Deletes()
    if not hits:
        return result
    merged = {path: (files[path].deleted or BitMap64()) | positions for path, positions in hits.items()}
    body, blobs = puffin(merged)
    location = locate(f"{uuid.uuid4()}-deletes.puffin")
    write_bytes(storage, location, body)
    for path, positions in merged.items():
        old = files[path].file
        vector = DeleteFile.vector(location, len(body), blobs[path], len(positions), old)
        result.files.append(vector)
        result.replaced.extend(delete for delete in old.deletes if delete.is_vector)
        result.state[path] = ((vector,), positions)
    return result


def stage_position_deletes(
    hits: Mapping[str, BitMap64], files: Mapping[str, IndexedFile], storage: Storage, locate: Callable[[str], str]
) -> Deletes:
    """Write the position deletes of a commit to a table of format version 2: one Parquet file a partition."""
    result = Deletes()

    def partition(path: str) -> tuple[int, str]:
        file = files[path].file
        return file.spec_id, json.dumps(file.partition)

    for _, group in groupby(sorted(hits, key=lambda path: (partition(path), path)), partition):
        paths = list(group)
        delete = _position_delete_file({path: hits[path] for path in paths}, files[paths[0]].file, storage, locate)
        result.files.append(delete)
        for path in paths:
            dead = (files[path].deleted or BitMap64()) | hits[path]
            result.state[path] = ((*files[path].file.deletes, delete), dead)
    return result


def load_deleted(files: Sequence[IndexedFile], storage: Storage) -> None:
    """Read the dead positions of files that do not know theirs yet.

    Raises:
        TableMismatch: A delete file has a format that is not known.
        TransientError: A delete file cannot be read, or is damaged.
    """
    unknown = {indexed.file.path: indexed for indexed in files if indexed.deleted is None}
    dead = {path: BitMap64() for path in unknown}
    vectors, shared = defaultdict[str, list[tuple[str, DeleteFile]]](list), dict[str, DeleteFile]()
    for path, indexed in unknown.items():
        for delete in indexed.file.deletes:
            if delete.is_vector:
                vectors[delete.path].append((path, delete))
            else:
                shared[delete.path] = delete
    for blobs in read_each(storage, partial(_read_vectors, storage), list(vectors.values())):
        for path, positions in blobs:
            dead[path] |= positions
    for of_paths in read_each(storage, partial(read_position_deletes, storage=storage), list(shared.values())):
        for path in of_paths.keys() & dead.keys():
            dead[path] |= BitMap64(of_paths[path])
    # Once all is read: what an error leaves out would count as alive, and the next vector would bring it back.
    for path, indexed in unknown.items():
        indexed.deleted = dead[path]


def _read_vectors(storage: Storage, of: Sequence[tuple[str, DeleteFile]]) -> list[tuple[str, BitMap64]]:
    """The vectors of some data files, by the paths of these, which are all in one file."""
    first = of[0][1]
    blobs = read_ranges(storage, first.path, [delete.blob for _, delete in of], first.size)
    return [(path, decode_vector(blob)) for (path, _), blob in zip(of, blobs, strict=True)]


def encode_vector(positions: BitMap64) -> bytes:
    """A deletion vector as a Puffin blob: length, magic, 64-bit portable Roaring bitmap, CRC-32."""
    body = struct.pack("<i", VECTOR_MAGIC) + positions.serialize()
    return struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def decode_vector(blob: bytes) -> BitMap64:
    """Read what `encode_vector` or another Iceberg writer wrote.

    Raises:
        TransientError: The blob is damaged.
    """
    body = blob[4:-4]
    if struct.unpack("<i", body[:4])[0] != VECTOR_MAGIC or struct.unpack(">I", blob[-4:])[0] != zlib.crc32(body):
        raise TransientError("A deletion vector is damaged: its magic word or checksum is wrong")
    return BitMap64.deserialize(body[4:])


def puffin(vectors: Mapping[str, BitMap64]) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """A Puffin file of deletion vectors by path of their data file: its bytes, and offset and length of each blob."""
    body = bytearray(PUFFIN_MAGIC)
    places: dict[str, tuple[int, int]] = {}
    blobs = []
    for path, positions in vectors.items():
        blob = encode_vector(positions)
        places[path] = (len(body), len(blob))
        metadata = {
            "type": "deletion-vector-v1",
            "fields": [ROW_POSITION_ID],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": len(body),
            "length": len(blob),
            "properties": {"referenced-data-file": path, "cardinality": str(len(positions))},
        }
        blobs.append(metadata)
        body += blob
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": "applier"}}).encode()
    # Footer: magic, payload, its length, four bytes of flags (none), magic.
    body += PUFFIN_MAGIC + footer + struct.pack("<i", len(footer)) + bytes(4) + PUFFIN_MAGIC
    return bytes(body), places


def read_position_deletes(delete: DeleteFile, storage: Storage) -> dict[str, Positions]:
    """Positions of a Parquet file of position deletes, by path of the data file."""
    if delete.format != "parquet":
        what = f"Delete file {delete.path} is in {delete.format} format"
        raise TableMismatch(what, "Run rewrite_position_delete_files or rewrite_data_files once.")
    with reported("read", delete.path), storage.open(delete.path, delete.size) as handle:
        table = pq.read_table(handle, columns=["file_path", "pos"], use_threads=False)
    found = table.group_by("file_path", use_threads=False).aggregate([("pos", "list")])
    paths: list[Any] = found["file_path"].to_pylist()
    return {path: np.sort(each.values.to_numpy()) for path, each in zip(paths, found["pos_list"], strict=True)}


def _position_delete_file(
    hits: Mapping[str, BitMap64], like: DataFile, storage: Storage, locate: Callable[[str], str]
) -> DeleteFile:
    paths = sorted(hits)
    indices = np.repeat(np.arange(len(paths)), [len(hits[path]) for path in paths])
    positions = np.concatenate([np.asarray(hits[path].to_array()).astype(np.int64) for path in paths])
    columns: list[Any] = [pa.array(paths, pa.string()).take(indices), pa.array(positions)]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays(columns, schema=pa.schema(_POSITION_FIELDS))
    pq.write_table(table, sink, compression="zstd", store_schema=False)
    body = sink.getvalue().to_pybytes()
    location = locate(f"{uuid.uuid4()}-deletes.parquet")
    write_bytes(storage, location, body)
    bounds = {
        name: {"keys": [FILE_PATH_ID], "values": [path.encode().hex().upper()]}
        for name, path in (("lower-bounds", paths[0]), ("upper-bounds", paths[-1]))
    }
    return DeleteFile.parse(like.beside("position-deletes", location, "parquet", len(body), len(positions)) | bounds)
