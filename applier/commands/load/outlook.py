"""What a load will read, and whether the feed leads on from there."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from applier.changefeed.filter import TableFilter
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.table import TableName
from applier.changefeed.ts import wall_clock
from applier.config.login import Login
from applier.config.settings import Config
from applier.decode.dump.chosen_form import form_of
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import Export
from applier.decode.tidb.session import KEEP, MomentGone
from applier.decode.tidb.tidb_export import TidbExport
from applier.errors import ConfigError, TerminalError, TransientError
from applier.pipeline.load.loading import mark_of
from applier.pipeline.since import first_resolved, newest
from applier.pipeline.step import Pipeline
from applier.pipeline.tables.loads import find
from applier.pipeline.tables.shared_targets import refuse_shared_names
from applier.runtime.figures import counted

_BEHIND = "Check that TiCDC runs, and that upstream.url is the cluster of the changefeed."


@dataclass(frozen=True, slots=True)
class Opened:
    """An export that is to be loaded, how its CSV files are written, and the tables to load; or those of a TiDB.

    `left_out` are tables that `tables.include` admits, and `--tables` does not; that is given if `is_chosen`.
    """

    export: Export | TidbExport
    form: CsvForm | Login
    names: Sequence[TableName]
    left_out: Sequence[TableName] = ()
    is_chosen: bool = False

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(map(self.export.size, self.names))

    def lines(self) -> list[str]:
        """What is read, for people: the export, and its tables with their files."""
        tso, names = self.export.tso, self.names
        at = f"TSO {tso} ({wall_clock(tso):%F %T} UTC)"
        head = f"{self.export.title}: {at}, {counted(len(names), 'table')}, {megabytes(self.size)}."
        if isinstance(self.export, TidbExport) or isinstance(self.form, Login):
            return [head, *self._parts()]
        files = self.export.files
        columns = [column for name in names for column in self.export.version(name).columns]
        timed = any(column.type.name == "timestamp" for column in columns)
        zone = f"TIMESTAMP values of its files are read in zone {self.form.zone} ([upstream.csv] timezone)."
        is_csv = any(file.kind == "csv" for name in names for file in files.get(name, ()))
        return [
            head,
            *([f"Its CSV files are read with {self.form.shown()} ([upstream.csv])."] if is_csv else []),
            *([zone] if timed else []),
            *(
                f"{name}: {counted(len(files.get(name, ())), 'file')}, {megabytes(self.export.size(name))}"
                for name in names
            ),
        ]

    def _parts(self) -> list[str]:
        tidb = cast("TidbExport", self.export)
        parts = {name: len(tidb.files.get(name, ())) for name in self.names}
        kept = f"TiDB keeps what was there before for {tidb.kept_for} (tidb_gc_life_time)."
        return [
            *(f"{name}: {counted(n, 'range')}, about {megabytes(tidb.size(name))}" for name, n in parts.items()),
            f"{kept} Before a load that takes longer, run {KEEP}, and set it back afterwards.",
        ]


def opened(config: Config, address: str | None, rules: Sequence[str], at: int | None = None) -> Opened:
    """The export of a configuration, or of `--from`, and the tables that rules mean of those that it holds.

    Where the configuration has a TiDB in place of an export, its tables as of a TSO, or of now.

    Raises:
        ConfigError: There is none, it cannot be read, or no table of it matches.
        MomentGone, OutsideRefused, TransientError: As `TidbExport.find`.
    """
    if address is None and (login := config.upstream.login) is not None:
        return _of_tidb(config, login, rules, at)
    if at is not None:
        raise ConfigError(["--at is for a TiDB, which upstream.url names: an export has a TSO of its own."])
    where = config.upstream.dump if address is None else address
    if not where:
        hint = "name its folder with --from DIR, or as upstream.dump in the configuration; or a TiDB as upstream.url."
        raise ConfigError([f"No export is given: {hint}"])
    if address is None:
        export = Export.find(where)
    else:
        tables = f" --tables {shlex.quote(','.join(rules))}" if rules else ""
        load = "run `applier load -c FILE --from {}" + tables + "`"
        export = Export.find(where, lambda folder: load.replace("{}", shlex.quote(folder)))
    held, admits = [name for name, _ in export.tables.items()], meant(config, rules)
    names = _chosen(export.title, held, admits, rules)
    return Opened(export, form_of(export, config.upstream.csv), names, _rest(config, held, names), bool(rules))


def _of_tidb(config: Config, login: Login, rules: Sequence[str], tso: int | None) -> Opened:
    admits = meant(config, rules)
    export = TidbExport.find(login, tso, admits)
    names = _chosen(f"{export.title}, as the user may see it,", export.held, admits, rules)
    return Opened(export, login, names, _rest(config, export.held, names), bool(rules))


def gone_on(config: Config, main: Pipeline, begun: Opened, rules: Sequence[str], at: int | None) -> Opened:
    """Tables of a TiDB as of the moment, and in the parts, of a load of them that has begun and not ended.

    If TiDB does not hold that moment any more, or is another cluster, the load begins anew.
    """
    if not isinstance(begun.export, TidbExport):
        return begun
    asides = [found[0] for name in begun.names if (found := find(main.targets, name)) is not None]
    loads = [load for load in asides if load.form == repr(begun.form) and at in (None, load.tso)]
    tso = max((load.tso for load in loads), default=begun.export.tso)
    try:
        same = begun if tso == begun.export.tso else opened(config, None, rules, tso)
    except (MomentGone, ConfigError):
        return begun
    export = cast("TidbExport", same.export)
    own = [load for load in loads if load.name in same.names and load.mark == mark_of(export, load.name)]
    bounds = {load.name: load.bounds for load in own if load.tso == tso}
    return replace(same, export=export.cut_at(bounds)) if bounds else begun


def meant(config: Config, rules: Sequence[str]) -> Callable[[TableName], bool]:
    """Whether a table is one of `tables.include` and `--tables`."""
    try:
        means = TableFilter(rules or ("*.*",)).admits
    except ValueError as error:
        raise ConfigError([f"--tables: {error}."]) from error
    admits = config.filter.admits
    return lambda name: admits(name) and means(name)


def _chosen(
    title: str, held: Iterable[TableName], admits: Callable[[TableName], bool], rules: Sequence[str]
) -> list[TableName]:
    known = sorted(held)
    names = [name for name in known if admits(name)]
    if not names:
        shown = ", ".join(map(str, known[:10])) or "none"
        what = f"{title} holds no table that tables.include{' and --tables' if rules else ''} admit"
        raise ConfigError([f"{what}; its tables are: {shown}."])
    return names


def _rest(config: Config, held: Iterable[TableName], names: Sequence[TableName]) -> list[TableName]:
    admits = config.filter.admits
    return sorted(name for name in held if admits(name) and name not in names)


def reach(main: Pipeline, opened: Opened) -> Mapping[TopicPartition, Reading]:
    """Where the feed is read from, so that it leads on from an export.

    Raises:
        TableMismatch: Two tables have one Iceberg table.
        SourceLost: It does not hold everything since.
        TerminalError: It has not come as far.
    """
    tso = opened.export.tso
    refuse_shared_names(main.config, [*main.state.tables, *opened.names])
    readings = main.since(tso)
    last = newest(main.source, main.scanner.decoder) if main.targets.feed.order.has_watermark else None
    if last is not None and last < tso:
        come = f"The feed has come to resolved ts {last} ({wall_clock(last):%F %T} UTC)"
        what = f"{come}, and the export is of {tso} ({wall_clock(tso):%F %T} UTC)."
        if isinstance(opened.export, TidbExport):
            # A moment of now, to which the feed comes within seconds.
            raise TransientError(f"{come}, and is to come to {tso} ({wall_clock(tso):%F %T} UTC).", _BEHIND)
        raise TerminalError(what, "Wait until TiCDC has come as far; if it has, the export is of another cluster.")
    return readings


def unproven(main: Pipeline, tso: int) -> list[str]:
    """What no message shows, and a user must know: whether the changefeed began before the export; [] if it did."""
    if not main.targets.feed.order.has_watermark:
        return []
    spans, decoder = main.source.bounds(), main.scanner.decoder()
    firsts = [first_resolved(main.source, place, span, decoder) for place, span in spans.items()]
    first = min((ts for ts in firsts if ts is not None), default=None)
    if first is None or first <= tso:
        return []
    what = f"The first watermark of the feed is {first} ({wall_clock(first):%F %T} UTC), after the export."
    return [f"{what} Make sure that the changefeed was created with --start-ts {tso}, or before the export."]


def megabytes(size: int) -> str:
    """A size for people."""
    if size < 1e6:
        return counted(size, "byte")
    return f"{size / 1e6:,.1f} MB" if size < 10e9 else f"{size / 1e9:,.1f} GB"
