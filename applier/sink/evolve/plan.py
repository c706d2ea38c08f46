"""Plans the steps by which an Iceberg table follows its upstream table through a DDL.

The actions of the statement show renames, the difference of the versions shows everything else. Fields
stay optional unless they identify rows: Iceberg refuses a NULL in a required field, and rows that TiDB fills without a
message, or zero dates, are NULL here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from applier.changefeed.shape import Shape
from applier.changefeed.table import UNKNOWN_DEFAULT, Column, ColumnType, TableVersion, fold
from applier.changefeed.types import (
    DATE_TYPES,
    OPEN,
    VIRTUAL,
    ColumnPath,
    TypeRules,
    arrow_type,
    check_key,
    column_arrow_type,
    plain_type,
)
from applier.ddl import actions as ddl
from applier.ddl.actions import Action
from applier.errors import RESHAPED, SchemaChangeRefused, TableMismatch
from applier.sink.evolve import steps as evolve
from applier.sink.evolve.casts import cast as casts
from applier.sink.evolve.casts.cast import family, is_lossless
from applier.sink.evolve.column_mapping import ColumnMapping, lineage, moves
from applier.sink.evolve.defaults import filled
from applier.sink.evolve.row_columns import absent_from, refuse_misshapen
from applier.sink.evolve.steps import Refusal
from applier.sink.evolve.upstream_rows import UpstreamRows
from applier.sink.format.row_metadata import TAKEN
from applier.sink.format.types import TableSchema, is_promotion

_REMASK_HINT = (
    "Name the column in `mask` of its pattern under [tables] as it is called now, and load the table again, with "
    "`applier load -c FILE --from DIR --tables TABLE`."
)
_RECAST_HINT = (
    "Load the table again, with `applier load -c FILE --from DIR --tables TABLE`, and name the column in `cast` of its "
    "pattern under [tables] as it is called now."
)


@dataclass(frozen=True, slots=True)
class Evolution:
    """What a statement does to one Iceberg table.

    Attributes:
        steps: In the order in which they are taken. Drops and renames come first, and later steps use the new names.
        only_empty: Reasons that count only if the table has rows: without rows there is nothing to get wrong.
        refused: A reason that always counts.
        shape: That of the rows after it, which shows what columns are called in Iceberg.
    """

    steps: tuple[evolve.EvolutionStep, ...] = ()
    only_empty: tuple[Refusal, ...] = ()
    refused: Refusal | None = None
    shape: Shape = field(default_factory=Shape, compare=False)

    @property
    def lacks_values(self) -> bool:
        """Whether the values of some columns are all that can be in its way."""
        is_open = bool(self.only_empty) or any(isinstance(step, evolve.ConvertField) for step in self.steps)
        return is_open and self.refused is None and all(doubt.column for doubt in self.only_empty)

    def may_be_asked(self, key: Sequence[str]) -> bool:
        """Whether a TiDB can show the values that are lacking: those of a converted column come by the rows' key."""
        converted = {step.name for step in self.steps if isinstance(step, evolve.ConvertField)}
        return self.lacks_values and (not converted or (bool(key) and converted.isdisjoint(key)))

    def with_values(self, shown: UpstreamRows) -> Evolution:
        """The same with the values that TiDB shows: each that is not known, and each that it rewrote.

        Raises:
            ApplierError: TiDB does not show them.
        """
        asked = {doubt.column for doubt in self.only_empty}
        steps = tuple(_with_values(step, shown, asked) for step in self.steps)
        known = {getattr(new, "name", "") for old, new in zip(self.steps, steps, strict=True) if new is not old}
        left = tuple(doubt for doubt in self.only_empty if doubt.column not in known)
        return replace(self, steps=steps, only_empty=left)

    def predicted(self, schema: TableSchema) -> TableSchema:
        """Columns of a table after it; their order is left as it is.

        Raises:
            TableMismatch: The table lacks a column that a step changes, or has another type than upstream had.
        """
        fields = {field.name: field for field in schema.fields}
        for step in self.steps:
            step.on_fields(fields)
        return replace(schema, fields=tuple(fields.values()))


def _with_values(step: evolve.EvolutionStep, shown: UpstreamRows, asked: Collection[str]) -> evolve.EvolutionStep:
    if isinstance(step, evolve.ConvertField):
        return replace(step, shown=shown)
    if not isinstance(step, evolve.AddField) or step.name not in asked:
        return step
    value = shown.only_value(step.name, step.type)
    return step if value is None else replace(step, default=value)


