"""Prepares a pipeline that applies a range to branches, with durable progress of its own."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from applier.changefeed.event import SchemaChange
from applier.changefeed.message import TopicPartition, rows_of
from applier.changefeed.position import Reading
from applier.changefeed.table import TableName
from applier.changefeed.ts import from_unix_ms
from applier.changefeed.window import OffsetRange, Window
from applier.commands.backfill.bounds import OPEN, Range
from applier.commands.backfill.branch import Branches, PassedDdl
from applier.commands.backfill.replay_ddl import DdlReplay, Left, Passed, concerns, left_by, left_of
from applier.commands.backfill.request import Request
from applier.config.settings import Config
from applier.consume.source import Source
from applier.ddl.parser import parse
from applier.ddl.schema_tracker import Tables
from applier.ddl.spelling import Spelling
from applier.errors import SchemaChangeRefused
from applier.order.feed_order import FeedOrder
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline
from applier.pipeline.table_selection import rules_for
from applier.runtime.logs import logger
from applier.runtime.retry import with_retry
from applier.sink.commit.stamp import CHANGEFEED
from applier.sink.control.checkpoints import drop_all
from applier.sink.control.control import Control, unix_ms
from applier.sink.control.lease import this_process
from applier.sink.control.rows import SchemaDecision
from applier.sink.control.tables import CHECKPOINTS
from applier.sink.control.tables import namespace as namespace_of
from applier.sink.iceberg.catalog import Catalog


@dataclass(slots=True)
class Job:
    """A backfill of a range into branches, which its pipeline applies.

    The range ends at `ends`, as far as the changefeed has come, and rows count up to the commit ts `upto`: what lies
    beyond the checkpoint is left to `run`. The namespace keeps the progress.
    """

    pipeline: Pipeline
    branches: Branches
    ends: Mapping[TopicPartition, int]
    upto: int
    namespace: tuple[str, ...]
    is_resumed: bool
    span: Range

    def heals(self, name: TableName, main: State) -> bool:
        """True if the branch of a table holds every row that the table lacks."""
        known = main.completeness.get(name)
        return known is not None and not known.is_live and self.branches.is_emptied(name)

    def forget(self) -> None:
        """Drop the progress: the branches are shown, or given up."""
        drop_all(self.branches.targets.catalog, self.namespace, purge=True)


def prepare(main: Pipeline, request: Request, span: Range, names: Sequence[TableName]) -> Job:
    """Make the branches, or find them as a process left them that was doing the same.

    Raises:
        RangeRefused: A table is gone, or has a branch of that name which no backfill made.
        TransientError: Catalog or source do not answer.
    """
    state, order = main.state, main.targets.feed.order
    namespace = (f"{namespace_of(main.config.changefeed.name)}__{request.branch}",)
    if _is_stale(main, request.branch, names):
        logger().info("branch is built anew", branch=request.branch)
        drop_all(main.targets.catalog, namespace, purge=True)
    control = _open(main.targets.catalog, namespace, _identity(main, request, names))
    checkpoint, _ = control.take(this_process(unix_ms()), take_over=True)
    own = {(version.name, version.version): version for version in control.load_versions()}
    job_state = State(control, checkpoint, {**state.versions, **own}, lives=state.lives and state.lives.again())
    decisions = state.control.decisions() if order.parts_at_ddl else []
    left = left_by(decisions)
    ddl = _passed(decisions, state.resolved_ts, Spelling(state.names), left)
    lineage = DdlReplay(ddl, state.tables, main.targets.maker.rules, left)
    branches = Branches(main.targets, names, request.branch, control.changefeed, lineage)
    is_resumed = bool(checkpoint.partitions)
    assumed = 0
    if is_resumed:
        logger().info("backfill goes on", branch=request.branch, step=checkpoint.step)
    else:
        assumed = span.above or _time_of(main.source, span.spans)
        branches.begin(span.above)
        _begin(job_state, state, span, _as_of(state, lineage, names, assumed))
    job_state.restore()
    upto = min(span.upto, state.resolved_ts) if order.has_watermark else OPEN
    config = _config(main.config, names)
    template = replace(main.scanner.template, include=config.tables.include)
    scanner = replace(main.scanner, template=template, ceiling=upto, parks=False)
    exact = span.above or not main.scanner.rows_describe
    passed = PassedDdl(branches, job_state, assumed=0 if exact else assumed)
    pipeline = replace(
        main, config=config, scanner=scanner, targets=branches.targets, ddl_handler=passed, state=job_state
    )
    pipeline.restore()
    return Job(pipeline, branches, _ends(span, state, order), upto, namespace, is_resumed, span)


def _is_stale(main: Pipeline, branch: str, names: Sequence[TableName]) -> bool:
    """Whether a table has moved on since its branch was made, so that it could never show that branch."""
    for name in names:
        identifier = main.targets.identifier(name)
        seen, built = main.targets.catalog.load(identifier), main.targets.catalog.load(identifier, branch)
        if seen is None or built is None or None in (seen.snapshot_id, built.snapshot_id):
            continue
        if seen.snapshot_id not in {snapshot.id for snapshot in built.history()}:
            return True
    return False


def _identity(main: Pipeline, request: Request, names: Sequence[TableName]) -> str:
    """What makes a backfill the same as another: the range, the tables, and how far the changefeed is."""
    state = main.state
    asked = (request.begin.text, request.end.text, sorted(names), state.resolved_ts, sorted(state.next_offsets.items()))
    return f"{main.config.changefeed.name} backfill {hashlib.sha256(repr(asked).encode()).hexdigest()[:16]}"


def _open(catalog: Catalog, namespace: tuple[str, ...], identity: str) -> Control:
    """The control tables of a backfill; those of another one are dropped."""
    found = catalog.load((*namespace, CHECKPOINTS.name))
    owner = found.setting(CHANGEFEED) if found is not None else None
    if owner is None or not owner.startswith(f"{identity} "):
        drop_all(catalog, namespace, purge=True)
        # The same may be asked for again later: what was made then must not pass for what is made now.
        owner = f"{identity} {uuid.uuid4().hex[:8]}"
    return Control.open(catalog, owner, namespace)


def _begin(job: State, main: State, span: Range, tables: Tables) -> None:
    """Write the first checkpoint: from here on a restart goes on with the branches that are there."""
    job.tables, job.topics = tables, dict(main.topics)
    for version in tables.values():
        job.versions[version.name, version.version] = version
    job.keep_versions()
    readings = {place: Reading(start, None) for place, (start, _) in span.spans.items()}
    job.advance(span.above, readings, {}, {}, (), main.checkpoint.passed)


def _passed(decisions: Iterable[SchemaDecision], upto: int, names: Spelling, left: Left) -> list[Passed]:
    """DDL that the changefeed has passed, each once, in order."""
    found: dict[tuple[int, str], Passed] = {}
    for item in decisions:
        if item.decision in ("refused", "to skip") or item.commit_ts > upto:
            continue
        try:
            actions = parse(item.sql, item.table.database, item.table, item.table)
        except SchemaChangeRefused:
            if item.decision not in ("ignored", "skipped"):
                raise
            continue  # It was passed without being understood, and did nothing to any table.
        spelt = [names.spelt(action) for action in actions]
        over = left_of(SchemaChange(item.commit_ts, item.sql, item.table.database), spelt, left)
        found[item.commit_ts, item.sql] = Passed(item.commit_ts, spelt, over)
    return list(found.values())


def _as_of(state: State, lineage: DdlReplay, names: Sequence[TableName], at: int) -> Tables:
    """Each table as it was at the beginning of the range, as far as the control tables show."""
    tables = state.tables.copy()
    for name in names:
        passed = [item.commit_ts for item in lineage.ddl if any(concerns(action, name) for action in item.actions)]
        before = [commit_ts for commit_ts in passed if commit_ts <= at]
        if len(before) == len(passed):
            continue
        version = state.versions.get((name, before[-1])) if before else None
        tables = Tables(known for known in tables.values() if known.name != name)
        if version is not None:
            tables.put(version)
    return tables


def _time_of(source: Source, spans: Mapping[TopicPartition, OffsetRange]) -> int:
    """Commit ts of about the time at which the first messages of a range were sent; 0 where none shows."""
    # One message alone is always read, however large it is; those of all partitions together may be too large.
    first = [Window({place: OffsetRange(start, start + 1)}) for place, (start, end) in spans.items() if end > start]
    found = [row for window in first for row in rows_of(with_retry(partial(source.collect, window)))]
    times = [row["timestamp"] for row in found if row["timestamp"] is not None]
    return from_unix_ms(int(min(times).timestamp() * 1000)) if times else 0


def _config(config: Config, names: Sequence[TableName]) -> Config:
    # Rows before a CREATE TABLE in the range go to a branch that is emptied there.
    tables = config.tables.model_copy(update={"include": rules_for(names), "incomplete": "allow"})
    # What a BOOTSTRAP message alone describes was made long ago.
    changefeed = config.changefeed.model_copy(update={"start": "beginning", "on_table_error": "stop"})
    return config.model_copy(update={"tables": tables, "changefeed": changefeed})


def _ends(span: Range, state: State, order: FeedOrder) -> dict[TopicPartition, int]:
    """Where the range ends; without a watermark nothing else shows what the tables have."""
    if order.has_watermark:
        return span.ends
    return {place: min(end, state.next_offsets.get(place, end)) for place, end in span.ends.items()}
