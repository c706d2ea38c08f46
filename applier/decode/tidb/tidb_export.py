"""Finds what a TiDB holds as of one moment: its tables, and the ranges in which their rows are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from applier.changefeed.table import TableName, TableVersion
from applier.config.login import Login
from applier.ddl.schema_files import read_schemas
from applier.ddl.schema_tracker import Tables
from applier.decode.tidb.session import Session, session
from applier.decode.tidb.table_ranges import Bound, Order, TableRange, order_of, quoted, thinned
from applier.errors import ApplierError, ConfigError, OutsideRefused, SchemaChangeRefused

_SYSTEM = ("mysql", "information_schema", "performance_schema", "metrics_schema", "inspection_schema", "sys")

_MOST_REGIONS = 1_000_000
"""Regions of a table that are looked at: more than one has."""

REGION_BYTES = 96 << 20
"""What TiKV makes a region of; what counts where TiDB has no statistics of a table."""


@dataclass(frozen=True, slots=True)
class TidbExport:
    """Some tables of a TiDB, as of one moment; their rows are still there.

    Attributes:
        login: Where they are.
        tso: The moment: every change at or below this commit ts, and none above.
        held: All tables that the user may see, of which these are some.
        tables: The tables, as SHOW CREATE TABLE declares them.
        texts: These texts.
        bounds: Where each table is cut.
        files: The ranges of each table.
        marks: What tells each table from one of the same name in another cluster.
        kept_for: How long TiDB keeps what was there before: `tidb_gc_life_time`.
        refused: Tables that are admitted and cannot be read, with the reason; none in what `find` gives.
    """

    login: Login
    tso: int
    held: tuple[TableName, ...]
    tables: Tables
    texts: Mapping[TableName, str]
    bounds: Mapping[TableName, tuple[Bound, ...]]
    files: Mapping[TableName, tuple[TableRange, ...]]
    marks: Mapping[TableName, str]
    kept_for: str
    refused: Mapping[TableName, ApplierError] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where it is, for people."""
        return self.login.address

    @property
    def title(self) -> str:
        """What it is, for people."""
        return f"TiDB {self.address}"

    def version(self, name: TableName) -> TableVersion:
        """A table as it was at the moment.

        Raises:
            ConfigError, OutsideRefused: It cannot be read.
        """
        if name in self.refused:
            raise self.refused[name]
        found = self.tables.get(name)
        if found is None:
            raise ConfigError([f"{self.title} declares no table {name}."])
        return found

    def size(self, name: TableName) -> int:
        """About the bytes of a table."""
        return sum(part.size for part in self.files.get(name, ()))

    def cut_at(self, bounds: Mapping[TableName, tuple[Bound, ...]]) -> TidbExport:
        """The same in the ranges of a load that has begun: where regions end changes with time."""
        files = {name: self._order(name).ranges(own, self.size(name)) for name, own in bounds.items()}
        return replace(self, bounds={**self.bounds, **bounds}, files={**self.files, **files})

    def _order(self, name: TableName) -> Order:
        return order_of(self.version(name), self.texts[name])

    @staticmethod
    def find(login: Login, tso: int | None, admits: Callable[[TableName], bool]) -> TidbExport:
        """Look at the tables that are admitted, as of a TSO or of now; no row is read but the first of each region.

        Raises:
            MomentGone: TiDB no longer holds the moment.
            ConfigError: It is yet to come, or a table cannot be understood.
            OutsideRefused: TiDB refuses the log-in, or to show a table.
            TransientError: TiDB is not there.
        """
        found = TidbExport.look(login, _now(login) if tso is None else tso, admits)
        for error in found.refused.values():
            raise error
        return found

    @staticmethod
    def look(login: Login, tso: int, admits: Callable[[TableName], bool]) -> TidbExport:
        """The same, also if some of the tables cannot be read: the others are found.

        Raises:
            MomentGone, ConfigError, OutsideRefused, TransientError: As `find`, save for single tables.
        """
        with session(login, tso) as asked:
            return _found(asked, tso, admits)


def _now(login: Login) -> int:
    """The newest TSO: no change with a commit ts at or below it is yet to come."""
    with session(login) as asked:
        asked.rows("BEGIN")
        return int(asked.texts("SELECT TIDB_CURRENT_TSO()")[0][0])


