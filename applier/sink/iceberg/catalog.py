"""An Iceberg catalog through Iceberg's Java library, in the JVM of a Spark session."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa

from applier.config import own_namespaces
from applier.config.table_layout import PartitionField, SortField
from applier.errors import OutsideRefused, TableMismatch
from applier.runtime.logs import logger
from applier.runtime.permanent_errors import OPENING
from applier.runtime.storage_keys import KEYS
from applier.sink.format.layout import partition_name
from applier.sink.format.types import TableSchema, schema_json
from applier.sink.iceberg.java import FileTasks, Java, JavaError, translated
from applier.sink.iceberg.location import OWN_LOCATION, folder_name, has_uuid, is_plain, own
from applier.sink.iceberg.table import MISSING, Table
from applier.wording import WAY_TO_MOVED_FILES

__all__ = ["Catalog", "JavaError", "PartitionField", "Table", "end_rename", "holds"]

_LOCATION_REFUSED = (
    "BadRequestException",
    "ForbiddenException",
    "IllegalArgumentException",
    "UnsupportedOperationException",
    "ValidationException",
)
"""What catalogs raise that decide on locations alone. The same table is then created without one, which raises anything
that is wrong with the table itself."""

_NO_NAMESPACE = ("NoSuchNamespaceException", "EntityNotFoundException")
"""What catalogs raise that are to list a namespace that is not there; the second one is Glue's own."""

_T = TypeVar("_T")

Identifier = tuple[str, ...]
"""Namespace parts and table name. Parts are data, never parsed: dots, quotes and spaces are allowed where the catalog
allows them."""


