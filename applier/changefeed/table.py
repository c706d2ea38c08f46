"""Tables as TiDB describes them: names, columns, keys, the version they are valid in, and partitions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, TypeAlias

import msgspec

from applier.errors import DecodeError


@lru_cache(maxsize=65536)
def fold(name: str) -> str:
    """A name in small letters, as Go makes them: rune by rune, so that no sigma is a final one and İ becomes i.

    TiDB takes names of databases, tables, columns, indexes and partitions for one where this is equal.
    """
    return name.lower() if name.isascii() else "".join(rune.lower()[0] for rune in name)


class TableName:
    """Name of an upstream table. Names that TiDB takes for one are equal, in whatever letters each is written.

    Attributes:
        database: As the naming text spells it.
        table: The same.
        folded: Both as TiDB compares them.
    """

    __slots__ = ("_hash", "database", "folded", "table")

    def __init__(self, database: str, table: str) -> None:
        self.database, self.table = database, table
        self.folded = fold(database), fold(table)
        self._hash = hash(self.folded)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableName) and self.folded == other.folded

    def __lt__(self, other: TableName) -> bool:
        return self.folded < other.folded

    def __hash__(self) -> int:
        return self._hash

    def __iter__(self) -> Iterator[str]:
        return iter((self.database, self.table))

    def __reduce__(self) -> tuple[type[TableName], tuple[str, str]]:
        # The hash of a text is another in each process.
        return TableName, (self.database, self.table)

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    def __repr__(self) -> str:
        return f"TableName(database={self.database!r}, table={self.table!r})"

    def to_dict(self) -> dict[str, str]:
        """Both parts by their names, as the control tables keep them."""
        return {"database": self.database, "table": self.table}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """Type of a column.

    Attributes:
        name: TiDB's type name in lower case without attributes: `bigint`, `varchar`, `decimal`, `bit`, `vector`, ….
        unsigned: True for unsigned numbers.
        length: Digits of a decimal, bits of a bit, characters or bytes of a string; None where the feed does not say.
        scale: Digits after the point of a decimal, of the seconds of a time type, of FLOAT(M,D) and DOUBLE(M,D); None
            where the feed does not say.
        elements: Members of an enum or set, in order.
    """

    name: str
    unsigned: bool = False
    length: int | None = None
    scale: int | None = None
    elements: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The type as SQL writes it: `bigint unsigned`, `decimal(10,2)`."""
        size = ""
        if self.name in ("decimal", "bit") and self.length is not None:
            size = f"({self.length},{self.scale or 0})" if self.name == "decimal" else f"({self.length})"
        return f"{self.name}{size}{' unsigned' if self.unsigned and self.name != 'bit' else ''}"

    def completed(self, known: ColumnType) -> ColumnType:
        """The type, completed from a known type of the same name."""
        if self.name != known.name:
            return self
        return replace(
            self,
            length=known.length if self.length is None else self.length,
            scale=known.scale if self.scale is None else self.scale,
            elements=self.elements or known.elements,
        )


UNKNOWN_DEFAULT = "\uffff"
"""Stands for a default that the feed does not show. It is no character, and no value is written for it."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: As upstream, case kept.
        type: Its type.
        nullable: False for NOT NULL.
        default: Text of the default as TiDB gives it; None for no default or NULL; `UNKNOWN_DEFAULT` where the feed
            does not show it. A TIMESTAMP literal is in UTC.
        generated: `virtual` or `stored` where the feed says so, else None.
        comment: Column comment, where the feed carries it.
    """

    name: str
    type: ColumnType
    nullable: bool = True
    default: str | None = None
    generated: str | None = None
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Index:
    """One index; only unique ones matter to the identity of a row."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    primary: bool = False


@dataclass(frozen=True, slots=True)
class Keyed:
    """The shape of a table with a key: of the changes of one key only the last counts, and its row is found by it."""

    is_idempotent: ClassVar[bool] = True
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Keyless:
    """The shape of a table without a key, a bag of rows: each change counts, and a row is found by all its values."""

    is_idempotent: ClassVar[bool] = False


TableShape: TypeAlias = Keyed | Keyless
"""Decides how the changes of a table are grouped (`order.reduce`), merged (`order.merge`) and staged (`Stage.run`, by
the kind of batch that the merge makes). These match on it, in two rooms that do not know each other.

