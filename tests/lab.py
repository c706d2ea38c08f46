"""A changefeed's records in, appliers in this process out: started, stopped and compared at every checkpoint.

Tables are read by PyIceberg, which shares no code with the applier, and compared with what the database held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.table import StaticTable, Table

from applier.changefeed.history import SUFFIX
from applier.changefeed.message import MESSAGE_SCHEMA, Messages, TopicPartition, by_place
from applier.changefeed.table import TableName
from applier.changefeed.window import OffsetRange, Window
from applier.commands.follower import Follower
from applier.commands.status.command import status
from applier.commands.status.cut import Engine
from applier.config import settings
from applier.pipeline.build import assemble, taken
from applier.pipeline.requests import Requests
from applier.pipeline.state import State
from applier.pipeline.step import Pipeline
from applier.pipeline.tables import completeness, layouts
from applier.sink.control.control import unix_ms
from applier.sink.control.lease import this_process
from applier.sink.control.rows import TableRequest
from applier.sink.iceberg.catalog import Catalog
from applier.watch.report import StatusReport
from tests.in_memory import InMemory
from tests.ticdc import Record
from tests.upstream import Database, Ddl, Name, Row, Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "swift"
"""A catalog of the run's session whose SQLite does not wait for the disk."""


_HOSTS = count(1)

OTHERS = "zz_"
"""How the names of columns begin that other writers add."""

_DELETED = "_deleted_at"
_METADATA = ("_commit_ts", "_commit_time", "_op", "_source_table", _DELETED)
"""Columns that applier may add to a table."""


def swift(spark: SparkSession) -> None:
    """Give the session the catalog `swift`, beside the catalog `lake`; a second call changes nothing."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    if spark.conf.get(prefix, None) is None:
        folder = Path(str(spark.conf.get("spark.sql.catalog.lake.warehouse"))).parent
        pragmas = "synchronous=OFF&journal_mode=MEMORY&busy_timeout=100"
        spark.conf.set(f"{prefix}.type", "jdbc")
        spark.conf.set(f"{prefix}.uri", f"jdbc:sqlite:{database(spark)}?{pragmas}")
        spark.conf.set(f"{prefix}.jdbc.schema-version", "V1")
        spark.conf.set(f"{prefix}.warehouse", f"{folder}/{CATALOG}")
        spark.conf.set(f"{prefix}.cache-enabled", "false")
        spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")


def database(spark: SparkSession) -> Path:
    """The SQLite file of the catalog `swift`."""
    return Path(str(spark.conf.get("spark.sql.catalog.lake.warehouse"))).parent / f"{CATALOG}.db"


class Memory(InMemory):
    """Records as a `Source`; what is appended to them later is read later."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records

    def bounds(self) -> Mapping[TopicPartition, OffsetRange]:
        """See `Source`."""
        ends: dict[TopicPartition, int] = {}
        for record in self.records:
            ends[TopicPartition(record["topic"], record["partition"])] = record["offset"] + 1
        return {place: OffsetRange(0, ends[place]) for place in sorted(ends)}

    def collect(self, window: Window) -> Messages:
        """See `Source`."""
        wanted = [record for record in self.records if _is_in(record, window)]
        wanted.sort(key=lambda record: (record["topic"], record["partition"], record["offset"]))
        return dict(by_place(pa.Table.from_pylist(wanted, schema=MESSAGE_SCHEMA)))


def _is_in(record: Record, window: Window) -> bool:
    span = window.ranges.get(TopicPartition(record["topic"], record["partition"]))
    return span is not None and span.start <= record["offset"] < span.end


