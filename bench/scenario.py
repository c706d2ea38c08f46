"""The scenarios: which work is measured, and on how much data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench.topic.events import Workload
from bench.topic.schema import DATABASE

_SHAPES: Mapping[str, Mapping[str, Any]] = {
    "nothing": {},
    "metadata columns": {"metadata": ["_commit_ts", "_commit_time", "_op", "_source_table"]},
    "row ids": {"row_ids": "keep"},
    "changes": {"history": "changes"},
    "images": {"history": "images"},
}

PROTOCOLS = ("simple-json", "simple-avro", "canal-json", "open", "avro", "debezium")


@dataclass(frozen=True, slots=True)
class Case:
    """One topic that contenders apply.

    Attributes:
        label: What the report calls it.
        workload: What happens upstream.
        protocol: How TiCDC writes it.
        settled: Events that have been applied before the measured run starts.
        settings: Sections of the job's configuration.
    """

    label: str
    workload: Workload
    protocol: str = "canal-json"
    settled: int = 0
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Cases that are reported together.

    Attributes:
        name: As `python -m bench.run` takes it.
        title: What the report says of it.
        cases: The topics.
        limits: Limits of Spark to measure beside: `read`, `append`.
        peers: True if other ways to apply the topic can be measured beside.
        messages_per_step: The job's setting; None for its default, and for all at once where a peer has batches.
        reads: True if the cost of reading the tables afterwards is measured.
        live: True if the feed goes on while the job follows it, at the workload's own pace.
        parks: True if a table is parked and brought back while it does.
        clustered: True if the job is measured on a Spark cluster beside this machine's own way.
    """

    name: str
    title: str
    cases: tuple[Case, ...]
    limits: tuple[str, ...] = ()
    peers: bool = False
    messages_per_step: int | None = None
    reads: bool = False
    live: bool = False
    parks: bool = False
    clustered: bool = False


def scenarios(*, quick: bool, tables: int | None = None) -> dict[str, Scenario]:
    """All scenarios by name, on a little data or on all; `tables` are those of the scenario of that name."""

    def size(full: int, small: int) -> int:
        return small if quick else full

    base = size(5_000_000, 100_000)
    catch_up = Workload(size(1_000_000, 100_000))
    same_rows = Workload(size(200_000, 20_000))
    known = [
        Scenario(
            "catch-up",
            "append-heavy Simple-JSON into an empty table",
            (Case("simple-json", catch_up, "simple-json"),),
            limits=("read", "append"),
        ),
        Scenario(
            "catch-up-canal",
            "append-heavy Canal-JSON into an empty table",
            (Case("canal-json", catch_up),),
            limits=("read", "append"),
            peers=True,
        ),
        Scenario(
            "protocols",
            "the same rows in every protocol",
            tuple(Case(protocol, same_rows, protocol) for protocol in PROTOCOLS),
            limits=("read",),
        ),
        Scenario(
            "updates",
            f"uniform updates and deletes on {base:,} rows",
            (Case("updates", Workload(size(300_000, 20_000), "uniform", preloaded=base)),),
            peers=True,
            reads=True,
        ),
        Scenario(
            "batches",
            f"small steps of uniform updates and deletes on {base:,} rows",
            (Case("batches", Workload(size(200_000, 20_000), "uniform", preloaded=base, seed=2)),),
            peers=True,
            messages_per_step=size(10_000, 2_000),
        ),
        Scenario(
            "shapes",
            "uniform updates and deletes on a table that asks for nothing, metadata columns, ids that stay, or changes",
            tuple(
                _shaped(label, shape, Workload(size(300_000, 20_000), "uniform", preloaded=size(1_000_000, 100_000)))
                for label, shape in _SHAPES.items()
            ),
        ),
        Scenario(
            "hot",
            "updates of few keys",
            (Case("hot", Workload(size(500_000, 20_000), "hot")),),
            limits=("read",),
        ),
        Scenario(
            "freshness",
            "a feed that goes on: from the commit of a change to the moment at which it can be read",
            tuple(_live(size(60, 15), 10, rate) for rate in (300, 1_000)),
            live=True,
        ),
        Scenario(
            "upkeep",
            "a feed that goes on over tables that need maintenance all the time: how far beyond their limits they are",
            (_worn(size(900, 60), tables or size(20, 5)),),
            live=True,
        ),
        Scenario(
            "resume",
            "a feed that goes on while a table is parked and brought back: what the others wait for it",
            (_live(size(60, 30), size(100, 20)),),
            live=True,
            parks=True,
        ),
        Scenario(
            "backlog",
            "memory over a short and a long backlog, in steps of a quarter million",
            tuple(_backlog(events) for events in (size(1_000_000, 40_000), size(20_000_000, 120_000))),
            messages_per_step=size(250_000, 10_000),
        ),
        Scenario(
            "cluster",
            "a Spark cluster of two workers, with a Python of its own, beside one process",
            (
                Case("changes of six tables", Workload(size(12_000_000, 200_000), tables=6)),
                Case("one large table", Workload(size(6_000_000, 100_000), "uniform", preloaded=base, seed=3)),
            ),
            messages_per_step=20_000 if quick else None,
            clustered=True,
        ),
        Scenario("tables", "many tables in one step", (_many_tables(tables or size(100, 20)),)),
        Scenario(
            "recent",
            "updates of recent keys on a small and on a large table",
            tuple(_recent(rows) for rows in (size(1_000_000, 20_000), size(100_000_000, 200_000))),
        ),
    ]
    return {scenario.name: scenario for scenario in known}


def resized(scenario: Scenario, events: int | None) -> Scenario:
    """The scenario with another number of events, if one is given; half of them settled where some are."""
    if events is None:
        return scenario
    cases = (
        replace(case, workload=replace(case.workload, events=events), settled=events // 2 if case.settled else 0)
        for case in scenario.cases
    )
    return replace(scenario, cases=tuple(cases))


def _many_tables(tables: int) -> Case:
    """A hundred events per table; as many came before, so that the tables are there."""
    events = 100 * tables
    return Case(f"{tables} tables", Workload(2 * events, tables=tables), settled=events)


def _live(seconds: int, tables: int, rate: int = 1_000) -> Case:
    """Events over some tables, so many a second."""
    return Case(f"{rate:,} events/s over {tables} tables", Workload(rate * seconds, tables=tables, rate=rate))


def _shaped(label: str, shape: Mapping[str, Any], workload: Workload) -> Case:
    """A table with what its pattern asks for."""
    sections = {"tables": {"include": [f"{DATABASE}.*"]}, f'tables."{DATABASE}.*"': shape}
    return Case(label, workload, settings=sections)


def _worn(seconds: int, tables: int) -> Case:
    """Each table gets a commit a second, and keeps sixty snapshots."""
    workload = Workload(15 * tables * seconds, tables=tables, rate=15 * tables)
    settings = {"maintenance": {"snapshots": 60, "small_files": 50}}
    return Case(f"{15 * tables:,} events/s over {tables} tables", workload, settings=settings)


def _backlog(events: int) -> Case:
    return Case(f"{events:,} events", Workload(events))


def _recent(rows: int) -> Case:
    return Case(f"{rows:,} rows", Workload(10_000, "recent", preloaded=rows))
