"""Fits rows and their versions to the columns of an Iceberg table: what no message of some protocols carries.

- Virtual generated columns, and those that the user excludes: a column of theirs would show NULL where upstream has a
  value.
- The precision of a decimal and the length of a bit column, in rows of Open and Canal-JSON: a table that was loaded
  before the feed begins has both.
- Columns that were added since, in rows of an older writer schema. A feed without DDL messages shows a new column by
  the schema of the rows that have it. TiDB gives the column's default to all rows that were there before, also to those
  whose messages arrive in the same step, or later from a partition that lags behind.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from applier.changefeed.table import Column, ColumnType, TableName, TableVersion, fingerprint, fold
from applier.changefeed.types import VIRTUAL, ColumnPath, TypeRules, column_arrow_type
from applier.errors import SchemaChangeRefused, TableMismatch
from applier.sink.evolve.casts.cast import family, wider
from applier.sink.evolve.defaults import filled
from applier.sink.format.types import Chunks, Field, TableSchema, iceberg_type

_VALUE_ID = (1 << 31) - 1
"""The lower half of a version number of Avro."""

_IDS = 2
"""Schemas of a version that rows refer to, at most: that of their keys and that of their values."""

_OF_ROWS = 1 << 62
"""Set in the number of a version that no DDL described, as decoders know it."""

_RETYPED_HINT = (
    "let TiCDC send DDL messages (Avro: enable-tidb-extension, avro-enable-watermark), or load the table again."
)

_MOST_BITS = 63
"""Bits that an Iceberg `long` takes without a sign."""


def columns_of_new(version: TableVersion, rules: TypeRules) -> tuple[Column, ...]:
    """Columns that a new Iceberg table gets.

    Raises:
        TableMismatch: As `refuse_misshapen` and `refuse_unfit_filter`.
    """
    refuse_misshapen(version, rules)
    refuse_unfit_filter(version, rules)
    return tuple(
        column for column in version.columns if column.name in version.key or not rules.lacks(version.name, column)
    )


def refuse_misshapen(version: TableVersion, rules: TypeRules) -> None:
    """Refuse to leave out a column that tells rows apart, and to keep deleted rows that no key tells from living ones.

    Raises:
        TableMismatch: An excluded column is part of the key; a column is to have the name of another one; or there is
            no key, and deletes are soft, or differences of rows are hidden: two changes of a transaction would pass
            for one that was sent twice.
    """
    refuse_taken_names(version, rules)
    shape = rules.shape_of(version.name)
    again = ", and start `applier run -c FILE` again."
    if named := [name for name in version.key if shape.excludes(name)]:
        what = f"Column {named[0]} of table {version.name} is part of its key, which no table is without"
        raise TableMismatch(what, f'Take it off `exclude` of [tables."{shape.pattern}".columns]{again}')
    if version.key or version.keys_only:
        return
    if hidden := [column.name for column in version.columns if rules.hides_differences(version.name, column)]:
        what = (
            f"Table {version.name} has no key, and rows of it may differ in column {hidden[0]} alone, which is hidden"
        )
        hint = (
            f'Leave it out of `exclude` and `mask`, or mask it by "hash", in [tables."{shape.pattern}".columns]{again}'
        )
        raise TableMismatch(what, hint)
    if shape.is_soft:
        what = f"Table {version.name} has no key, and `deletes` is soft: nothing tells deleted rows from living ones"
        raise TableMismatch(what, f'Set deletes = "hard" for it under [tables]{again}')


def refuse_taken_names(version: TableVersion, rules: TypeRules) -> None:
    """Refuse to give a column in Iceberg the name that another one of the table has upstream.

    Raises:
        TableMismatch: It is to get that.
    """
    shape = rules.shape_of(version.name)
    if not shape.rename:
        return
    held = {fold(column.name): column.name for column in version.columns if not shape.excludes(column.name)}
    for name in held.values():
        new = shape.renamed(name)
        other = held.get(fold(new), name)
        if other != name:
            what = f"Column {name} of table {version.name} is called {new} in Iceberg, and it has a column {other}"
            at = f'in `rename` of [tables."{shape.pattern}".columns]'
            raise TableMismatch(what, f"Choose a name that none has {at}, and start `applier run -c FILE` again.")


def refuse_unfit_filter(version: TableVersion, rules: TypeRules) -> None:
    """Refuse a row filter that looks at columns which the table lacks, or which cannot be compared so.

    Raises:
        TableMismatch: It does.
    """
    if (admitting := rules.shape_of(version.name).filter) is not None:
        named = (column for column in version.columns if fold(column.name) in admitting.columns)
        taken = (column for column in named if rules.takes(version.name, column))
        kinds = {column.name: column_arrow_type(version.name, column, rules) for column in taken}
        admitting.refuse_unfit(version.name, kinds)


def absent_from(version: TableVersion, held: Collection[str], rules: TypeRules) -> set[str]:
    """Names of the columns that an Iceberg table with some columns lacks rightly: virtual and excluded ones."""
    shape = rules.shape_of(version.name)
    return {
        column.name
        for column in version.columns
        if shape.excludes(column.name) or (column.generated == VIRTUAL and column.name not in held)
    }


def with_virtual(version: TableVersion, known: TableVersion) -> TableVersion:
    """The version that rows describe, with the virtual columns that are known: rows never hold them."""
    columns = list(version.columns)
    for place, column in enumerate(known.columns):
        if column.generated == VIRTUAL and version.column(column.name) is None:
            columns.insert(place, column)
    return version if len(columns) == len(version.columns) else replace(version, columns=tuple(columns))


def supplied(version: TableVersion, schema: TableSchema) -> TableVersion:
    """The version with the digits and bits of the Iceberg table, where the version leaves them open."""
    columns = tuple(_supplied(column, schema.field(column.name)) for column in version.columns)
    return version if columns == version.columns else replace(version, columns=columns)


def _supplied(column: Column, found: Field | None) -> Column:
    kind = column.type
    if found is None or kind.length is not None:
        return column
    if kind.name == "bit" and found.arrow == pa.int64():
        return replace(column, type=replace(kind, length=_MOST_BITS))
    if (
        kind.name == "decimal"
        and isinstance(found.arrow, pa.Decimal128Type)
        and kind.scale in (None, found.arrow.scale)
    ):
        return replace(column, type=replace(kind, length=found.arrow.precision, scale=found.arrow.scale))
    return column


def fitted(rows: pa.Table, version: TableVersion, schema: TableSchema, table: str) -> pa.Table:
    """Rows of a version whose values have the digits and bits of the Iceberg table.

    Raises:
        TableMismatch: A value needs more digits or bits.
    """
    for old, new in zip(version.columns, supplied(version, schema).columns, strict=True):
        place = rows.schema.get_field_index(old.name)
        found = schema.field(old.name)
        if old is not new and found is not None and place >= 0 and rows[place].type != found.arrow:
            rows = rows.set_column(place, old.name, _cast(rows[place], found, table))
    return rows


def _cast(values: Any, found: Field, table: str) -> Chunks:
    try:
        return pc.cast(values, found.arrow)  # type: ignore[no-any-return]
    except pa.ArrowInvalid:
        what = f"A value of column {found.name} of table {table} does not fit {iceberg_type(found.arrow)}."
        hint = "Widen the column of the Iceberg table, or load the table with the type that upstream has."
        # The text of the error holds the value.
        raise TableMismatch(what, hint) from None


def of_schemas(rules: TypeRules) -> TypeRules:
    """The rules for defaults that a registered schema shows: TiDB stores those of a TIMESTAMP in UTC."""
    return replace(rules, session_zone="UTC")


def is_older(version: TableVersion, than: TableVersion) -> bool:
    """Whether the value schema of one version is not known to be newer than that of another, under one key schema.

    A version number of Avro holds both ids (`row_version`). Numbers that are hashes share no upper half. A table that
    returns to former columns returns to their id: of the ids of a joined version none is newer than it.
    """
    key, newest = version.version >> 31, version.version & _VALUE_ID
    if len(than.schemas) > _IDS:
        return key == than.schemas[0][0] and newest <= max(number for number, _ in than.schemas[1:])
    return key == than.version >> 31 and version.version < than.version


def is_unordered(version: TableVersion) -> bool:
    """Whether the number of a version that rows describe is a hash, and shows nothing of an order."""
    return not version.schemas


def is_of_rows(version: TableVersion) -> bool:
    """Whether rows, or the schemas that they refer to, described a version; a load or a DDL may show other types."""
    return bool(version.schemas) or version.version & _OF_ROWS > 0


def widened(version: TableVersion, *others: TableVersion) -> TableVersion:
    """The version with the wider type of each column, where other versions show one that holds its values.

    Rows show no end of a type: a partition that lags brings those of the former one later, or in the same step.
    """
    columns = list(version.columns)
    for other in others:
        for place, column in enumerate(columns):
            if (found := other.column(column.name)) is not None and found.type != column.type:
                columns[place] = replace(column, type=wider(column.type, found.type))
    return replace(version, columns=tuple(columns)) if columns != list(version.columns) else version


def unmistaken(version: TableVersion, shown: TableVersion) -> TableVersion:
    """The version with the types of rows where their values would pass for others in its own: a DOUBLE, rounded, for a
    FLOAT; a large BIGINT UNSIGNED, which some protocols write as a negative number, for a BIGINT.

    Some builds show FLOAT(M,D) as DOUBLE, and BIGINT UNSIGNED as BIGINT.
    """
    columns = [(known, shown.column(known.name)) for known in version.columns]
    found = tuple(
        known if told is None or not _is_mistaken(known.type, told.type) else replace(known, type=told.type)
        for known, told in columns
    )
    return version if found == version.columns else replace(version, columns=found)


def _is_mistaken(known: ColumnType, shown: ColumnType) -> bool:
    if known.name == "bigint" == shown.name:
        return shown.unsigned and not known.unsigned
    return (known.name, known.scale, shown.name) == ("float", None, "double")


def proven(version: TableVersion, table: TableVersion) -> TableVersion:
    """What rows of a version show of their table if no commit ts shows that they are newer than it.

    What is not shown to be newer takes no column away, but what its rows hold must have a place.
    """
    if not is_unordered(version):
        return joined(version, table) if is_older(version, table) else version
    shared = [version.column(column.name) or column for column in table.columns]
    columns = (*shared, *(column for column in version.columns if table.column(column.name) is None))
    if len(columns) == len(version.columns):
        return version
    return replace(version, version=fingerprint(repr(columns).encode()) | _OF_ROWS, columns=columns)


def joined(version: TableVersion, table: TableVersion) -> TableVersion:
    """A table together with columns that only an older version has: it may lag behind, or the table returned to it."""
    more = [column for column in version.columns if table.column(column.name) is None]
    if not more:
        return table
    ids = version.version >> 31, table.version & _VALUE_ID, version.version & _VALUE_ID
    known = dict([*version.schemas, *table.schemas])
    joint = table.schemas if len(table.schemas) > _IDS else tuple((number, known.get(number, 0)) for number in ids[:2])
    schemas = (*joint, (ids[2], known.get(ids[2], 0)))
    columns = (*table.columns, *more)
    number = fingerprint(repr([schemas, columns]).encode())
    return replace(table, version=number, columns=columns, schemas=schemas)


def retyped(name: TableName) -> SchemaChangeRefused:
    """Rows of one step that are of several types, and no DDL among them that shows where one ends."""
    what = f"A column of table {name} changed its type in the middle of a step, and the feed carries no DDL."
    return SchemaChangeRefused(what, _RETYPED_HINT)


def returned(name: TableName, columns: Collection[str]) -> SchemaChangeRefused:
    """Rows of one step before and behind the time in which a column was gone, which took its former values along."""
    named = ", ".join(sorted(columns))
    what = f"Columns {named} of table {name} were gone and came back in one step, and no DDL shows when."
    return SchemaChangeRefused(what, _RETYPED_HINT)


def refuse_retyped(version: TableVersion, table: TableVersion, rules: TypeRules) -> None:
    """Refuse rows whose schema shows another kind of type than the former rows of the table had.

    Raises:
        SchemaChangeRefused: It may be another column of the same name, whose values those of the former are not.
    """
    for column in version.columns:
        known = table.column(column.name) if rules.takes(table.name, column) else None
        kinds = set() if known is None else {family(known.type.name), family(column.type.name)}
        # Some builds do not show which of the two they write.
        if known is not None and len(kinds) > 1 and kinds != {"text", "bytes"}:
            types = f"{known.type.name} in some rows and {column.type.name} in others"
            what = f"Column {column.name} of table {version.name} is {types}, and no DDL shows whether it is the same."
            raise SchemaChangeRefused(what, _RETYPED_HINT)


def with_added(
    rows: pa.Table, version: TableVersion, table: TableVersion, schema: TableSchema, rules: TypeRules
) -> pa.Table:
    """The rows of a part of an older version, with the columns that the table has now and their version lacks.

    Raises:
        SchemaChangeRefused: The value of a column in them is not known.
    """
    shows = rules.shape_of(table.name).is_soft or pc.any(rows["\0present"]).as_py()
    if version.keys_only or not shows:
        return rows
    for column in table.columns:
        found = schema.field(column.name)
        if found is not None and rules.takes(table.name, column) and version.column(column.name) is None:
            value, doubt = filled(column, found.arrow, of_schemas(rules), ColumnPath(table.name, column.name))
            if doubt is not None:
                raise doubt.of(table.name)
            rows = rows.append_column(column.name, pa.array([value.as_py()] * len(rows), found.arrow))
    return rows
