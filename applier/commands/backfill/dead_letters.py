"""Finds the range that makes up for the dead letters that can be read now."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from applier.changefeed.filter import TableFilter
from applier.changefeed.message import HIDDEN, MESSAGE_SCHEMA, UNREADABLE, Messages, TopicPartition
from applier.changefeed.table import TableName
from applier.changefeed.ts import CLOCK_SKEW_MS, from_unix_ms
from applier.changefeed.window import OffsetRange, Window
from applier.commands.backfill.beginnings import changed_since
from applier.commands.backfill.request import LOST_HINT, OPEN, Bound, Range, Request, resolve
from applier.commands.dead_letters import place_of
from applier.errors import SourceLost
from applier.pipeline.scan.task_result import TaskResult
from applier.pipeline.scan.task_versions import DdlMarks
from applier.pipeline.step import Pipeline
from applier.runtime.retry import with_retry
from applier.sink.control.control import DeadLetter


@dataclass(frozen=True, slots=True)
class Letters:
    """What is to be done about dead letters.

    `ready` are those that can now be read and hold rows of the chosen tables. The whole span is applied again, as later
    messages may have changed the same rows. `said` explains what cannot be done, in one sentence each.
    """

    ready: Sequence[DeadLetter]
    names: Sequence[TableName]
    span: Range
    said: Sequence[str]


def opened(main: Pipeline, request: Request, tables: Collection[TableName]) -> Letters:
    """Try to read all dead letters of a changefeed with some tables.

    Raises:
        SourceLost: The source does not have the messages any more that came after them.
        TransientError: The registry, the source or the claim-check storage does not answer.
    """
    admits = TableFilter(request.tables or ("*.*",)).admits
    ready: list[DeadLetter] = []
    names: set[TableName] = set()
    said: list[str] = []
    oldest: list[int] = []
    for letter in main.state.control.letters():
        where = f"The dead letter at {place_of(letter)}"
        if letter.offset >= main.state.next_offsets.get(_place(letter), 0):
            said.append(f"{where} is still to be read by `run`.")
            continue
        found = with_retry(lambda letter=letter: _read(main, letter))  # type: ignore[misc]  # bound in this very turn
        mine = {name for name, _ in found.parts if name in tables and admits(name)}
        others = sorted({name for name, _ in found.parts} - mine - set(tables))
        is_past = any(changed_since(main, name, _newest(found, name)) for name in mine)
        if is_past or (found.bad and _fits_its_time(main, letter)):
            said.append(f"{where} is from before a DDL of its table: {_resume(main)}")
        elif found.bad:
            said.append(f"{where} cannot be read yet: {found.bad[0].error.what}")
        elif others and not mine:
            said.append(f"{where} holds rows of {others[0]}, which was renamed or dropped since: {_resume(main)}")
        elif found.barriers:
            said.append(f"{where} holds a DDL, whose place has passed: bring its table to what it is upstream by hand.")
        elif mine:
            ready.append(letter)
            names |= mine
            oldest += [part.first_ts or 0 for parts in found.parts.values() for part in parts]
        elif not found.parts:
            said.append(f"{where} holds no row of a table that is known.")
    span = _span(main, ready) if ready else Range({})
    if ready and main.targets.feed.order.has_watermark:
        # Without it, a DDL from a little before the first letter would count as one in the range.
        span = replace(span, above=max(0, min(oldest) - 1))
    return Letters(ready, sorted(names), span, said)


def _resume(main: Pipeline) -> str:
    path = main.config.path
    return (
        f"run `applier resume -c {path} --tables TABLE` with the name that the table has now, which reads the message "
        f"in its place, then `applier dead-letters discard PLACE -c {path} --why TEXT`."
    )


def _newest(found: TaskResult, name: TableName) -> int:
    return max(part.last_ts for (owner, _), parts in found.parts.items() if owner == name for part in parts)


def _fits_its_time(main: Pipeline, letter: DeadLetter) -> bool:
    """Whether a message can be read as it was sent, by the columns that it shows itself."""
    return main.scanner.rows_describe and not with_retry(lambda: _read(main, letter, typed=False)).bad


def _read(main: Pipeline, letter: DeadLetter, *, typed: bool = True) -> TaskResult:
    messages = _message(main, letter)
    types = main.state.tables.items() if typed and main.scanner.rows_describe else ()
    job = replace(
        main.scanner.template,
        versions=tuple(main.state.versions.values()),
        upto=OPEN,
        marks=DdlMarks(typed={name: [version] for name, version in types}),
    )
    return job(messages.items())


def _message(main: Pipeline, letter: DeadLetter) -> Messages:
    """The message as it was kept; one that did not fit into memory then, or was not kept, is read again."""
    if letter.value in (UNREADABLE, HIDDEN):
        return main.source.collect(Window({_place(letter): OffsetRange(letter.offset, letter.offset + 1)}))
    row = {name: getattr(letter, name) for name in MESSAGE_SCHEMA.names}
    return {_place(letter): pa.Table.from_pylist([row], schema=MESSAGE_SCHEMA)}


def _span(main: Pipeline, letters: Sequence[DeadLetter]) -> Range:
    """From the first letter to the end, in all partitions: a row may go to any of them."""
    times = [letter.timestamp for letter in letters]
    since = min((int(time.timestamp() * 1000) for time in times if time is not None), default=0)
    begin = Bound("the first dead letter", resolved_ts=from_unix_ms(since) if since and all(times) else None)
    bounds = with_retry(main.source.bounds)
    found = resolve(begin, Bound("end"), main.source, bounds)
    starts = {place: span.start for place, span in found.spans.items()}
    for letter in letters:
        place = _place(letter)
        if place not in bounds or letter.offset < bounds[place].start:
            what = f"The source no longer has what came after the dead letter at {place_of(letter)}."
            raise SourceLost(what, LOST_HINT)
        starts[place] = min(starts[place], letter.offset)
    spans = {place: OffsetRange(starts[place], span.end) for place, span in found.spans.items()}
    return Range(spans, text=f"that begins {CLOCK_SKEW_MS // 1000} seconds before the first dead letter")


def _place(letter: DeadLetter) -> TopicPartition:
    return TopicPartition(letter.topic, letter.partition)
