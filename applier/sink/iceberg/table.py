"""One Iceberg table: reads its metadata, and plans its files."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from applier.errors import TableMismatch, TransientError
from applier.runtime.storage_keys import KEYS, TableAccess
from applier.sink.format.file_layout import FileLayout
from applier.sink.format.storage import Storage, storage_of
from applier.sink.format.types import RENAMED_COLUMNS, TableSchema
from applier.sink.iceberg.files import DataFile, JavaStorage, TableFiles, parse_plan
from applier.sink.iceberg.java import Java, JavaError, translated
from applier.sink.iceberg.snapshot import MAIN, Figures, Snapshot

_T = TypeVar("_T")

_UNTYPED = "UnsupportedOperationException"
"""What Iceberg raises for a value of a partition whose column is gone, as it has no type."""

_ANEW = "Drop the table in your engine, and let `applier resume -c FILE --tables TABLE` build it anew."

MISSING = ("NoSuchTableException", "NoSuchNamespaceException", "NoSuchIcebergTableException")
"""What catalogs raise that do not know a table, or its namespace."""


class Home(Protocol):
    """The catalog of a table."""

    def loaded(self, identifier: tuple[str, ...]) -> Any:
        """A new handle of a table."""

    def sure(self, ask: Callable[[], _T]) -> _T:
        """The answer to a question, which is put again where it is that a table or namespace is missing: in between
        the catalog shows that it answers at all.

        Raises:
            JavaError: It is missing (`MISSING`), or the catalog does not answer.
        """


class Table:
    """A loaded table. What it says is as of the last `refresh`, `commit` or load; one thread at a time.

    The handle is the `org.apache.iceberg.Table`, which files of `sink/iceberg` may use for what is missing here.

    Args:
        home: Its catalog; None for one that no `refresh` follows.

    Attributes:
        handle: Another one once the table was loaded anew.
        is_in_cuts: Checkpoints list its heads, so its snapshots keep to the clock; False for control tables.
    """

    def __init__(self, java: Java, handle: Any, identifier: tuple[str, ...], home: Home | None = None) -> None:
        self.java = java
        self.handle = handle
        self.identifier = identifier
        self._home = home
        self._access = self._accessed(TableAccess())
        self.is_in_cuts = True
        self._facts: dict[str, Any] = {}
        self._identity = ""

    def __str__(self) -> str:
        return ".".join(self.identifier)

    def refresh(self) -> None:
        """Read the table's newest metadata; with new keys, and the token of today, where those at hand are no good.

        Raises:
            TableMismatch: The table is gone, or another one has its name.
            JavaError: The catalog does not answer.
        """
        # Before: an answer that is lost may have brought newer metadata, which old facts do not fit.
        self.forget()
        home = self._home
        self._asked(self.handle.refresh if home is None or not self.is_stale else partial(self._load_anew, home))

    @property
    def is_stale(self) -> bool:
        """Whether its keys or its token are refused or about to expire: `refresh` brings new ones."""
        return self._home is not None and self._access.is_stale

    def _load_anew(self, home: Home) -> None:
        # Before: what is refused meanwhile may be what it brings.
        access, handle = TableAccess(), home.loaded(self.identifier)
        if handle.operations().current().uuid() != self.handle.operations().current().uuid():
            what = f"Table {self} was replaced by another one while its keys were renewed"
            raise TableMismatch(what, "Restore it, or backfill the new one.")
        self.java.own.CachingFileIO.replace(self.handle.io(), handle.io())
        self.handle = handle
        self._access = self._accessed(access)

    def _accessed(self, access: TableAccess) -> TableAccess:
        return access.with_keys(self.storage_properties) if KEYS.are_vended and self._home is not None else access

    def forget(self) -> None:
        """Forget what was read of the metadata, which a commit may have brought up to date."""
        self._facts.clear()

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """What the library says of the table. After a commit that failed, any question makes it ask the catalog again.

        Raises:
            TableMismatch: The table is gone, or another one has its name.
            JavaError: The catalog does not answer.
        """

        def asked() -> Any:
            with translated(f"Cannot refresh table {self}"):
                return ask()

        try:
            return asked() if self._home is None else self._home.sure(asked)
        except JavaError as error:
            # A catalog over JDBC refuses the first question after a DROP, and has no metadata for any later one.
            is_gone = error.kind == "NullPointerException" and self.handle.operations().current() is None
            if is_gone or error.kind in (*MISSING, "IllegalStateException", "NotFoundException"):
                detail = "the catalog does not know it" if is_gone else error.detail
                what = f"Table {self} was dropped or replaced by another one: {detail}"
                raise TableMismatch(what, "Restore it, or backfill the new one.") from None
            raise

    def _snapshot(self, ref: str | int) -> Any:
        return self._asked(lambda: self.handle.snapshot(ref))

    @property
    def uuid(self) -> str:
        """Identity that outlives renames, but not drop and create."""
        return str(self._asked(self.handle.uuid).toString())

    @property
    def identity(self) -> str:
        """48 bits of a hash of the UUID: short, as each checkpoint has that of every table.

        It is asked for once: no refresh makes another table of this one.
        """
        if not self._identity:
            digest = hashlib.blake2b(self.uuid.encode(), digest_size=6).digest()
            self._identity = base64.urlsafe_b64encode(digest).decode()
        return self._identity

    @property
    def location(self) -> str:
        """Root of its files."""
        return str(self._asked(self.handle.location))

    @property
    def metadata_file(self) -> str:
        """The newest file of its metadata."""
        return str(self._asked(lambda: self.handle.operations().current().metadataFileLocation()))

    @property
    def format_version(self) -> int:
        """1, 2 or 3."""
        return int(self._written["format"])

    @property
    def properties(self) -> dict[str, str]:
        """Table properties."""
        return dict(self.java.plain(self._asked(self.handle.properties)))

    def setting(self, key: str) -> str | None:
        """One table property; cheaper than all."""
        found: str | None = self._asked(lambda: self.java.own.TableText.property(self.handle, key))
        return found

    @property
    def storage_properties(self) -> dict[str, str]:
        """What the table's FileIO was configured with, credentials included: never log them."""
        return dict(self.java.plain(self.java.own.TableText.storage(self.handle)))

    @property
    def schema_json(self) -> str:
        """Current schema in Iceberg's JSON."""
        return str(self.java.iceberg.SchemaParser.toJson(self._asked(self.handle.schema)))

    @property
    def schema(self) -> TableSchema:
        """Schema as of the last `refresh`. A commit of files that were written with another one is refused."""
        return self._fact("schema", lambda: self._parsed(json.dumps(self._written["schema"])))

    def schema_at(self, snapshot_id: int) -> TableSchema:
        """Schema with which a snapshot was committed that is still kept."""
        found = self.handle.schemas().get(self._snapshot(snapshot_id).schemaId())
        return self._parsed(str(self.java.iceberg.SchemaParser.toJson(found)), _names_at(self, snapshot_id))

    def former_schemas(self) -> Iterator[TableSchema]:
        """The schemas that it has had, as far as they are kept and its names of now fit them, newest first."""
        for schema in sorted(self.handle.schemas().values(), key=lambda schema: -int(schema.schemaId())):
            with suppress(TableMismatch):
                yield self._parsed(str(self.java.iceberg.SchemaParser.toJson(schema)))

    def _parsed(self, schema: str, names: Mapping[str, str] = MappingProxyType({})) -> TableSchema:
        return TableSchema.parse(schema, {**self._written["properties"], **names})

    @property
    def spec_json(self) -> dict[str, Any]:
        """Partition spec in Iceberg's JSON, as of the last `refresh`."""
        return dict(self._written["spec"])

    @property
    def specs_json(self) -> list[dict[str, Any]]:
        """All partition specs that the table ever had, in Iceberg's JSON, as of the last `refresh`."""
        return list(self._written["specs"])

    @property
    def file_layout(self) -> FileLayout:
        """How its new files are written, as of the last `refresh`."""
        written = self._written
        keys = ("spec", "order", "properties", "format")
        return FileLayout(str(self), written["location"], self.schema, *(written[key] for key in keys))

    @property
    def files(self) -> TableFiles:
        """Describes its files."""
        return self._fact("files", lambda: TableFiles(self.java, self.handle, str(self)))

    @property
    def snapshot_id(self) -> int | None:
        """Its head; None while it has no snapshot."""
        head = self._snapshot(MAIN)
        return None if head is None else int(head.snapshotId())

    @property
    def after(self) -> int:
        """Unix milliseconds above which its next snapshot must be; -1 where its snapshots are in no cut."""
        return self.java.clock.after if self.is_in_cuts else -1

    def meet(self, snapshot_id: int | None) -> None:
        """Let the next cut be at or above the time of a snapshot that another process, or Iceberg itself, has made."""
        found = None if snapshot_id is None else self._snapshot(snapshot_id)
        if found is not None and self.is_in_cuts:
            self.java.clock.meet(int(found.timestampMillis()))

    @property
    def figures(self) -> Figures | None:
        """What the summary of its head counts; None while it has no snapshot."""
        head = self._snapshot(MAIN)
        if head is None:
            return None
        place = int(head.timestampMillis()), int(head.sequenceNumber())
        return Figures.of(int(head.snapshotId()), self.java.plain(head.summary()), *place)

    def has_snapshot(self, snapshot_id: int) -> bool:
        """Whether this snapshot was committed and is still kept."""
        return self._snapshot(snapshot_id) is not None

    def history(self, start: int | str | None = None) -> Iterator[Snapshot]:
        """Its snapshots, newest first; with an id or a branch, that snapshot and those it was made on."""
        head = self._snapshot(MAIN if start is None else start)
        while head is not None:
            parent = head.parentId()
            made_on = None if parent is None else int(parent)
            yield Snapshot(int(head.snapshotId()), str(head.operation()), self.java.plain(head.summary()), made_on)
            head = None if parent is None else self._snapshot(int(parent))

    def scan(self, snapshot_id: int, columns: Sequence[str] = ()) -> list[DataFile]:
        """All data files of the head, which must be this snapshot, with their delete files.

        The bounds of some columns are among them, by the names that the columns have now.

        Raises:
            TableMismatch, TransientError: A column of a partition is gone; the head has moved to another snapshot.
        """
        with _planning(self):
            found = self.java.own.TableText.head(self.handle, snapshot_id, _own_names(self, columns))
        if found is None:
            raise TransientError(f"Table {self} has moved on from snapshot {snapshot_id}")
        return parse_plan(json.loads(found))

    def scan_past(self, snapshot_id: int, _: Sequence[str] = ()) -> list[DataFile]:
        """Data files of an older snapshot with their delete files; bounds are left out."""
        with translated(f"Cannot plan snapshot {snapshot_id} of table {self}"):
            scan = self.handle.newScan().useSnapshot(snapshot_id)
            return parse_plan(json.loads(self.java.own.TableText.files(self.handle, scan)))

    @property
    def _written(self) -> dict[str, Any]:
        """How its files are written, as `TableText.facts` tells it: one call for all."""
        return self._fact(
            "written", lambda: json.loads(self._asked(lambda: self.java.own.TableText.facts(self.handle)))
        )

    def _fact(self, name: str, read: Callable[[], _T]) -> _T:
        """Something that only a change of the table's metadata by others can change: asked for once a `refresh`."""
        if name not in self._facts:
            self._facts[name] = read()
        found: _T = self._facts[name]
        return found


