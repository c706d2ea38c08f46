"""Recorded changefeeds through the whole pipeline: feed up to a recorded resolved ts in, contents of the tables out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog

from applier import wording
from applier.changefeed.completeness import Why, incomplete
from applier.changefeed.event import Resolved
from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName
from applier.config import settings
from applier.decode.decoder import Decoder
from applier.errors import DecodeError
from applier.pipeline.build import assembled
from applier.pipeline.step import Pipeline
from tests import expected, recordings
from tests.lake_reader import table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class Replay:
    """One recorded variant on its way into a catalog of its own namespaces.

    Attributes:
        scenario: The scenario.
        variant: The variant.
        prefix: Prefix of its namespaces, so that variants do not meet in the shared catalog.
        catalog: The catalog as PyIceberg sees it: a reader that shares no code with the applier.
        ends: Per recorded resolved ts the smallest prefix of the recording whose watermark reaches it.
    """

    scenario: str
    variant: str
    prefix: str
    lake: Mapping[str, str]
    raw: dict[str, Any]
    catalog: Catalog = field(init=False)
    _seen: dict[str, list[dict[str, Any]] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        uri = self.lake["uri"].removeprefix("jdbc:").replace("sqlite:", "sqlite:///")
        self.catalog = load_catalog("lake", type="sql", uri=uri, warehouse=self.lake["warehouse"])

    @contextmanager
    def running(self, spark: SparkSession) -> Iterator[Pipeline]:
        """The pipeline of this variant."""
        with assembled(settings.parse(self.raw), take_over=True) as pipeline:
            # As `applier run` does.
            pipeline.hold_to_checkpoint()
            yield pipeline

    def in_runs(self, spark: SparkSession, runs: int) -> None:
        """Apply the recording in some runs, each of which comes further by one share; no table may be parked then."""
        for run in range(1, runs + 1):
            with self.running(spark) as pipeline:
                ends = {TopicPartition(*at): end * run // runs for at, end in pipeline.ends().items()}
                while pipeline.step(ends).moved:
                    pass
                assert not pipeline.state.parked

    def identifier(self, name: TableName) -> tuple[str, str]:
        """Where a table goes."""
        return f"{self.prefix}__{name.database}", name.table

    def contents(self, name: TableName) -> list[dict[str, Any]] | None:
        """Rows of a table as Python values; None if there is no such table, or only one that is marked as dropped."""
        location = self._locations().get(name)
        return None if location is None else self._at(location)

    def _at(self, location: str) -> list[dict[str, Any]] | None:
        """The same at a place of its metadata, which never changes: it is read once."""
        if location not in self._seen:
            table = table_at(location)
            dropped = "applier.dropped-at" in table.properties
            self._seen[location] = None if dropped else plain(table.scan().to_arrow())
        return self._seen[location]

    def _locations(self) -> dict[TableName, str]:
        """Where the metadata of each table of this variant is, as the catalog's database says."""
        query = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE table_namespace GLOB ?"
        with closing(sqlite3.connect(self.lake["uri"].removeprefix("jdbc:sqlite:"))) as database:
            found = database.execute(query, (f"{self.prefix}__*",)).fetchall()
        start = len(self.prefix) + 2
        return {TableName(namespace[start:], table): location for namespace, table, location in found}

    def deselected(self) -> frozenset[str]:
        """Columns that `column-selectors` keep out of the feed."""
        selectors = recordings.config(self.scenario, self.variant)["sink"].get("column-selectors") or []
        return frozenset(name[1:] for rule in selectors for name in rule["columns"] if name.startswith("!"))

    def not_replicated(self) -> set[TableName]:
        """Tables that TiCDC leaves out: those its encoder refuses, and without `force-replicate` those that at some
        time had no key.
        """
        told = recordings.manifest(self.scenario)["variants"][self.variant]
        refused = {expected.name_of(name) for name in told["tables_excluded_because_the_encoder_refuses_them"]}
        if recordings.config(self.scenario, self.variant)["sink"].get("force-replicate"):
            return refused
        versions = expected.tables(recordings.expected(self.scenario))
        keyless = {name for name, version in versions.items() if not version.key}
        return (
            refused
            | keyless
            | {
                expected.name_of(text)
                for state in recordings.expected(self.scenario)
                for text, table in state["tables"].items()
                if not table["primary_key"] and not table.get("unique_keys")
            }
        )

    def tables(self) -> set[TableName]:
        """Tables that the catalog has of this variant and that are not marked as dropped."""
        return {name for name, location in self._locations().items() if self._at(location) is not None}


