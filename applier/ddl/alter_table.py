"""Applies an action to the columns and keys of one table.

TiDB compares names of columns and indexes without regard to case, and so does this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from applier.changefeed.table import Column, Index, TableVersion, fold
from applier.ddl import actions as ddl
from applier.errors import RELOAD, SchemaChangeRefused


def apply(version: TableVersion, action: ddl.Action, new_version_id: int) -> TableVersion:
    """One table after an action, of which only what it does to columns and keys counts.

    Where it sets or may change them, `TableVersion.version` becomes `new_version_id`.

    Raises:
        SchemaChangeRefused: The action names a column that a table whose columns are all known does not have, or adds
            one that it has. Tables that only their rows describe may lack columns; there such an action does nothing.
            Or it adds a primary key to a table that has one.
    """
    if version.keys_only:
        return version
    changed = _altered(version, action)
    # Its rows come to refer to other schemas.
    return version if changed is version else replace(changed, version=new_version_id, schemas=(), proofs=())


def _altered(version: TableVersion, action: ddl.Action) -> TableVersion:
    """The version after an action on columns or indexes; the version itself after any other."""
    match action:
        case ddl.AddColumn():
            return _add_column(version, action)
        case ddl.DropColumn():
            return _drop_column(version, action)
        case ddl.RenameColumn():
            return _edited(version, action, lambda column: replace(column, name=action.to))
        case ddl.ModifyColumn():
            return _modify_column(version, action)
        case ddl.SetDefault():
            return _edited(version, action, lambda column: replace(column, default=action.default))
        case ddl.AddIndex():
            _refuse_second_primary(version, action.index)
            return named_indexes(version, [action.index])
        case ddl.DropIndex():
            return _drop_index(version, action.name)
        case ddl.RenameIndex():
            renamed = (
                replace(index, name=action.to) if _same(index.name, action.name) else index for index in version.indexes
            )
            return replace(version, indexes=tuple(renamed))
    return version


def _same(left: str, right: str) -> bool:
    return fold(left) == fold(right)


def _found(version: TableVersion, name: str) -> Column | None:
    """The column of a name in any letters."""
    return next((column for column in version.columns if _same(column.name, name)), None)


def _column(version: TableVersion, name: str, action: ddl.Action) -> Column | None:
    """The same; None only where it may be one that rows do not show."""
    found = _found(version, name)
    if found is None and not version.handle_key:
        raise SchemaChangeRefused(f"{version.name} has no column {name}, which a DDL names ({action!r:.300}).", RELOAD)
    return found


def _refuse_taken(version: TableVersion, name: str) -> None:
    if _found(version, name) is not None:
        raise SchemaChangeRefused(f"{version.name} already has the column {name}, which a DDL adds.", RELOAD)


def _edited(
    version: TableVersion, action: ddl.RenameColumn | ddl.SetDefault, edit: Callable[[Column], Column]
) -> TableVersion:
    found = _column(version, action.name, action)
    return version if found is None else _changed(version, found, edit(found))


def _placed(columns: list[Column], column: Column, *, first: bool, after: str | None, at: int) -> tuple[Column, ...]:
    """Columns with one more: first, after another, or else at a place."""
    if first:
        at = 0
    elif after is not None:
        at = next((place + 1 for place, other in enumerate(columns) if _same(other.name, after)), at)
    return (*columns[:at], column, *columns[at:])


def _add_column(version: TableVersion, action: ddl.AddColumn) -> TableVersion:
    if (action.if_not_exists or version.handle_key) and _found(version, action.column.name) is not None:
        return version
    _refuse_taken(version, action.column.name)
    if action.after is not None:
        _column(version, action.after, action)
    columns = list(version.columns)
    placed = _placed(columns, action.column, first=action.first, after=action.after, at=len(columns))
    return replace(version, columns=placed)


def _drop_column(version: TableVersion, action: ddl.DropColumn) -> TableVersion:
    found = _found(version, action.name) if action.if_exists else _column(version, action.name, action)
    if found is None:
        return version
    columns = tuple(column for column in version.columns if column is not found)
    narrowed = [
        replace(index, columns=tuple(name for name in index.columns if name != found.name)) for index in version.indexes
    ]
    indexes = tuple(index for index in narrowed if index.columns)
    handle_key = () if found.name in version.handle_key else version.handle_key
    return replace(version, columns=columns, indexes=indexes, handle_key=handle_key)


def _modify_column(version: TableVersion, action: ddl.ModifyColumn) -> TableVersion:
    found = _column(version, action.name, action)
    if found is None:
        return version
    changed = _changed(version, found, action.column)
    if not action.first and action.after is None:
        return changed
    if action.after is not None:
        _column(changed, action.after, action)
    at = [column.name for column in changed.columns].index(action.column.name)
    columns = list(changed.columns)
    column = columns.pop(at)
    return replace(changed, columns=_placed(columns, column, first=action.first, after=action.after, at=at))


def _changed(version: TableVersion, old: Column, new: Column) -> TableVersion:
    """The version with a column in the place of another; indexes follow its name, a primary key keeps it NOT NULL."""
    if not _same(old.name, new.name):
        _refuse_taken(version, new.name)

    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new.name if name == old.name else name for name in names)

    indexes = tuple(replace(index, columns=renamed(index.columns)) for index in version.indexes)
    columns = tuple(new if column is old else column for column in version.columns)
    handle_key = renamed(version.handle_key)
    return _keys_not_null(replace(version, columns=columns, indexes=indexes, handle_key=handle_key))


def _keys_not_null(version: TableVersion) -> TableVersion:
    primary = {name for index in version.indexes if index.primary for name in index.columns}
    columns = tuple(replace(column, nullable=False) if column.name in primary else column for column in version.columns)
    return replace(version, columns=columns)


def _refuse_second_primary(version: TableVersion, index: Index) -> None:
    """TiDB sends no rows of a table without a key: those between the drop of its key and a new one may be missing.

    Where rows alone show the key, it may be that of a unique index, and nothing proves that.
    """
    if index.primary and (version.handle_key or any(known.primary for known in version.indexes)):
        key = ", ".join(version.key)
        what = f"{version.name} has the key {key}, and a DDL adds a primary key"
        raise SchemaChangeRefused(f"{what}: its drop, and rows between, may be missing from the feed.", RELOAD)


def named_indexes(version: TableVersion, indexes: Iterable[Index]) -> TableVersion:
    """The version with more indexes: those without a name get the one that TiDB gives, columns are spelt as declared.

    A name that is taken is left as it is: TiDB had skipped it, for IF NOT EXISTS.
    """
    made = list(indexes)
    taken = {fold(index.name) for index in (*version.indexes, *made)}
    for index in made:
        name = index.name or _free_name(index.columns[0], taken)
        taken.add(fold(name))
        version = _with_index(version, replace(index, name=name))
    return version


def _with_index(version: TableVersion, index: Index) -> TableVersion:
    if any(_same(known.name, index.name) for known in version.indexes):
        return version
    spelt = {fold(column.name): column.name for column in version.columns}
    columns = tuple(spelt.get(fold(column), column) for column in index.columns)
    # A new primary key identifies rows from here on, in place of what did before.
    handle_key = () if index.primary else version.handle_key
    added = replace(index, columns=columns)
    return _keys_not_null(replace(version, indexes=(*version.indexes, added), handle_key=handle_key))


def _free_name(column: str, taken: set[str]) -> str:
    """Name of an index without one: its first column, numbered if that is taken (TiDB `setEmptyConstraintName`)."""
    name, number = column, 2
    if _same(name, "primary"):
        name, number = f"{column}_2", 3
    while fold(name) in taken:
        name, number = f"{column}_{number}", number + 1
    return name


def _drop_index(version: TableVersion, name: str) -> TableVersion:
    """The version without an index. The feed may not have shown it, so a name that is not known is no error."""
    primary = _same(name, "primary")
    kept = tuple(index for index in version.indexes if not (index.primary if primary else _same(index.name, name)))
    if len(kept) < len(version.indexes):
        return replace(version, indexes=kept, handle_key=())
    return replace(version, handle_key=()) if primary and version.handle_key else version
