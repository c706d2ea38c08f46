"""Progress of a changefeed: in memory between steps, and in the control tables after each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

from applier.changefeed.applied_offsets import AppliedOffsets
from applier.changefeed.checkpoint import AppliedDdl, Checkpoint, Reading, Tracked
from applier.changefeed.completeness import Completeness
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.window import OffsetRange, Window
from applier.consume.offsets import refuse_remade, remade
from applier.consume.source import Source
from applier.ddl.schema_tracker import Tables
from applier.errors import ConfigError
from applier.order.barrier import DdlId
from applier.pipeline.scan.task_result import BadMessage
from applier.runtime.logs import logger
from applier.sink.commit.fence import Fenced
from applier.sink.control.control import Control, DeadLetter, SchemaDecision, unix_ms

_LATEST_DDL = 1000
"""DDL that a feed in offset order remembers."""

_LOT_OFFSETS = 256
"""Offsets that are read at once to get at bad messages. Good ones between them are read for nothing: not too many."""


@dataclass(slots=True)
class State:
    """What the next step starts from; one thread at a time, save for `heartbeat`.

    Attributes:
        control: The control tables; this process holds the changefeed.
        checkpoint: The newest checkpoint.
        versions: All table versions known.
        tables: Each upstream table as its DDL left it.
        topics: The topic of each table.
        ahead: Resolved ts of tables that a crash inside a step left ahead of the checkpoint; 0 in offset order.
        covered: In offset order what tables have beyond the checkpoint, by place.
        done: DDL at or above the checkpoint's resolved ts that are in the tables already, by commit ts and text; of
            each the parts, by table and kind.
        applied_ddl: DDL at exactly the checkpoint's resolved ts.
        to_skip: DDL that a person let pass, by commit ts and text.
        topic_ids: What tells each topic from another of its name, as last asked; the next checkpoint keeps it.
        protocol: Protocol of the messages that are read.
        completeness: Whether each table holds every row of its upstream table.
    """

    control: Control
    checkpoint: Checkpoint
    versions: dict[tuple[TableName, int], TableVersion] = field(default_factory=dict)
    tables: Tables = field(default_factory=Tables)
    topics: dict[TableName, str] = field(default_factory=dict)
    ahead: dict[TableName, int] = field(default_factory=dict)
    covered: dict[TableName, AppliedOffsets] = field(default_factory=dict)
    done: dict[tuple[int, str], set[tuple[TableName, str]]] = field(default_factory=dict)
    applied_ddl: set[DdlId] = field(default_factory=set)
    to_skip: set[tuple[int, str]] = field(default_factory=set)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    completeness: dict[TableName, Completeness] = field(default_factory=dict)
    protocol: str = ""
    _changed: dict[TableName, int] = field(default_factory=dict)
    _writing: threading.RLock = field(default_factory=threading.RLock)

    @staticmethod
    def load(control: Control, checkpoint: Checkpoint) -> State:
        """State as of a checkpoint that this process has just taken."""
        versions = {(version.name, version.version): version for version in control.load_versions()}
        state = State(control, checkpoint, versions)
        state.restore()
        return state

    def restore(self) -> None:
        """Return to the checkpoint, after a start or a step that failed on its way; what was decided stays decided."""
        checkpoint = self.checkpoint
        decisions = self.control.decisions(checkpoint.resolved_ts)
        self.tables, self.topics, self.ahead, self.covered = Tables(), {}, {}, {}
        self.done, self._changed, self.completeness = {}, {}, {}
        for name, tracked in checkpoint.tables.items():
            self.tables.put(self.versions[name, tracked.version], tracked.partitioning)
            self.topics[name] = tracked.topic
            if tracked.completeness is not None:
                self.completeness[name] = tracked.completeness
        self.applied_ddl = {DdlId(ddl.commit_ts, ddl.sql, ddl.table) for ddl in checkpoint.ddl}
        self._note(decisions)

    @property
    def is_without_checkpoint(self) -> bool:
        """True if only the tables tell where they are: all checkpoints are lost, or the first has not come yet."""
        return self.resolved_ts == 0 and self.reached > 0

    @property
    def names(self) -> list[TableName]:
        """All tables that there may be; those that a step made which failed are not in the checkpoint."""
        return list(dict.fromkeys([*self.tables, *(name for name, _ in self.versions)]))

    def fenced(self, tables: Iterable[Fenced]) -> None:
        """Keep that every table refuses the commits of earlier holders; the cut lists the heads that they have now."""
        listed = self.checkpoint.snapshots
        moved = {item.table: item.head for item in tables if listed.get(item.table) == item.before}
        snapshots = {**listed, **{table: head for table, head in moved.items() if table in listed}}
        self._write(lambda last: replace(last, unfenced=0, fenced=last.unfenced, snapshots=snapshots))

    @property
    def resolved_ts(self) -> int:
        """Every table is at this TSO."""
        return self.checkpoint.resolved_ts

    @property
    def step(self) -> int:
        """Number of the newest checkpoint."""
        return self.checkpoint.step

    @property
    def counts(self) -> Mapping[str, int]:
        """Figures of the newest step."""
        return self.checkpoint.counts

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """Offset to read next per partition."""
        return self.checkpoint.next_offsets

    @property
    def resolved(self) -> dict[TopicPartition, int]:
        """Resolved ts per partition."""
        return self.checkpoint.resolved

    @property
    def passed(self) -> Mapping[TableName, Mapping[TopicPartition, int]]:
        """In a feed in offset order the DDL that each partition has had."""
        return self.checkpoint.passed

    def changed_at(self, name: TableName) -> int:
        """Commit ts of the newest DDL of a table that is known in a feed in offset order; 0 without any."""
        return max([*self.passed.get(name, {}).values(), self._changed.get(name, 0)])

    @property
    def parked(self) -> frozenset[TableName]:
        """Tables whose rows are not applied."""
        return frozenset(name for name, found in self.completeness.items() if found.state == "parked")

    def keep_completeness(self) -> None:
        """Let the checkpoint say what a start has found out about the tables."""
        known = self.checkpoint.tables
        tables = {name: tracked._replace(completeness=self.completeness.get(name)) for name, tracked in known.items()}
        if tables != known:
            self._write(lambda last: replace(last, tables=tables))

    def speak(self, protocol: str) -> None:
        """Take note of the protocol of the configuration.

        Raises:
            ConfigError: The messages so far were of another protocol.
        """
        known = self.checkpoint.protocol
        if known and known != protocol:
            what = (
                f"changefeed.protocol: {protocol}, but the messages of this changefeed so far were of {known}: "
                "give a feed of another protocol a changefeed.name and tables of its own."
            )
            raise ConfigError([what])
        self.protocol = protocol

    def learn(self, versions: Mapping[tuple[TableName, int], TableVersion], topics: Mapping[TableName, str]) -> None:
        """Keep table versions before rows are applied that need them: a restart may read from beyond their message.

        Raises:
            CheckpointConflict: Another process has taken the changefeed: nothing may be applied any more.
        """
        self.control.confirm()
        self.control.save_versions(versions.values())
        self.versions |= versions
        self.topics |= topics

    def meet(self, topic_ids: Mapping[str, str]) -> None:
        """Take note of the topics as they are now; the next checkpoint keeps it.

        Raises:
            SourceLost: One was made anew since it was read.
        """
        known, read = self._topics_read()
        refuse_remade(known, topic_ids, read)
        self.topic_ids = topic_ids

    def accept(self, topic_ids: Mapping[str, str]) -> None:
        """Take topics that were made anew for those that were read, whose offsets count the same messages.

        That is kept at once, so that it need not be said again, and the log tells it.
        """
        known, read = self._topics_read()
        topics = remade(known, topic_ids, read)
        for topic in topics:
            logger().warning("topic accepted", topic=topic, was=known[topic], now=topic_ids[topic])
        if topics:
            self._write(lambda last: replace(last, topic_ids={**last.topic_ids, **topic_ids}))

    def _topics_read(self) -> tuple[dict[str, str], dict[TopicPartition, int]]:
        """Ids of the topics when they were read, and how far; without a checkpoint the tables alone tell."""
        known, read = dict(self.checkpoint.topic_ids), self.next_offsets
        for item in self.covered.values():
            known, read = {**item.topic_ids, **known}, {**read, **item.ends()}
        return known, read

    def track(self, version: TableVersion) -> None:
        """Take note of a table as it is now."""
        self.control.save_versions([version])
        self.versions[version.name, version.version] = version
        self.tables.put(version)

    def set_aside(self, bad: Sequence[BadMessage], source: Source) -> None:
        """Keep bad messages whole as dead letters."""
        letters = [letter for lot in _lots(bad) for letter in self._letters(lot, source)]
        if letters:
            self.control.bury(letters)

    def _letters(self, lot: Sequence[BadMessage], source: Source) -> list[DeadLetter]:
        """Bad messages of one partition, read at once."""
        errors = {item.offset: str(item.error) for item in lot}
        found = source.collect(Window({lot[0].partition: OffsetRange(min(errors), max(errors) + 1)})).to_pylist()
        return [
            DeadLetter(
                topic=message["topic"],
                partition=message["partition"],
                offset=message["offset"],
                timestamp=message["timestamp"],
                key=message["key"],
                value=message["value"],
                error=errors[message["offset"]],
                step=self.step + 1,
            )
            for message in found
            if message["offset"] in errors
        ]

    def is_begun(self, ddl: DdlId) -> bool:
        """True if a step that did not reach its checkpoint applied the DDL, or a part: the rows below it are in."""
        return (ddl.commit_ts, ddl.sql) in self.done

    def is_done(self, decision: SchemaDecision) -> bool:
        """True if such a step applied this part of a DDL."""
        return (decision.table, decision.kind) in self.done.get((decision.commit_ts, decision.sql), ())

    @property
    def reached(self) -> int:
        """The highest TSO that such a step has left in a table; a step below it would list tables that are above it."""
        return max([*self.ahead.values(), *(commit_ts for commit_ts, _ in self.done)], default=0)

    def record(self, decisions: Sequence[SchemaDecision]) -> None:
        """Keep what became of a part of a DDL; from here on it is not done again."""
        self.control.record_schema_changes(decisions)
        self._note(decisions)

    def _note(self, decisions: Iterable[SchemaDecision]) -> None:
        for item in decisions:
            if item.decision == "to skip":
                self.to_skip.add((item.commit_ts, item.sql))
            elif item.decision != "refused":
                self.done.setdefault((item.commit_ts, item.sql), set()).add((item.table, item.kind))
                self._changed[item.table] = max(item.commit_ts, self._changed.get(item.table, 0))

    def keep_versions(self) -> None:
        """Keep what the tables are, so that a restart knows them."""
        for name, version in self.tables.items():
            self.versions[name, version.version] = version
        self.control.save_versions(version for _, version in self.tables.items())

    def advance(
        self,
        upto: int,
        readings: Mapping[TopicPartition, Reading],
        snapshots: Mapping[tuple[str, ...], int],
        counts: Mapping[str, int],
        ddl: Iterable[DdlId],
        passed: Mapping[TableName, Mapping[TopicPartition, int]] | None = None,
    ) -> None:
        """Write the checkpoint of a finished step: from here on a restart begins after it."""
        # Without a watermark no DDL is known to be the last of its time: the latest are kept, as they may come again.
        at_upto = {item for item in ddl if item.commit_ts == upto} if upto else self._latest(ddl)
        tables = {
            name: Tracked(
                version.version,
                self.topics.get(name, ""),
                self.tables.partitioning(name),
                self.completeness.get(name),
            )
            for name, version in self.tables.items()
        }
        self._write(
            lambda last: replace(
                last,
                resolved_ts=upto,
                partitions={**last.partitions, **readings},
                snapshots=dict(snapshots),
                tables=tables,
                ddl=tuple(AppliedDdl(item.sql, item.table, item.commit_ts) for item in sorted(at_upto, key=astuple)),
                passed=last.passed if passed is None else passed,
                topic_ids={**last.topic_ids, **self.topic_ids},
                protocol=self.protocol or last.protocol,
                counts=dict(counts),
            )
        )
        self.applied_ddl = at_upto
        self.ahead = {name: ts for name, ts in self.ahead.items() if ts > upto}
        self.done = {key: tables for key, tables in self.done.items() if key[0] >= upto}

    def _latest(self, ddl: Iterable[DdlId]) -> set[DdlId]:
        return set(sorted({*self.applied_ddl, *ddl}, key=astuple)[-_LATEST_DDL:])

    def heartbeat(self) -> None:
        """Write the checkpoint again with the present time: the holder's sign of life. Any thread may, in any step."""
        self._write(lambda last: last)

    def _write(self, following: Callable[[Checkpoint], Checkpoint]) -> None:
        """Append what follows the newest checkpoint; until it is there, nothing has changed."""
        with self._writing:
            last = self.checkpoint
            found = replace(following(last), step=last.step + 1, written_at=unix_ms())
            self.control.append_checkpoint(found)
            self.checkpoint = found

    def release(self) -> None:
        """Say that this process has stopped."""
        self.control.release()


def _lots(bad: Sequence[BadMessage]) -> list[list[BadMessage]]:
    """Bad messages by partition, those of each near to one another: a read costs a Spark job however little it gets."""
    lots: list[list[BadMessage]] = []
    for item in sorted(bad, key=lambda item: (item.partition, item.offset)):
        if lots and lots[-1][0].partition == item.partition and item.offset - lots[-1][0].offset < _LOT_OFFSETS:
            lots[-1].append(item)
        else:
            lots.append([item])
    return lots