class Catalog:
    """One Iceberg catalog that Spark knows, by its name in the configuration of a session.

    Threads may share it; each `Table` it gives belongs to one thread at a time. Work on the rows of many files is done
    by `tasks`, where there are any.

    Attributes:
        is_far: Files of metadata go through `CachingFileIO`.
    """

    def __init__(self, session: Any, name: str, tasks: FileTasks | None = None) -> None:
        self.java = Java(session, tasks)
        self.name = name
        self._one_thread = threading.Lock()
        with translated(f"Catalog {name} cannot be opened", OPENING):
            self._plugin: Any = session._jsparkSession.sessionState().catalogManager().catalog(name)
            self._opened, self._refused_tokens = self._plugin.icebergCatalog(), KEYS.refused_tokens
            self.java.write_plain_files()
            self.is_far = session.conf.get(f"spark.sql.catalog.{name}.io-impl", "") == "applier.CachingFileIO"
            self._is_rest = session.conf.get(f"spark.sql.catalog.{name}.type", "") == "rest"
            self._warehouse = str(session.conf.get(f"spark.sql.catalog.{name}.warehouse", "")).rstrip("/")

    @property
    def handle(self) -> Any:
        """The `org.apache.iceberg.catalog.Catalog`; it logs in again where its token was refused since.

        Raises:
            OutsideRefused: The log-in is refused.
            JavaError: The catalog, or its OAuth2 server, does not answer.
        """
        with self._one_thread:
            if (refused := KEYS.refused_tokens) != self._refused_tokens:
                prefix = f"spark.sql.catalog.{self.name}."
                given = self.java.session.conf.getAll
                options = {key.removeprefix(prefix): given[key] for key in given if key.startswith(prefix)}
                with translated(f"Catalog {self.name} cannot be opened again", OPENING):
                    kind = self.java.jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap
                    self._plugin.initialize(self.name, kind(self.java.map(options)))
                    self._opened = self._plugin.icebergCatalog()
                self._refused_tokens = refused
                logger().info("logged in again", catalog=self.name)
            return self._opened

    def table_of(self, handle: Any, identifier: Identifier) -> Table:
        """A table by a handle of it."""
        return Table(self.java, handle, identifier, self)

    def loaded(self, identifier: Identifier) -> Any:
        """See `Home.loaded`."""
        return self.handle.loadTable(self._table(identifier))

    def sure(self, ask: Callable[[], _T]) -> _T:
        """See `Home.sure`."""
        try:
            return ask()
        except JavaError as error:
            if not self._is_rest or error.kind not in MISSING:
                raise
        _answer(self)
        return ask()

    def load(self, identifier: Identifier) -> Table | None:
        """The table, freshly read; None if there is none of that name."""

        def found() -> Table:
            with translated(f"Cannot load table {'.'.join(identifier)}"):
                return self.table_of(self.loaded(identifier), identifier)

        try:
            return self.sure(found)
        except JavaError as error:
            if error.kind in MISSING:
                return None
            if error.kind == "NotFoundException":
                raise _without_metadata(identifier, error.detail) from None
            raise

    def exists(self, identifier: Identifier) -> bool:
        """Whether a table of that name is there."""
        with translated(f"Cannot look for table {'.'.join(identifier)}"):
            return bool(self.handle.tableExists(self._table(identifier)))

    def create(  # noqa: PLR0913 - all but two are keywords with a default
        self,
        identifier: Identifier,
        columns: pa.Schema,
        *,
        key: Sequence[str] = (),
        partition: Sequence[PartitionField] = (),
        sort: Sequence[str | SortField] = (),
        properties: Mapping[str, str] | None = None,
        format_version: int = 3,
        location: str | None = None,
        home: Identifier | None = None,
    ) -> Table:
        """Create a table without rows; its namespace is made if it is missing.

        Of the columns, nullability gives `required` and metadata `doc` the comment. Those of the key become the
        identifier fields (see `schema_json`). Rows are sorted by `sort`, names in ascending order. Format version 2 is
        for older readers. The catalog chooses the root of the files where no location is given: as for a table named
        `home`, which this one becomes, if it takes that.

        Raises:
            TableMismatch: Iceberg refuses these columns, this partition spec or this name.
            JavaError: The catalog does not answer, or the table exists (`AlreadyExistsException`).
        """
        schema = schema_json(columns, key)
        try:
            for name in {identifier, home or identifier}:
                self.ensure_namespace(name[:-1])
            with translated(f"Cannot create table {'.'.join(identifier)}"):

                def build(name: Identifier = identifier) -> Any:
                    builder = self._builder(name, schema, partition, sort)
                    builder = builder.withProperties(self.java.map(properties or {}))
                    return builder.withProperty("format-version", str(format_version))

                if location is not None:
                    return self.table_of(build().withLocation(location).create(), identifier)
                return self._created_apart(identifier, home or identifier, build)
        except JavaError as error:
            if error.kind in ("ValidationException", "IllegalArgumentException", "NullPointerException"):
                raise TableMismatch(error.what, "Change the route, the partition spec or the type rules.") from None
            raise

    def drop(self, identifier: Identifier, *, purge: bool = False) -> bool:
        """Remove the table from the catalog; with `purge` its files too. False if there was none."""

        def dropped() -> bool:
            with translated(f"Cannot drop table {'.'.join(identifier)}"):
                return bool(self.handle.dropTable(self._table(identifier), purge))

        if dropped():
            return True
        if self._is_rest:
            _answer(self)
            return dropped()
        return False

    def rename(self, identifier: Identifier, to: Identifier) -> None:
        """Give the table another name, also in another namespace. Its files stay where they are."""
        self.ensure_namespace(to[:-1])
        try:
            with translated(f"Cannot rename table {'.'.join(identifier)} to {'.'.join(to)}"):
                self.handle.renameTable(self._table(identifier), self._table(to))
        except JavaError as error:
            if error.kind != "AlreadyExistsException" or not end_rename(self, identifier, to):
                raise

    def list(self, namespace: tuple[str, ...]) -> list[Identifier]:
        """Tables of a namespace; none if the namespace is missing."""

        def listed() -> list[Identifier]:
            with translated(f"Cannot list namespace {'.'.join(namespace)}"):
                found = self.handle.listTables(self._namespace(namespace))
                return [(*namespace, str(identifier.name())) for identifier in self.java.items(found)]

        try:
            return self.sure(listed)
        except JavaError as error:
            if error.kind in _NO_NAMESPACE:
                return []
            raise

    def namespaces(self) -> Sequence[tuple[str, ...]]:
        """All namespaces of the catalog, nested ones included.

        Raises:
            JavaError: The catalog does not list its namespaces.
        """
        found: list[tuple[str, ...]] = []
        waiting: list[tuple[str, ...]] = [()]
        with translated(f"Cannot list the namespaces of catalog {self.name}"):
            while waiting:
                namespace = waiting.pop()
                found.append(namespace)
                below = self.handle.listNamespaces(*([self._namespace(namespace)] if namespace else ()))
                waiting += [tuple(self.java.plain(each.levels())) for each in self.java.items(below)]
        return found[1:]

    def ensure_namespace(self, namespace: tuple[str, ...]) -> None:
        """Make the namespace if it is missing; two threads may do so at once."""
        if not namespace:
            return
        try:
            with translated(f"Cannot create namespace {'.'.join(namespace)}"):
                where = self._namespace(namespace)
                if not self.handle.namespaceExists(where):
                    self.handle.createNamespace(where)
        except JavaError:
            # Catalogs differ in what they say when another thread was faster.
            with translated(f"Cannot look for namespace {'.'.join(namespace)}"):
                is_there = bool(self.handle.namespaceExists(self._namespace(namespace)))
            if not is_there:
                raise

    def _created_apart(self, identifier: Identifier, home: Identifier, build: Callable[..., Any]) -> Table:
        """Create a table at a location of its own, or where the catalog puts it if the catalog takes no other."""
        default = self._default_location(home, build) or self._default_location(identifier, build)
        if default is not None:
            location = own(default)
            try:
                with translated(f"Cannot create table {'.'.join(identifier)} at {location}"):
                    created = build().withLocation(location).withProperty(OWN_LOCATION, location).create()
                    return self.table_of(created, identifier)
            except (JavaError, OutsideRefused) as error:
                if isinstance(error, JavaError) and error.kind not in _LOCATION_REFUSED:
                    raise
                logger().debug("location refused", table=".".join(identifier), location=location, because=error.what)
        return self.table_of(build().create(), identifier)

    def _default_location(self, identifier: Identifier, build: Callable[..., Any]) -> str | None:
        """Where the catalog would put a table; None if it does not say, or if that place is the table's own already."""
        # The warehouse of a REST catalog may be a name that means something to its server alone.
        if not is_plain(identifier) and "/" in self._warehouse:
            return "/".join([self._warehouse, *map(folder_name, identifier)])
        try:
            with translated(f"Cannot ask for the location of table {'.'.join(identifier)}"):
                found = str(build(identifier).createTransaction().table().location())
        except (JavaError, OutsideRefused):
            return None
        return None if has_uuid(found, identifier[-1]) else found

    def _namespace(self, parts: Sequence[str]) -> Any:
        return self.java.iceberg.catalog.Namespace.of(self.java.strings(parts))

    def _table(self, identifier: Identifier) -> Any:
        # As JSON in one call, where an array of Java takes one a level and more.
        text = json.dumps({"namespace": list(identifier[:-1]), "name": identifier[-1]})
        return self.java.iceberg.catalog.TableIdentifierParser.fromJson(text)

    def _builder(
        self, identifier: Identifier, schema: str, partition: Sequence[PartitionField], sort: Sequence[str | SortField]
    ) -> Any:
        iceberg = self.java.iceberg
        java_schema = iceberg.SchemaParser.fromJson(schema)
        columns = TableSchema.parse(schema)
        builder = self.handle.buildTable(self._table(identifier), java_schema)
        if partition:
            spec = json.dumps(_spec_json(columns, partition))
            builder = builder.withPartitionSpec(iceberg.PartitionSpecParser.fromJson(java_schema, spec))
        if sort:
            order = json.dumps(_sort_json(columns, sort))
            builder = builder.withSortOrder(iceberg.SortOrderParser.fromJson(java_schema, order))
        return builder


