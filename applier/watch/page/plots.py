"""The plots of the page, drawn on the server: lag and rows over the last hours, and the stages of the last steps.

Every place across is a share of the width, so that bars stretch with the page while letters keep their size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from applier.runtime.figures import counted, span
from applier.watch.history import HOURS, POINT_SECONDS, Point
from applier.watch.page.html import Html, moment, section, table, tag
from applier.watch.report import StepProgress

_HEIGHT, _TOP, _BASE = 190, 22, 166
_BARS = 120
_WIDTHS = (10, 20, 30, 60, 120, 180, 300)
_TICKS = (60, 120, 300, 600, 900, 1800, 3600, 7200)
_TIME_STEPS = (60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200)
_DAY = 86400
_COVERS = 120
"""Seconds that may pass between two points before the time between them counts as unknown."""

STAGES = ("maintain", "plan", "read", "decode", "apply", "checkpoint")
"""In the order in which a step passes them, which is that of their colours."""


@dataclass(slots=True)
class Bucket:
    """What one bar shows: the largest lag, and the rows, of some time from Unix time `at` on."""

    at: int
    lag: float | None = None
    rows: float = 0.0
    is_known: bool = False


def buckets(points: Sequence[Point], now: float) -> list[Bucket]:
    """Points gathered into at most `_BARS` bars of equal time, which end now; the first hold nothing for short runs."""
    span = min(max(600.0, now - points[0].at), HOURS * 3600.0)
    width = next((width for width in _WIDTHS if span / width <= _BARS), _WIDTHS[-1])
    end = int(now) // width * width + width
    start = end - (int(span) // width + 1) * width
    found = [Bucket(at) for at in range(start, end, width)]
    before = points[0].at - POINT_SECONDS
    for point in points:
        # A step that took longer than a point stands for what was done since the one before it.
        since = before + POINT_SECONDS if point.at - before <= _COVERS else point.at
        before = point.at
        first, last = (max(since, start) - start) // width, (point.at - start) // width
        covered = found[first : last + 1] if last >= 0 else []
        for bucket in covered:
            bucket.is_known = True
            bucket.rows += point.rows / len(covered)
            if point.lag is not None:
                bucket.lag = max(bucket.lag or 0.0, point.lag)
    return found


def history(points: Sequence[Point], now: float, lag_now: float | None) -> Html:
    """Lag and rows over the last hours."""
    if not points:
        why = "There is no plot: the last hours are known to a running process alone, and from its start on."
        return section("history", "The last hours", tag("p", why, class_="soft"))
    found = buckets(points, now)
    width = found[1].at - found[0].at
    lags = [bucket.lag for bucket in found]
    # The last bar is of a time that is not over.
    rates = [bucket.rows / max(10, min(width, now - bucket.at)) if bucket.is_known else None for bucket in found]
    past = span(max(POINT_SECONDS, now - points[0].at))
    known = [lag for lag in lags if lag is not None]
    gaps = "" if all(bucket.is_known for bucket in found) else " Where the plot is empty, nothing is known."
    lag = "No lag is known: the feed carries no resolved ts, or none was applied."
    if known:
        lag = f"The tables are {span(lag_now)} behind; at most, they were {span(max(known))} in the last {past}."
    rows, total = max(rate or 0.0 for rate in rates), sum(point.rows for point in points)
    moved = f"{counted(total, 'row')} were applied in the last {past}; the fastest {span(width)} brought "
    return section(
        "history",
        "The last hours",
        _bars("lag", "Lag", lag + gaps, found, lags, _time_ticks, span),
        _bars("rows", "Rows a second", f"{moved}{_rate(rows)} a second.", found, rates, _ticks, _rate),
    )


def _bars(
    name: str,
    title: str,
    caption: str,
    found: Sequence[Bucket],
    values: Sequence[float | None],
    ticks: Callable[[float], list[float]],
    shown: Callable[[float], str],
) -> Html:
    marks = ticks(max((value for value in values if value is not None), default=0.0))
    top, count = marks[-1], len(found)
    drawn = []
    for at, (bucket, value) in enumerate(zip(found, values, strict=True)):
        if value is None:
            continue
        height = (_BASE - _TOP) * value / top
        bar = _rect(100 * at / count, 100 / count, _BASE - height, height, "bar")
        hit = _rect(100 * at / count, 100 / count, _TOP, _BASE - _TOP, "hit")
        drawn.append(Html(f"<g><title>{_clock(bucket.at)} UTC: {shown(value)}</title>{hit}{bar}</g>"))
    scale = [(mark, shown(mark)) for mark in marks]
    return _figure(name, title, caption, scale, drawn, list(_times(found)))


def _figure(name: str, title: str, caption: str, scale: Sequence[tuple[float, str]], *drawn: Sequence[Html]) -> Html:
    labels = tag("title", title, id=f"{name}-t"), tag("desc", caption, id=f"{name}-d")
    names = {"aria_labelledby": f"{name}-t", "aria_describedby": f"{name}-d"}
    heights = [(_BASE - (_BASE - _TOP) * mark / scale[-1][0], shown) for mark, shown in scale]
    lines = [
        tag("line", x1="0", x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid" if y < _BASE else "base")
        for y, _ in heights
    ]
    ticks = [tag("text", shown, x="100%", y=f"{y + 4:.1f}", class_="tick end") for y, shown in heights]
    axis = tag("svg", ticks, class_="axis", height=_HEIGHT, aria_hidden="true")
    plot = tag("svg", labels, lines, drawn, class_=f"plot {name}", height=_HEIGHT, role="img", **names)
    return tag("figure", tag("h3", title), tag("div", axis, plot, class_="drawing"), tag("figcaption", caption))


def _times(found: Sequence[Bucket]) -> Iterator[Html]:
    width = found[1].at - found[0].at
    start, span = found[0].at, width * len(found)
    every = next((tick for tick in _TICKS if span / tick <= 6), _TICKS[-1])
    for at in range(start - start % every + every, start + span, every):
        share = 100 * (at - start) / span
        if not 4 < share < 96:
            continue
        x = f"{share:.2f}%"
        yield tag("line", x1=x, x2=x, y1=_BASE, y2=_BASE + 4, class_="base")
        yield tag("text", _clock(at), x=x, y=_BASE + 18, class_="tick mid")


def steps(found: Sequence[StepProgress]) -> Html:
    """How long each stage of the last steps took."""
    timed = [step for step in reversed(found) if step.seconds]
    if not timed:
        return section("steps", "Where the time goes", tag("p", "No step is known with its times.", class_="soft"))
    totals = {name: sum(step.seconds.get(name, 0.0) for step in timed) for name in _stages(timed)}
    whole, count = sum(totals.values()) or 1.0, len(timed)
    longest = max(timed, key=lambda step: sum(step.seconds.values()))
    most = f"step {longest.step} was the longest with {_seconds(sum(longest.seconds.values()))}"
    caption = f"The last {count:,} steps took {_seconds(whole)}; {most}."
    if count == 1:
        caption = f"The last step took {_seconds(whole)}."
    marks = _ticks(sum(longest.seconds.values()))
    drawn = [_stack(step, at, max(count, 12), marks[-1], list(totals)) for at, step in enumerate(timed)]
    shares = [(name, f"{name} {spent / whole:.0%}") for name, spent in totals.items()]
    legend = tag("ul", [tag("li", share, class_=f"s{_colour(name)}") for name, share in shares], class_="legend")
    figure = _figure("stages", "Seconds of each step", caption, [(mark, _seconds(mark)) for mark in marks], drawn)
    return section("steps", "Where the time goes", legend, figure, _numbers(timed[::-1], list(totals)))


def _stages(timed: Sequence[StepProgress]) -> list[str]:
    named = dict.fromkeys(name for step in timed for name in step.seconds)
    return sorted(named, key=_colour)


def _colour(name: str) -> int:
    return STAGES.index(name) if name in STAGES else len(STAGES)


def _stack(step: StepProgress, at: int, count: int, top: float, names: Sequence[str]) -> Html:
    left, wide = 100 * (at + 0.12) / count, 76 / count
    y: float = _BASE
    parts = []
    for name in names:
        height = (_BASE - _TOP) * step.seconds.get(name, 0.0) / top
        if height >= 0.1:
            y -= height
            parts.append(_rect(left, wide, y, height, f"s{_colour(name)}"))
    times = ", ".join(f"{name} {_seconds(step.seconds[name])}" for name in names if name in step.seconds)
    number = tag("text", f"{step.step:,}", x=f"{left + wide / 2:.2f}%", y=_BASE + 18, class_="tick mid")
    label = number if at % 4 == 0 or count <= 8 else None
    hit = _rect(100 * at / count, 100 / count, _TOP, _BASE - _TOP, "hit")
    return tag("g", tag("title", f"Step {step.step}: {counted(step.rows, 'row')}; {times}"), hit, parts, label)


def _numbers(timed: Sequence[StepProgress], names: Sequence[str]) -> Html:
    rows = [
        tag(
            "tr",
            tag("th", f"{step.step:,}", scope="row"),
            tag("td", moment(step.at)),
            tag("td", f"{step.messages:,}", class_="n"),
            tag("td", f"{step.rows:,}", class_="n"),
            [tag("td", f"{step.seconds[name]:.3f}" if name in step.seconds else "?", class_="n") for name in names],
            data_key=f"step-{step.step}",
        )
        for step in timed
    ]
    headings = ["Step", "Written (UTC)", "Messages", "Rows", *(f"{name}, s" for name in names)]
    shown = table("The last steps", headings, rows, numbers=range(2, len(headings)))
    return tag("details", tag("summary", "The numbers of these steps"), shown, id="step-numbers")


def _rect(x: float, wide: float, y: float, height: float, kind: str) -> Html:
    place = f'x="{x:.2f}%" y="{y:.1f}" width="{wide:.2f}%" height="{height:.1f}"'
    return Html(f'<rect class="{kind}" {place}></rect>')


def _ticks(highest: float) -> list[float]:
    """From 0 to the first round number that is no less than the highest, in two to four steps."""
    if highest <= 0:
        return [0.0, 1.0]
    step = next(one * 10.0**power for power in range(-3, 15) for one in (1, 2, 5) if highest <= 4 * one * 10.0**power)
    return [step * at for at in range(int(-(-highest // step)) + 1)]


def _time_ticks(highest: float) -> list[float]:
    """The same in seconds, in steps of minutes, hours or days."""
    if highest <= 120:
        return _ticks(max(highest, 1.0))
    step = next((step for step in _TIME_STEPS if highest <= 4 * step), None)
    if step is None:
        return [_DAY * days for days in _ticks(highest / _DAY)]
    return [float(step * at) for at in range(int(-(-highest // step)) + 1)]


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.3g}"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value < 100 else span(value)


def _clock(at: int) -> str:
    return f"{datetime.fromtimestamp(at, tz=UTC):%H:%M}"
