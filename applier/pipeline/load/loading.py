"""Loads the tables of an export: rows into tables aside, a commit for each group of files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import msgspec

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.packing import packed
from applier.changefeed.shape import METADATA_COLUMNS
from applier.changefeed.table import TableName, TableVersion, fold
from applier.changefeed.types import TypeRules
from applier.config.login import Login
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import Export
from applier.decode.dump.file_columns import export_of_missing, missing
from applier.decode.dump.part_reader import PartReader
from applier.decode.tidb.range_reader import RangeReader
from applier.decode.tidb.table_ranges import order_of
from applier.decode.tidb.tidb_export import TidbExport
from applier.errors import CheckpointConflict, TableMismatch, TerminalError, ValueRefused
from applier.pipeline.jobs.copies import Copies
from applier.pipeline.load.generated import Generated
from applier.pipeline.load.key_order import KeyRange, are_apart
from applier.pipeline.load.spark import PART_BYTES, Part, Reader, Staged, has_twice, stage_files
from applier.pipeline.tables.changefeed import ADOPTED
from applier.pipeline.tables.loads import LoadRecord, entries, route
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime import failpoints
from applier.runtime.logs import logger
from applier.runtime.outages import OUTAGES
from applier.sink.commit.stamp import OFFSETS, Stamp
from applier.sink.tidb_partitions.expression import Inexact
from applier.sink.write.table_writer import TableWriter

if TYPE_CHECKING:
    from applier.decode.dump.export import File

GROUP_BYTES = 512 << 20
"""Bytes of files that one commit takes, or more where that is less than one part for each core: after a kill at most so
much is read again."""

_MEETINGS = 10
"""Times that a load may meet another one of the same table before it gives way."""

Told = Callable[[TableName, int, int], None]
"""Takes the rows and the bytes of files of a table that a commit has brought."""


class LoadStopped(TerminalError):
    """A load was asked to stop; what is loaded so far stays."""


@dataclass(frozen=True, slots=True)
class Loader:
    """Loads the tables of an export, or of a TiDB, aside; readers see nothing of it. Parts of a table are its files.

    Args:
        targets: The tables as readers see them.
        form: How its CSV files are written, or where the TiDB is.
        told: Takes progress.
        stop: Once it is set, no further group of files is begun.
    """

    targets: TargetTables
    export: Export | TidbExport
    form: CsvForm | Login
    told: Told = lambda name, rows, size: None
    stop: threading.Event = field(default_factory=threading.Event)
    copies: Copies = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "copies", Copies(self.targets, "load", route(self.targets.feed.name)))

    def all(self, names: Sequence[TableName]) -> dict[TableName, TerminalError]:
        """Load tables, several at once; what an earlier attempt has loaded of the same export stays.

        Returns:
            Tables that cannot be loaded, as a file cannot be read or a value does not fit; all others are.

        Raises:
            CheckpointConflict: Another process loads the same table.
            LoadStopped: It was asked to stop.
            TransientError: Something outside did not answer.
        """
        refused: dict[TableName, TerminalError] = {}
        bulk = sorted(names, key=self.export.size, reverse=True)
        with ThreadPoolExecutor(self.targets.sink.threads) as pool:
            for name, done in [(name, pool.submit(self._load, name)) for name in bulk]:
                try:
                    done.result()
                except (CheckpointConflict, LoadStopped):
                    pool.shutdown(cancel_futures=True)
                    raise
                except TerminalError as error:
                    refused[name] = error
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        return refused

    def _load(self, name: TableName) -> None:
        version = self.version(name)
        files: Sequence[Part] = self.export.files.get(name, ())
        self._refuse_keyless(version)
        refuse_names(version)
        self._refuse_generated(version, files)
        for attempt in range(_MEETINGS):
            self.copies.expect(name, name)
            try:
                self._go_on(version, files)
            except (CheckpointConflict, TableMismatch):
                # Another load has written the table: what it has brought of this export counts.
                if attempt == _MEETINGS - 1:
                    raise
            else:
                logger().info("table loaded", table=str(name), files=len(files), resolved_ts=self.export.tso)
                return

    def _go_on(self, version: TableVersion, files: Sequence[Part]) -> None:
        """Load what is not loaded yet.

        Raises:
            CheckpointConflict, TableMismatch: Another process has written the table meanwhile.
        """
        self.copies.targets.forget(version.name)
        writer, load = self._begun(version)
        self.told(version.name, 0, sum(file.size for file in files[: load.files]))
        # The keys in files that another attempt has loaded are not known.
        ranges, is_known = list[KeyRange](), load.files == 0
        cores = int(self.targets.catalog.java.session.sparkContext.defaultParallelism)
        size = max(GROUP_BYTES, PART_BYTES * cores)
        while load.files < load.of:
            if self.stop.is_set():
                raise LoadStopped("The load was stopped.", "Give the command again, which goes on.")
            group = packed(files[load.files :], lambda file: file.size, size)[0]
            staged = self._staged(writer, version, group)
            ranges += staged.ranges
            at = load.files + len(group)
            is_unique = at == load.of and (not version.shape.is_idempotent or (is_known and are_apart(ranges)))
            load = msgspec.structs.replace(load, files=at, is_unique=is_unique)
            self._add(writer, load, staged, sum(file.size for file in group))
        if not load.is_unique:
            self._refuse_twice(writer, load, version)

    def _refuse_keyless(self, version: TableVersion) -> None:
        """Refuse a table without a key in offset order, where rows of the export may come once more."""
        if not version.shape.is_idempotent and not self.targets.feed.order.has_watermark:
            what = f"Table {version.name} has no key: offset order does not show which of its rows the feed repeats."
            raise ValueRefused(what, "Let TiCDC send watermarks, or leave the table out in tables.include.")

    def _refuse_generated(self, version: TableVersion, files: Sequence[Part]) -> None:
        """Refuse a table with a column that no file holds and nothing else gives exactly."""
        reader, generated = self._reader(version)
        if isinstance(reader, RangeReader) or not files:
            return
        try:
            for name in missing(version, reader.columns(cast("File", files[0])), generated.rules):
                generated.expression(name)
        except Inexact as error:
            what = f"The export lacks a stored generated column of table {version.name}, and {error}."
            command = export_of_missing(version.name, self.export.tso)
            hint = f"Remove its files, export it into the same folder with `{command}`, and load it."
            raise ValueRefused(what, hint) from None

    def _reader(self, version: TableVersion) -> tuple[Reader, Generated]:
        rules = self.copies.targets.maker.rules
        text = self.export.texts.get(version.name, "")
        generated = Generated(version, rules, text)
        return reader_of(self.export, self.form, version, rules), generated

    def version(self, name: TableName) -> TableVersion:
        """A table as the export declares it; its number is the TSO, as no message has it."""
        return replace(self.export.version(name), version=self.export.tso)

    def _begun(self, version: TableVersion) -> tuple[TableWriter, LoadRecord]:
        """The table aside; one of another export or form, or of columns that no reader sees, is made anew."""
        targets, name = self.copies.targets, version.name
        writer = targets.writer(name)
        load = None if writer is None else LoadRecord.told_by(writer.table.properties)
        files, partitioning = self.export.files.get(name, ()), self.export.tables.partitioning(name)
        tso, described, form = self.export.tso, version.to_json(), repr(self.form)
        bounds = self.export.bounds.get(name, ()) if isinstance(self.export, TidbExport) else ()
        mark = mark_of(self.export, name)
        fresh = LoadRecord(name, tso, 0, len(files), described, partitioning, not files, form, bounds, mark)
        begun = None if load is None else msgspec.structs.replace(load, files=0, is_unique=not files)
        is_shaped = writer is not None and targets.maker.reshaped(writer, version) is None
        if writer is not None and load is not None and begun == fresh and is_shaped:
            return writer, load
        if writer is not None:
            targets.catalog.drop(targets.identifier(name))
            targets.forget(name)
        writer = targets.ensure(version, targets.feed.stamp(self.export.tso, self._entries(fresh)))
        if LoadRecord.told_by(writer.table.properties) != fresh:
            # Another load has made it since, and has brought rows: brought once more, they would be there twice.
            raise _met(name)
        return writer, fresh

    def _entries(self, load: LoadRecord) -> dict[str, str]:
        found = entries(self.targets, load)
        if not self.targets.feed.order.has_watermark:
            # Rows around the TSO come once more: a key that is new to the feed may be in the table.
            found |= {ADOPTED: "true", OFFSETS: AppliedOffsets().to_text()}
        return found

    def _staged(self, writer: TableWriter, version: TableVersion, group: Sequence[Part]) -> Staged:
        session = self.targets.catalog.java.session
        staged = stage_files(session, writer.table, *self._reader(version), group, self.export.tso)
        failpoints.reach("load-staged")
        return staged

    def _add(self, writer: TableWriter, load: LoadRecord, staged: Staged, size: int) -> None:
        try:
            done = writer.append(lambda: staged.files, self._stamp(writer, load))
        except CheckpointConflict:
            raise _met(load.name) from None
        # What holds the rows has given some: in a load of hours, an outage of it is not the one before.
        OUTAGES.worked("other")
        failpoints.reach("load-committed")
        self.told(load.name, done.upserted, size)
        shown = f"{load.files} of {load.of}"
        logger().debug("files loaded", table=str(load.name), files=shown, zero_dates=staged.zero_dates)

    def _stamp(self, writer: TableWriter, load: LoadRecord) -> Stamp:
        return self.copies.targets.feed.stamp(load.tso, self._entries(load), writer)

    def _refuse_twice(self, writer: TableWriter, load: LoadRecord, version: TableVersion) -> None:
        """Refuse a table in which two rows have one key: the next change of it would leave one of them."""
        catalog = self.targets.catalog
        if has_twice(catalog.java.session, catalog.name, writer.table, version.key):
            what = f"Rows of table {load.name} have one key ({', '.join(version.key)}) in"
            if isinstance(self.export, TidbExport):
                check = "Run ADMIN CHECK TABLE on it there, and see tables.zero_dates if the key has dates."
                raise ValueRefused(f"{what} {self.export.title}.", check)
            hint = "Export the table again into an empty folder, and keep its files as they are."
            raise ValueRefused(f"{what} files of the export.", hint)
        writer.stamp(self._stamp(writer, msgspec.structs.replace(load, is_unique=True)))


def mark_of(export: Export | TidbExport, name: TableName) -> str:
    """What tells a table of a TiDB from one of the same name in another cluster; "" for one of an export."""
    return export.marks.get(name, "") if isinstance(export, TidbExport) else ""


def _met(name: TableName) -> CheckpointConflict:
    what = f"Another process loads table {name}."
    return CheckpointConflict(what, "Wait for it, or stop it; then give the command again.")


def reader_of(export: Export | TidbExport, form: CsvForm | Login, version: TableVersion, rules: TypeRules) -> Reader:
    """What reads the parts of a table of an export, or of a TiDB."""
    if isinstance(form, Login):
        return RangeReader(form, export.tso, version, rules, order_of(version, export.texts.get(version.name, "")))
    return PartReader(export.address, form, version, rules)


def refuse_names(version: TableVersion) -> None:
    """Refuse, by ValueRefused, a table whose columns have names that keep Spark from looking for keys in it."""
    for name in version.key:
        if fold(name) in METADATA_COLUMNS:
            what = f"Table {version.name} cannot be loaded: {name} is a name of Iceberg's own columns to Spark."
            hint = "Rename the column upstream and export the table again, or leave the table out in tables.include."
            raise ValueRefused(what, hint)
