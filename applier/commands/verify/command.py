"""Command `verify`: whether tables hold what their upstream holds, cell by cell, at the resolved ts of the cut.

It reads a checkpoint once and keeps to the snapshots that show it, so that `run` may go on. It writes nothing but a
memory, in a folder that the user names.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from applier.changefeed.filter import option
from applier.changefeed.table import TableName
from applier.changefeed.ts import wall_clock
from applier.commands.control_reader import newest_checkpoint
from applier.commands.load.outlook import meant
from applier.commands.status.command import status
from applier.commands.verify.against import LATER, Other, OtherSide, OtherTable, find, is_table, other_table
from applier.commands.verify.columns import ColumnMissing, FileTwice, schemas_at
from applier.commands.verify.memory import Memory, refuse_unremembered, without_counters
from applier.commands.verify.report import TableVerdict, VerifyReport
from applier.commands.verify.sides import Side, snapshot_side
from applier.commands.verify.spark import Totals, compare, totals
from applier.config.settings import Config
from applier.decode.tidb.session import MomentGone
from applier.errors import EXPORT, ConfigError, TerminalError, TransientError
from applier.runtime.jvm.spark_session import running
from applier.runtime.versions import versions
from applier.sink.commit.stamp import RESOLVED_TS
from applier.sink.format.types import TableSchema
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.table import Table
from applier.watch.report import LACKING, StatusReport, TableProgress
from applier.wording import of_this_changefeed

_THREADS = 4
"""Tables that are compared at the same time: rows of each that differ may be in memory."""

Show = Callable[[TableVerdict], None]
"""Takes what is found of a table, as soon as it is."""


def verify(
    config: Config, against: str, rules: Sequence[str], show: Show, *, now_ms: int, memory: Path | None = None
) -> VerifyReport:
    """Compare the tables that rules mean with their upstream, which `against` names; "" is that of the configuration.

    With the folder of a memory, what an earlier run read of TiDB and has not changed since is not read again.

    Raises:
        ConfigError: There is no resolved ts, no upstream, or no such table; or no memory is kept of what is compared.
        MomentGone, OutsideRefused, TransientError: As `against.find`; of the catalog as well.
    """
    report, last = status(config, now_ms=now_ms), newest_checkpoint(config)
    if report.resolved_ts is None or last is None:
        what = f"Changefeed {config.changefeed.name} has no resolved ts at which its tables could be verified"
        raise ConfigError([f"{what}: it has applied nothing yet, or its feed carries no watermark."])
    if memory is not None:
        refuse_unremembered(config, against, memory)
    found = None if is_table(against) else find(config, against, rules, report.resolved_ts)
    admits, shown = meant(config, rules), _living(report)
    known = {name for name in last.tables if admits(name) and str(name) in shown}
    names = sorted(known | (found.names if found else set()))
    if not names:
        raise ConfigError(["No table matches tables.include and --tables, here or upstream."])
    with running(config, config.catalog.properties) as session:
        catalog = Catalog(session, config.catalog.name)
        other = found or other_table(catalog, against, names)
        checks = _Checks(config, catalog, other, secrets.randbits(64), memory)
        pool, verdicts = ThreadPoolExecutor(_THREADS), list[TableVerdict]()
        try:
            for verdict in pool.map(lambda name: checks.verdict(name, shown.get(str(name))), names):
                show(verdict)
                verdicts.append(verdict)
        finally:
            # A user who stops the command does not wait for jobs under way, which end with Spark.
            pool.shutdown(wait=False, cancel_futures=True)
    resolved = f"{wall_clock(report.resolved_ts):%F %T} UTC"
    return VerifyReport(config.changefeed.name, other.title, report.resolved_ts, resolved, verdicts)


@dataclass(frozen=True, slots=True)
class _Checks:
    """Compares tables with an upstream; the seed is that of hashes of rows, but for those of a memory."""

    config: Config
    catalog: Catalog
    other: Other
    seed: int
    memory: Path | None = None

    def verdict(self, name: TableName, progress: TableProgress | None) -> TableVerdict:
        """What is found of a table; `progress` is what `status` shows of it."""
        place = self.config.route.identifier(name)
        snapshot_id = None if progress is None else _snapshot(progress)
        unknown = TableVerdict(str(name), ".".join(place), "unknown", snapshot_id)
        because, way_out = self._unsettled(name, progress)
        if because:
            return self._explained(unknown, because, way_out)
        table: Table | None = None
        try:
            table = self.catalog.load(place)
            if table is None and snapshot_id is not None:
                what = f"Table {unknown.iceberg} has left the catalog since its state was read."
                return self._explained(unknown, what, "Give the command again.")
            if table is None or (snapshot_id is not None and not table.has_snapshot(snapshot_id)):
                return self._explained(unknown, *_gone(place, snapshot_id))
            schemas = schemas_at(table, snapshot_id, is_shown=_shows(table, progress))
            return self._compared(name, table, schemas, unknown)
        except (ConfigError, TerminalError, TransientError) as error:
            if isinstance(error, TransientError) and table is not None and self._has_expired(table, snapshot_id):
                return self._explained(unknown, *_gone(place, snapshot_id))
            return self._explained(unknown, error.what, LATER if isinstance(error, MomentGone) else error.hint)

    def _unsettled(self, name: TableName, progress: TableProgress | None) -> tuple[str, str]:
        """Why a table cannot be verified at the resolved ts, and what ends that; "" if it can."""
        if progress is None:
            what = f"The changefeed has met no row and no DDL of table {name}."
            return what, f"If it has rows upstream, run `applier load -c FILE --tables {option([name])}`."
        if progress.state in (*LACKING, "missing", "rolled back"):
            return progress.because or f"Table {name} is {progress.state}.", progress.way_out or ""
        if progress.state == "ahead" and progress.snapshot_id == progress.cut_snapshot_id:
            return f"Table {name} shows more than the resolved ts.", "The next step of `applier run -c FILE` ends that."
        if name not in self.other.names:
            what = f"{self.other.title} shows no table {name} at the resolved ts."
            return what, "Let the user of upstream.url see it; if it was dropped there, the feed lacks that DDL."
        return "", ""

    def _compared(
        self, name: TableName, table: Table, schemas: Sequence[TableSchema], unknown: TableVerdict
    ) -> TableVerdict:
        try:
            other = self.other.prepared(name, table, schemas, self.config.type_rules)
            own = snapshot_side(table, unknown.snapshot_id, other.schema.fields)
        except (ColumnMissing, FileTwice) as error:
            return self._explained(replace(unknown, state="different"), error.what, self._way_out(name))
        if self.memory is not None and (same := self._remembered(self.memory, table, other, own)) is not None:
            rows = same.iceberg.rows
            return replace(unknown, state="equal", rows=rows, upstream_rows=rows, rows_read=same.read)
        found = compare(self.catalog.java.session, str(table), (other.side, own), other.key, other.names, self.seed)
        read = replace(unknown, rows=found.rows, upstream_rows=found.upstream_rows, left_out=other.left_out)
        if found.found is None:
            return replace(read, state="equal")
        listed, counts = found.found
        different = replace(read, state="different", counts=counts, is_whole=found.is_whole, differences=listed)
        return self._explained(different, "", self._way_out(name))

    def _remembered(self, folder: Path, table: Table, other: OtherSide, own: Side) -> Totals | None:
        """What shows with an earlier run that both sides are equal; None if rows must be compared."""
        text, deleted_at = without_counters(other.text), table.schema.deleted_at
        meant = (versions()[0], other.schema.fields, other.key, self.config.type_rules, text, deleted_at)
        memory = Memory.of(folder, str(table), meant)
        key = tuple(map(other.names.index, other.key))
        found = totals(self.catalog.java.session, str(table), (other.side, own), other.bounds, key, memory)
        if found is None or found.upstream != found.iceberg:
            memory.forget()
            return None
        found.memory.save()
        return found

    def _way_out(self, name: TableName) -> str:
        if isinstance(self.other, OtherTable):
            return ""
        load = f"applier load -c FILE --tables {option([name])} --again"
        if self.config.upstream.login is None:
            load = load.replace(" --again", " --from DIR")
            return f"Export the table with `{EXPORT}`, run `{load}`, and let `applier run -c FILE` go on."
        return f"`{load}` reads its rows once more, and `applier run -c FILE` goes on from there."

    def _explained(self, verdict: TableVerdict, because: str, way_out: str) -> TableVerdict:
        return replace(verdict, because=because, way_out=of_this_changefeed(way_out, self.config.path))

    def _has_expired(self, table: Table, snapshot_id: int | None) -> bool:
        try:
            table.refresh()
            return snapshot_id is not None and not table.has_snapshot(snapshot_id)
        except (TerminalError, TransientError):
            return False


def _living(report: StatusReport) -> dict[str, TableProgress]:
    """The tables that were there at the resolved ts, by their names; `run` may have dropped one since."""
    resolved_ts = report.resolved_ts or 0
    return {it.table: it for it in report.tables if it.state != "dropped" or (it.resolved_ts or 0) > resolved_ts}


def _snapshot(progress: TableProgress) -> int | None:
    """The newest snapshot that shows the resolved ts: the head, which others may have made, until `run` has gone on."""
    return progress.cut_snapshot_id if progress.state in ("ahead", "dropped") else progress.snapshot_id


def _shows(table: Table, progress: TableProgress | None) -> bool:
    """Whether a table is still as `progress` has it, at no more than the resolved ts."""
    if progress is None or progress.state in ("ahead", "dropped") or table.snapshot_id != progress.snapshot_id:
        return False
    return table.setting(RESOLVED_TS) in (None, str(progress.resolved_ts or 0))


def _gone(place: Sequence[str], snapshot_id: int | None) -> tuple[str, str]:
    if snapshot_id is None:
        return (
            f"Table {'.'.join(place)} is not in the catalog yet.",
            "`applier run -c FILE` makes it with its first row.",
        )
    what = f"Snapshot {snapshot_id} of table {'.'.join(place)}, which shows the resolved ts, has expired."
    return what, "Give the command again; if it takes longer than snapshots are kept, raise maintenance.snapshot_hours."