def plan(
    before: TableVersion,
    after: TableVersion,
    actions: Sequence[Action],
    rules: TypeRules,
    schema: TableSchema | None = None,
) -> Evolution:
    """Plan the evolution of one table from a version to the next, under the same name or another.

    The actions are those of the statement on this table; () where the protocol carries schemas only. The schema is that
    of the Iceberg table; None where it is not at hand.
    """
    found = lineage(before, after, actions)
    if (crossing := _crossing(found, before, after, rules)) is not None:
        return Evolution(refused=crossing)
    before, after = _stored(before, after, found, rules, None if schema is None else schema.names)
    if schema is not None and (taken := schema.taken(column.name for column in after.columns)):
        return Evolution(refused=Refusal(f"Column {taken[0]} has the name of a column that applier added.", TAKEN))
    if (reason := _unmasked(before, after, actions, rules)) is not None:
        return Evolution(refused=reason)
    try:
        planned = _plan(before, after, actions, rules)
        shape = rules.shape_of(before.name)
        refused = planned.refused or _unfiltered(planned, shape) or _rekeyed(planned, shape)
        return replace(planned, refused=refused, shape=rules.shape_of(after.name))
    except ValueError as error:  # A type that TiDB does not have: the columns of a view, for instance.
        return Evolution(refused=Refusal(f"A column cannot be mapped: {error}"))


def _crossing(found: ColumnMapping, before: TableVersion, after: TableVersion, rules: TypeRules) -> Refusal | None:
    """Why columns that the configuration excludes do not let a table follow its upstream."""
    was, now = rules.shape_of(before.name), rules.shape_of(after.name)
    try:
        refuse_misshapen(after, rules)
    except TableMismatch as error:
        return Refusal(f"{error.what}.", error.hint)
    if not was.exclude and not now.exclude:
        return None
    pairs = [(old.name, new.name) for old, new in found.pairs if old is not None]
    pairs += [(old, new) for old in found.unexplained_dropped for new in found.unexplained_added if was.excludes(old)]
    for old, new in pairs:
        if was.excludes(old) != now.excludes(new):
            what = (
                f"`exclude` leaves out column {old} and not {new}, and the one became, or may have become, the other."
            )
            if now.excludes(new):
                what = f"`exclude` leaves out column {new} and not {old}, and the one was the other."
            return Refusal(what, RESHAPED)
    return None


def _unfiltered(evolution: Evolution, shape: Shape) -> Refusal | None:
    """Why the filter of a table does not fit any more: rows that a DDL rewrites come and go without row events."""
    admitting = shape.filter
    if admitting is None:
        return None
    changes = (evolve.DropField, evolve.ConvertField, evolve.RenameField)
    names = (step.name for step in evolution.steps if isinstance(step, changes))
    for name in names:
        if fold(name) in admitting.columns:
            return Refusal(f"Column {name}, which `where` of the table looks at, is changed.", RESHAPED)
    return None


def _rekeyed(evolution: Evolution, shape: Shape) -> Refusal | None:
    """Why deleted rows, which TiDB does not have, may be alike in a new key, or in new values of it."""
    if not shape.is_soft or not any(isinstance(step, evolve.SetKey) for step in evolution.steps):
        return None
    return Refusal("Its key changes, and `deletes` is soft: deleted rows may be alike in the new one.", RESHAPED)


def _unmasked(before: TableVersion, after: TableVersion, actions: Sequence[Action], rules: TypeRules) -> Refusal | None:
    """Why the masks of a table are no longer those of its rows: a column has a new name, or a new key is masked."""
    for old, new in lineage(before, after, actions).pairs:
        paths = ColumnPath(before.name, old.name if old else new.name), ColumnPath(after.name, new.name)
        masks = [rules.mask_of(path) or "none" for path in paths]
        if old is not None and masks[0] != masks[1]:
            what = f"Column {old.name} becomes {new.name}, and their masks are not the same: {masks[0]}, {masks[1]}."
            return Refusal(what, _REMASK_HINT)
    try:
        check_key(after, rules)
    except SchemaChangeRefused as refusal:
        return Refusal(refusal.what, refusal.hint)
    return None


def _stored(
    before: TableVersion, after: TableVersion, found: ColumnMapping, rules: TypeRules, held: Collection[str] | None
) -> tuple[TableVersion, TableVersion]:
    """Both versions without the columns that the Iceberg table lacks, or does not get."""
    absent = absent_from(before, held if held is not None else {c.name for c in before.columns}, rules)
    omit, shape = rules.virtual_columns == "omit", rules.shape_of(after.name)
    left_out = {
        new.name
        for old, new in found.pairs
        if shape.excludes(new.name) or (_is_virtual(new, found) and (omit if old is None else old.name in absent))
    }
    return _without(before, absent), _without(after, left_out)


def _is_virtual(column: Column, found: ColumnMapping) -> bool:
    written = found.written(column)
    return VIRTUAL in (column.generated, written.generated if written else None)