def end_rename(catalog: Catalog, identifier: Identifier, to: Identifier) -> bool:
    """Take the former name off a table where a rename of two requests (AWS Glue) was cut off; its files stay.

    False where the names are not of one table.
    """
    former, table = catalog.load(identifier), catalog.load(to)
    return former is not None and table is not None and former.uuid == table.uuid and catalog.drop(identifier)


def holds(catalog: Catalog, identifier: Identifier, snapshot_id: int) -> bool:
    """Whether there is a table of that name which has a snapshot."""
    table = catalog.load(identifier)
    return table is not None and table.has_snapshot(snapshot_id)


def _answer(catalog: Catalog) -> None:
    """Find out whether it answers: a gateway whose REST catalog starts again says 404, as of what is missing."""
    try:
        # A catalog that refuses to list has answered.
        with suppress(OutsideRefused), translated(f"Catalog {catalog.name} does not answer"):
            catalog.handle.listNamespaces()
    except JavaError as error:
        # Without its kind, which would be that of something that is missing.
        raise JavaError(error.action, "", error.detail or error.kind) from None


def _spec_json(schema: TableSchema, partition: Sequence[PartitionField]) -> dict[str, Any]:
    fields = [
        {
            "name": partition_name(field, [*schema.names]),
            "transform": field.transform,
            "source-id": _field_id(schema, field.column),
            "field-id": 1000 + index,
        }
        for index, field in enumerate(partition)
    ]
    return {"spec-id": 0, "fields": fields}


def _sort_json(schema: TableSchema, columns: Sequence[str | SortField]) -> dict[str, Any]:
    sorted_by = [SortField(column) if isinstance(column, str) else column for column in columns]
    fields = [
        {
            "transform": "identity",
            "source-id": _field_id(schema, field.column),
            "direction": "desc" if field.descending else "asc",
            "null-order": "nulls-last" if field.descending else "nulls-first",
        }
        for field in sorted_by
    ]
    return {"order-id": 1, "fields": fields}


def _field_id(schema: TableSchema, column: str) -> int:
    field = schema.field(column)
    if field is None:
        names = ", ".join(known.name for known in schema.fields)
        raise TableMismatch(f"There is no column {column} to partition or sort by", f"Columns are: {names}.")
    return field.id


def _without_metadata(identifier: Identifier, detail: str) -> TableMismatch:
    what = f"The metadata of table {'.'.join(identifier)} is gone: {detail}"
    if identifier[0].startswith(own_namespaces.control("")):
        # Without its control table a copy would begin the feed anew, in the files of the original.
        return TableMismatch(what, WAY_TO_MOVED_FILES)
    way_out = (
        f"{WAY_TO_MOVED_FILES} Or register the table from an older metadata file (system.register_table); "
        "or drop it from the catalog without purge, after which it counts as dropped by hand."
    )
    return TableMismatch(what, way_out)
