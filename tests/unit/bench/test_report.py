"""The benchmark's tables say what was measured, and never hide a failure."""

from __future__ import annotations

from dataclasses import replace

from bench.cluster import Cost, by_cost, by_waiting, places
from bench.contender import Run
from bench.freshness import seconds_to_visible
from bench.lake import Footprint
from bench.meter import Line, Measured, Sample
from bench.parked import compared
from bench.report import Entry, Table, render


def run(seconds: float, cpu: float, **more: object) -> Run:
    """A run."""
    return Run(start_seconds=5.0, seconds=seconds, cpu_seconds=cpu, whole_cpu_seconds=cpu + 8, peak_mb=900.0, **more)  # type: ignore[arg-type]


def table(*entries: Entry) -> Table:
    """A table of 1000 messages."""
    return Table("topic", events=990, messages=1000, size=500_000, row_bytes=30.0, entries=list(entries))


def test_job_is_shown_as_share_of_the_limits() -> None:
    """Ten seconds beside a limit of six are 60 % of its speed."""
    job = Entry("applier", [run(10, 8)], [], Footprint(1, 20_000, 1, 0))
    text = render("t", [table(Entry("Spark: read", [run(6, 4)]), job)])
    assert "applier reaches 60% of the speed of 'Spark: read', 50% by CPU seconds" in text
    assert "exact" in text


def test_a_run_on_a_cluster_shows_what_the_driver_used_and_what_many_executors_gain() -> None:
    """Once warm, without what is left for the last step; the part behind decoding is cut out between two samples, as is
    what executors wait for.
    """
    fields = {"event": "step", "messages": 1_000_000, "rows": 900_000, "apply_seconds": 2.0}
    lines = [Line(at, at / 10, fields, at * 2) for at in (1.0, 5.0, 10.0, 20.0, 30.0)]
    lines.append(Line(40.0, 9.0, {**fields, "messages": 1_000}, 60.0))
    samples = [Sample(at, at / 10, at * 2) for at in (17.5, 18.5, 27.5, 28.5)]
    large = places(Measured(0, 40.0, 5.0, 900.0, lines, samples))

    assert (large.steps, large.messages, large.rows) == (2, 2_000_000, 1_800_000)
    assert (large.cost.driver, large.cost.executors) == (2.0, 40.0)
    assert (round(large.applying.driver, 6), round(large.applying.executors, 6)) == (0.4, 8.0)
    idle = [*samples, *(Sample(at, at / 10, 57.0) for at in (28.7, 28.9, 29.1))]
    assert round(places(Measured(0, 40.0, 5.0, 900.0, lines, idle)).waiting, 6) == 0.6
    # A step costs the driver half a second, and half a second a million.
    small = replace(large, steps=8, cost=Cost(5.0, 40.0))
    found = by_cost(large, small)
    assert (round(found.of_step, 6), round(found.of_million, 6)) == (0.5, 0.5)
    assert round(found.gain, 2) == round((0.515625 + 20) / (0.515625 + 0.2), 2)
    waits = by_waiting(replace(large, waiting=1.0), replace(small, waiting=4.0))
    assert (round(waits.of_step, 6), round(waits.of_million, 6)) == (0.5, 0.0)
    kept = Footprint(1, 20_000, 1, 0)
    entries = [Entry(name, [run(10, 8, places=each)], [], kept) for name, each in (("large", large), ("small", small))]
    text = render("t", [table(*entries)])
    assert "large, 2,000,000 messages in 2 steps once warm: 1.00 CPU s a million in the driver of 21.0" in text
    assert "100 executors are 29 x as fast as one" in text


def test_freshness_is_counted_to_the_step_that_covers_a_commit() -> None:
    """A commit is readable with the first step that covers it; one that never was is not counted."""
    lines = [
        Line(at, at, {"event": "step", "resolved_ts": ms << 18, "timestamp": f"1970-01-01T00:00:{at:02.0f}+00:00"})
        for at, ms in ((2.0, 1_000), (4.0, 3_000))
    ]
    seconds = seconds_to_visible([500 << 18, 1_000 << 18, 2_000 << 18, 9_000 << 18], lines)
    assert seconds == [1.5, 1.0, 2.0]
    text = render("t", [table(Entry("applier", [run(10, 8, freshness=seconds)], [], Footprint(1, 20_000, 1, 0)))])
    assert "freshness: 3 of 990 changes, p50 1.50 s, p95 2.00 s, longest 2.00 s" in text


def test_a_resume_is_shown_by_what_all_others_wait_for_it() -> None:
    """Changes count that could be read in the later half before the park, and from the request to the step after."""

    def line(at: int, event: str, **more: object) -> Line:
        return Line(at, at, {"event": event, "timestamp": f"1970-01-01T00:00:{at:02}+00:00", **more})

    lines = [
        *(line(at, "step", resolved_ts=(at - 1) * 1000 << 18) for at in range(1, 9)),
        line(9, "request", kind="park"),
        line(10, "step", resolved_ts=9_000 << 18),
        line(11, "request", kind="resume"),
        line(12, "table resumed"),
        line(13, "step", resolved_ts=11_000 << 18),
        line(14, "step", resolved_ts=13_000 << 18),
    ]
    found = compared([ms << 18 for ms in (1_000, 5_000, 6_000, 8_000, 10_000, 11_000, 12_000)], 1_000, lines)
    assert (found.around, found.meanwhile, found.seconds) == ([1.0, 1.0, 2.0], [3.0, 2.0], 1.0)
    text = render("t", [table(Entry("applier", [run(10, 8, beside=found)], [], Footprint(1, 20_000, 1, 0)))])
    assert (
        "resume: 1.00 s; freshness of all others"
        " p50 1.00 s, meanwhile 3.00 s, p95 2.00 s, meanwhile 3.00 s: 3.00 and 1.50 x" in text
    )


def test_median_run_is_shown() -> None:
    """Of three repetitions the middle one counts."""
    assert Entry("applier", [run(9, 1), run(30, 1), run(10, 1)]).run.seconds == 10


def test_stages_are_shares_of_the_whole() -> None:
    """Seconds of a stage are summed over the steps."""
    lines = [
        Line(0.0, 0.0, {"event": "changefeed taken"}),
        *(Line(at, at, {"event": "step", "read_seconds": 2.0, "lag_seconds": 9.0}) for at in (5.0, 10.0)),
    ]
    job = Entry("applier", [run(10, 8, steps=lines)], [], Footprint(2, 20_000, 1, 0))
    assert "applier stages: read 4.00 s (40%)\n" in render("t", [table(job)])


def test_wrong_table_is_named() -> None:
    """A contender whose table differs is WRONG, with the reason."""
    text = render("t", [table(Entry("merge", [run(10, 8)], ["column price differs"], Footprint()))])
    assert "WRONG" in text
    assert "merge is WRONG: column price differs" in text


def test_one_failed_repetition_fails_the_entry() -> None:
    """A contender that failed once is FAILED, though the other run is shown."""
    text = render("t", [table(Entry("applier", [run(10, 8), run(1, 1, failure="exit code 3: no broker")]))])
    assert "FAILED" in text
    assert "applier FAILED: exit code 3: no broker" in text
    assert "10.0" in text