def _found(asked: Session, tso: int, admits: Callable[[TableName], bool]) -> TidbExport:
    without = ", ".join(f"'{name}'" for name in _SYSTEM)
    held = {
        TableName(database, table): (int(size or 0), f"{number} {changed}")
        for database, table, size, number, changed in asked.texts(
            "SELECT table_schema, table_name, data_length, tidb_table_id, create_time FROM information_schema.tables "  # noqa: S608
            f"WHERE table_type = 'BASE TABLE' AND LOWER(table_schema) NOT IN ({without})"
        )
    }
    kept_for = asked.texts("SELECT @@GLOBAL.tidb_gc_life_time")[0][0]
    marks = {name: mark for name, (_, mark) in held.items()}
    found = TidbExport(asked.login, tso, tuple(sorted(held)), Tables(), {}, {}, {}, marks, kept_for)
    return _with_tables(found, asked, {name: size for name, (size, _) in held.items() if admits(name)})


def _with_tables(empty: TidbExport, asked: Session, sizes: Mapping[TableName, int]) -> TidbExport:
    """The same with tables of these sizes, as far as each can be read."""
    tables, texts, refused = Tables(), dict[TableName, str](), dict[TableName, ApplierError]()
    bounds, files = dict[TableName, tuple[Bound, ...]](), dict[TableName, tuple[TableRange, ...]]()
    for name in sorted(sizes):
        try:
            text = asked.texts(f"SHOW CREATE TABLE {place(name)}")[0][1]
            declared = _declared(asked.login, name, text)
            order = order_of(declared[name], text)
            sampled = _sampled(asked, name, order)
        except (ConfigError, OutsideRefused) as error:
            refused[name] = error
            continue
        tables.put(declared[name], declared.partitioning(name))
        texts[name], bounds[name] = text, thinned(sampled)
        files[name] = order.ranges(bounds[name], sizes[name] or REGION_BYTES * max(1, len(sampled)))
    return replace(empty, tables=tables, texts=texts, bounds=bounds, files=files, refused=refused)


def declared(asked: Session, name: TableName) -> TableVersion:
    """A table as a session shows it.

    Raises:
        ConfigError, OutsideRefused, TransientError: It cannot be read.
    """
    text = asked.texts(f"SHOW CREATE TABLE {place(name)}")[0][1]
    return _declared(asked.login, name, text)[name]


def _declared(login: Login, name: TableName, text: str) -> Tables:
    try:
        return read_schemas({f"{_in_file(name.database)}.{_in_file(name.table)}-schema.sql": text})
    except SchemaChangeRefused as refusal:
        where = f"TiDB {login.address}"
        what = f"{refusal.what} Leave the table out in tables.include, or load it from an export."
        raise ConfigError([what.replace("upstream.schemas", where)]) from None


def _in_file(name: str) -> str:
    return quote(name, safe=" ").replace(".", "%2E")


def _sampled(asked: Session, name: TableName, order: Order) -> Sequence[Bound]:
    """The first row of each region, in the order in which SQL compares them; [] for a table that is not cut."""
    if not order.cut:
        return []
    bounds = map(order.bound, asked.rows(sample_of(name, order)))
    return [bound for bound in bounds if bound is not None]


def sample_of(name: TableName, order: Order) -> str:
    """What shows the first row of each region, sorted."""
    own = [quoted(column) for column in order.names[: len(order.cut)]]
    cells = ", ".join(f"{column} AS c{number}" for number, column in enumerate(own))
    by = ", ".join(f"c{number}" for number, _ in enumerate(own))
    sample = f"SELECT {cells} FROM {place(name)} TABLESAMPLE REGIONS() LIMIT {_MOST_REGIONS}"  # noqa: S608 - names are quoted
    # Versions of TiDB take a sample for sorted where it is not, of partitions or of unsigned numbers, and rows between
    # bounds that fall would be read twice. No order passes a LIMIT.
    return f"SELECT {by} FROM ({sample}) AS sampled ORDER BY {by}"  # noqa: S608 - see above


def place(name: TableName) -> str:
    """A table, as SQL takes its name."""
    return f"{quoted(name.database)}.{quoted(name.table)}"
