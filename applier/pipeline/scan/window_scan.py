"""What a window of a changefeed holds, as the row passes find it out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TypeAlias

from applier.changefeed.applied_offsets import ALL
from applier.changefeed.filter import exactly
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.window import Window
from applier.consume.source import KeptRows
from applier.errors import AmbiguousName, DecodeError
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.scan.task_result import BadMessage, TaskResult, Waiting
from applier.pipeline.state import State

NO_WATERMARK = ALL
"""Upper bound of commit ts for a feed in offset order: all that was read may be applied."""

Doubted: TypeAlias = frozenset[TableName] | None
"""Tables; None for all."""

_ENDING = attrgetter("partition", "offset", "error")


@dataclass(slots=True)
class WindowScan:
    """What a window holds.

    Attributes:
        window: What was read; shorter than asked for if a bad message ends it.
        upto: The watermark that its rows may be applied to; None while some partition has no resolved ts.
        resolved: Resolved ts per partition after the window.
        job: How it is read, as far as the last row pass has shown.
        ends: Partitions that TiCDC uses, with the offsets that the source ended at after the window was chosen.
        results: What the last row pass found.
        ddl: DDL to apply, in order.
        versions: Table versions that the window brought.
        new_versions: Those of them that no window before it brought, by table and version. A restart of TiCDC describes
            tables again as they were before a DDL that is applied: such a version shows no table.
        topics: The topics that brought them.
        homes: Topics of tables that DDL show, those of earlier windows included, where names are not whole.
        waiting: Rows whose version has not come; the watermark stays below them.
        bad: Messages set aside as dead letters.
        error: The bad message that ends the window.
        coming: Names that DDL of the window which are not due give to tables, or take off them.
        parking: Tables with a message that cannot be applied: all of their rows are left out of the window.
        kept: The rows of the last row pass that its tasks keep; None if it brought them here.
        is_shown: The source itself shows what partitions are complete up to, so each of them counts.
        planned: Partitions with messages to read, also where a bad message leaves none of them in the window.
    """

    window: Window
    resolved: dict[TopicPartition, int]
    job: DecodeTask
    ends: Mapping[TopicPartition, int]
    upto: int | None = None
    results: TaskResult = field(default_factory=TaskResult)
    ddl: Sequence[Ddl] = ()
    versions: dict[tuple[TableName, int], TableVersion] = field(default_factory=dict)
    new_versions: set[tuple[TableName, int]] = field(default_factory=set)
    topics: dict[TableName, str] = field(default_factory=dict)
    homes: Mapping[TableName, Iterable[str]] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)
    bad: list[BadMessage] = field(default_factory=list)
    error: DecodeError | None = None
    coming: frozenset[TableName] = frozenset()
    parking: dict[TableName, DecodeError] = field(default_factory=dict)
    ceiling: int = NO_WATERMARK
    kept: KeptRows | None = None
    is_shown: bool = False
    planned: frozenset[TopicPartition] = field(init=False)

    def __post_init__(self) -> None:
        self.planned = frozenset(self.window.ranges)

    @property
    def silent(self) -> list[TopicPartition]:
        """Partitions in use that never sent a resolved ts, in order; none where the window has a watermark."""
        return sorted(self.ends.keys() - self.resolved.keys()) if self.upto is None else []

    @property
    def doubted(self) -> Doubted:
        """The tables that messages which were set aside may belong to.

        A delete among them leaves its row in the table, and the next INSERT of the key finds it there.
        """
        found = [item.tables for item in self.bad]
        return frozenset(name for names in found for name in names) if all(found) else None

    def resolve(self, seen: Mapping[TopicPartition, int]) -> None:
        """Take over resolved ts; a smaller one is a replay after a restart of TiCDC."""
        self.resolved |= {place: max(ts, self.resolved.get(place, 0)) for place, ts in seen.items()}

    @property
    def skip(self) -> dict[TopicPartition, dict[int, frozenset[TableName]]]:
        """The messages set aside, by partition; see `DecodeTask.skip`."""
        found: dict[TopicPartition, dict[int, frozenset[TableName]]] = {}
        for item in self.bad:
            skip = found.setdefault(item.partition, {})
            # The message itself must name the table of each row that is bad in it.
            tables = frozenset(item.error.tables if len(item.error.tables) == 1 else ())
            before = skip.get(item.offset, tables)
            skip[item.offset] = before | tables if before and tables else frozenset()
        return found

    def task(self, state: State) -> DecodeTask:
        """The next row pass over the window."""
        return replace(
            self.job,
            include=(*self.job.include, *(f"!{rule}" for rule in exactly(self.left_out(state)))),
            versions=tuple({**state.versions, **self.versions}.values()),
            # Without a watermark nothing is due, not even rows that carry no commit ts.
            upto=-1 if self.upto is None else self.upto,
            skip=self.skip,
        )

    def left_out(self, state: State) -> frozenset[TableName]:
        """Tables whose rows are not applied."""
        return state.parked | self.parking.keys()

    def leave_out(self, may_come: Callable[[DecodeError | None], bool]) -> bool:
        """Leave out the tables to which bad messages belong, save those that may yet be read; True if some are new."""
        owned = {name: bad.error for bad in reversed(self.results.bad) for name in _owners(bad)}
        late = {name for name, error in owned.items() if may_come(error)}
        if not self.job.order.parts_at_ddl:
            # Rows of another table that had the name before the DDL look like rows of this one.
            late |= {name for ddl in self.ddl if ddl.frees(frozenset(owned)) for name in ddl.names}
        new = {name: error for name, error in owned.items() if name not in late and name not in self.parking}
        self.parking |= new
        return bool(new)

    def hold_set_aside(self) -> None:
        """Read dead letters again that may be of a table which is yet to be made, or to get its name: it lacks them."""
        for item in self.bad:
            if not item.error.commit_ts and self.coming and (not item.tables or self.coming.intersection(item.tables)):
                self.results.hold(item.partition, item.offset)

    def end_before(self, bad: Sequence[BadMessage], parking: Sequence[BadMessage]) -> None:
        """End before bad messages; or before the DDL that alone keep a message from parking its tables.

        Args:
            bad: All messages that end it.
            parking: Those of them that would park their tables.
        """
        moving = self._moving(parking)
        for place, offset, error in [(*item, None) for item in moving] or map(_ENDING, bad):
            if place in self.window.ranges and offset < self.window.ranges[place].end:
                self.window = self.window.until(place, offset)
                self.error = self.error or error
        ends = {place: span.end for place, span in self.window.ranges.items()}
        self.bad = [item for item in self.bad if item.offset < ends.get(item.partition, 0)]

    def _moving(self, bad: Sequence[BadMessage]) -> list[tuple[TopicPartition, int]]:
        """Where the DDL are for which tables stay in that own a bad message at the start of a partition.

        Each window that begins there and reads these DDL would end where it begins.
        """
        first = (item for item in bad if item.offset <= self.window.ranges[item.partition].start)
        owned = frozenset(name for item in first for name in _owners(item))
        kept = {ddl.barrier.change.id for ddl in self.ddl if ddl.frees(owned)}
        copies = (item for item in self.results.barriers if item.change.id in kept)
        return [(TopicPartition(copy.topic, copy.position.partition), copy.position.offset) for copy in copies]

    def learn(self, state: State) -> bool:
        """Take over the versions and the topics of the last row pass; True if a version is new."""
        new = {key: version for key, version in self.results.versions.items() if self.versions.get(key) != version}
        self.versions |= new
        # Without a table, a first step that failed may have left versions, and its repetition has to make their tables.
        self.new_versions |= new.keys() - state.versions.keys() if state.declared else new.keys()
        self.topics |= self.results.topics
        return bool(new)

    def learn_loaded(self, state: State) -> bool:
        """Let rows be of a table as it was loaded whose version no message describes any more; True if there are such.

        A version is the commit ts of the DDL that made it. One at or below the TSO of the export is the one that the
        export declares: a later one would else be that of the rows.
        """
        new = {
            (item.name, item.version): replace(state.versions[item.name, upto], version=item.version)
            for item in self.results.waiting.values()
            if item.version <= (upto := state.loaded.get(item.name, -1))
        }
        self.versions |= new
        return bool(new)


def _owners(bad: BadMessage) -> Sequence[TableName]:
    """The tables that a bad message parks: its own, or all that its name may be of; () where they are not known."""
    return bad.tables if len(bad.tables) == 1 or isinstance(bad.error, AmbiguousName) else ()
