"""Decides whether Iceberg tables take the rows of upstream tables, now and after a change. Nothing is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from applier.changefeed.table import Column, ColumnType, TableName, TableVersion
from applier.changefeed.types import column_arrow_type
from applier.commands.catalog_reader import Lake, LakeTable
from applier.commands.check.report import ColumnReport, TableAnswer, TableOutcome, TableReport
from applier.commands.control_reader import ControlView
from applier.config.settings import Config
from applier.ddl.actions import Action
from applier.ddl.schema_tracker import Tables
from applier.errors import SchemaChangeRefused, TableMismatch, TerminalError
from applier.sink.commit.stamp import CHANGEFEED
from applier.sink.control.tables import TABLE_VERSIONS
from applier.sink.evolve.plan import Evolution, plan
from applier.sink.evolve.row_columns import (
    absent_from,
    columns_of_new,
    refuse_misshapen,
    refuse_unfit_filter,
    supplied,
)
from applier.sink.evolve.steps import ConvertField
from applier.sink.format.types import Field, iceberg_type, type_text
from applier.sink.write.file_writer import check_columns

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_TYPES = {
    "boolean": ColumnType("tinyint", length=1),
    "int": ColumnType("int"),
    "long": ColumnType("bigint"),
    "float": ColumnType("float"),
    "double": ColumnType("double"),
    "date": ColumnType("date"),
    "timestamp": ColumnType("datetime", scale=6),
    "timestamptz": ColumnType("timestamp", scale=6),
    "string": ColumnType("longtext"),
    "binary": ColumnType("longblob"),
}
"""The widest upstream type that maps onto an Iceberg type."""


def tracked(lake: Lake, changefeed: str) -> Tables:
    """The upstream tables of a changefeed as its newest checkpoint left them; none for one that never ran.

    Raises what `ControlView` does, and TerminalError for a description of a table that this applier does not read.
    """
    view = ControlView(lake, changefeed)
    versions = _versions(view)
    newest = view.checkpoint()
    if newest is None or not newest.tables:
        return Tables(version for version in versions.values() if not version.keys_only)
    tables = Tables()
    for name, item in newest.tables.items():
        if (version := versions.get((name, item.version))) is not None:
            tables.put(version, item.partitioning)
    return tables


def _versions(view: ControlView) -> Mapping[tuple[TableName, int], TableVersion]:
    try:
        return {(version.name, version.version): version for version in view.versions()}
    except (ValueError, KeyError, TypeError) as error:
        msg = f"Table {'.'.join(view.name(TABLE_VERSIONS))} holds a description that cannot be read."
        raise TerminalError(msg, "Check with the version of applier that wrote it, or a newer one.") from error


def _column(field: Field, *, is_key: bool) -> Column:
    kind = field.type if isinstance(field.type, str) else "list"
    if match := _DECIMAL.fullmatch(kind):
        digits = ColumnType("decimal", length=int(match[1]), scale=int(match[2]))
        return Column(field.name, digits, nullable=not is_key)
    return Column(field.name, _TYPES.get(kind, ColumnType("vector")), nullable=not is_key)


_MADE = "The table is made with its first row."
_TYPES_HINT = "Load the table with the types of docs/types.md, or route it elsewhere with tables.route."


@dataclass(slots=True)
class Replicas:
    """The Iceberg tables of a changefeed, and in `known` each upstream table as the newest checkpoint left it."""

    config: Config
    lake: Lake
    known: Tables
    _tables: dict[TableName, LakeTable | None] = field(default_factory=dict)

    def identifier(self, name: TableName) -> tuple[str, ...]:
        """Where an upstream table goes."""
        return self.config.route.identifier(name)

    def table(self, name: TableName) -> LakeTable | None:
        """The Iceberg table of an upstream table; None if there is none. May raise TransientError."""
        if name not in self._tables:
            self._tables[name] = self.lake.table(self.identifier(name))
        return self._tables[name]

    @property
    def formats(self) -> dict[str, int]:
        """Iceberg formats of the tables that were looked at."""
        return {str(table): table.format_version for table in self._tables.values() if table is not None}

    def report(self, version: TableVersion, known_from: str, earlier: Sequence[TableVersion] = ()) -> TableReport:
        """Whether rows of the newest version of a table can be written.

        A table that fits one of the `earlier` versions, which are newest first, is only behind.
        """
        report = TableReport(str(version.name), ".".join(self.identifier(version.name)), True, known_from, (), "fits")
        misfit = replace(report, verdict="does not fit")
        try:
            table = self.table(version.name)
            refuse_misshapen(version, self.config.type_rules)
            refuse_unfit_filter(version, self.config.type_rules)
        except TableMismatch as error:
            return replace(misfit, reasons=(error.what,), ways_out=self._ways_out(version.name, [error.hint]))
        if table is None:
            made = columns_of_new(version, self.config.type_rules)
            columns = tuple(self._column(version, column, None) for column in made)
            bad = _reasons(columns)
            return replace(misfit if bad else report, exists=False, columns=columns, reasons=bad or (_MADE,))
        columns = self._columns(version, table)
        return self._compared(replace(report, columns=columns), version, earlier, table)

    def _compared(
        self, report: TableReport, version: TableVersion, earlier: Sequence[TableVersion], table: LakeTable
    ) -> TableReport:
        misfit = replace(report, verdict="does not fit")
        if (owner := table.properties.get(CHANGEFEED)) not in (None, self.config.changefeed.name):
            what = f"Table {table} belongs to changefeed {owner}, not to {self.config.changefeed.name}."
            hint = f"Route it elsewhere, or unset the property {CHANGEFEED} if that changefeed is gone."
            return replace(misfit, reasons=(what,), ways_out=(hint,))
        if not (bad := _reasons(report.columns)):
            return report
        behind = next((old for old in earlier if not _reasons(self._columns(old, table))), None)
        if behind is None:
            return replace(misfit, reasons=bad, ways_out=(_TYPES_HINT,))
        answer = self.follow(behind, version, (), report.known_from)
        if answer.outcome == "refused":
            return replace(misfit, reasons=answer.reasons, ways_out=answer.ways_out)
        what = f"The table has the columns of an earlier version and will follow: {'; '.join(answer.steps)}."
        return replace(report, reasons=(what,))

    def _columns(self, version: TableVersion, table: LakeTable) -> tuple[ColumnReport, ...]:
        """The columns of both sides; one that only the Iceberg table has, and that is required, would get no value."""
        absent = absent_from(version, table.schema.names, self.config.type_rules)
        found = [self._column(version, column, table) for column in version.columns if column.name not in absent]
        for extra in table.schema.upstream:
            if version.column(extra.name) is None:
                reason = "upstream has no such column: rows get NULL"
                if extra.required:
                    reason = f"Column {extra.name} is required in Iceberg, and upstream has none of that name."
                found.append(ColumnReport(extra.name, "", type_text(extra.type), not extra.required, reason))
        return tuple(found)

    def _column(self, version: TableVersion, column: Column, table: LakeTable | None) -> ColumnReport:
        upstream = column.type.text
        found = table.schema.field(column.name) if table else None
        has = type_text(found.type) if found else ""
        if table is not None:
            column = supplied(replace(version, columns=(column,)), table.schema).columns[0]
        try:
            wanted = column_arrow_type(version.name, column, self.config.type_rules)
        except ValueError as error:
            return ColumnReport(column.name, upstream, has, False, f"Column {column.name} cannot be mapped: {error}.")
        except SchemaChangeRefused as refusal:
            return ColumnReport(column.name, upstream, has, False, refusal.what)
        if table is None:
            return ColumnReport(column.name, upstream, has, True)
        reason = self._refusal(column, wanted, table)
        return ColumnReport(column.name, upstream, has, not reason, reason)

    def _refusal(self, column: Column, wanted: pa.DataType, table: LakeTable) -> str:
        """Why a column of the table cannot take the values; "" if it can."""
        found = table.schema.field(column.name)
        if found is not None and column.type.name == "decimal" and column.type.length is None:
            # Only the text of its values shows its digits.
            is_number = pa.types.is_decimal(found.arrow) or pa.types.is_string(found.arrow)
            return "" if is_number else f"Column {column.name} is {found.type}, upstream it is a decimal."
        try:
            check_columns(str(table), pa.schema([pa.field(column.name, wanted)]), table.schema)
        except TableMismatch as error:
            return f"{error.what}."
        if found is not None and CHANGEFEED not in table.properties and found.arrow != wanted:
            kind, needs = type_text(found.type), iceberg_type(wanted)
            return f"Table {table} cannot be adopted: column {column.name} is {kind}, upstream it needs {needs}."
        return ""

    def before(self, name: TableName, registered: TableVersion | None = None) -> tuple[TableVersion | None, str]:
        """What a table is now, and where that is known from: the control table, the registry, or the Iceberg table."""
        if (known := self.known.get(name)) is not None:
            return known, "control table"
        if registered is not None:
            return registered, "registry"
        table = self.table(name)
        if table is None:
            return None, ""
        # Lengths and exact types are not shown.
        key = table.schema.identifier
        columns = tuple(_column(field, is_key=field.name in key) for field in table.schema.upstream)
        return TableVersion(name, 0, columns, handle_key=key), "iceberg"

    def follow(
        self, before: TableVersion, after: TableVersion, actions: Sequence[Action], known_from: str
    ) -> TableAnswer:
        """How the Iceberg table would follow from one version to the next, and whether it would fit then."""
        table = self.table(before.name)
        answer = TableAnswer(str(before.name), ".".join(self.identifier(before.name)), "nothing to do", known_from)
        if table is None:
            return replace(answer, outcome="created", steps=(_MADE,))
        evolution = plan(before, after, actions, self.config.type_rules, table.schema)
        steps = tuple(step.describe() for step in evolution.steps)
        refusals = [evolution.refused] if evolution.refused else []
        doubts = evolution.only_empty if table.may_hold_rows else ()
        asked = doubts if self.config.asked and evolution.may_be_asked(after.key) else ()
        refusals += () if asked else doubts
        if refusals:
            reasons = tuple(refusal.reason for refusal in refusals)
            ways_out = self._ways_out(before.name, [refusal.hint for refusal in refusals])
            return replace(answer, outcome="refused", steps=steps, reasons=reasons, ways_out=ways_out)
        asks = tuple(f"{doubt.reason} `run` asks the TiDB of upstream.url." for doubt in asked)
        return self._fitted(replace(answer, steps=steps, reasons=asks), evolution, after, table)

    def _ways_out(self, name: TableName, hints: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.config.ways_out.of_error(hint, name) for hint in dict.fromkeys(hints) if hint)

    def _fitted(self, answer: TableAnswer, evolution: Evolution, after: TableVersion, table: LakeTable) -> TableAnswer:
        try:
            later = replace(table, schema=evolution.predicted(table.schema))
        except TableMismatch as error:
            ways_out = self._ways_out(after.name, [error.hint])
            return replace(answer, outcome="refused", reasons=(error.what,), ways_out=ways_out)
        if bad := _reasons(self._columns(after, later)):
            return replace(answer, outcome="refused", reasons=bad, ways_out=(_TYPES_HINT,))
        if not evolution.steps:
            return answer
        notes = [step.rewrite(table.format_version) for step in evolution.steps] if table.may_hold_rows else []
        outcome: TableOutcome = "rewritten" if any(note is not None for note in notes) else "in place"
        converted = tuple(step.name for step in evolution.steps if isinstance(step, ConvertField)) if notes else ()
        return replace(answer, outcome=outcome, reasons=(*answer.reasons, *filter(None, notes)), converted=converted)


def _reasons(columns: Iterable[ColumnReport]) -> tuple[str, ...]:
    """Why columns do not fit, each reason once; () if all do."""
    return tuple(dict.fromkeys(column.reason for column in columns if not column.fits))