Everything else asks whether it `is_idempotent`: changes that are applied once more leave the table as it is, so that
they may be sent again, reduced before they are merged, and loaded from files that may repeat them."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """Columns and keys of a table, as valid for the rows that carry `version`.

    Attributes:
        name: Upstream name at that time.
        version: What rows refer to: TiDB's schema version (Simple), the writer's schema id (Avro), a hash of the
            description (protocols whose rows describe themselves). Equal numbers of one table mean equal columns.
        columns: In the table's own order.
        indexes: As far as the feed shows.
        handle_key: Key columns where the feed marks them on rows instead of listing indexes.
        table_id: TiDB's logical table id, where the feed carries it.
        keys_only: The columns are the key columns alone, because deletes of this protocol (Avro) carry no others. It
            gives deletes their types, and does not show the other columns of the table.
        schemas: Ids of the registered schemas that `version` stands for, each with the fingerprint of its text: a
            registry that was rebuilt gives an id to another schema.
        proofs: The same where `version` is a hash, and the ids do not show which of two versions is newer.
    """

    name: TableName
    version: int
    columns: tuple[Column, ...]
    indexes: tuple[Index, ...] = ()
    handle_key: tuple[str, ...] = ()
    table_id: int | None = None
    keys_only: bool = False
    schemas: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    proofs: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    _by_name: dict[str, Column] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._by_name.update((column.name, column) for column in self.columns)

    @property
    def fingerprints(self) -> tuple[tuple[int, int], ...]:
        """Ids of the registered schemas that rows of it refer to, each with the fingerprint of its text."""
        return self.schemas or self.proofs

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that identify a row, as TiCDC chooses them: the primary key, else a not-null unique index, else ().

        Of several indexes it takes the one with the fewest columns, of these the oldest. One over a virtual column does
        not count, as rows lack its values; whether an index is invisible, or cuts a column to a prefix, does not matter
        (tiflow `cdc/model/schema_storage.go`: `findHandleIndex`, `IsIndexUnique`; in the new architecture ticdc
        `pkg/common/table_info_helper.go`: `IsIndexUniqueAndNotNull`). The hidden column of an index over an expression
        is a virtual one. An index with a WHERE is not unique here: it does not distinguish the rows outside of it.
        """
        if self.handle_key:
            return self.handle_key
        held = [index for index in self.indexes if index.unique and self._is_held(index)]
        candidates = [index for index in held if index.primary] or held
        return min(candidates, key=lambda index: len(index.columns)).columns if candidates else ()

    @property
    def shape(self) -> TableShape:
        """By a key, or as a bag of rows if it has none."""
        return Keyed(self.key) if self.key else Keyless()

    def _is_held(self, index: Index) -> bool:
        """Whether every row has a value in each of its columns; those of a primary key are NOT NULL as such."""
        columns = [self._by_name.get(name) for name in index.columns]
        if index.primary:
            # Debezium marks another unique index as primary if there is no primary key.
            return all(column is None or column.generated != "virtual" for column in columns)
        return all(c is not None and not c.nullable and c.generated != "virtual" for c in columns)

    def column(self, name: str) -> Column | None:
        """The column of that name, or None."""
        return self._by_name.get(name)

    def renamed(self, name: TableName) -> TableVersion:
        """The same version under another table name."""
        return self if tuple(name) == tuple(self.name) else replace(self, name=name)

    def refined(self, known: TableVersion) -> TableVersion:
        """The same columns with the types and the key of `known`, where rows alone show less than the DDL did."""
        pairs = [(column, known.column(column.name)) for column in self.columns]
        columns = tuple(
            column if told is None else replace(told, type=told.type.completed(column.type)) for column, told in pairs
        )
        # Rows that show another key are of a table whose indexes are not all known: a DDL has dropped the former one.
        is_same = not self.key or set(self.key) == set(known.key)
        key = known.key if is_same and all(name in self._by_name for name in known.key) else ()
        # The table keeps its key even if these rows lack columns of it: they do not say which row they are, but that
        # makes the table no keyless one.
        handle_key = key or self.key or known.key
        return replace(self, columns=columns, indexes=known.indexes if key else self.indexes, handle_key=handle_key)

    def completed(self, known: TableVersion) -> TableVersion:
        """The same columns, with the parts of types that rows leave open taken from `known`."""
        pairs = [(column, known.column(column.name)) for column in self.columns]
        columns = tuple(
            column if old is None else replace(column, type=column.type.completed(old.type)) for column, old in pairs
        )
        return replace(self, columns=columns)

    def declared(self, known: TableVersion | None) -> TableVersion:
        """The same columns; where the message does not show whether a column is generated, `known` does.

        If the message takes a virtual column for the key, its indexes are those of `known`, too. Where it shows the key
        alone, which may be a unique index, `known` with the same key has the indexes.
        """
        shown = {fold(column.name): column.generated for column in known.columns} if known else {}
        columns = tuple(
            replace(column, generated=column.generated or shown.get(fold(column.name))) for column in self.columns
        )
        if known is None:
            return self
        version = replace(self, columns=columns)
        is_alone = len(self.indexes) == 1 and self.key == known.key and bool(known.indexes)
        return replace(version, indexes=known.indexes) if is_alone or version.key != self.key else version

    def to_json(self) -> str:
        """Text form, as kept in the control table `table_versions`."""
        found = msgspec.to_builtins(self, enc_hook=TableName.to_dict)
        found |= found.pop("name")
        del found["_by_name"]
        found["columns"] = [{**column["type"], **column, "type": column["type"]["name"]} for column in found["columns"]]
        kept = {key: value for key, value in found.items() if value or key not in ("schemas", "proofs")}
        return json.dumps(kept, ensure_ascii=False, separators=(",", ":"), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> TableVersion:
        """Read what `to_json` wrote."""
        found = json.loads(text)
        found["name"] = found["database"], found["table"]
        found["columns"] = [{**each, "type": {**each, "name": each["type"]}} for each in found["columns"]]
        return msgspec.convert(found, TableVersion, dec_hook=lambda kind, parts: kind(*parts))


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a partitioned table.

    Attributes:
        name: Partition name; "" where TiDB chooses it (ADD PARTITION PARTITIONS n).
        bound: RANGE: texts of `VALUES LESS THAN`, `MAXVALUE` kept as word. LIST: () here.
        values: LIST: the rows of `VALUES IN`, each a tuple of texts, None for NULL, `DEFAULT` kept as word.

    Texts are SQL: numbers and expressions as they stand, strings in single quotes with quote and backslash doubled.
    """

    name: str
    bound: tuple[str, ...] = ()
    values: tuple[tuple[str | None, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How a table is partitioned.

    Attributes:
        method: `range`, `range columns`, `list`, `list columns`, `hash`, `key`.
        expression: The partitioning expression or column list, as SQL without the parentheses.
        partitions: In order; for hash and key their names alone, since the place of a partition is its remainder.
    """

    method: str
    expression: str
    partitions: tuple[Partition, ...] = ()


def refuse_rekeyed(known: TableVersion | None, version: TableVersion) -> None:
    """Refuse a version whose key differs from the known one: rows of both could not be reduced by one key.

    Raises:
        DecodeError: The keys differ.
    """
    if known is None or known.key == version.key:
        return
    was, now = (", ".join(one.key) or "none" for one in (known, version))
    what = f"It describes version {version.version} of table {version.name} with the key {now}; before, it was {was}."
    raise DecodeError(what, "check that all topics of source.topics are of one changefeed of one cluster.")


def refuse_nul(version: TableVersion) -> None:
    """Refuse columns that TiDB cannot have: NUL begins the names of the columns that are put beside those of a table.

    Raises:
        DecodeError: The name of a column has this character.
    """
    if found := [column.name for column in version.columns if "\0" in column.name]:
        what = f"It describes table {version.name} with the column {found[0]!r}, and no name in TiDB holds NUL."
        raise DecodeError(what, "check that the producer of the topics is TiCDC; the message is damaged.")


def fingerprint(description: bytes) -> int:
    """A 63-bit number for a description of columns: the `version` of rows that describe themselves."""
    return int.from_bytes(hashlib.blake2b(description, digest_size=8).digest(), "big") >> 1
