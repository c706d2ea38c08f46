"""The Iceberg tables of a changefeed: which are open, where they are, and what they have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.checkpoint import Checkpoint
from applier.changefeed.completeness import Completeness
from applier.changefeed.filter import TableFilter
from applier.changefeed.history import SUFFIX
from applier.changefeed.route import Route
from applier.changefeed.table import TableName, TableVersion
from applier.config.readers import refuse_unreadable
from applier.config.settings import SinkSection
from applier.errors import TableMismatch
from applier.pipeline.tables import kept_tables
from applier.pipeline.tables.changefeed import Changefeed, Recorder
from applier.pipeline.tables.ddl_stamp import DROPPED_AT
from applier.pipeline.tables.listed_tables import ListedTables
from applier.pipeline.tables.side_by_side import SideBySide
from applier.pipeline.tables.table_maker import TableMaker
from applier.sink.commit.fence import fence
from applier.sink.commit.stamp import Stamp, covered
from applier.sink.iceberg import clone
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.table import Table
from applier.sink.write.table_writer import TableWriter


@dataclass(slots=True)
class TargetTables:
    """The tables of one changefeed, as they are in the catalog.

    Args:
        confirm: Raises CheckpointConflict once another process has the changefeed; before what no commit can refuse.
        fenced: Highest epoch of a process that lost the changefeed and may be alive; a table with its stamp is fenced.
        beside: Where the table is that readers see, which its changes lie beside; as `identifier` when absent.
        spelt: The name of a table that is known, in the letters in which it was made; None for any other.

    Attributes:
        snapshots: Heads for the checkpoint.
        kept: Tables that were dropped upstream and are kept, with the commit ts of the DROP, as far as they were met.
        listed: What the checkpoint lists.
    """

    catalog: Catalog
    feed: Changefeed
    maker: TableMaker
    route: Route
    sink: SinkSection
    confirm: Callable[[], None] = lambda: None
    fenced: int = 0
    spelt: Callable[[TableName], TableName | None] = lambda name: name
    beside: Callable[[TableName], tuple[str, ...]] | None = None
    records: Recorder = field(default_factory=Recorder)
    snapshots: dict[tuple[str, ...], int] = field(default_factory=dict, init=False)
    listed: ListedTables = field(default_factory=ListedTables, init=False)
    kept: dict[tuple[str, ...], int] = field(default_factory=dict, init=False)
    _writers: dict[tuple[str, ...], TableWriter] = field(default_factory=dict, init=False)
    side_by_side: SideBySide = field(init=False)

    def __post_init__(self) -> None:
        self.side_by_side = SideBySide(lambda: self.sink.threads)

    @property
    def include(self) -> TableFilter:
        """Which upstream tables are followed."""
        return TableFilter(self.maker.settings.include)

    def identifier(self, name: TableName) -> tuple[str, ...]:
        """Where a table goes: one that is known is spelt as it was when it was made. Changes go beside their table."""
        owner = self.maker.rules.owner(name)
        if owner is None:
            return self.route.identifier(self.spelt(name) or name)
        *namespace, table = (self.beside or self.identifier)(owner)
        return (*namespace, f"{table}{SUFFIX}")

    @contextmanager
    def as_holder(self) -> Iterator[None]:
        """Raise CheckpointConflict in place of TableMismatch where the next holder moved or dropped tables."""
        try:
            yield
        except TableMismatch:
            self.confirm()
            raise

    def restore(self, names: Iterable[TableName], checkpoint: Checkpoint) -> dict[TableName, int]:
        """Look at the tables anew, after a start or a failed step, whose tables are not in the checkpoint.

        Returns:
            Resolved ts of the tables that are ahead of the checkpoint; 0 in a feed in offset order.
        """
        self._writers.clear()
        self.records.clear()
        self.listed.restore(checkpoint, self.identifier)
        self.snapshots = dict(checkpoint.cut.heads)
        ahead = {}
        names = list(names)
        for name in [*names, *filter(None, map(self.maker.rules.changes, names))]:
            try:
                writer = self.writer(name)
            except TableMismatch as error:
                # A table that is parked for it, or the next row of it, says so.
                self.confirm()
                self.listed.broken[name] = error
                continue
            if writer is None or writer.known is None:
                self.snapshots.pop(self.identifier(name), None)
                continue
            if (is_ahead := self._is_ahead(name, writer.known, checkpoint)) or not checkpoint.cut.at:
                writer.table.meet(writer.head)
            if is_ahead:
                if self.maker.rules.owner(name) is None:
                    ahead[name] = writer.known.resolved_ts
                self.listed.pass_by(writer)
                self.snapshots.pop(writer.table.identifier, None)
                self.snapshots |= {} if writer.head is None else {writer.table.identifier: writer.head}
        return ahead

    def _is_ahead(self, name: TableName, known: Stamp, checkpoint: Checkpoint) -> bool:
        if self.feed.order.has_watermark:
            return known.resolved_ts > checkpoint.resolved_ts
        return bool(self.covered(name).beyond(checkpoint.next_offsets))

    def damage(
        self, name: TableName, *, is_listed: bool = False, version: TableVersion | None = None
    ) -> TableMismatch | None:
        """Why nothing may be written to a table as others have left it; see `ListedTables.damage`.

        With a `version`, also why the rules for types, which may have changed, give its rows other types than it has.
        """
        if name in self.listed.broken:
            return self.listed.broken[name]
        writer = self.writer(name)
        found = self.listed.damage(self.identifier(name), writer, is_listed=is_listed)
        if found is not None or writer is None or version is None:
            return found
        return self.maker.misfit(writer, version)

    def tracked_identity(self, name: TableName, *, is_settled: bool) -> str:
        """What a table is, as `Tracked.identity` has it; one whose name is not settled is what it was before."""
        identifier = self.identifier(name)
        if is_settled and (writer := self._writers.get(identifier)) is not None:
            self.listed.meet(identifier, writer)
        return self.listed.identity(identifier)

    def applied_ts(self, name: TableName) -> int | None:
        """Resolved ts of the table's last commit that counts; None for a table that no applier has written."""
        writer = self.writer(name)
        return writer.known.resolved_ts if writer and writer.known else None

    def covered(self, name: TableName) -> AppliedOffsets:
        """Rows that a table has, by its stamp in a feed in offset order."""
        writer = self.writer(name)
        # What an earlier changefeed left there counts other messages.
        return AppliedOffsets() if writer is None or writer.known is None else covered(writer.table)

    def writer(self, name: TableName) -> TableWriter | None:
        """The writer of a table; None if the catalog has no such table.

        One that was dropped upstream and is kept is not the table of its name: see `dropped`.
        """
        found = self._open(name)
        return None if self.identifier(name) in self.kept else found

    def dropped(self, name: TableName) -> TableWriter | None:
        """The writer of a table that was dropped upstream, is kept, and still has its name; None if there is none."""
        found = self._open(name)
        return found if self.identifier(name) in self.kept else None

    def _open(self, name: TableName) -> TableWriter | None:
        identifier = self.identifier(name)
        if identifier not in self._writers:
            table = self.catalog.load(identifier)
            self.kept.pop(identifier, None)
            if table is None:
                return None
            found = self._writers[identifier] = self.opened(table)
            if found.known is not None and DROPPED_AT in found.known.extra:
                self.kept[identifier] = int(found.known.extra[DROPPED_AT])
        return self._writers[identifier]

    def make_way(self, name: TableName) -> None:
        """Let a dropped table that is kept give its name to the new one."""
        writer = self.dropped(name)
        if writer is None:
            return
        identifier = writer.table.identifier
        self.confirm()
        aside = kept_tables.aside(identifier, str(self.kept[identifier]))
        self.catalog.rename(identifier, aside)
        self.kept[aside] = self.kept.pop(identifier)
        self.forget(name)

    def stamp(
        self,
        name: TableName,
        upto: int,
        extra: Mapping[str, str] | None = None,
        writer: TableWriter | None = None,
        known: Completeness | None = None,
    ) -> Stamp:
        """What a commit of a table says about itself, and of the table where that is new; see `Recorder.entries`."""
        settled = {} if writer is None or self.records.job else clone.cut_again(writer.table)
        return self.feed.stamp(upto, {**settled, **self.records.entries(name, writer, known), **(extra or {})}, writer)

    def opened(self, table: Table) -> TableWriter:
        """A writer of a table that was just loaded, which takes no commit of a process that lost the changefeed.

        Raises:
            CheckpointConflict: A newer applier holds the table.
            ConfigError: `tables.readers` names one that cannot read it.
        """
        if self.maker.settings.readers:
            refuse_unreadable(self.maker.settings.readers, table.format_version, str(table))
        writer = TableWriter(table, self.feed.name, self.feed.epoch)
        if writer.known is not None and writer.known.epoch <= self.fenced:
            fence(table, self.feed.name, self.feed.epoch, self.fenced)
            writer.reload()
        return writer

    @property
    def writers(self) -> list[TableWriter]:
        """Writers of the tables that are known."""
        return [*self._writers.values()]

    def close(self, name: TableName) -> None:
        """Let go of a writer: the next one reads its table again."""
        identifier = self.identifier(name)
        self._writers.pop(identifier, None)
        self.records.forget(name, identifier)

    def forget(self, *names: TableName) -> None:
        """Let go of writers whose tables were dropped or made anew."""
        for name in names:
            self.close(name)
            self.snapshots.pop(self.identifier(name), None)
            self.listed.forget(self.identifier(name))

    def renamed(self, name: TableName, to: TableName) -> None:
        """Follow a table to its new name, also one that others have dropped: it is missing under the new name then."""
        self.listed.rename(self.identifier(name), self.identifier(to))
        for each in (name, to):
            self.close(each)
            self.snapshots.pop(self.identifier(each), None)

    def ensure(self, version: TableVersion, stamp: Stamp) -> TableWriter:
        """The writer of a table, which is created, or adopted if it exists and fits.

        Raises:
            TableMismatch: A table of that name exists, but its columns do not fit.
        """
        found = self.writer(version.name)
        if found is not None:
            self.maker.adopt(found, version)
            return found
        self.make_way(version.name)
        return self.make(version, stamp)

    def make(self, version: TableVersion, stamp: Stamp) -> TableWriter:
        """Create a table, and return its writer. Threads may, each a table of its own."""
        identifier = self.identifier(version.name)
        self.confirm()
        self.listed.forget(identifier)
        self.kept.pop(identifier, None)
        found = self._writers[identifier] = self.opened(self.maker.make(identifier, version, stamp.entries()))
        return found

    def follow(self, writer: TableWriter) -> None:
        """Remember the head that a table was found with: an earlier process, a copy or Iceberg itself made it."""
        writer.table.meet(writer.head)
        self.committed(writer, writer.head)

    def committed(self, writer: TableWriter, snapshot_id: int | None) -> None:
        """Remember the head of a table for the checkpoint."""
        if snapshot_id is not None:
            self.snapshots[writer.table.identifier] = snapshot_id
            self.listed.follow(writer.table.identifier, snapshot_id)
