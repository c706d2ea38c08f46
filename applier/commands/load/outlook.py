"""What a load will read, and whether the feed leads on from there."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from applier.changefeed.filter import TableFilter
from applier.changefeed.message import TopicPartition
from applier.changefeed.position import Reading
from applier.changefeed.table import TableName
from applier.changefeed.ts import wall_clock
from applier.config.settings import Config
from applier.decode.dump.chosen_form import form_of
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import Export
from applier.errors import ConfigError, TerminalError
from applier.pipeline.since import first_resolved, newest
from applier.pipeline.step import Pipeline
from applier.pipeline.tables.shared_targets import refuse_shared_names
from applier.runtime.figures import counted


@dataclass(frozen=True, slots=True)
class Opened:
    """An export that is to be loaded, how its CSV files are written, and the tables to load.

    `left_out` are tables that `tables.include` admits, and `--tables` does not; that is given if `is_chosen`.
    """

    export: Export
    form: CsvForm
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
        head = f"Export {self.export.address}: {at}, {counted(len(names), 'table')}, {megabytes(self.size)}."
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


def opened(config: Config, address: str | None, rules: Sequence[str]) -> Opened:
    """The export of a configuration, or of `--from`, and the tables that rules mean of those that it holds.

    Raises:
        ConfigError: There is none, it cannot be read, or no table of it matches.
    """
    where = config.upstream.dump if address is None else address
    if not where:
        hint = "name its folder with --from DIR, or as upstream.dump in the configuration."
        raise ConfigError([f"No export is given: {hint}"])
    if address is None:
        export = Export.find(where)
    else:
        tables = f" --tables {shlex.quote(','.join(rules))}" if rules else ""
        load = "run `applier load -c FILE --from {}" + tables + "`"
        export = Export.find(where, lambda folder: load.replace("{}", shlex.quote(folder)))
    names = _chosen(export, config, rules)
    rest = [name for name in _chosen(export, config, ()) if name not in names]
    return Opened(export, form_of(export, config.upstream.csv), names, rest, bool(rules))


def _chosen(export: Export, config: Config, rules: Sequence[str]) -> list[TableName]:
    try:
        means = TableFilter(rules or ("*.*",)).admits
    except ValueError as error:
        raise ConfigError([f"--tables: {error}."]) from error
    admits = config.filter.admits
    held = sorted(name for name, _ in export.tables.items())
    names = [name for name in held if admits(name) and means(name)]
    if not names:
        shown = ", ".join(map(str, held[:10])) or "none"
        what = f"Export {export.address} holds no table that tables.include{' and --tables' if rules else ''} admit"
        raise ConfigError([f"{what}; its tables are: {shown}."])
    return names


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