@dataclass(slots=True)
class Lab:
    """One changefeed of the Simple protocol into namespaces of its own.

    Args:
        spark: The session of the run.
        name: Name of the changefeed, used nowhere else.
        database: The upstream.
        records: Its messages.
        messages: Messages a step.
        order: As in the configuration; in offset order the tables are compared once all messages are read.
        more: Other keys of the configuration, by section.
        may_lack: Tables of this name need not be live; one that is not, is not compared.
        stays: All its appliers are on one machine, so that what one began, the next one goes on with.
        requests: What commands ask for, each once the checkpoint has come to a commit ts.
        has_others: Other writers expire snapshots, and add columns whose names begin with `OTHERS`.
        shaped: What the rows of an upstream table are here.
    """

    spark: SparkSession
    name: str
    database: Database
    records: Sequence[Record]
    messages: int = 10_000
    order: str = "resolved"
    more: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    may_lack: Callable[[Name], bool] = field(default=lambda _: False)
    stays: bool = False
    requests: Sequence[tuple[int, TableRequest]] = ()
    has_others: bool = False
    shaped: Callable[[Schema, Iterable[Row]], Iterable[Row]] = field(default=lambda _, rows: rows)
    _answered: set[str] = field(default_factory=set)
    catalog: Catalog = field(init=False)
    _host: str = ""
    _seen: dict[tuple[str, int | None], list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        swift(self.spark)
        self.catalog = Catalog(self.spark, CATALOG)

    def start(self, *, is_over: bool = False) -> Pipeline:
        """An applier that has taken the changefeed, from whomever held it.

        Args:
            is_over: The applier before it has certainly ended. Otherwise each is on a machine of its own: nothing shows
                whether the one before is dead, and it may wake up.
        """
        config, source = self._config(), self.source()
        self._host = self._host if self._host and (is_over or self.stays) else f"host-{next(_HOSTS)}"
        me = replace(this_process(unix_ms()), host=self._host)
        control, checkpoint = taken(config, self.catalog, source, me, None, take_over=True, is_told=True)
        pipeline = assemble(config, source, self.catalog, State.load(control, checkpoint))
        # As `applier run` does.
        pipeline.hold_to_checkpoint()
        completeness.keep(pipeline.state, pipeline.targets)
        layouts.bring(pipeline.state, pipeline.targets, pipeline.config.tables)
        return pipeline

    def status(self, engine: Engine = "spark") -> StatusReport:
        """What `applier status` finds, which reads the catalog without Spark; its queries are for an engine."""
        return status(self._config(), now_ms=0, engine=engine)

    def _config(self) -> settings.Config:
        file = database(self.spark)
        lake = {"uri": f"jdbc:sqlite:{file}", "warehouse": str(file.parent)}
        raw: dict[str, dict[str, Any]] = {
            "changefeed": {"name": self.name, "protocol": "simple", "order": self.order},
            "source": {"archive": "records", "messages_per_step": self.messages},
            "catalog": {"name": CATALOG, "type": "jdbc", **lake},
            "tables": {"route": f"{self.name}__{{database}}.{{table}}"},
        }
        for section, keys in self.more.items():
            raw[section] = {**raw.get(section, {}), **keys}
        return settings.parse(raw)

    def next_request(self, pipeline: Pipeline) -> TableRequest | None:
        """The first request whose time has come and that was not carried out."""
        resolved_ts = pipeline.state.resolved_ts
        due = (request for ts, request in self.requests if ts <= resolved_ts and request.id not in self._answered)
        return next(due, None)

    def carry_out(self, pipeline: Pipeline, request: TableRequest) -> None:
        """Let a pipeline do what a request asks for; again after a crash in it."""
        outcome = Requests(pipeline).carry_out(request)
        assert not outcome.is_refused or "Nothing to resume" in outcome.notes[0], outcome
        self._answered.add(request.id)

    def check_all_back(self, pipeline: Pipeline) -> None:
        """Every table is live and in the cut, each request was carried out, and no copy is left."""
        assert self._answered == {request.id for _, request in self.requests}
        tables, cut = self.tables(), pipeline.state.checkpoint.cut.heads
        assert [str(name) for name in tables if not self.is_live(pipeline, name)] == []
        heads = {
            (self.namespace(name.database), name.table): table.current_snapshot() for name, table in tables.items()
        }
        assert [at for at, head in heads.items() if head is not None and at not in cut] == []
        assert self.catalog.list((f"applier_{self.name}__resume",)) == []

    def source(self) -> Memory:
        """The messages."""
        return Memory(self.records)

    def namespace(self, database: str) -> str:
        """Where the tables of a database go."""
        return f"{self.name}__{database}"

    def check(self, pipeline: Pipeline) -> None:
        """Compare at the checkpoint that a pipeline has just written: every cell, and every snapshot that it lists."""
        problems = self.problems(pipeline)
        assert not problems, "\n".join(problems)

    def problems(self, pipeline: Pipeline) -> list[str]:
        """What is wrong there; [] if everything is as in the database."""
        resolved_ts = pipeline.state.resolved_ts
        if self.order == "offset":
            if any(pipeline.state.next_offsets.get(p, 0) < span.end for p, span in self.source().bounds().items()):
                return []
            resolved_ts = self.database.ts
        if self.is_between(pipeline, resolved_ts):
            return []
        wanted = self.database.at(resolved_ts)
        snapshots = dict(pipeline.state.checkpoint.cut.heads)
        cut = {Name(database.removeprefix(self.namespace("")), table) for database, table in snapshots}
        found = [f"{name} is in the cut" for name in sorted(cut) if self.is_stale(pipeline, name)]
        wanted = {name: table for name, table in wanted.items() if not self.is_stale(pipeline, name)}
        here = {name: table for name, table in self.tables().items() if not self.is_stale(pipeline, name)}
        found += [f"{name} should not be there" for name in sorted(here.keys() - wanted.keys())]
        found += [f"{name} is missing" for name in sorted(wanted.keys() - here.keys())]
        for name in sorted(here.keys() & wanted.keys()):
            listed = snapshots.pop((self.namespace(name.database), name.table), None)
            head = here[name].current_snapshot()
            # A commit that fences a table or maintains it moves the head and no row.
            shown = [listed, head.snapshot_id if head else None]
            if listed is not None and (at := pipeline.state.checkpoint.cut.at) and not self.has_others:
                # Plain time travel to the moment of the checkpoint; 0 where it is not known.
                there = here[name].snapshot_as_of_timestamp(at)
                shown.append(there.snapshot_id if there else None)
            for number in dict.fromkeys(shown):
                found += self._differing(name, here[name], number, self.shaped(*wanted[name]))
        return [f"{line} at {resolved_ts}" for line in found]

    def is_between(self, pipeline: Pipeline, resolved_ts: int) -> bool:
        """Whether a DDL follows the resolved ts of its own commit ts: the database never was like the tables then."""
        told = {ddl.sql for ddl in pipeline.state.checkpoint.ddl}
        return any(
            isinstance(item, Ddl) and item.ts == resolved_ts and item.sql not in told for item in self.database.log
        )

    def is_live(self, pipeline: Pipeline, name: Name) -> bool:
        """Whether a table is shown as whole."""
        known = pipeline.state.completeness.get(TableName(*name))
        return known is not None and known.is_live

    def is_stale(self, pipeline: Pipeline, name: Name) -> bool:
        """Whether a table may lack rows, or may have been dropped or renamed unnoticed, and is not shown as whole."""
        return self.may_lack(name) and not self.is_live(pipeline, name)

    def tables(self) -> dict[Name, StaticTable]:
        """The tables that are there and not marked as dropped, as PyIceberg reads them from their metadata files."""
        return {name: table for name, table in self._all().items() if not name.table.endswith(SUFFIX)}

    def changes(self) -> dict[Name, StaticTable]:
        """Tables of changes that are there and not marked as dropped, by the names of their tables."""
        every = ((name, name.table.removesuffix(SUFFIX), table) for name, table in self._all().items())
        return {Name(name.database, owner): table for name, owner, table in every if owner != name.table}

    def _all(self) -> dict[Name, StaticTable]:
        found = {}
        for database in sorted({item.schema.name.database for item in self.database.log if item.schema is not None}):
            for identifier in self.catalog.list((self.namespace(database),)):
                table = self.catalog.load(identifier)
                assert table is not None
                if table.setting("applier.dropped-at") is None:
                    where = str(table.handle.operations().current().metadataFileLocation())
                    found[Name(database, identifier[-1])] = StaticTable.from_metadata(where)
        return found

    def _differing(self, name: Name, table: StaticTable, snapshot_id: int | None, rows: Iterable[Row]) -> list[str]:
        key = (table.metadata_location, snapshot_id)
        if self.has_others and snapshot_id and table.snapshot_by_id(snapshot_id) is None:
            return []
        if key not in self._seen:
            self._seen[key] = bag(own_rows(table, snapshot_id)) if snapshot_id else []
        here, there = self._seen[key], bag(rows)
        if here == there:
            return []
        extra, lost = sorted(set(here) - set(there)), sorted(set(there) - set(here))
        return [f"{name}: {len(here)} rows for {len(there)}\n  has   {extra[:3]}\n  wants {lost[:3]}\n "]


def own_rows(table: Table, snapshot_id: int | None = None) -> list[Row]:
    """The living rows of a table, at a snapshot or now, in the columns of upstream."""
    found = table.scan(snapshot_id=snapshot_id).to_arrow()
    if _DELETED in found.column_names:
        found = found.filter(found[_DELETED].is_null())
    own = [name for name in found.column_names if not name.startswith((OTHERS, *_METADATA))]
    rows: list[Row] = found.select(own).to_pylist()
    return rows


def bag(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows in a form that compares, in no order that means anything."""
    return sorted(repr(sorted(row.items())) for row in rows)


def run(start: Callable[[], Pipeline], lab: Lab) -> Pipeline:
    """One applier to the end of the records, compared at every checkpoint."""
    follower = Follower(start())
    complete = False
    while not complete:
        step = follower.turn()
        complete = step.complete and not step.moved
        if step.moved:
            lab.check(follower.pipeline)
    return follower.pipeline
