"""Finds what a TiDB holds as of one moment: its tables, and the ranges in which their rows are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from applier.changefeed.table import TableName, TableVersion
from applier.config.login import Login
from applier.ddl.schema_files import read_schemas
from applier.ddl.schema_tracker import Tables
from applier.decode.tidb.session import Session, session
from applier.decode.tidb.table_ranges import Bound, Order, TableRange, order_of, quoted, thinned
from applier.errors import ConfigError, SchemaChangeRefused

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

    @property
    def address(self) -> str:
        """Where it is, for people."""
        return self.login.address

    @property
    def title(self) -> str:
        """What it is, for people."""
        return f"TiDB {self.address}"

    def version(self, name: TableName) -> TableVersion:
        """A table as it was at the moment."""
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
        if tso is None:
            tso = _now(login)
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
    names = sorted(name for name in held if admits(name))
    texts = {name: asked.texts(f"SHOW CREATE TABLE {place(name)}")[0][1] for name in names}
    tables = _declared(asked.login, texts)
    kept_for = asked.texts("SELECT @@GLOBAL.tidb_gc_life_time")[0][0]
    bounds, files = dict[TableName, tuple[Bound, ...]](), dict[TableName, tuple[TableRange, ...]]()
    for name, version in tables.items():
        order = order_of(version, texts[name])
        sampled = _sampled(asked, name, order)
        bounds[name] = thinned(sampled)
        files[name] = order.ranges(bounds[name], held[name][0] or REGION_BYTES * max(1, len(sampled)))
    marks = {name: mark for name, (_, mark) in held.items()}
    return TidbExport(asked.login, tso, tuple(sorted(held)), tables, texts, bounds, files, marks, kept_for)


def _declared(login: Login, texts: Mapping[TableName, str]) -> Tables:
    named = {f"{_in_file(name.database)}.{_in_file(name.table)}-schema.sql": text for name, text in texts.items()}
    try:
        return read_schemas(named)
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
