"""A recorded feed in, the rows that it would write to Iceberg out, in a form that compares over all protocols."""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from applier.changefeed.event import Bootstrap, Image, Resolved, RowChange, SchemaChange
from applier.changefeed.table import Column, TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.config.protocols import PROTOCOLS
from applier.ddl.parser import parse
from applier.ddl.schema_tracker import Tables
from applier.decode.avro.decoder import AvroDecoder
from applier.decode.debezium.avro_decoder import DebeziumAvroDecoder
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from applier.decode.values.convert import to_array
from applier.errors import IncompleteRow
from tests import recordings
from tests.fuzz.corpus import protocol_of
from tests.unit.decode.described import decoder_of
from tests.unit.decode.recorded_registry import RecordedRegistry

Cells: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[TableName, int]
"""Table and commit ts."""


@dataclass(slots=True)
class Written:
    """What a feed would write.

    Attributes:
        rows: New images by table and commit ts, in the order of sending; commit ts 0 where the feed has none.
        gone: Key cells of rows that went, likewise: deletes, and old keys of updates that changed the key.
        columns: The columns that rows were converted by, by table and name.
        told: The columns as rows, registry or messages alone tell them, likewise.
        keys: The key of each table as they tell it.
        refused: Sentences of rows that the feed does not hold.
        has_resolved: It has watermarks.
        has_ddl: It has DDL messages.
    """

    rows: dict[Place, list[Cells]] = field(default_factory=lambda: defaultdict(list))
    gone: dict[Place, list[Cells]] = field(default_factory=lambda: defaultdict(list))
    columns: dict[tuple[TableName, str], Column] = field(default_factory=dict)
    told: dict[tuple[TableName, str], Column] = field(default_factory=dict)
    keys: dict[TableName, tuple[str, ...]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    has_resolved: bool = False
    has_ddl: bool = False

    def timeless(self) -> Written:
        """The same without commit ts, as a feed has it that carries none."""
        bare = replace(self, rows=defaultdict(list), gone=defaultdict(list))
        for name, ts in self.rows:
            bare.rows[name, 0] += self.rows[name, ts]
        for name, ts in self.gone:
            bare.gone[name, 0] += self.gone[name, ts]
        return bare

    def unsplit(self) -> Written:
        """The same without keys that went and came back in one transaction: TiCDC splits some updates so."""
        gone = {
            place: [key for key in keys if not any(key.items() <= row.items() for row in self.rows.get(place, ()))]
            for place, keys in self.gone.items()
        }
        return replace(self, gone=gone)


@lru_cache(maxsize=256)
def feed(scenario: str, variant: str, folder: Path, zone: str = "") -> Written:
    """Everything that a recorded feed would write, with the types that its own DDL tells.

    Args:
        scenario: Name of the scenario.
        variant: Name of the variant.
        folder: For claim-check files.
        zone: Time zone to read it in; that of its TiCDC server when empty.
    """
    carries = PROTOCOLS[protocol_of(variant)].carries
    reading = _Reading(recorded_decoder(scenario, variant, folder, zone), is_described=carries.schema == "messages")
    for record in recordings.records(scenario, variant):
        reading.take(record["key"], record["value"])
    return reading.finish()


def recorded_decoder(scenario: str, variant: str, folder: Path, zone: str = "") -> Decoder:
    """A decoder for a recorded changefeed; in another time zone than its server's where one is given."""
    protocol = protocol_of(variant)
    if zone:
        return build(protocol, DecoderOptions(timezone=zone))
    if protocol == "avro":
        zone = recordings.config(scenario, variant)["server_time_zone"]
        return AvroDecoder(RecordedRegistry(scenario, variant), zone)
    if protocol == "debezium-avro":
        return DebeziumAvroDecoder(RecordedRegistry(scenario, variant))
    return decoder_of(protocol, scenario, variant, folder)


class _Reading:
    """Follows a feed as the job does: DDL tell types and names, rows are converted by their version."""

    def __init__(self, decoder: Decoder, *, is_described: bool) -> None:
        self.decoder = decoder
        self.is_described = is_described
        self.tables = Tables()
        self.done: set[tuple[int, str]] = set()
        self.versions: dict[tuple[TableName, int], TableVersion] = {}
        self.taken: list[tuple[RowChange, TableVersion]] = []
        self.found = Written()

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Take one message."""
        try:
            events = self.decoder.decode(key, value)
        except IncompleteRow as error:
            self.found.refused.append(str(error))
            return
        for event in events:
            match event:
                case Bootstrap():
                    self._learn(event.version)
                    self._tell(event.version)
                case SchemaChange():
                    self._change(event)
                case Resolved():
                    self.found.has_resolved = True
                case RowChange():
                    self.taken.append((event, self._version(event)))

    def _learn(self, version: TableVersion) -> None:
        self.versions[version.name, version.version] = version

    def _tell(self, version: TableVersion) -> None:
        if not version.keys_only:
            self.found.told.update({(version.name, column.name): column for column in version.columns})
            self.found.keys[version.name] = version.key

    def _change(self, change: SchemaChange) -> None:
        self.found.has_ddl = True
        if change.after is not None:
            self._learn(change.after)
            self.decoder.learn(change.after)
        # Each partition gets a copy of it.
        if (change.commit_ts, change.sql) not in self.done:
            self.done.add((change.commit_ts, change.sql))
            for action in parse(change.sql, change.database):
                self.tables.apply(action, change.commit_ts)
        if not self.is_described:
            for table in self.tables.values():
                self.decoder.learn(table)

    def _version(self, row: RowChange) -> TableVersion:
        version, known = self.versions[row.name, row.version], self.tables.get(row.name)
        return version if known is None or self.is_described else version.refined(known)

    def finish(self) -> Written:
        """Convert all rows, those of one version together."""
        groups: dict[tuple[TableName, int], list[int]] = defaultdict(list)
        for number, (row, version) in enumerate(self.taken):
            groups[row.name, hash(version.to_json())].append(number)
        images: dict[int, tuple[Cells | None, Cells | None]] = {}
        for numbers in groups.values():
            images |= self._converted(numbers)
        for number, (row, version) in enumerate(self.taken):
            self._note(row, version, *images[number])
        return self.found

    def _note(self, row: RowChange, version: TableVersion, before: Cells | None, after: Cells | None) -> None:
        place, key = (row.name, row.commit_ts), version.key or tuple(column.name for column in version.columns)
        if after is not None:
            self.found.rows[place].append(after)
        if before is not None:
            old = {name: before[name] for name in key if name in before}
            if after is None or any(after.get(name) != value for name, value in old.items()):
                self.found.gone[place].append(old)

    def _converted(self, numbers: list[int]) -> dict[int, tuple[Cells | None, Cells | None]]:
        """Both images of rows of one version as cells: one array for each column."""
        version = self.taken[numbers[0]][1]
        sides = [(n, side) for n in numbers for side in ("before", "after")]
        cells: dict[tuple[int, str], Cells | None] = {
            (n, side): None if getattr(self.taken[n][0], side) is None else {} for n, side in sides
        }
        for column in version.columns:
            self.found.columns[version.name, column.name] = column
            held = [(place, image) for place in sides if column.name in (image := self._image(*place))]
            array, _ = to_array(
                [image[column.name] for _, image in held],
                column,
                self.decoder.wire,
                TypeRules(),
                f"{version.name}.{column.name}",
            )
            for (place, _), value in zip(held, array.to_pylist(), strict=True):
                row = cells[place]
                assert row is not None
                row[column.name] = _comparable(value)
        return {n: (cells[n, "before"], cells[n, "after"]) for n in numbers}

    def _image(self, number: int, side: str) -> Image:
        image: Image | None = getattr(self.taken[number][0], side)
        return image or {}


def _comparable(value: Any) -> Any:
    """Floats by their bits, lists as what compares by its elements."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    return tuple(map(_comparable, value)) if isinstance(value, list) else value
