"""Tables whose CREATE TABLE the configuration supplies: checked against their first rows, then known as any other."""

from __future__ import annotations

from collections.abc import Iterable

from applier.changefeed.table import TableName, TableVersion, fold
from applier.config.settings import Config
from applier.ddl.actions import named
from applier.errors import TableMismatch
from applier.order.feed_order import FeedOrder
from applier.pipeline.scan.statements import Ddl
from applier.pipeline.scan.window_scan import WindowScan
from applier.pipeline.state import State
from applier.pipeline.tables import completeness
from applier.pipeline.tables.target_tables import TargetTables

_NUMBERS = frozenset(
    "tinyint smallint mediumint int bigint int64 year float double decimal bit".split()  # noqa: SIM905 - a list of words
)
_TIMES = frozenset({"date", "datetime", "timestamp"})
_HINT = (
    "Export the schema again as of the start of the changefeed, or remove its file if the feed holds the CREATE TABLE."
)


def take(scan: WindowScan, state: State, targets: TargetTables, config: Config) -> None:
    """Let supplied tables be known from here on, so that the checkpoint keeps them as DDL leave them.

    Raises:
        TableMismatch: Rows have a column that the supplied text lacks, lack one of it, or have another kind of value or
            another key.
    """
    keyed = set(map(fold, config.tables.keys))
    for name in _met(scan, state):
        version = state.supplied.get(name)
        if version is None:
            continue
        for rows in _first_rows(name, scan, state):
            _compare(rows, version, targets.feed.order)
            if ".".join(name.folded) not in keyed:
                _compare_keys(rows, version)
        if name not in state.completeness:
            completeness.meet_ddl(name, state, targets, config)
        partitioning = state.supplied.partitioning(name)
        state.track(version)
        state.tables.put(version, partitioning)


def _met(scan: WindowScan, state: State) -> list[TableName]:
    """Supplied tables that this window concerns first; one that a DDL makes or renames before is another table."""
    changed, made = _by_ddl(scan.ddl)
    names = [*changed, *(name for name, segment in scan.results.parts if segment == 0 or name not in made)]
    return [name for name in dict.fromkeys(names) if name in state.supplied and name not in state.tables]


def _first_rows(name: TableName, scan: WindowScan, state: State) -> list[TableVersion]:
    """What messages say of the rows of a table from before its first DDL."""
    numbers = {part.version.version for part in scan.results.parts.get((name, 0), ())}
    keys = [(name, number) for number in sorted(numbers)]
    found = [scan.versions.get(key) or state.versions.get(key) for key in keys]
    return [version for version in found if version is not None]


def _by_ddl(ddl: Iterable[Ddl]) -> tuple[list[TableName], set[TableName]]:
    """Tables that DDL change as they were before the window, and those that DDL bring."""
    changed: list[TableName] = []
    made: set[TableName] = set()
    for action, done in (each for item in ddl for each in item.done):
        changed += [name for name in named(action) if name not in done.brought and name not in made]
        made.update(done.brought)
    return changed, made


def _compare(rows: TableVersion, known: TableVersion, order: FeedOrder) -> None:
    for column in rows.columns:
        declared = known.column(column.name)
        if declared is None:
            # Where DDL need not come, the table follows the columns of its rows.
            if order.parts_at_ddl:
                raise _refusal(known.name, f"rows have column {column.name}, which it lacks")
        elif _kind(column.type.name) != _kind(declared.type.name):
            what = f"column {column.name} is {declared.type.name} there, and {column.type.name} in rows"
            raise _refusal(known.name, what)
    held = {column.name for column in rows.columns}
    # Deletes may hold the key alone, and virtual columns are not replicated.
    if rows.keys_only or held <= {*known.key, *rows.key} or not order.parts_at_ddl:
        return
    lost = [column.name for column in known.columns if column.name not in held and column.generated != "virtual"]
    if lost:
        raise _refusal(known.name, f"it declares column {lost[0]}, which rows lack")


def _compare_keys(rows: TableVersion, known: TableVersion) -> None:
    """Refuse another key than that of the rows, by which two of them could be one.

    Rows that name none show nothing: those of Canal-JSON name a primary key alone, and the key of the text may be a
    unique index; Debezium without a Kafka key takes its key from the text.
    """
    named, declared = ({fold(column) for column in version.key} for version in (rows, known))
    if named and named != declared:
        key = ", ".join(known.key) or "none"
        raise _refusal(known.name, f"its key is {key}, and that of its rows is {', '.join(rows.key)}")


def _kind(name: str) -> str:
    """What protocols show of every type; narrower names differ between them."""
    if name in _NUMBERS:
        return "number"
    return "time" if name in _TIMES else "text"


def _refusal(name: TableName, why: str) -> TableMismatch:
    what = f"The CREATE TABLE of table {name} under upstream.schemas is not that of its rows: {why}."
    return TableMismatch(what, _HINT)
