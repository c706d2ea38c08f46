"""Finds what tables are compared with: a TiDB as of a resolved ts, an export of that moment, or another table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from applier.changefeed.table import Column, TableName, TableVersion
from applier.changefeed.types import TypeRules, column_arrow_type
from applier.commands.load.outlook import meant
from applier.commands.verify.columns import ColumnMissing, columns_at
from applier.commands.verify.sides import Side, snapshot_side, upstream_side
from applier.config.login import Login
from applier.config.settings import Config
from applier.decode.dump.chosen_form import form_of
from applier.decode.dump.csv_form import CsvForm
from applier.decode.dump.export import Export
from applier.decode.dump.file_columns import missing
from applier.decode.dump.part_reader import PartReader
from applier.decode.tidb.session import KEEP, MomentAhead, MomentGone
from applier.decode.tidb.table_ranges import Bound
from applier.decode.tidb.tidb_export import TidbExport
from applier.errors import ConfigError, TableMismatch
from applier.pipeline.load.loading import reader_of
from applier.pipeline.load.spark import Reader
from applier.sink.format.types import TableSchema
from applier.sink.iceberg.catalog import Catalog
from applier.sink.iceberg.table import Table

TIDB = "tidb"
"""Value of `--against` for the TiDB of upstream.url."""


LATER = (
    f"Let TiDB keep more, with {KEEP}, and let `applier run -c FILE` come to a later moment; then give the command "
    "again."
)
"""What helps where TiDB no longer holds the moment, also if it goes while rows are read."""


class OtherSide(NamedTuple):
    """The other side of a table.

    Attributes:
        side: Its rows.
        schema: The columns of the table that are compared, in the same order.
        key: Names of those that identify a row; () for none.
        left_out: Names of columns that are not compared.
        text: SHOW CREATE TABLE of TiDB; "" for others.
        bounds: Where TiDB's table is cut; () for others.
    """

    side: Side
    schema: TableSchema
    key: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    text: str = ""
    bounds: Sequence[Bound] = ()

    @property
    def names(self) -> list[str]:
        """Those of the columns."""
        return [field.name for field in self.schema.fields]


class Other(Protocol):
    """What tables are compared with; `names` are all tables that it has, of those that are asked for."""

    @property
    def title(self) -> str:
        """What it is, for people."""

    @property
    def names(self) -> frozenset[TableName]:
        """See above."""

    def prepared(self, name: TableName, table: Table, schemas: Sequence[TableSchema], rules: TypeRules) -> OtherSide:
        """The other side of a table with one of these schemas, see `schemas_at`.

        Raises:
            ColumnMissing, TableMismatch: As `columns_at`.
        """


@dataclass(frozen=True, slots=True)
class Upstream:
    """The upstream of some tables at one moment."""

    export: Export | TidbExport
    form: CsvForm | Login
    names: frozenset[TableName]

    @property
    def title(self) -> str:
        """See `Other`."""
        return self.export.title

    def prepared(self, name: TableName, table: Table, schemas: Sequence[TableSchema], rules: TypeRules) -> OtherSide:
        """See `Other`."""
        version = self.export.version(name)
        reader, columns, left_out = self._columns(version, rules)
        wanted = pa.schema([(column.name, column_arrow_type(name, column, rules)) for column in columns])
        schema = columns_at(table, schemas, wanted)
        side = upstream_side(reader, self.export.files.get(name, ()), str(table), schema)
        key = version.key if set(version.key) <= set(wanted.names) else ()
        found = OtherSide(side, schema, key, left_out)
        if isinstance(self.export, TidbExport):
            return found._replace(text=self.export.texts[name], bounds=self.export.bounds[name])
        return found

    def _columns(self, version: TableVersion, rules: TypeRules) -> tuple[Reader, list[Column], tuple[str, ...]]:
        """What reads a table, its columns that are compared, and names of those that are not.

        Dumpling writes six digits of a FLOAT, and leaves stored generated columns out.
        """
        reader = reader_of(self.export, self.form, version, rules)
        held = [column for column in version.columns if rules.takes(version.name, column)]
        left = set[str]()
        if isinstance(reader, PartReader):
            files = self.export.files.get(version.name, ())
            left |= {column.name for column in held if column.type.name == "float"}
            left |= set(missing(version, reader.columns(files[0]) if files else (), rules))  # type: ignore[arg-type]
        kept = [column for column in held if column.name not in left]
        return reader, kept, tuple(sorted(left))


@dataclass(frozen=True, slots=True)
class OtherTable:
    """Another Iceberg table of the same catalog, as its head shows it."""

    table: Table
    names: frozenset[TableName]

    @property
    def title(self) -> str:
        """See `Other`."""
        return f"table {self.table}"

    def prepared(self, name: TableName, table: Table, schemas: Sequence[TableSchema], rules: TypeRules) -> OtherSide:  # noqa: ARG002 - its types are known
        """See `Other`."""
        schema = _of_living(schemas[0])
        for (short, held), (long, wanted) in permutations(
            [(table, schema.names), (self.table, _of_living(self.table.schema).names)]
        ):
            if lacking := sorted(wanted - held):
                raise ColumnMissing(f"Table {short} has no column {', '.join(lacking)}, which table {long} has.")
        theirs = columns_at(self.table, [self.table.schema], schema.arrow)
        for own, field in zip(schema.fields, theirs.fields, strict=True):
            if own.arrow != field.arrow:
                what = f"Column {own.name} is {own.type} in table {table}, and {field.type} in table {self.table}."
                raise TableMismatch(what, "Compare tables of the same types.")
        side = snapshot_side(self.table, self.table.snapshot_id, theirs.fields)
        return OtherSide(side, schema, schema.identifier)


def _of_living(schema: TableSchema) -> TableSchema:
    """The columns without that of the time of deletes: rows that have one are not compared."""
    if schema.deleted_at is None:
        return schema
    fields = tuple(field for field in schema.fields if field is not schema.deleted_at)
    return replace(schema, fields=fields, arrow=pa.schema([schema.arrow.field(field.name) for field in fields]))


def is_table(against: str) -> bool:
    """Whether this names an Iceberg table, and no folder or address."""
    return "." in against and "/" not in against and not Path(against).exists()


def other_table(catalog: Catalog, against: str, names: Sequence[TableName]) -> OtherTable:
    """The Iceberg table of a name, whose parts are joined by dots, to be compared with the only table that is chosen.

    Raises:
        ConfigError: There is none, or more than one table is chosen.
    """
    found = catalog.load(tuple(against.split(".")))
    if found is None:
        raise ConfigError([f"--against {against}: the catalog has no such table, and there is no such folder."])
    if len(names) != 1:
        raise ConfigError([f"--against {against} is one table: choose one table with --tables."])
    return OtherTable(found, frozenset(names))


def find(config: Config, against: str, rules: Sequence[str], resolved_ts: int) -> Upstream:
    """The upstream of the tables that rules mean, as of a resolved ts. `against` is "" for that of the configuration.

    Raises:
        ConfigError: None is given, or it is of another moment or another cluster.
        MomentGone: TiDB no longer holds the moment.
        OutsideRefused, TransientError: TiDB refuses the log-in, or is not there.
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
        export = TidbExport.look(login, resolved_ts, admits)
    except MomentGone as gone:
        raise MomentGone(gone.what, LATER) from None
    except MomentAhead:
        what = f"Resolved ts {resolved_ts} of the changefeed lies after the newest TSO of TiDB {login.address}"
        raise ConfigError([f"{what}: name the cluster of the changefeed in upstream.url."]) from None
    return Upstream(export, login, frozenset(name for name in export.held if admits(name)))
