"""How TiCDC's cloud storage sink lays out its files: paths in, the partitions that they make out.

Below the prefix lie `metadata`, `SCHEMA/meta/schema_V_C.json` and `SCHEMA/TABLE/meta/schema_V_C.json`, and the rows in
`SCHEMA/TABLE/V[/PARTITION][/DATE]/CDC[_WRITER_]000001.json`, or `.csv`. TiCDC counts the files of a folder
from 1 on, so the number of a file is its offset. Each file is one message. A TiCDC that ended before its index counted
the last file writes that one again: all its rows are above the checkpoint-ts by then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from applier.changefeed.message import TopicPartition
from applier.changefeed.window import OffsetRange
from applier.errors import SourceLost

Ending: TypeAlias = Literal["json", "csv"]
"""How the names of files with rows end: those of Canal-JSON, and of CSV, whose rows need their schema file."""

METADATA = "metadata"
"""The file with the checkpoint-ts, and the partition without messages that stands for it."""

_SCHEMA = re.compile(r"(?P<folder>.+/meta)/schema_(?P<version>\d{1,19})_\d{10}\.json")
_DATA = re.compile(r"(?P<folder>.+)/CDC(?:_(?P<writer>[\w-]+)_)?(?P<number>\d{6,20})\.(?P<ending>json|csv)")
_INDEX = re.compile(r".+/meta/CDC[\w-]*\.index")
_OLD = re.compile(r".+/\d+/schema\.json")
_UNFINISHED = re.compile(r".+\.tmp\.[0-9a-f-]{36}")

WHOLE_HINT = (
    "if the folder is a copy, copy it again from where TiCDC wrote it; else load the tables again and start a "
    "changefeed under a new name, with a new folder that nothing removes files from."
)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as a listing shows it.

    Attributes:
        path: Its path below the prefix.
        size: Its bytes.
        written_ms: Unix time at which it was written; None where the storage does not show it.
    """

    path: str
    size: int
    written_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a folder as of one look, by the partition and the offset of the message that each is.

    Attributes:
        checkpoint_ts: All rows and DDL at or below it are in these files.
        rows: Files with rows; a folder of TiCDC is a partition, or what one of several writers put into it.
        schemas: Schema files by their `meta` folder, in the order of their versions.
    """

    checkpoint_ts: int
    rows: Mapping[TopicPartition, Mapping[int, StoredFile]] = field(default_factory=dict)
    schemas: Mapping[TopicPartition, Sequence[StoredFile]] = field(default_factory=dict)

    @property
    def bounds(self) -> dict[TopicPartition, OffsetRange]:
        """All partitions; those of rows begin at their first file, whether it is still there or not."""
        rows = {place: OffsetRange(0, max(files) + 1) for place, files in self.rows.items()}
        schemas = {place: OffsetRange(0, len(files)) for place, files in self.schemas.items()}
        return {TopicPartition(METADATA, 0): OffsetRange(0, 0), **schemas, **rows}

    def at(self, place: TopicPartition, offset: int) -> StoredFile:
        """The file of an offset. Raises SourceLost if it is gone."""
        if place in self.schemas:
            return self.schemas[place][offset]
        found = self.rows.get(place, {}).get(offset)
        if found is None:
            raise _gone(place, offset)
        return found

    def schema_of(self, place: TopicPartition) -> StoredFile:
        """The schema file of a folder with rows. Raises SourceLost if it is gone."""
        parts = place.topic.split("/")
        for number, version in enumerate(parts):
            files = self.schemas.get(TopicPartition("/".join((*parts[:number], "meta")), 0), ())
            if found := next((file for file in files if _version(file.path) == version), None):
                return found
        raise SourceLost(f"Folder {place.topic} of the storage sink has rows, and no schema file.", WHOLE_HINT)


def arrange(checkpoint_ts: int, files: Iterable[StoredFile], ending: Ending = "json") -> Listing:
    """Arrange files by the messages that they are.

    Raises:
        SourceLost: A number is missing between two files, or a file is not as TiCDC names those with this ending; or
            rows of CSV have no schema file.
    """
    rows: dict[TopicPartition, dict[int, StoredFile]] = {}
    schemas: dict[TopicPartition, list[StoredFile]] = {}
    for file in files:
        if match := _SCHEMA.fullmatch(file.path):
            schemas.setdefault(TopicPartition(match["folder"], 0), []).append(file)
        elif (match := _DATA.fullmatch(file.path)) and match["ending"] == ending:
            topic = f"{match['folder']}/CDC_{match['writer']}" if match["writer"] else match["folder"]
            if not file.size:
                continue  # TiCDC ended while it wrote that one, and gives its number to the next.
            rows.setdefault(TopicPartition(topic, 0), {})[int(match["number"]) - 1] = file
        else:
            _refuse_odd(file, ending)
    for place, numbered in rows.items():
        _refuse_gap(place, numbered)
    in_order = {place: sorted(found, key=lambda file: int(_version(file.path))) for place, found in schemas.items()}
    listing = Listing(checkpoint_ts, rows, in_order)
    for place in rows if ending == "csv" else ():
        listing.schema_of(place)
    return listing


def _version(path: str) -> str:
    match = _SCHEMA.fullmatch(path)
    return match["version"] if match else "0"


def _refuse_odd(file: StoredFile, ending: Ending) -> None:
    name = file.path.rsplit("/", 1)[-1]
    if _OLD.fullmatch(file.path):
        hint = "let TiCDC v7.0 or later write a new folder."
        raise SourceLost(f"File {file.path} is of the layout that TiCDC before v7.0 wrote.", hint)
    if name.startswith("CDC") and not _INDEX.fullmatch(file.path) and not _UNFINISHED.fullmatch(file.path):
        protocol = "csv" if ending == "csv" else "canal-json"
        hint = (
            "set changefeed.protocol to that of the sink-uri, canal-json or csv; let TiCDC write a folder of nothing "
            "else."
        )
        raise SourceLost(f"File {file.path} is not one of protocol {protocol}.", hint)


def _refuse_gap(place: TopicPartition, numbered: Mapping[int, StoredFile]) -> None:
    first, last = min(numbered), max(numbered)
    if len(numbered) < last - first + 1:
        raise _gone(place, next(number for number in range(first, last) if number not in numbered))


def _gone(place: TopicPartition, offset: int) -> SourceLost:
    return SourceLost(f"File {offset + 1} of {place.topic} is gone from the folder of the storage sink.", WHOLE_HINT)
