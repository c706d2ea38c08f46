"""Applies what a window holds to the tables: DDL and rows in their order, and what one table refuses to it alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from applier.changefeed.completeness import Reason, Why
from applier.changefeed.fate import Fate, Fates
from applier.changefeed.position import FeedPosition
from applier.changefeed.table import TableName, TableVersion
from applier.config.settings import Config
from applier.consume.source import Source
from applier.ddl.actions import RenameTable
from applier.errors import (
    AmbiguousName,
    DdlStopped,
    DecodeError,
    SchemaChangeRefused,
    TableIncomplete,
    TableMismatch,
    TerminalError,
)
from applier.order.feed_order import FeedOrder
from applier.pipeline.batches.batch import Batch, ReadExtent
from applier.pipeline.batches.commit import commit, doubt
from applier.pipeline.batches.stager import Stager, StagerHere, stager_of
from applier.pipeline.dead_letters import set_aside
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.scan.window_scan import Doubted, WindowScan
from applier.pipeline.schema_changes import supplied
from applier.pipeline.schema_changes.apply import DdlApplier
from applier.pipeline.schema_changes.follow_rows import follow, is_new_to, made
from applier.pipeline.schema_changes.moved_names import moved_by
from applier.pipeline.state import State
from applier.pipeline.tables import completeness, lost_control, parking, table_records
from applier.pipeline.tables.target_tables import TargetTables
from applier.runtime.logs import Stopwatch, logger
from applier.runtime.places import Places


@dataclass(slots=True)
class MissingRows:
    """Counts updates and deletes whose row was not in the table, step by step.

    Attributes:
        count: Rows of the step under way.
    """

    count: int = 0
    _logged: set[TableName] = field(default_factory=set)

    def refusing(self, names: Iterable[TableName], state: State, config: Config) -> Collection[TableName]:
        """The tables that must hold each row that a change updates or deletes: live ones, unless they may go on."""
        if config.tables.incomplete == "allow" and config.changefeed.on_table_error == "stop":
            return frozenset()
        return {name for name in names if name in state.completeness and state.completeness[name].is_live}

    def note(self, name: TableName, rows: int, state: State) -> None:
        """Count rows that a table did not hold; a table that counted as live is incomplete from here on."""
        if not rows:
            return
        self.count += rows
        found = state.completeness.get(name)
        if found is not None and found.is_live:
            found = state.completeness[name] = replace(found, reason=Reason(Why.NOT_FOUND))
        if name not in self._logged:
            self._logged.add(name)
            way_out = state.ways.of([name], found) if found is not None else ""
            logger().warning("rows to change are not in the table", table=str(name), rows=rows, way_out=way_out)


@dataclass(slots=True)
class WindowApplier:
    """Applies windows.

    Args:
        source: Where the messages are: bad ones are read again to be kept.

    Attributes:
        not_found: Rows that changes did not find.
        commits: The table of each commit that the step made, and the seconds that it took.
        fates: What became of the changes of the window.
        lacking: Tables that others have dropped or restored, and that are to be parked in this step.
    """

    config: Config
    source: Source
    targets: TargetTables
    ddl_handler: DdlApplier
    state: State
    places: Places
    not_found: MissingRows = field(default_factory=MissingRows, init=False)
    commits: list[tuple[TableName, float]] = field(default_factory=list, init=False)
    stager: Stager = field(default_factory=StagerHere, init=False)
    fates: Fates = field(default_factory=Counter, init=False)
    lacking: dict[TableName, TableMismatch] = field(default_factory=dict, init=False)

    def apply(self, scan: WindowScan, described: Sequence[TableVersion], stopwatch: Stopwatch) -> int:
        """Apply DDL in order, each after the rows below it and before the rows above it; then all other rows.

        Returns:
            How many tables got rows; one that got some before a DDL and some behind it counts once.

        Raises:
            TransientError: Something outside did not answer.
            TerminalError: The changefeed cannot go on.
        """
        self.stager = stager_of(scan, self.places)
        parked = self.state.parked
        doubted = self._judge(scan)
        _check_account(scan, parked, self.state)
        table_records.keep(self.state, self.targets)
        self._make(described, scan)
        with stopwatch.stage("apply"):
            written = self._in_turn(scan, parked | scan.parking.keys(), doubted)
        self._doubt_letters(scan, doubted)
        self.fates = _settled(scan.results.fates, written, self.state.parked)
        return len(written)

    def _judge(self, scan: WindowScan) -> Doubted:
        """What a window says of the tables, before any of its rows or DDL is in one; whose rows bad messages may hold.

        Once a row is in, a step that is repeated behind its commits may not find the message any more.
        """
        self.set_apart(self._unfit(scan), Why.ROW)
        completeness.doubt_late(self.state, scan.results.late)
        completeness.meet((name for name, _ in scan.results.parts), scan.ddl, self.state, self.targets, self.config)
        self.state.learn(scan.versions, scan.topics, scan.homes)
        if len(self.state.supplied):
            supplied.take(scan, self.state, self.targets, self.config)
        if scan.bad:
            hides, step = self.config.type_rules.hides, self.state.checkpoint.step + 1
            set_aside(scan.bad, self.source, self.state.control, step, hides=hides)
        doubted = self.targets.maker.doubted = scan.doubted
        doubt(self.targets, self.state.names if doubted is None else doubted)
        self._doubt_letters(scan, doubted)
        return doubted

    def _make(self, described: Sequence[TableVersion], scan: WindowScan) -> None:
        """Have the tables that the window only describes."""
        for version in described:
            completeness.meet([version.name], scan.ddl, self.state, self.targets, self.config)
            self.state.track(version)
            try:
                self.targets.ensure(version, self.targets.stamp(version.name, self.state.resolved_ts))
            except TableMismatch as error:
                # The one that is there does not fit.
                self.targets.confirm()
                self.set_apart({version.name: error}, Why.TABLE)

    def _in_turn(self, scan: WindowScan, left_out: frozenset[TableName], doubted: Doubted) -> set[TableName]:
        """Apply each DDL behind the rows below it, and then all other rows; the tables that got rows."""
        unsettled, self.state.ddl.to_move = self.state.unsettled, moved_by(scan, self.state)
        self.lacking = lost_control.behind(scan.ddl, self.state, self.targets)
        due, written = dict(scan.results.parts), set[TableName]()
        extent = None if self.targets.feed.order.has_watermark else ReadExtent(scan.window.ranges, self.state.topic_ids)
        parted = self._parted(scan.ddl)
        in_turn = self.ddl_handler.new_tables.in_turn(scan.ddl, lambda ddl: not _before(ddl, scan, due))
        for place, ddl in enumerate(in_turn):
            gone = self._removed(scan.ddl[place : place + 1] if extent is None else scan.ddl[place:])
            batches = [
                Batch(name, due.pop((name, number)), ddl.commit_ts, is_doomed=name in gone, extent=extent)
                for name, number in _before(ddl, scan, due)
            ]
            is_begun = self.ddl_handler.is_begun(ddl)
            written |= self._commit([batch for batch in batches if not (is_begun and batch.name in ddl.names)])
            self._apply_ddl(ddl)
            # A table may have been made, or may have got its name, behind the message.
            self._doubt_letters(scan, doubted)
            if scan.bad:
                table_records.keep(self.state, self.targets)
            _doubt_taken(self.state, self.targets.feed.order, left_out, ddl)
            if is_begun and self.ddl_handler.leaves_rows(ddl):
                written |= self._commit([batch for batch in batches if parted.get(batch.name, -1) < place])
        self._settle(unsettled)
        self._give_up_lacking()
        rest, upto = sorted(due.items(), key=lambda item: item[0][0]), cast("int", scan.upto)
        return written | self._commit([Batch(name, parts, upto, extent=extent) for (name, _), parts in rest])

    def _doubt_letters(self, scan: WindowScan, doubted: Doubted) -> None:
        if scan.bad:
            lacking = list(self.state.tables) if doubted is None else _by_names_of_now(doubted, scan.ddl)
            completeness.doubt(self.state, lacking, Reason(Why.LETTERS))

    def hold_to_checkpoint(self, names: Iterable[TableName]) -> None:
        """Park those of some tables that others have dropped, replaced or rolled back, or whose rows are of another
        shape than the configuration gives them; or stop for the first.
        """
        for name in names:
            if name in self.state.parked:
                continue
            damage = self.targets.damage(name) or self._reshaped(name)
            if damage is not None:
                self.set_apart({name: damage}, Why.TABLE)

    def _reshaped(self, name: TableName) -> TableMismatch | None:
        """Why a table cannot be brought into the shape that the configuration gives its rows."""
        version, writer = self.state.tables.get(name), self.targets.writer(name)
        if version is None or writer is None or writer.known is None:
            return None
        return self.targets.maker.reshaped(writer, version, is_brought=True)

    def _give_up_lacking(self) -> None:
        """Park tables that lack what they had; nothing shows their place in the feed."""
        lacking, self.lacking = self.lacking, {}
        names = {name: error for name, error in lacking.items() if name in self.state.tables}
        self.set_apart(names, Why.TABLE)
        for name in names:
            self.state.completeness[name] = replace(self.state.completeness[name], position=None)

    def _removed(self, ddl: Sequence[Ddl]) -> set[TableName]:
        """Names whose tables some DDL remove, which a step that failed may have done already."""
        admits, removed = self.config.filter.admits, set[TableName]()
        for item in ddl:
            for action, done in item.done:
                if not (isinstance(action, RenameTable) and admits(action.last)):
                    removed.update(done.leaving(item.names))
        return removed

    def _settle(self, unsettled: Mapping[TableName, int]) -> None:
        """Look at the tables that a step which failed left under other names, now that each has its own."""
        names = [name for name in self.state.tables if name in unsettled]
        if self.targets.listed.is_strict:
            self.hold_to_checkpoint(names)
            for name in names:
                completeness.try_again(self.state, self.targets, name)

    def _unfit(self, scan: WindowScan) -> dict[TableName, DecodeError]:
        """Tables to which a bad message of a window belongs; of one that the window makes, the next reads all again."""
        return {
            name: error
            for name, error in scan.parking.items()
            if name in self.state.tables
            or scan.results.fates[Fate.LEFT_OUT, name]
            or not any(ddl.frees(frozenset({name})) for ddl in scan.ddl)
        }

    def set_apart(
        self,
        refused: Mapping[TableName, TerminalError],
        why: Why,
        together: Sequence[TableName] = (),
        created: int | None = None,
        ddl: int = 0,
    ) -> None:
        """Park tables with a change that cannot be applied, some to resume together, and go on with all others.

        Tables that are not known yet resume at `created`, the commit ts of their CREATE TABLE; `ddl` is that of the
        refused DDL.

        Raises:
            TerminalError: The configuration says to stop.
        """
        for name, error in refused.items():
            if self.config.changefeed.on_table_error == "stop":
                raise error.worded(error.what, self.state.ways.of_error(error.hint, name))
            partners = tuple(other for other in together if other != name)
            begin = None if created is None else FeedPosition(name, created - 1)
            reason = parking.reason_of(why, error, name, self.state.ways, ddl)
            parking.park(self.state, self.targets, name, reason, partners, begin)
            if isinstance(error, AmbiguousName):
                # Read again, the message would show no more.
                self.state.completeness[name] = replace(self.state.completeness[name], position=None)
            parking.report(self.state, name)

    def _apply_ddl(self, ddl: Ddl) -> None:
        """Apply a DDL, or park the tables for which it is refused; what it does to others is done."""
        try:
            self.ddl_handler.apply(ddl)
        except (SchemaChangeRefused, TableMismatch) as refusal:
            self.targets.confirm()
            names = [] if isinstance(refusal, DdlStopped) else parking.refusing(ddl, self.state, self.config)
            if not names:
                refusal.tables = tuple(ddl.names)
                raise
            is_placed = self.targets.feed.order.parts_at_ddl and any(done.created for done in ddl.effects)
            created = ddl.commit_ts if is_placed else None
            self.set_apart(dict.fromkeys(names, refusal), Why.DDL, names, created, ddl.commit_ts)
            self.state.ddl.refused.add(ddl.barrier.change.id)
            self._apply_ddl(ddl)

    def _parted(self, ddl: Sequence[Ddl]) -> dict[TableName, int]:
        """By table, the place of the last DDL that is done already and parts the table from all rows before it.

        Rows from before an applied ALTER TABLE must not be written after it: another table may have the name now.
        """
        if self.targets.feed.order.parts_at_ddl:
            return {}
        done = [at for at, item in enumerate(ddl) if self.ddl_handler.is_begun(item)]
        return {name: at for at in done if not self.ddl_handler.leaves_rows(ddl[at]) for name in ddl[at].names}

    def _commit(self, batches: Sequence[Batch]) -> set[TableName]:
        refused: dict[TableName, TerminalError] = {}
        is_led = self.targets.feed.order.parts_at_ddl
        batches = [batch for batch in batches if batch.name not in self.state.parked | self.lacking.keys()]
        # Its changes have columns that a table has not.
        own = [rows for rows, _ in map(Batch.apart, batches) if rows.parts]
        new = {rows.name: rows.newest for rows in own if is_new_to(rows, self.state)}
        known = {} if is_led else made(new, self.state, self.targets)
        for batch in batches:
            is_new = batch.name in new.keys() - known.keys()
            if batch.name in new:
                self.state.track(known.get(batch.name) or new[batch.name])
            if not is_led:
                try:
                    follow(batch, self.state, self.targets, self.ddl_handler, is_new=is_new)
                except (SchemaChangeRefused, TableMismatch) as refusal:
                    self.targets.confirm()
                    refused[batch.name] = refusal
        self.set_apart(refused, Why.ROW)
        batches = [batch for batch in batches if batch.name not in self.state.parked]
        whole = self.not_found.refusing((batch.name for batch in batches), self.state, self.config)
        unfit: dict[TableName, TerminalError] = {}
        done = commit(self.targets, batches, self.state.tables, whole, unfit, self.stager)
        # In the order of the batches, as threads fill it in any: the same run ends for the same reason.
        for name in (batch.name for batch in batches if batch.name in unfit):
            error = unfit[name]
            self.set_apart({name: error}, Why.LOST if isinstance(error, TableIncomplete) else Why.TABLE)
        for name, work in done.items():
            self.not_found.note(name, work.not_found, self.state)
            self.commits.append((name, work.seconds))
        return {*done}


def _before(ddl: Ddl, scan: WindowScan, due: Mapping[tuple[TableName, int], object]) -> list[tuple[TableName, int]]:
    """Table and segment of the rows that are due before a DDL: one of a table, as earlier DDL took theirs."""
    cuts = scan.job.marks.cuts
    below = {name: cuts[name].index(ddl.commit_ts) for name in ddl.parts() if ddl.commit_ts in cuts.get(name, ())}
    return [
        (name, number) for name in below for owner, number in sorted(due) if owner == name and number <= below[name]
    ]


def _doubt_taken(state: State, order: FeedOrder, left_out: frozenset[TableName], ddl: Ddl) -> None:
    """Let tables lack rows that a DDL gives a name that its window leaves out: nothing orders such rows by the DDL."""
    for action, done in () if order.parts_at_ddl else ddl.done:
        # No row has a name that a table has only within the statement.
        if not (isinstance(action, RenameTable) and action.then is not None):
            taken = left_out.intersection(done.brought)
            completeness.doubt(state, taken, Reason(Why.MADE_WHILE_PARKED))


def _by_names_of_now(names: Iterable[TableName], ddl: Sequence[Ddl]) -> set[TableName]:
    """The tables of names that the DDL of a window may have given to others."""
    found = set(names)
    for done in (done for item in ddl for done in item.effects):
        found.update(to for table, to in done.moved if table in found)
    return found


def _check_account(scan: WindowScan, parked: Collection[TableName], state: State) -> None:
    """Hold what becomes of each change of a window against what the state of its table says.

    A change without a fate is a defect, and ends the step before it commits anything. `parked` are the tables that
    were parked before the window; its dead letters are kept, and tables with a bad message are parked.

    Raises:
        AssertionError: Something is passed over without a word.
    """
    found = scan.results
    read, total = found.measures["entries"], found.fates.total()
    if read != total or found.bad or found.waiting:
        msg = f"{read} changes were read, and {total} have a fate: {dict(found.counts)}"
        raise AssertionError(msg)
    admits = scan.job.admits
    for fate, name in found.fates:
        if fate is Fate.LEFT_OUT and name is not None and admits(name) and name not in parked:
            _must(name in state.parked, f"changes of table {name} are left out, and it is not parked")
        elif fate is Fate.SET_ASIDE:
            _must(bool(scan.bad), "a message is set aside, and no dead letter holds it")
        elif fate is Fate.DOUBTED:
            _must(name in found.late, f"changes of table {name} came late, and no table lacks them for that")
    for fate, _ in found.fates:
        _must(fate is not Fate.HELD or bool(found.held), "changes are to be read again, and no offset is held for them")


def _must(is_so: bool, what: str) -> None:  # noqa: FBT001 - an assertion
    if not is_so:
        raise AssertionError(what)


def _settled(fates: Fates, written: Collection[TableName], parked: Collection[TableName]) -> Fates:
    """The fates behind a step: what a table did not take that was parked in it is left out."""
    found: Fates = Counter()
    for (fate, name), count in fates.items():
        is_parked = fate is Fate.APPLIED and name in parked and name not in written
        found[Fate.LEFT_OUT if is_parked else fate, name] += count
    return found
