"""What a backfill is asked for: its options, and the offsets and commit timestamps that `--from` and `--to` mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from applier.changefeed.filter import rules_of
from applier.changefeed.message import TopicPartition
from applier.changefeed.ts import from_unix_ms, wall_clock
from applier.changefeed.window import OffsetRange
from applier.consume.source import Source
from applier.errors import ConfigError, SourceLost
from applier.pipeline.since import sent_since
from applier.runtime.retry import with_retry
from applier.sink.iceberg.snapshot import MAIN

OPEN = 2**63 - 1
"""Upper commit ts of a range that offsets alone end."""

_SMALLEST_TSO = 1 << 48
"""TSOs below it lie in 1970: such a number is an offset that lacks its partition."""

_OFFSET = re.compile(r"(?:(?P<topic>[^:,\s]+):)?(?P<partition>\d+):(?P<offset>\d+)")


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range, by offsets or by a TSO; by neither for the edge of the source.

    Offsets are by topic, None where there is only one topic, and partition. The text is as it was given, for errors.
    """

    text: str
    offsets: Mapping[tuple[str | None, int], int] = field(default_factory=dict)
    resolved_ts: int | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """A range of a changefeed: half-open offset ranges of every partition.

    Rows at or below the commit ts `above`, or above `upto`, are left out; these are 0 and `OPEN` where offsets alone
    begin and end the range. The text is as it was given, for errors and for telling ranges apart.
    """

    spans: Mapping[TopicPartition, OffsetRange]
    above: int = 0
    upto: int = OPEN
    text: str = ""

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Offset (exclusive) at which each partition ends."""
        return {place: span.end for place, span in self.spans.items()}

    @property
    def messages(self) -> int:
        """Offsets in it."""
        return sum(len(span) for span in self.spans.values())


def parse(text: str, option: str, edge: str) -> Bound:
    """Read one bound, from the text of an option.

    It is `0:100,1:250`, `topic:0:100`, an ISO 8601 time (in UTC where it names no zone), a resolved ts, or the word for
    the edge of the source: `beginning` or `end`.

    Raises:
        ConfigError: The text has another form.
    """
    if text == edge:
        return Bound(text)
    if text.isdecimal():
        if int(text) < _SMALLEST_TSO:
            raise ConfigError([f"{option} {text} is too small for a resolved ts: give offsets as partition:offset."])
        return Bound(text, resolved_ts=int(text))
    pieces = [_OFFSET.fullmatch(piece.strip()) for piece in text.split(",")]
    if all(pieces):
        found = [(piece["topic"], int(piece["partition"]), int(piece["offset"])) for piece in pieces if piece]
        if len({place[:2] for place in found}) == len(found):
            return Bound(text, {(topic, partition): offset for topic, partition, offset in found})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        forms = f"0:100,1:250 (partition:offset), topic:0:100, 2026-01-31T12:00:00Z, a resolved ts, or {edge}"
        raise ConfigError([f"{option} {text!r} is no bound: give {forms}."]) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return Bound(text, resolved_ts=from_unix_ms(int(moment.timestamp() * 1000)))


def resolve(begin: Bound, end: Bound, source: Source, bounds: Mapping[TopicPartition, OffsetRange]) -> Range:
    """The range of the source from the first offsets, or above a TSO, to offsets (exclusive), or up to a TSO.

    Raises:
        ConfigError: A partition is missing, unknown, or ends before it begins.
        SourceLost: The source does not have the beginning any more, or the end yet.
    """
    starts = _starts(begin, source, bounds)
    ends = _by_place(end, bounds, "--to") if end.offsets else {place: span.end for place, span in bounds.items()}
    _check_held(starts, ends, bounds)
    above, upto = begin.resolved_ts or 0, OPEN if end.resolved_ts is None else end.resolved_ts
    backwards = [place for place, start in starts.items() if ends[place] < start and (begin.offsets or end.offsets)]
    if backwards or upto < above:
        raise ConfigError([f"The range from {begin.text} to {end.text} ends before it begins."])
    spans = {place: OffsetRange(starts[place], max(starts[place], ends[place])) for place in bounds}
    return Range(spans, above, upto, f"{begin.text} to {end.text}")


def _starts(begin: Bound, source: Source, bounds: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, int]:
    if begin.offsets:
        return _by_place(begin, bounds, "--from")
    if begin.resolved_ts is None:
        return {place: span.start for place, span in bounds.items()}
    above = begin.resolved_ts
    found = with_retry(lambda: sent_since(source, above))
    starts = {place: min(found.get(place, span.end), span.end) for place, span in bounds.items()}
    for place, span in bounds.items():
        if 0 < span.start == starts[place] < span.end:
            when = wall_clock(above).isoformat(timespec="seconds")
            what = f"The source begins at offset {span.start} of {place}, and what was sent at {when}"
            raise SourceLost(f"{what} may lie before it.", LOST_HINT)
    return starts


def _by_place(bound: Bound, bounds: Mapping[TopicPartition, OffsetRange], option: str) -> dict[TopicPartition, int]:
    topics = sorted({place.topic for place in bounds})
    if len(topics) > 1 and any(topic is None for topic, _ in bound.offsets):
        what = f"{option}: the source has several topics ({', '.join(topics[:5])})"
        raise ConfigError([f"{what}: give offsets as topic:partition:offset."])
    given = {TopicPartition(topic or topics[0], part): offset for (topic, part), offset in bound.offsets.items()}
    problems = [f"{option}: the source has no partition {place}." for place in sorted(given.keys() - bounds.keys())]
    missing = sorted(bounds.keys() - given.keys())
    if missing:
        names = ", ".join(map(str, missing))
        problems.append(f"{option}: the offset of partition {names} is missing; each partition needs one.")
    if problems:
        raise ConfigError(problems)
    return given


def _check_held(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, OffsetRange],
) -> None:
    for place, span in sorted(bounds.items()):
        if starts[place] < span.start:
            what = f"Offsets {starts[place]} to {span.start - 1} of {place} were deleted from the source."
            raise SourceLost(what, LOST_HINT)
        for offset in (starts[place], ends[place]):
            if offset > span.end:
                what = f"Offset {offset} of {place} is not there yet: the partition ends at {span.end}."
                raise SourceLost(what, "end the range there, or wait; the first offsets and ends are shown by --plan.")


LOST_HINT = (
    "if the records were kept elsewhere, give their folder with --archive; else begin the range later, or load the "
    "tables again."
)


REPAIR_BRANCH = "applier_repair"
"""Branch in which a repair is made ready, so that readers see it whole or not at all."""

_BRANCH = re.compile(r"[A-Za-z0-9_-]{1,60}")


@dataclass(frozen=True, slots=True)
class Request:
    """A backfill as it was asked for.

    Attributes:
        begin: Where the range begins.
        end: Where it ends.
        tables: Filter rules that choose tables; () for all.
        branch: Branch to build the tables in; "" for the tables that readers see.
        publish: Show the branch once it is built and compared.
        repair: Apply what is covered again.
        dead_letters: Apply again what the dead letters left out; the range is theirs.
    """

    begin: Bound
    end: Bound
    tables: tuple[str, ...] = ()
    branch: str = ""
    publish: bool = False
    repair: bool = False
    dead_letters: bool = False

    @property
    def builds(self) -> bool:
        """Whether tables are built beside what readers see."""
        return bool(self.branch) or self.repair or self.dead_letters


def asked(
    begin: str | None,
    end: str | None,
    *,
    tables: str = "",
    branch: str = "",
    publish: bool = False,
    repair: bool = False,
    dead_letters: bool = False,
) -> Request:
    """The request that the options make, by their texts; raises ConfigError with every problem found."""
    problems = []
    if publish and not branch:
        problems.append("--publish shows a branch: name it with --branch.")
    if repair and branch:
        problems.append("--repair shows its result at once, --branch does not: give one of them.")
    if branch and (branch in (MAIN, REPAIR_BRANCH) or not _BRANCH.fullmatch(branch)):
        problems.append(f"--branch {branch!r}: give letters, digits, - and _, and neither main nor {REPAIR_BRANCH}.")
    if dead_letters and (begin or end or branch or repair):
        problems.append("--dead-letters finds its own range: leave out --from, --to, --branch and --repair.")
    if not begin and not dead_letters:
        problems.append("--from is missing: give offsets, a time, a resolved ts, or beginning.")
    bounds = []
    for text, option, edge in ((begin, "--from", "beginning"), (end, "--to", "end")):
        try:
            bounds.append(parse(text or edge, option, edge))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    repair = repair or dead_letters
    branch = branch or (REPAIR_BRANCH if repair else "")
    return Request(bounds[0], bounds[1], rules_of(tables), branch, publish or repair, repair, dead_letters)
