"""Copies of tables, which a job writes while readers see the tables as they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.completeness import Completeness
from applier.changefeed.position import FeedPosition
from applier.changefeed.route import Route
from applier.changefeed.shape import SHAPE
from applier.changefeed.table import TableName
from applier.config import own_namespaces
from applier.config.tables import TablesSection
from applier.errors import BY_HAND, RangeRefused, TableMismatch, TransientError
from applier.pipeline.tables import loads
from applier.pipeline.tables.changefeed import ADOPTED, Recorder
from applier.pipeline.tables.ddl_stamp import DROPPED_AT
from applier.pipeline.tables.listed_tables import refuse_other
from applier.pipeline.tables.loads import LoadRecord
from applier.pipeline.tables.table_maker import refuse_held
from applier.pipeline.tables.target_tables import TargetTables
from applier.sink.commit.stamp import OFFSETS
from applier.sink.control.table_record import RECORD, TableRecord
from applier.sink.iceberg import clone
from applier.sink.iceberg.table import Table
from applier.sink.write.table_writer import TableWriter


class CopyOutdated(TransientError):
    """A copy is gone, or its table was written or replaced while it was brought up to date: it begins anew."""


@contextmanager
def forgetting(targets: TargetTables, more: Sequence[tuple[str, ...]] = ()) -> Iterator[None]:
    """Forget the copies of a changefeed, and `more`, once a block has written the checkpoint that ends their jobs.

    They are asked for before: afterwards another process may have the changefeed and copies of its own, which must
    stay. The files of those that were not shown are orphans of their tables.
    """
    there = [*targets.catalog.list((own_namespaces.resumes(targets.feed.name),)), *more]
    yield
    for identifier in there:
        targets.catalog.drop(identifier)


@dataclass(slots=True)
class Copies:
    """The copies of one job.

    Args:
        main: The tables as readers see them.
        route: Where the copies go, as `tables.route`, in the folded names of their tables; to a place of the job when
            absent.
    """

    main: TargetTables
    job: str
    route: str = ""
    targets: TargetTables = field(init=False)
    _namespace: tuple[str, ...] = field(init=False)
    _origins: dict[tuple[str, ...], TableName] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._namespace = tuple(self.settings.route.split(".")[:-1])
        self.targets = replace(
            self.main,
            maker=replace(self.main.maker, create=self._make, settings=self.settings),
            route=Route(self.settings.route),
            beside=self.main.identifier,
            records=Recorder(job=self.job),
            # A job and a load find their tables by name, in whatever letters a file, a request or a DDL has it.
            spelt=lambda name: TableName(*name.folded),
        )

    @property
    def settings(self) -> TablesSection:
        """Where the copies go; a copy of a table that is dropped is only forgotten."""
        route = self.route or f"{own_namespaces.resumes(self.main.feed.name)}.{{both}}__{self.job}"
        changes = {"route": route, "include": ("*.*",), "on_drop": "keep", "incomplete": "allow"}
        return self.main.maker.settings.model_copy(update=changes)

    def make(self, name: TableName, position: FeedPosition) -> None:
        """Copy a table as it is now, by the name that readers know; `position` is where it left the feed.

        Raises:
            TableMismatch: It is not there, was rolled back, or another one has its name.
        """
        # Judged as it is now, and copied as it was judged: others may have rolled it back while it was parked.
        self.main.close(name)
        damage, writer = self.main.damage(name), self.main.writer(name)
        if damage is not None:
            raise damage
        if writer is None:
            what = f"Table {'.'.join(self.main.identifier(name))} is not in the catalog."
            raise TableMismatch(what, "Register it again from its last metadata file (system.register_table).")
        refuse_other(writer, position.table)
        clone.clone(self.main.catalog, writer.table, self.targets.identifier(position.name), self.job)

    def again(self, name: TableName, ts: int) -> None:
        """Copy a table as others have left it; all rows above a commit ts are to be applied to the copy again.

        Raises:
            RangeRefused: It is gone.
        """
        feed, catalog = self.main.feed, self.main.catalog
        writer = self.main.writer(name)
        if writer is None:
            raise gone(self.main.identifier(name))
        copy = clone.clone(catalog, writer.table, self.targets.identifier(name), self.job)
        # A row that it holds may come again as a new one, and none of the messages counts as applied.
        marks = {ADOPTED: "true"} | ({} if feed.order.has_watermark else {OFFSETS: AppliedOffsets().to_text()})
        TableWriter(copy, feed.name, feed.epoch).stamp(feed.stamp(ts, marks))

    def settle(self, name: TableName, own: TableName, upto: int, marks: Mapping[str, str]) -> None:
        """Stamp a copy as its table is, once it has all that the table has up to a commit ts; see `again`."""
        catalog = self.main.catalog
        copy, table = catalog.load(self.targets.identifier(own)), catalog.load(self.main.identifier(name))
        if copy is None:
            return
        before = {} if table is None else table.properties
        kept = {OFFSETS: before[OFFSETS]} if OFFSETS in before else {}
        stamp = self.main.feed.stamp(upto, {**kept, **marks})
        TableWriter(copy, stamp.changefeed, stamp.epoch).stamp(stamp, () if ADOPTED in before else (ADOPTED,))

    def take(self, name: TableName, loaded: LoadRecord, table: Table) -> None:
        """Copy what a table was loaded into; one that was fenced meanwhile takes the same files once more.

        Readers know the table by `name`, as the changefeed may have come past a rename.

        Raises:
            TableMismatch: The table was written meanwhile, with other columns or partition fields.
        """
        own, catalog = loaded.name, self.main.catalog
        identifier, shown = self.targets.identifier(own), catalog.load(self.main.identifier(name))
        if shown is None or shown.setting(DROPPED_AT) is not None or clone.is_built_on(table, shown):
            clone.clone(catalog, table, identifier, self.job, shown)
            return
        catalog.drop(identifier)
        self.targets.forget(own)
        self.expect(name, own)
        stamp = self.targets.feed.stamp(loaded.tso, loads.entries(self.main, loaded))
        writer = self.targets.ensure(loaded.version, stamp)
        changed = f"of table {shown} have changed while table {name} was loaded."
        is_shaped = (writer.table.setting(SHAPE) or "") == (table.setting(SHAPE) or "")
        if writer.table.schema_json != table.schema_json or not is_shaped:
            raise TableMismatch(f"The columns {changed}", "Load it again.")
        if writer.table.spec_json["fields"] != table.spec_json["fields"]:
            raise TableMismatch(f"The partition fields {changed}", "Export it again, and load that.")
        if table.snapshot_id is not None:
            writer.append(lambda: writer.table.files.copied(table.files.all()), stamp)

    def refuse_held(self, name: TableName) -> None:
        """Refuse a table that begins with its CREATE TABLE but already holds rows of others; see `table_maker`."""
        self.main.close(name)
        refuse_held(self.main.writer(name))

    def expect(self, name: TableName, own: TableName) -> None:
        """Take note that the copy of a table begins with its CREATE TABLE."""
        self._origins[self.targets.identifier(own)] = name

    def show(self, name: TableName, own: TableName, known: Completeness) -> None:
        """Let readers see a copy in place of its table, which says what is known of it; may be called again.

        Raises:
            CopyOutdated: The table was written or replaced since it was copied, or the copy is gone.
            RangeRefused: It was written since it was shown: a new copy would be ahead of its place in the feed.
        """
        catalog, identifier = self.main.catalog, self.main.identifier(name)
        copy = catalog.load(self.targets.identifier(own))
        self.main.confirm()
        if copy is not None:
            feed, record = self.main.feed, {RECORD: TableRecord(name, known).to_text()}
            # Also refuses a copy that a newer applier holds.
            writer = TableWriter(copy, feed.name, feed.epoch)
            if copy.setting(RECORD) != record[RECORD]:
                feed.add(writer, record)
            # Another table of that name may have been dropped and kept.
            self.main.forget(name)
            self.main.make_way(name)
        table = catalog.load(identifier)
        if copy is not None and table is None:
            catalog.rename(copy.identifier, identifier)
        elif not self._shows(table, copy):
            if table is None or copy is None:
                raise CopyOutdated(f"The copy of table {name} is gone, so the table is brought back anew")
            self.main.opened(table)
            if clone.is_built_on(copy, table):
                clone.show(table, copy)
            elif clone.has_shown(copy, table):
                raise RangeRefused(f"Table {table} was written by others while it was brought back.", BY_HAND, [own])
            else:
                raise CopyOutdated(f"Table {table} was written while it was brought back, which begins anew")
        self.main.forget(name)
        # A job writes the changes beside the table that readers see.
        for each in filter(None, (name, self.main.maker.rules.changes(name))):
            self._follow(each)

    def _follow(self, name: TableName) -> None:
        self.main.close(name)
        if (shown := self.main.writer(name)) is not None:
            self.main.follow(shown)

    def is_outdated(self, name: TableName, own: TableName) -> bool:
        """Whether a copy that was made is gone, or its table was written or replaced since."""
        catalog = self.main.catalog
        table, copy = catalog.load(self.main.identifier(name)), catalog.load(self.targets.identifier(own))
        is_ready = copy is not None and (table is None or clone.is_built_on(copy, table))
        return not is_ready and not self._shows(table, copy)

    def is_shown(self, name: TableName, own: TableName) -> bool:
        """Whether readers see a copy in place of its table already."""
        catalog = self.main.catalog
        return self._shows(catalog.load(self.main.identifier(name)), catalog.load(self.targets.identifier(own)))

    def _shows(self, table: Table | None, copy: Table | None) -> bool:
        """Whether a table shows its copy, which is renamed if it had no table to take the place of.

        Snapshots that fence them may have followed in both.
        """
        if table is None or copy is None:
            return table is not None and clone.is_of(table, self.job)
        is_same = copy.schema_json == table.schema_json and _last_change(copy) == _last_change(table)
        return is_same and clone.has_shown(copy, table)

    def _make(self, identifier: tuple[str, ...], columns: pa.Schema, **options: Any) -> Table:
        """A table that begins anew keeps its identity: its copy gets other columns, and no rows. A table of
        changes, which readers see, is made in its own place.

        Raises:
            CopyOutdated: The table does not begin here: made anew, its copy would lack all rows of before.
        """
        catalog, name = self.main.catalog, self._origins.pop(identifier, None)
        if identifier[:-1] != self._namespace:
            return catalog.create(identifier, columns, **options)
        if name is None:
            raise CopyOutdated(f"Copy {'.'.join(identifier)} is gone, so its table is brought back anew")
        table = catalog.load(self.main.identifier(name))
        if table is None or table.setting(DROPPED_AT) is not None:
            options["properties"] = {**options["properties"], **clone.mark(self.job)}
            # It is renamed once readers may see it, and its files stay where they are.
            return catalog.create(identifier, columns, home=self.main.identifier(name), **options)
        copy = clone.clone(catalog, table, identifier, self.job)
        return clone.begin_anew(catalog, copy, columns, **options)


def gone(identifier: Sequence[str]) -> RangeRefused:
    """The refusal of a table that no range makes anew."""
    what = f"Table {'.'.join(identifier)} is not in the catalog, and the range does not hold all of its rows."
    way_out = (
        "register its last metadata file again (system.register_table); or begin the range before its CREATE TABLE, "
        "which makes it anew; see docs/backfill.md."
    )
    return RangeRefused(what, way_out)


def _last_change(table: Table) -> int | None:
    """The newest snapshot that changed rows."""
    kinds = ("added-", "deleted-", "removed-")
    return next((item.id for item in table.history() if any(key.startswith(kinds) for key in item.summary)), None)
