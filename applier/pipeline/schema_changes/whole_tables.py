"""DDL of whole tables: CREATE, which may make many at once, DROP, TRUNCATE and RENAME."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby

from applier.changefeed.completeness import LIVE, Reason
from applier.changefeed.event import SchemaChange
from applier.changefeed.table import TableName
from applier.ddl import actions
from applier.errors import RELOAD, SchemaChangeRefused, TableMismatch
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.schema_changes import moved_names
from applier.pipeline.schema_changes.apply_to_rows import dropped, truncated
from applier.pipeline.schema_changes.decision import DdlRules
from applier.pipeline.schema_changes.track import declared, move_past
from applier.pipeline.state import State
from applier.pipeline.tables import parking
from applier.pipeline.tables.ddl_stamp import DDL, is_in, mark, shown
from applier.pipeline.tables.kept_tables import aside
from applier.pipeline.tables.table_maker import refuse_held
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime import failpoints
from applier.sink.iceberg.catalog import JavaError, end_rename
from applier.sink.write.table_writer import TableWriter

_AGAIN = "run `applier resume -c FILE --tables TABLE`."


@dataclass(frozen=True, slots=True)
class TableDdl:
    """Creates, drops, empties and renames target tables. Each method may be called again after a crash."""

    targets: TargetTables
    state: State

    def apply(self, change: SchemaChange, action: actions.Action) -> None:
        """Apply an action on whole tables, or raise SchemaChangeRefused; others, such as on views, change nothing."""
        match action:
            case actions.CreateTable() as create:
                self._create(change, create)
            case actions.DropTable(table):
                self._drop(table, change.commit_ts)
            case actions.DropDatabase(database):
                for name in self.state.tables.of_database(database):
                    self._drop(name, change.commit_ts)
            case actions.TruncateTable(table):
                self._truncate(change, table)
            case actions.RenameTable() as rename:
                self._rename(change, rename)

    def is_absent(self, change: SchemaChange, action: actions.Action) -> bool:
        """Whether the table that an action changes is not here, neither by what is known nor in the catalog."""
        done = actions.effect(action)
        needed = (*done.leaving(()), *done.emptied, *done.thinned)
        if not needed or any(name in self.state.tables or self.targets.writer(name) is not None for name in needed):
            return False
        admits = self.targets.include.admits
        return not any(self.is_renamed(change, to) or not admits(table) for table, to in done.moved)

    def _create(self, change: SchemaChange, create: actions.CreateTable) -> None:
        """Create a table, in the columns that the message describes or the statement declares."""
        version = declared(change, create)
        if version is None and (like := self.state.tables.source(create)) is not None:
            version = like.renamed(create.table)
        if version is None:
            among = f" (LIKE {' or '.join(map(str, create.among))})" if create.among else ""
            what = f"The columns of table {create.table} are not known{among}: {shown(change.sql)}."
            raise SchemaChangeRefused(what, RELOAD)
        self._free(change, create.table)
        found = self.targets.writer(create.table)
        stamp = self.targets.stamp(create.table, change.commit_ts, {DDL: mark(change)}, known=LIVE)
        if found is None:
            self._make_way(create.table)
            self.targets.make(version, stamp)
            return
        if self._is_stale(change, create.table, found):
            # The DROP of the table before was passed over: its rows would stay in the new one.
            self._drop(create.table, change.commit_ts, is_passed=True)
        self._make_way(create.table)
        if not self.targets.maker.loaded:
            refuse_held(self.targets.writer(create.table), is_placed=self.targets.feed.order.parts_at_ddl)
        self.targets.ensure(version, stamp)

    def _free(self, change: SchemaChange, name: TableName) -> None:
        """Take a name off the table that has it here alone: a statement gives it to another one, in its own letters."""
        if (known := self.state.completeness.get(name)) is None or not known.is_misnamed:
            return
        if (writer := self.targets.writer(name)) is not None and not is_in(writer.known, change):
            self._drop(name, change.commit_ts, is_passed=True)
        self.state.tables.apply(actions.DropTable(name), change.commit_ts)

    def _is_stale(self, change: SchemaChange, name: TableName, found: TableWriter) -> bool:
        """Whether a table that a CREATE TABLE meets holds another one of its name, which is gone upstream."""
        if found.known is None or name in self.state.parked:
            return name in self.state.parked and not is_in(found.known, change)
        is_led = self.targets.feed.order.parts_at_ddl
        newest = found.known.resolved_ts if is_led else self.targets.covered(name).newest
        # Rows of the very window, from before the DDL, have its commit ts as their stamp; and so has an export of that.
        upto = change.commit_ts - (self.state.loaded.get(name) == change.commit_ts)
        return 0 < newest <= upto and not is_in(found.known, change)

    def _drop(self, name: TableName, commit_ts: int, *, is_passed: bool = False) -> None:
        """Drop a table, or mark it as dropped and keep it, as `tables.on_drop` says.

        One whose DROP `is_passed` stays, unless it is parked: the configuration ignores what removes it.
        """
        if (changes := self.targets.maker.rules.changes(name)) is not None:
            self._drop(changes, commit_ts, is_passed=is_passed)
        if (writer := self.targets.writer(name)) is None:
            self.targets.forget(name)
            return
        owner = self.targets.maker.rules.owner(name) or name
        is_parked = owner in self.state.parked
        stays = not self.targets.include.admits(owner) if is_parked else is_passed
        # A kept table has left its name, too: a start before the checkpoint would find that others have dropped it.
        moved_names.begin(self.state)
        # What others alone have written is not the changefeed's to drop.
        if self.targets.maker.settings.on_drop == "drop" and not stays and writer.known is not None:
            self.targets.confirm()
            self.targets.catalog.drop(writer.table.identifier, purge=True)
        else:
            at = commit_ts
            # A job may come to the DROP again, behind an earlier one that has left changes of the same ts.
            while owner != name and self.targets.catalog.load(aside(writer.table.identifier, str(at))) is not None:
                at += 1
            upto = max(commit_ts, writer.known.resolved_ts if writer.known else 0)
            entries = dropped(at, self.state.tables.get(name))
            writer.stamp(self.targets.stamp(name, upto, entries, writer))
            self.targets.kept[writer.table.identifier] = at
        self.targets.forget(name)

    def _truncate(self, change: SchemaChange, name: TableName) -> None:
        writer = self.targets.writer(name)
        if writer is None or is_in(writer.known, change):
            return
        marks = {DDL: mark(change), **truncated(change, self.state.tables.get(name), self.state.completeness.get(name))}
        stamp = self.targets.stamp(name, change.commit_ts, marks, writer, LIVE)
        self.targets.committed(writer, writer.truncate(stamp).snapshot_id)

    def _rename(self, change: SchemaChange, rename: actions.RenameTable) -> None:
        """Rename a table; one that leaves `tables.include` is dropped, and one that enters it lacks its rows so far.

        A name that `tables.include` leaves out, and that a table has only within the statement, is as any other.
        """
        admits = self.targets.include.admits
        if not admits(rename.table) and rename.table not in self.state.tables:
            what = f"Table {rename.table} becomes {rename.to}, which is replicated, but its rows so far are not here."
            raise SchemaChangeRefused(what, RELOAD)
        if not admits(rename.last):
            self._drop(rename.table, change.commit_ts)
            return
        self._free(change, rename.to)
        writer = self.targets.writer(rename.table)
        self._rename_changes(change, rename)
        if writer is not None and not self.is_renamed(change, rename.to):
            _refuse_taken(change, rename, self.targets.writer(rename.to))
            if not is_in(writer.known, change):
                # The mark is there before the name: found under the new one it says that the rename was made.
                known = self.state.completeness.get(rename.table)
                writer.stamp(self.targets.stamp(rename.to, change.commit_ts, {DDL: mark(change)}, writer, known))
            self._move(writer, rename.to)
        elif writer is not None:
            end_rename(self.targets.catalog, writer.table.identifier, self.targets.identifier(rename.to))
        self.targets.renamed(rename.table, rename.to)
        renamed = self.targets.writer(rename.to)
        if renamed is not None:
            self.targets.follow(renamed)

    def _rename_changes(self, change: SchemaChange, rename: actions.RenameTable) -> None:
        """Take the changes of a table along, before the table: a step that dies between the two is repeated for it.

        Raises:
            SchemaChangeRefused: Their place is taken, or the pattern of the new name keeps none.
        """
        own, to = self.targets.maker.rules.changes(rename.table), self.targets.maker.rules.changes(rename.to)
        writer = None if own is None else self.targets.writer(own)
        # Those of a job are where readers have them.
        if own is None or writer is None or self.targets.beside is not None or self.is_renamed(change, rename.to):
            return
        if to is None:
            said = shown(change.sql)
            what = f"The pattern of table {rename.to}, which {rename.table} becomes, keeps no changes: {said}."
            way_out = f'Give [tables."{rename.to}"] history = "changes", and'
            raise SchemaChangeRefused(what, f"{way_out} {_AGAIN}")
        if self.targets.identifier(to) == writer.table.identifier:
            return
        _refuse_taken(change, rename, self.targets.writer(to))
        self._move(writer, to)
        self.targets.renamed(own, to)
        failpoints.reach("changes-renamed")
        if (renamed := self.targets.writer(to)) is not None:
            self.targets.follow(renamed)

    def _move(self, writer: TableWriter, to: TableName) -> None:
        self._make_way(to)
        moved_names.begin(self.state)
        self.targets.confirm()
        self.targets.catalog.rename(writer.table.identifier, self.targets.identifier(to))

    def _make_way(self, name: TableName) -> None:
        if self.targets.dropped(name) is not None:
            moved_names.begin(self.state)
            self.targets.make_way(name)

    def come_back(self, names: Sequence[TableName], reason: Reason) -> None:
        """Park tables whose rows came back unseen; what is kept of them from before is no longer what they are."""
        admits = self.targets.include.admits
        for name in filter(admits, names):
            parking.park(self.state, self.targets, name, reason)
            self._make_way(name)

    def pass_done(self, action: actions.Action) -> None:
        """Follow tables to the names that a step which failed gave them; the catalog has them so."""
        done = actions.effect(action)
        for table, to in done.moved:
            self.targets.renamed(table, to)
        for table in done.leaving(self.state.tables):
            if table not in dict(done.moved):
                self.targets.forget(table)

    def pass_parked(self, change: SchemaChange, group: Sequence[actions.Action], *, done: bool) -> None:
        """Let parked tables keep what they are, and know what their upstream is; a rename frees the former name.

        One that is `done` already is not done again: another table may have the former name since.

        Raises:
            SchemaChangeRefused: The new name of a table is taken.
        """
        rename = group[0] if isinstance(group[0], actions.RenameTable) else None
        if rename is not None and not done:
            self._rename_parked(change, rename)
        move_past(change, group, self.state, self.targets)
        self.follow_include(group)

    def follow_include(self, group: Sequence[actions.Action]) -> None:
        """Leave a renamed table out, or let it come back, as `tables.include` says of its new name."""
        for rename in group:
            if isinstance(rename, actions.RenameTable):
                is_wanted = self.targets.include.admits(rename.last)
                parking.follow_include(self.state, self.targets, rename.to, is_wanted=is_wanted)

    def _rename_parked(self, change: SchemaChange, rename: actions.RenameTable) -> None:
        """Rename a parked table, so that its former name is free; how far it is stays as it is."""
        self._free(change, rename.to)
        writer, target = self.targets.writer(rename.table), self.targets.writer(rename.to)
        if writer is None or (target is not None and target.table.setting(DDL) == mark(change)):
            return
        if self.targets.identifier(rename.to) == writer.table.identifier:
            return
        _refuse_taken(change, rename, self.targets.writer(rename.to))
        self._rename_changes(change, rename)
        known = writer.known
        if known is not None and known.extra.get(DDL) != mark(change):
            # As in `_rename`: the mark is there before the name.
            state = self.state.completeness.get(rename.table)
            stamp = self.targets.stamp(rename.to, 0, {DDL: mark(change)}, writer, state)
            writer.stamp(replace(stamp, resolved_ts=known.resolved_ts))
        self._move(writer, rename.to)
        self.targets.renamed(rename.table, rename.to)

    def is_renamed(self, change: SchemaChange, to: TableName) -> bool:
        """Whether a table has its new name already."""
        target = self.targets.writer(to)
        return target is not None and is_in(target.known, change)


def _refuse_taken(change: SchemaChange, rename: actions.RenameTable, target: TableWriter | None) -> None:
    """In offset order the rename out of a name may lie in a part of its topic that is not read yet."""
    if target is None:
        return
    what = f"Table {rename.table} becomes {rename.to}, but another table has that name: {shown(change.sql)}."
    other = f"No changefeed writes the Iceberg table {target.table}. Drop it there, or give it another name"
    again = "start `applier run -c FILE` again."
    raise SchemaChangeRefused(what, RELOAD if target.known else f"{other}, and {again}")


@dataclass(frozen=True, slots=True)
class NewTables:
    """Makes tables before the turn of their CREATE TABLE, which finds them made as one that is repeated does."""

    targets: TargetTables
    state: State
    rules: DdlRules

    def in_turn(self, ddl: Sequence[Ddl], is_first: Callable[[Ddl], bool]) -> Iterator[Ddl]:
        """The DDL in their order; what those in a row that make tables have done is kept in one commit behind the last.

        A process that dies among them leaves tables that are made, not recorded: the next one finds each at its turn.

        Args:
            ddl: The DDL; each is to be applied before the next is asked for.
            is_first: No rows are due before a DDL in its tables.
        """
        for is_making, group in groupby(ddl, lambda item: item.is_making and self.state.keeps_cut):
            run = list(group)
            # Of two tables of one place the second one waits for its turn.
            apart = {self.targets.identifier(item.made.table): item for item in reversed(run) if item.made is not None}
            if is_making and len(apart) > 1:
                self.targets.side_by_side(self._make, [item for item in apart.values() if is_first(item)])
            for item in run:
                if is_making and len(run) > 1 and self.state.ddl.held is None:
                    self.state.ddl.held = []
                yield item
            self.settle()

    def settle(self) -> None:
        """Keep what is in memory alone, in one commit to each control table."""
        held, self.state.ddl.held = self.state.ddl.held, None
        if held:
            self.state.keep_versions()
            self.state.control.record_schema_changes(held)
            for _ in held:
                failpoints.reach("ddl-recorded")

    def _make(self, ddl: Ddl) -> None:
        """Make the table of a CREATE TABLE where nothing has its name; what speaks against it is found at its turn."""
        change, create = ddl.barrier.change, ddl.made
        if create is None or create.table in self.state.completeness or self.state.ddl.is_begun(change.id):
            return
        verdict = self.rules.decide(change, ddl.actions, self.state.parked, self.state.ddl)
        version = declared(change, create) if verdict.decision == "applied" else None
        with suppress(JavaError, TableMismatch):
            if version is not None and not self.targets.catalog.exists(self.targets.identifier(create.table)):
                stamp = self.targets.stamp(create.table, change.commit_ts, {DDL: mark(change)}, known=LIVE)
                self.targets.make(version, stamp)
                failpoints.reach("table-made")
