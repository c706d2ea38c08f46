"""The top of the page: whether the tables are true, why not, what the process waits for, and the key figures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from applier.runtime.figures import counted, span
from applier.watch.history import POINT_SECONDS
from applier.watch.page.html import Html, copyable, moment, section, tag, text
from applier.watch.report import StatusReport
from applier.watch.view import View

_REASONS = 10
_MORE = 200
_RATE_SECONDS = 300
_OLD_SECONDS = 60
_UNSEEN = "known to a running process alone"

_COMMAND = re.compile(r"""'[^']*'|`(?P<command>(?:'[^']*'|"[^"]*"|`[^`]+`\.(?=\w)|[^`'"])+)`""")
"""A command within a sentence; names in quotes, here and within it, and names before a dot may hold backticks."""


class Glance(NamedTuple):
    """What a reader sees first.

    Attributes:
        word: In one word.
        tone: good, bad or wait.
        sentence: In one sentence, without what changes every second.
    """

    word: str
    tone: str
    sentence: str


def verdict_of(view: View) -> Glance:
    """Whether the tables are true."""
    report = view.report
    if view.phase == "starting" and report.holder is None:
        return Glance("Starting", "wait", "Not known yet: the process has not read its checkpoint")
    if report.holder is None:
        return Glance("Stale", "bad", "There is nothing to read yet")
    word, tone = ("Stale", "bad") if report.stale else ("Fresh", "good")
    living = [table for table in report.tables if table.state != "dropped"]
    untrue = sum(table.urgency == 2 for table in living)
    true, verb = len(living) - untrue, "is" if len(living) - untrue == 1 else "are"
    if report.lag_seconds is None:
        what = "Nothing of the feed is applied yet"
    elif not living:
        what = "No table has come yet; the changefeed is read"
    elif untrue:
        what = f"{true:,} of {counted(len(living), 'table')} {verb} true"
    else:
        what = "The only table is true" if len(living) == 1 else f"All {len(living):,} tables are true"
    return Glance(word, tone, what)


def head(view: View) -> Iterator[Html]:
    """The verdict, what the process waits for, and the key figures."""
    report, verdict = view.report, verdict_of(view)
    parts = (
        tag("h2", tag("span", class_="sign", aria_hidden="true"), verdict.word, id="verdict-h"),
        tag("p", tag("span", verdict.sentence, role="status", aria_live="polite"), _as_of(report), class_="sentence"),
        _reasons(report) if view.phase != "starting" or report.holder else None,
        tag("ul", [tag("li", str(note)) for note in report.notes], class_="notes") if report.notes else None,
    )
    yield tag("section", parts, id="verdict", class_=f"verdict {verdict.tone}", aria_labelledby="verdict-h")
    if (waits := _banner(view)) is not None:
        yield tag("aside", waits, id="banner", class_="banner", aria_label="What the process waits for")
    if report.holder is not None:
        yield _figures(view)


def _as_of(report: StatusReport) -> Html:
    ago = report.lag_seconds
    if report.resolved is None:
        seen = "" if ago is None else f", by the last sign of life {span(ago)} ago; the feed carries no resolved ts"
        return text(seen, ".")
    return text(" as of ", moment(report.resolved), f" UTC, {span(ago)} ago.")


def _reasons(report: StatusReport) -> Html | None:
    if not report.stale:
        return None
    items = []
    for number, found in enumerate(report.stale[:_MORE]):
        way = tag("p", _with_commands(found.way_out), class_="way") if found.way_out else None
        items.append(tag("li", tag("p", found.because), way, data_key=f"why-{found.table or number}"))
    first, more = items[:_REASONS], items[_REASONS:]
    rest = None
    if more:
        left = len(report.stale) - len(items)
        last = tag("p", f"{counted(left, 'further reason')} are in /status.json.") if left else None
        count = len(report.stale) - len(first)
        rest = tag("details", tag("summary", counted(count, "further reason")), tag("ul", more), last, id="more-why")
    return text(tag("ul", first, class_="reasons"), rest)


def _with_commands(sentence: str) -> Iterator[Html]:
    """A sentence whose commands can be copied; it begins with a capital."""
    at = 0
    shown = sentence[:1].upper() + sentence[1:]
    for found in _COMMAND.finditer(shown):
        if found["command"]:
            yield text(shown[at : found.start()])
            yield copyable(found["command"])
            at = found.end()
    if (rest := shown[at:]) != ".":
        yield text(rest)


def _banner(view: View) -> Html | None:
    if view.outage:
        since = None
        if view.points:
            since = text(" Nothing was applied for ", span(max(0.0, view.now - view.points[-1].at)), ".")
        return text(tag("strong", "Waiting. "), view.outage, since, " The process tries again.")
    if view.phase == "starting":
        return text("Spark starts, and the changefeed is taken; this takes some seconds.")
    if view.phase == "stopping":
        return text(tag("strong", "Stopping. "), "The process finishes what it began; then this page is gone.")
    return None


def _figures(view: View) -> Html:
    report = view.report
    states = Counter(table.state for table in report.tables)
    others = ", ".join(f"{count:,} {state}" for state, count in states.most_common() if state != "in step")
    behind = "behind the database" if report.resolved else "since the last sign of life"
    limit = f"{behind}; stale from {span(report.max_lag_seconds)} on"
    is_known = bool(report.tables)
    figures = [
        _figure("Lag", span(report.lag_seconds), limit),
        _figure("Backlog", *_backlog(view)),
        _figure("Rows a second", *_rate(view)),
        _figure(
            "Tables in step",
            f"{states['in step']:,} of {len(report.tables):,}" if is_known else "unknown",
            others or ("no other state" if is_known else "no table is known"),
        ),
        _figure(
            "Dead letters",
            "unknown" if view.is_behind and not report.dead_letter_count else f"{report.dead_letter_count:,}",
            "message was set aside" if report.dead_letter_count == 1 else "messages were set aside",
            "bad" if report.dead_letter_count else None,
        ),
    ]
    why = tag("p", report.explanation, class_="why") if report.explanation else None
    return section("figures", "Key figures", tag("dl", figures, class_="figures"), why)


def _figure(name: str, value: str, note: str, tone: str | None = None) -> Html:
    unknown = "unknown" if value == "unknown" else tone
    return tag("div", tag("dt", name), tag("dd", value, class_=unknown), tag("dd", note, class_="soft"))


def _backlog(view: View) -> tuple[str, str]:
    if not view.points:
        step = next(iter(view.report.steps), None)
        if step is None or step.backlog is None:
            return "unknown", _UNSEEN
        return f"{step.backlog:,}", f"messages that step {step.step:,} left"
    last = view.points[-1]
    is_old = view.now - last.at > _OLD_SECONDS
    return f"{last.backlog:,}", f"messages, {span(view.now - last.at)} ago" if is_old else "messages to be read"


def _rate(view: View) -> tuple[str, str]:
    if not view.points:
        return "unknown", _UNSEEN
    recent = [point for point in view.points if point.at > view.now - _RATE_SECONDS]
    if not recent:
        return "unknown", f"over the last {_RATE_SECONDS // 60} min"
    # A point stands for the seconds before it.
    seconds = max(POINT_SECONDS, view.now - recent[0].at)
    rate = sum(point.rows for point in recent) / seconds
    return f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}", f"over the last {span(seconds)}"