def replay(
    scenario: str, variant: str, lake: Mapping[str, str], folder: Path, protocol: str, name: str = "", **changefeed: Any
) -> Replay:
    """A replay of a variant.

    Args:
        scenario: The scenario.
        variant: The variant.
        lake: Properties of the shared catalog.
        folder: An empty folder.
        protocol: TiCDC's name of the protocol.
        name: Name of the changefeed; scenario and variant when absent.
        changefeed: More keys of the section `changefeed`.
    """
    name = name or f"{scenario}-{variant}"
    prefix = name.replace("-", "_")
    if "claimcheck" in variant:
        changefeed["claim_check"] = str(recordings.claim_check(scenario, variant, folder))
    raw = {
        "changefeed": {"name": name, "protocol": protocol, **changefeed},
        "source": {"archive": str(recordings.GOLDEN / scenario / f"{variant}.jsonl.gz")},
        "catalog": {"name": "lake", **lake},
        "tables": {"route": f"{prefix}__{{database}}.{{table}}"},
    }
    if protocol == "debezium":
        # One of its keys has 30 digits, which a double does not hold; no other key is like it.
        raw["tables"]["distinct_keys"] = ["keys.k_dec"]
    return Replay(scenario, variant, prefix, lake, raw)


def ends_at(
    scenario: str, variant: str, decoder: Decoder
) -> Iterator[tuple[dict[str, Any], dict[TopicPartition, int]]]:
    """Each recorded state with the smallest prefix of the recording whose watermark reaches it.

    Only partitions that this very watermark goes to count: topics of tables that are gone or still to come get none.
    """
    records = [
        (TopicPartition(record["topic"], record["partition"]), record["offset"], _resolved_in(record, decoder))
        for record in recordings.records(scenario, variant)
    ]
    told: dict[TopicPartition, set[int]] = {}
    for place, _, resolved_ts in records:
        told.setdefault(place, set()).add(resolved_ts)
    resolved: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    wanted = list(recordings.expected(scenario))
    for place, offset, resolved_ts in records:
        ends[place] = offset + 1
        resolved[place] = max(resolved_ts, resolved.get(place, 0))
        while wanted and _is_reached(wanted[0]["resolved_ts"], resolved, told):
            yield wanted.pop(0), dict(ends)


def _is_reached(ts: int, resolved: Mapping[TopicPartition, int], told: Mapping[TopicPartition, set[int]]) -> bool:
    """Whether every partition that a watermark goes to has it, or a later one."""
    return max(resolved.values()) >= ts and all(resolved.get(p, 0) >= ts for p, every in told.items() if ts in every)


def _resolved_in(record: Mapping[str, Any], decoder: Decoder) -> int:
    try:
        events = decoder.decode(record["key"], record["value"])
    except DecodeError:
        return 0
    return max((event.resolved_ts for event in events if isinstance(event, Resolved)), default=0)


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as the Python values that `tests/expected.py` gives."""
    rows = table.to_pylist()
    for row in rows:
        for name, value in row.items():
            if isinstance(value, list):
                row[name] = tuple(value)
    return rows


def doubted(found: Replay, pipeline: Pipeline) -> dict[TableName, str]:
    """Tables of the catalog that readers may not take for whole, with the reasons; {} if each is live."""
    nothing = incomplete(Why.UNRECORDED)
    known = {name: pipeline.state.completeness.get(name, nothing) for name in found.tables()}
    return {name: wording.clause(item.reason) for name, item in known.items() if not item.is_live}


def differences(found: Replay, state: Mapping[str, Any]) -> list[str]:
    """What differs between the tables and a recorded state, one line a table; [] if every cell is equal."""
    problems = []
    left_out = found.not_replicated()
    named = {expected.name_of(text): table for text, table in state["tables"].items()}
    wanted = {name: table for name, table in named.items() if name not in left_out}
    for name, table in wanted.items():
        rows = found.contents(name)
        if rows is None:
            problems.append(f"{name} is missing")
            continue
        virtual = {column["name"] for column in table["columns"] if column.get("generated") == "virtual"}
        unseen = virtual | found.deselected()
        rows = [{key: value for key, value in row.items() if key not in unseen} for row in rows]
        here, there = expected.bag(rows), expected.bag(expected.rows(table, without=found.deselected()))
        if here != there:
            extra, lost = sorted(set(here) - set(there)), sorted(set(there) - set(here))
            problems.append(f"{name}: {len(here)} rows for {len(there)}\n  has   {extra[:3]}\n  wants {lost[:3]}")
    problems += [f"{name} should not be there" for name in found.tables() - wanted.keys() - left_out]
    return problems
