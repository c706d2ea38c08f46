"""Decides what becomes of each Iceberg table under a coming DDL. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from applier.changefeed.table import TableName, TableVersion, fold
from applier.commands.check.iceberg_side import Replicas
from applier.commands.check.report import TableAnswer, TableOutcome
from applier.ddl.actions import (
    Action,
    AddColumn,
    Alteration,
    ColumnAction,
    CreateTable,
    DropColumn,
    DropDatabase,
    DropPartitions,
    DropTable,
    ExchangePartition,
    ModifyColumn,
    RecoverTable,
    RenameColumn,
    RenameTable,
    SetDefault,
    TruncatePartitions,
    TruncateTable,
    by_table,
    effect,
    kind,
    named,
    touches,
)
from applier.ddl.schema_tracker import Tables
from applier.errors import RELOAD, SchemaChangeRefused
from applier.pipeline.tables.ddl_stamp import DROPPED_AT
from applier.sink.tidb_partitions.predicate import rows_of

_NO_DDL = "The feed carries no DDL messages, so the applier does not learn of this and its rows differ in silence."
_NOT_THERE = "The table is not there."
_NO_KEY = "Table {} has no key: TiCDC replicates it only with force-replicate, as a bag of rows."
_OF_DROPPED = (CreateTable, RecoverTable, DropDatabase)
"""Statements that may concern a table which was dropped before."""

_DROPPED_HINT = "Check the spelling of the table's name; RECOVER TABLE or FLASHBACK TABLE upstream brings it back."
_STOP_HINT = (
    'Before it comes, write "apply" or "ignore" for {} under [ddl], and give `applier reload -c FILE`. Once `run` has '
    "ended, do the same and start it again; or pass the DDL with `applier ddl skip`, which `applier ddl list -c FILE` "
    "names."
)
_DDL_HINT = "turn on enable-tidb-extension and avro-enable-watermark of the changefeed."


def answers(
    actions: Sequence[Action], replicas: Replicas, registered: Mapping[TableName, TableVersion], *, carries_ddl: bool
) -> Iterator[TableAnswer]:
    """What becomes of each Iceberg table under a coming DDL, in the order of its actions.

    `registered` are the newest registered versions. Without `carries_ddl` the feed has no message for the DDL, and only
    new columns of rows show it. Raises what `refuse_unknown` does, and TransientError if the catalog does not answer.
    """
    names = dict.fromkeys(name for action in actions for name in named(action))
    for action in actions:
        known = [*replicas.known, *(version.name for version in registered.values())]
        names |= dict.fromkeys(effect(action).leaving(known))
    start, known_from = replicas.known.copy(), dict[TableName, str]()
    for name in names:
        version, source = replicas.before(name, registered.get(name))
        if version is not None:
            start.put(version)
            known_from[name] = source
    tables = start.copy()
    for group in by_table(actions):
        before = tables.copy()
        for action in group:
            refuse_unknown(tables, action)
            tables.apply(action, 0)
        yield from _Group(replicas, start, known_from, carries_ddl, group, before, tables).answers()


def refuse_unknown(tables: Tables, action: Action) -> None:
    """Refuse, by SchemaChangeRefused, an action on a column that its table does not have, as upstream would."""
    version = tables.get(action.table) if isinstance(action, ColumnAction) else None
    if version is None:
        return
    names = {fold(column.name) for column in version.columns}
    match action:
        case AddColumn(column=column, if_not_exists=False) if fold(column.name) in names:
            what = f"Table {version.name} has a column {column.name} already."
        case (
            DropColumn(name=name, if_exists=False)
            | RenameColumn(name=name)
            | ModifyColumn(name=name)
            | SetDefault(name=name)
        ) if fold(name) not in names:
            what = f"Table {version.name} has no column {name}."
        case _:
            return
    raise SchemaChangeRefused(what, f"Columns are: {', '.join(column.name for column in version.columns)}.")


@dataclass(frozen=True, slots=True)
class _Group:
    """Actions that are applied together: the specifications of one ALTER TABLE, or a single other action.

    `start` are the upstream tables before the statement, `before` and `after` those before and after these actions.
    """

    replicas: Replicas
    start: Tables
    known_from: Mapping[TableName, str]
    carries_ddl: bool
    actions: list[Action]
    before: Tables
    after: Tables

    def answers(self) -> Iterator[TableAnswer]:
        """What becomes of the tables that they concern."""
        first = self.actions[0]
        done = effect(first)
        names = list(touches(first)) or done.leaving(self.before)
        if not names:
            return
        if (decided := self._decided(names)) is not None:
            yield self._answer(names[0], *decided)
        elif (dropped := self._dropped_at(names[0])) and not isinstance(first, _OF_DROPPED):
            reason = f"Table {names[0]} was dropped upstream (commit ts {dropped}), and its Iceberg table is kept."
            yield self._answer(names[0], "cannot tell", reason=reason, hint=_DROPPED_HINT)
        elif isinstance(first, Alteration):
            yield self._evolved(names[0])
        elif not self.carries_ddl:
            yield self._answer(names[0], "refused", reason=_NO_DDL, hint=_DDL_HINT)
        else:
            # The target of a rename is shown with its table.
            yield from map(self._moved, names if done.database or done.exchanged else names[:1])

    def _decided(self, names: Sequence[TableName]) -> tuple[TableOutcome, str, str, str] | None:
        """Outcome, step, reason and way out that the configuration decides; None where the statement is carried out."""
        config = self.replicas.config
        if not any(map(self._admits, names)):
            return "ignored", "", "Left out by tables.include.", ""
        kinds = list(dict.fromkeys(map(kind, self.actions)))
        policies = {config.ddl.get(name, "apply") for name in kinds}
        if "stop" in policies:
            stopping = ", ".join(name for name in kinds if config.ddl.get(name) == "stop")
            what = f'The whole `run` ends before it, for all tables: [ddl] says "stop" for {stopping}.'
            return "refused", "", what, _STOP_HINT.format(stopping)
        return ("ignored", "", "Ignored, as [ddl] says.", "") if "ignore" in policies else None

    def _dropped_at(self, name: TableName) -> str:
        """The commit ts of the DROP of a table that is kept; "" for any other, and where the statement has made it."""
        if self.before.get(name) != self.start.get(name) or (table := self.replicas.table(name)) is None:
            return ""
        return table.properties.get(DROPPED_AT, "")

    def _admits(self, name: TableName) -> bool:
        return self.replicas.config.filter.admits(name)

    def _moved(self, name: TableName) -> TableAnswer:
        match self.actions[0]:
            case CreateTable() as create:
                return self._created(create)
            case DropTable() | DropDatabase():
                return self._dropped(name)
            case TruncateTable() | TruncatePartitions(names=()):
                return self._in_place(name, "remove all rows in one commit")
            case RenameTable(to=to):
                return self._renamed(name, to)
            case DropPartitions(names=names) | TruncatePartitions(names=names):
                return self._partitions(name, names, f"remove the rows of partitions {', '.join(names)}")
            case ExchangePartition() as exchange:
                step = f"rows of partition {exchange.partition} of {exchange.table} trade places with {exchange.other}"
                return self._partitions(exchange.table, (exchange.partition,), step, of=name)
            case RecoverTable():
                return self._recovered(name)
        return self._answer(name, "nothing to do")

    def _evolved(self, name: TableName) -> TableAnswer:
        before, after = self.before.get(name), self.after.get(name)
        if before is None or after is None:
            reason = "What the table is now is shown neither by control tables nor by a registry nor by Iceberg."
            return self._answer(name, "cannot tell", reason=reason, hint="Check the spelling of the table's name.")
        actions = self.actions if self.carries_ddl else ()
        return self.replicas.follow(before, after, actions, self.known_from.get(name, ""))

    def _created(self, create: CreateTable) -> TableAnswer:
        version = self.after.get(create.table)
        if version is None:
            reason = f"The columns of {create.like or 'the new table'} are not known."
            return self._answer(create.table, "cannot tell", reason=reason)
        report = self.replicas.report(version, "statement")
        table = self.replicas.table(create.table)
        kept = table.properties.get(DROPPED_AT) if table else None
        if kept is not None:
            step = f"the table that was dropped upstream becomes {report.iceberg}_dropped_{kept}, a new one is made"
            return self._answer(create.table, "created", step)
        if report.verdict != "fits":
            answer = self._answer(create.table, "refused")
            return replace(answer, reasons=report.reasons, ways_out=report.ways_out)
        step = "adopt the table that is there, if it holds no rows" if table else "make the table"
        return self._answer(
            create.table, "created", step, "" if version.shape.is_idempotent else _NO_KEY.format(version.name)
        )

    def _dropped(self, name: TableName) -> TableAnswer:
        if self.replicas.table(name) is None:
            return self._answer(name, "nothing to do", reason=_NOT_THERE)
        if self.replicas.config.tables.on_drop == "keep":
            return self._in_place(name, f"keep the table, marked {DROPPED_AT}")
        return self._answer(name, "dropped", "drop the table with its files")

    def _renamed(self, name: TableName, to: TableName) -> TableAnswer:
        if not self._admits(name):
            reason = f"The rows of {name} so far are not here, and {to} is replicated."
            return self._answer(name, "refused", reason=reason, hint=RELOAD)
        if not self._admits(to):
            return self._dropped(name)
        if self.replicas.table(name) is None:
            return self._answer(name, "nothing to do", reason=_NOT_THERE)
        there = self.replicas.table(to)
        if there is not None and DROPPED_AT not in there.properties and to not in self.start:
            reason = f"Iceberg table {there} is in the way, and is not one of the changefeed."
            return self._answer(name, "refused", reason=reason, hint="Rename or drop that table.")
        return self._in_place(name, f"rename to {'.'.join(self.replicas.identifier(to))}")

    def _recovered(self, name: TableName) -> TableAnswer:
        table = self.replicas.table(name)
        if table is not None and DROPPED_AT in table.properties:
            return self._in_place(name, f"take the mark {DROPPED_AT} off the table, which was kept")
        reason = "Whether a copy of the rows is kept is looked up when the statement comes."
        return self._answer(name, "cannot tell", reason=reason, hint='tables.on_drop = "keep" keeps dropped tables.')

    def _partitions(self, name: TableName, names: Sequence[str], step: str, of: TableName | None = None) -> TableAnswer:
        version, target = self.before.get(name), of or name
        if version is None or self.replicas.table(target) is None:
            return self._answer(target, "cannot tell", reason=f"Table {target} is not here.")
        try:
            rows_of(version, self.before.partitioning(name), names)
        except SchemaChangeRefused as refusal:
            return self._answer(target, "refused", reason=refusal.what, hint=refusal.hint)
        return self._in_place(target, step)

    def _in_place(self, name: TableName, step: str) -> TableAnswer:
        if self.replicas.table(name) is None:
            return self._answer(name, "nothing to do", reason="The table is not there yet.")
        return self._answer(name, "in place", step)

    def _answer(
        self, name: TableName, outcome: TableOutcome, step: str = "", reason: str = "", hint: str = ""
    ) -> TableAnswer:
        iceberg, known_from = ".".join(self.replicas.identifier(name)), self.known_from.get(name, "")
        hint = self.replicas.config.ways_out.of_error(hint, name)
        steps, reasons, hints = ((text,) if text else () for text in (step, reason, hint))
        return TableAnswer(str(name), iceberg, outcome, known_from, steps, reasons, hints)