def _own_names(table: Table, columns: Sequence[str]) -> str:
    """What columns are called in Iceberg, as a JSON list."""
    own = table.schema.renamed if columns else {}
    return json.dumps([own.get(name, name) for name in columns])


def _names_at(table: Table, snapshot_id: int) -> dict[str, str]:
    """What a snapshot says of the names of its columns, where they have had any: they may be those of others now."""
    if RENAMED_COLUMNS not in table.file_layout.properties:
        return {}
    noted = (item.summary.get(RENAMED_COLUMNS) for item in table.history(snapshot_id))
    return {RENAMED_COLUMNS: next((names for names in noted if names is not None), "")}


@contextmanager
def _planning(table: Table) -> Iterator[None]:
    """Turn what Java raises inside into a `JavaError`, or a refusal where a column of a partition is gone."""
    try:
        with translated(f"Cannot plan table {table}"):
            yield
    except JavaError as error:
        if error.kind != _UNTYPED or not _lacks_partition_column(table):
            raise
        what = f"Others have dropped a column that files of table {table} are partitioned by, so none can be listed"
        raise TableMismatch(what, _ANEW) from None


def _lacks_partition_column(table: Table) -> bool:
    """Whether some partition spec of a table is by a column that is gone."""
    columns = {field.id for field in table.schema.fields}
    return any(part["source-id"] not in columns for spec in table.specs_json for part in spec["fields"])


def storage_for(table: Table) -> Storage:
    """Opens a table's files with the credentials that its FileIO has now; a remote storage is asked once."""
    return storage_of(table.location, table.storage_properties, lambda: JavaStorage(table.handle))
