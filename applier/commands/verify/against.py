"""Finds what tables are compared with: a TiDB as of a resolved ts, or an export of that moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from applier.changefeed.table import Column, TableName, TableVersion
from applier.changefeed.types import TypeRules
from applier.commands.load.outlook import meant
from applier.commands.verify.sides import Side, upstream_side
from applier.config.login import Login
from applier.config.settings import Config
from applier.decode.dump.chosen_form import form_of
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import Export
from applier.decode.dump.file_columns import missing
from applier.decode.dump.part_reader import PartReader
from applier.decode.tidb.session import KEEP, MomentAhead, MomentGone
from applier.decode.tidb.tidb_export import TidbExport
from applier.errors import ConfigError
from applier.pipeline.load.loading import reader_of
from applier.pipeline.load.spark import Reader
from applier.sink.format.types import TableSchema

TIDB = "tidb"
"""Value of `--against` for the TiDB of upstream.url."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The upstream of some tables at one moment.

    Attributes:
        names: All tables that it has, of those that are asked for.
    """

    export: Export | TidbExport
    form: CsvForm | Login
    names: frozenset[TableName]

    def columns(self, version: TableVersion, rules: TypeRules) -> tuple[Reader, list[Column], tuple[str, ...]]:
        """What reads a table, its columns that are compared, and names of those that are not.

        Dumpling writes six digits of a FLOAT, and leaves stored generated columns out.
        """
        reader = reader_of(self.export, self.form, version, rules)
        held = [column for column in version.columns if column.generated != "virtual"]
        left = set[str]()
        if isinstance(reader, PartReader):
            files = self.export.files.get(version.name, ())
            left |= {column.name for column in held if column.type.name == "float"}
            left |= set(missing(version, reader.columns(files[0]) if files else ()))  # type: ignore[arg-type]
        kept = [column for column in held if column.name not in left]
        return reader, kept, tuple(sorted(left))

    def side(self, name: TableName, reader: Reader, table: str, schema: TableSchema) -> Side:
        """The rows of a table, in columns of an Iceberg table."""
        return upstream_side(reader, self.export.files.get(name, ()), table, schema)


def find(config: Config, against: str, rules: Sequence[str], resolved_ts: int) -> Upstream:
    """The upstream of the tables that rules mean, as of a resolved ts. `against` is "" for that of the configuration.

    Raises:
        ConfigError: None is given, or it is of another moment or another cluster.
        MomentGone: TiDB no longer holds the moment.
        OutsideRefused, TransientError: TiDB refuses to be read, or is not there.
    """
    admits = meant(config, rules)
    login = config.upstream.login
    if against == TIDB or (not against and login is not None):
        if login is None:
            raise ConfigError(["--against tidb needs the address of the TiDB: set upstream.url."])
        return _of_tidb(login, resolved_ts, admits)
    address = against or config.upstream.dump
    if not address:
        hint = "set upstream.url, or give --against DIR with the folder of an export."
        raise ConfigError([f"There is no upstream to compare with: {hint}"])
    export = Export.find(address, "give --against {}".format)
    if export.tso != resolved_ts:
        what = f"Export {address} is of TSO {export.tso}, and the changefeed is at resolved ts {resolved_ts}."
        dumpling = f"`tiup dumpling --snapshot {resolved_ts} --params 'time_zone=+00:00' -o DIR`"
        raise ConfigError([f"{what} Stop `applier run -c FILE`, export with {dumpling}, and give the command again."])
    names = frozenset(name for name, _ in export.tables.items() if admits(name))
    return Upstream(export, form_of(export, config.upstream.csv), names)


def _of_tidb(login: Login, resolved_ts: int, admits: Callable[[TableName], bool]) -> Upstream:
    try:
        export = TidbExport.find(login, resolved_ts, admits)
    except MomentGone as gone:
        keep = f"Let TiDB keep more, with {KEEP}, and let `applier run -c FILE` come to a later moment"
        raise MomentGone(gone.what, f"{keep}; then give the command again.") from None
    except MomentAhead:
        what = f"Resolved ts {resolved_ts} of the changefeed lies after the newest TSO of TiDB {login.address}"
        raise ConfigError([f"{what}: name the cluster of the changefeed in upstream.url."]) from None
    return Upstream(export, login, frozenset(name for name in export.held if admits(name)))