def _without(version: TableVersion, names: Collection[str]) -> TableVersion:
    if not names:
        return version
    return replace(version, columns=tuple(column for column in version.columns if column.name not in names))


def _plan(before: TableVersion, after: TableVersion, actions: Sequence[Action], rules: TypeRules) -> Evolution:
    found = lineage(before, after, actions)
    columns = [_Change(before, after, old, new, found.written(new), rules) for old, new in found.pairs]
    steps: list[evolve.EvolutionStep] = [evolve.DropField(column.name) for column in found.dropped]
    steps += [evolve.RenameField(old.name, new.name) for old, new in found.pairs if old and old.name != new.name]
    changes = [change for column in columns for change in column.changes()]
    steps += [change for change in changes if not isinstance(change, Refusal)]
    steps += _moves(found, before, after)
    steps += _key(found, before, after)
    steps += [evolve.DescribeTable(action.comment) for action in actions if isinstance(action, ddl.SetComment)]
    steps += [evolve.Truncate() for action in actions if isinstance(action, ddl.TruncateTable)]
    doubts = [change for change in changes if isinstance(change, Refusal)]
    return Evolution(tuple(steps), (*doubts, *_row_doubts(actions), *_identity_doubts(found)), _refused(actions))


@dataclass(frozen=True, slots=True)
class _Change:
    """What becomes of one column: `old` (None for a new one) in the table before is `new` in the table after.

    The column as the statement writes it says more than the schemas of some protocols.
    """

    before: TableVersion
    after: TableVersion
    old: Column | None
    new: Column
    written: Column | None
    rules: TypeRules

    def changes(self) -> Iterator[evolve.EvolutionStep | Refusal]:
        """Steps for this column, and what cannot be done exactly if there are rows."""
        if self.old is None:
            arrow = self._arrow(self.after, self.new)
            value, doubt = filled(self._full(), arrow, self.rules, self._path(self.after, self.new))
            yield evolve.AddField(self.new.name, arrow, value, self._comment())
            if doubt is not None:
                yield doubt
            return
        if self.new.nullable and not self.old.nullable:
            yield evolve.RelaxField(self.new.name)
        retyped = self._retyped(self.old)
        if retyped is not None:
            yield retyped
        if self._is_reread(self.old):
            names = f"{self.new.name} was read as {self.old.type.name}, and this statement shows it as"
            yield Refusal(f"Column {names} {self.new.type.name} without changing it: the rows so far hold other text.")
        elif isinstance(retyped, evolve.ConvertField) and self._is_cast(self.old):
            what = f"Column {self.new.name} is cast or masked, and its values in existing rows are not those of before."
            yield Refusal(what, _RECAST_HINT, self.new.name)
        elif isinstance(retyped, evolve.ConvertField) and (reason := casts.refusal(retyped)) is not None:
            what = f"Column {self.new.name} changes from {self.old.type.name} to {self.new.type.name}: {reason}."
            yield Refusal(what, column=self.new.name)
        if self._comment() != self.old.comment:
            yield evolve.DescribeField(self.new.name, self._comment())

    def _is_reread(self, column: Column) -> bool:
        """Whether a column that no statement changes turns out to hold bytes, which its rows so far wrote as text."""
        return self.written is None and (family(column.type.name), family(self.new.type.name)) == ("text", "bytes")

    def _retyped(self, column: Column) -> evolve.EvolutionStep | None:
        shown = self.new.type.completed(self.written.type) if self.written else self.new.type
        old, new = column.type, shown.completed(column.type)
        if self._is_kept(old, new) or (old != new and self.written is None and self._is_learnt(old, new)):
            return None
        arrows = self._arrow(self.before, column), self._arrow(self.after, self.new)
        # A value that stays the same upstream is cast to the same one; without a cast, a truth is no number any more.
        is_truth = pa.types.is_boolean(arrows[1])
        kept = plain_type(new, self.rules, self._path(self.after, self.new)) if is_truth else arrows[1]
        if old == new or is_lossless(old, new, kept):
            if arrows[0] == arrows[1]:
                return None
            if is_promotion(*arrows):
                return evolve.PromoteField(self.new.name, arrows[1])
        return evolve.ConvertField(self.new.name, old, new, *arrows, holds_null=self._holds_null(column, new))

    def _holds_null(self, column: Column, new: ColumnType) -> bool:
        """Whether NULL stays NULL: a zero date is NULL here as well, and its text is not."""
        policy = self.rules.zero_date_policy(self._path(self.before, column), column.type)
        return column.nullable and (column.type.name not in DATE_TYPES or new.name in DATE_TYPES or policy != "null")

    def _is_kept(self, old: ColumnType, new: ColumnType) -> bool:
        """Whether the type is the same, and what the rules for its name and that of its table make of it."""
        paths = self._path(self.before, self.old or self.new), self._path(self.after, self.new)
        if old != new or paths[0] == paths[1] or old.name in OPEN:
            return old == new
        return arrow_type(old, self.rules, paths[0]) == arrow_type(new, self.rules, paths[1])

    def _is_cast(self, column: Column) -> bool:
        """Whether the values are masked, or those of a cast, or only the rules for their names differ."""
        if self.rules.mask_of(self._path(self.after, self.new)) is not None:
            return True
        sides = (self.before, column), (self.after, self.new)
        plain = [plain_type(each.type, self.rules, self._path(version, each)) for version, each in sides]
        is_moved = column.type == self.new.type and plain[0] != plain[1]
        return is_moved or plain != [self._arrow(version, each) for version, each in sides]

    def _path(self, version: TableVersion, column: Column) -> ColumnPath:
        return ColumnPath(version.name, column.name)

    def _is_learnt(self, old: ColumnType, new: ColumnType) -> bool:
        """Whether only the digits of the seconds were not known before: every value has them, save where it is text."""
        is_text = pa.types.is_string(column_arrow_type(self.after.name, replace(self.new, type=new), self.rules))
        same = replace(old, length=new.length, scale=new.scale) == new
        return same and old.name in casts.SECONDS and old.scale is None and not is_text

    def _full(self) -> Column:
        """The column with what only the statement shows: if it is generated, all of its type, if it has a default.

        Schemas of Avro give a NOT NULL column without a default the zero value as one, and hide those of some types.
        """
        if self.written is None:
            return self.new
        is_alike = self._arrow(self.after, self.written) == self._arrow(self.after, self.new)
        is_hidden = self.new.default == UNKNOWN_DEFAULT or (self.written.default is None and not self.new.nullable)
        return replace(
            self.new,
            type=self.written.type if is_alike else self.new.type,
            default=self.written.default if is_hidden else self.new.default,
            generated=self.new.generated or self.written.generated,
        )

    def _comment(self) -> str:
        return self.new.comment or (self.written.comment if self.written else "")

    def _arrow(self, version: TableVersion, column: Column) -> pa.DataType:
        return column_arrow_type(version.name, column, self.rules)


def _moves(found: ColumnMapping, before: TableVersion, after: TableVersion) -> list[evolve.EvolutionStep]:
    """Moves into the order of `after`; new fields are behind the others until then."""
    order = {id(column): new.name for column, new in found.pairs if column}
    kept = [order[id(column)] for column in before.columns if id(column) in order]
    added = [new.name for old, new in found.pairs if old is None]
    return [evolve.MoveField(name, behind) for name, behind in moves([*kept, *added], [c.name for c in after.columns])]


def _key(found: ColumnMapping, before: TableVersion, after: TableVersion) -> list[evolve.EvolutionStep]:
    names = {old.name: new.name for old, new in found.pairs if old}
    kept = [names.get(name) for name in before.key]
    return [evolve.SetKey(after.key)] if set(kept) != set(after.key) else []


def _row_doubts(actions: Sequence[Action]) -> Iterator[Refusal]:
    for action in actions:
        match action:
            case ddl.DropPartitions(names=names):
                yield Refusal(f"The rows of dropped partitions ({', '.join(names)}) go without row events.")
            case ddl.TruncatePartitions(names=names):
                yield Refusal(f"The rows of truncated partitions ({', '.join(names) or 'all'}) go without row events.")


def refuse_renamed(version: TableVersion, table: TableVersion) -> None:
    """Refuse late rows of a version that hold columns which the table lacks, where they lack columns that it has.

    Raises:
        SchemaChangeRefused: Nothing shows whether a column was renamed, and its values would be lost.
    """
    shown = replace(table, columns=tuple(column for column in table.columns if column.generated != VIRTUAL))
    for refusal in _identity_doubts(lineage(version, shown, ())):
        raise refusal.of(table.name)


def _identity_doubts(found: ColumnMapping) -> Iterator[Refusal]:
    if found.unexplained_added and found.unexplained_dropped:
        gone, new = ", ".join(found.unexplained_dropped), ", ".join(found.unexplained_added)
        what = f"Columns {gone} are gone and {new} are new, and no statement shows whether they were renamed."
        yield Refusal(what)


def _refused(actions: Sequence[Action]) -> Refusal | None:
    for action in actions:
        match action:
            case ddl.ExchangePartition(partition=partition, other=other):
                return Refusal(f"Partition {partition} and table {other} swap rows without row events.")
            case ddl.RecoverTable():
                return Refusal("The rows of a recovered table come back without row events.")
    return None
