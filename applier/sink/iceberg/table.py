"""One Iceberg table: its metadata and planned files out, new files and one fenced commit in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from applier.errors import TableMismatch, TransientError
from applier.sink.format.files import DataFile, parse_plan
from applier.sink.format.types import TableSchema
from applier.sink.iceberg.commit import Change, commit
from applier.sink.iceberg.java import Java, JavaError, translated
from applier.sink.iceberg.snapshot import MAIN, Snapshot

_T = TypeVar("_T")


class Table:
    """A loaded table. What it says is as of the last `refresh`, `commit` or load; one thread at a time.

    Args:
        java: The JVM.
        handle: The `org.apache.iceberg.Table`, which files named `iceberg*.py` may use for what is missing here.
        identifier: Namespace parts and table name.
        branch: Branch that is read and written.
    """

    def __init__(self, java: Java, handle: Any, identifier: tuple[str, ...], branch: str = MAIN) -> None:
        self.java = java
        self.handle = handle
        self.identifier = identifier
        self.branch = branch
        self._specs: dict[int, Any] = {}
        self._facts: dict[str, Any] = {}

    def __str__(self) -> str:
        return ".".join(self.identifier)

    def refresh(self) -> None:
        """Read the table's newest metadata.

        Raises:
            TableMismatch: The table is gone, or another one has its name.
            JavaError: The catalog does not answer.
        """
        self._asked(self.handle.refresh)
        self._specs.clear()
        self._facts.clear()

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """What the library says of the table. After a commit that failed, any question makes it ask the catalog again.

        Raises:
            TableMismatch: The table is gone, or another one has its name.
            JavaError: The catalog does not answer.
        """
        try:
            with translated(f"Cannot refresh table {self}"):
                return ask()
        except JavaError as error:
            # A catalog over JDBC refuses the first question after a DROP, and has no metadata for any later one.
            is_gone = error.kind == "NullPointerException" and self.handle.operations().current() is None
            if is_gone or error.kind in ("NoSuchTableException", "IllegalStateException", "NotFoundException"):
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
    def location(self) -> str:
        """Root of its files."""
        return str(self._asked(self.handle.location))

    @property
    def format_version(self) -> int:
        """1, 2 or 3."""
        return self._fact("format", lambda: int(self._asked(self.handle.operations().current).formatVersion()))

    @property
    def properties(self) -> dict[str, str]:
        """Table properties."""
        return dict(self.java.plain(self._asked(self.handle.properties)))

    @property
    def writing(self) -> Mapping[str, str]:
        """Table properties as of the last `refresh`: good for those that say how files are written."""
        return self._fact("writing", lambda: self.properties)

    def setting(self, key: str) -> str | None:
        """One table property; cheaper than all."""
        found = self._asked(self.handle.properties).get(key)
        return None if found is None else str(found)

    @property
    def storage_properties(self) -> dict[str, str]:
        """What the table's FileIO was configured with, credentials included: never log them."""
        return dict(self.java.plain(self.handle.io().properties()))

    @property
    def schema_json(self) -> str:
        """Current schema in Iceberg's JSON."""
        return str(self.java.iceberg.SchemaParser.toJson(self._asked(self.handle.schema)))

    @property
    def schema(self) -> TableSchema:
        """Schema as of the last `refresh`. A commit of files that were written with another one is refused."""
        return self._fact("schema", lambda: TableSchema.parse(self.schema_json))

    @property
    def spec_json(self) -> dict[str, Any]:
        """Partition spec in Iceberg's JSON, as of the last `refresh`."""
        return self._fact(
            "spec",
            lambda: dict(json.loads(self.java.iceberg.PartitionSpecParser.toJson(self._asked(self.handle.spec)))),
        )

    @property
    def snapshot_id(self) -> int | None:
        """Head of the branch; None while it has no snapshot."""
        head = self._snapshot(self.branch)
        return None if head is None else int(head.snapshotId())

    def has_snapshot(self, snapshot_id: int) -> bool:
        """Whether this snapshot was committed and is still kept."""
        return self._snapshot(snapshot_id) is not None

    def history(self, start: int | None = None) -> Iterator[Snapshot]:
        """Snapshots of the branch, newest first; with an id, that snapshot and those that it was made on."""
        head = self._snapshot(self.branch if start is None else start)
        while head is not None:
            parent = head.parentId()
            made_on = None if parent is None else int(parent)
            yield Snapshot(int(head.snapshotId()), str(head.operation()), self.java.plain(head.summary()), made_on)
            head = None if parent is None else self._snapshot(int(parent))

    def head_of(self, name: str) -> Snapshot | None:
        """Newest snapshot of a branch; None if there is no such branch."""
        return next(Table(self.java, self.handle, self.identifier, name).history(), None)

    def create_branch(self, name: str) -> None:
        """Start a branch at the head of this one; nothing if it is there already.

        Raises:
            JavaError: This branch has no snapshot yet, or the catalog does not answer.
        """
        with translated(f"Cannot create branch {name} of table {self}"):
            if self.handle.snapshot(name) is None:
                self.handle.manageSnapshots().createBranch(name, self.snapshot_id).commit()

    def fast_forward(self, name: str) -> None:
        """Let this branch show what another one shows.

        Raises:
            JavaError: This branch has snapshots that the other one does not have.
        """
        with translated(f"Cannot fast-forward branch {self.branch} of table {self} to {name}"):
            self.handle.manageSnapshots().fastForwardBranch(self.branch, name).commit()

    def drop_branch(self, name: str) -> None:
        """Forget a branch; its snapshots stay until they expire."""
        with translated(f"Cannot drop branch {name} of table {self}"):
            self.handle.manageSnapshots().removeBranch(name).commit()

    def scan(self, snapshot_id: int, columns: Sequence[str] = ()) -> list[DataFile]:
        """All data files of the head with their delete files.

        Args:
            snapshot_id: The snapshot that the head must be.
            columns: Columns whose bounds are wanted, by the names that they have now.

        Raises:
            TransientError: The head is another snapshot by now.
        """
        iceberg = self.java.iceberg
        with translated(f"Cannot plan table {self}"):
            # Not useSnapshot(): it would plan with the columns of that time, which may have had other names.
            scan = self.handle.newScan()
            if self.branch != MAIN:
                scan = scan.useRef(self.branch)
            if int(scan.snapshot().snapshotId()) != snapshot_id:
                raise TransientError(f"Table {self} has moved on from snapshot {snapshot_id}")
            if columns:
                scan = scan.includeColumnStats(self.java.texts(columns))
            tasks = scan.planFiles()
            found = iceberg.relocated.com.google.common.collect.Lists.newArrayList(tasks.iterator())
            tasks.close()
            # The REST protocol's answer to a scan is the one form in which Iceberg writes a whole plan as one text:
            # one call through the gateway instead of three a file.
            responses = iceberg.rest.responses
            response = responses.FetchPlanningResultResponse.builder()
            response = response.withPlanStatus(iceberg.rest.PlanStatus.COMPLETED).withFileScanTasks(found)
            response = response.withSpecsById(self.handle.specs()).build()
            return parse_plan(json.loads(responses.FetchPlanningResultResponseParser.toJson(response)))

    @property
    def sort_order_json(self) -> dict[str, Any]:
        """Sort order in Iceberg's JSON, as of the last `refresh`."""
        return self._fact(
            "order",
            lambda: dict(json.loads(self.java.iceberg.SortOrderParser.toJson(self._asked(self.handle.sortOrder)))),
        )

    def partition(self, values: Sequence[Any]) -> Any:
        """Partition values of the current spec, given as single-value JSON in its order, as the Java object.

        They pass as JSON because py4j would turn a small long into an Integer, which Iceberg's writers refuse.
        """
        kind = self.handle.spec().partitionType()
        ids = [field["field-id"] for field in self.spec_json["fields"]]
        text = json.dumps({str(number): value for number, value in zip(ids, values, strict=True)})
        return self.java.iceberg.SingleValueParser.fromJson(kind, text)

    def data_location(self, name: str, partition: Any = None) -> str:
        """Where a new file of that name belongs."""
        provider = self._fact("locations", self.handle.locationProvider)
        if partition is None:
            return str(provider.newDataLocation(name))
        return str(provider.newDataLocation(self.handle.spec(), partition, name))

    def data_file(self, description: Mapping[str, Any]) -> DataFile:
        """A data file that was just written, from Iceberg's JSON of it.

        Args:
            description: All of the JSON but the partition spec, which is the current one, and the content.
        """
        value = {"spec-id": int(self.spec_json["spec-id"]), "content": "data", **description}
        with translated(f"Iceberg refuses a new file of table {self}"):
            (parsed,) = self.java_files([value])
            return DataFile.parse(value, java=parsed)

    def java_files(self, values: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Data files and delete files of any spec of the table as Java objects, from Iceberg's JSON of them."""
        specs = self._fact("specs", self.handle.specs)
        parse = self.java.iceberg.ContentFileParser.fromJson
        return [parse(self.java.node(json.dumps(value)), specs) for value in values]

    def describe(self, java_file: Any) -> DataFile:
        """A Java `DataFile` of the current spec, for instance one that Spark staged."""
        text = self.java.iceberg.ContentFileParser.toJson(java_file, self._spec(int(java_file.specId())))
        return DataFile.parse(json.loads(text), java=java_file)

    def commit(self, change: Change, expected: int | None, sending: Callable[[], None] = lambda: None) -> int:
        """Commit a change as one snapshot and one metadata version, or not at all.

        Args:
            change: What to commit.
            expected: The head that the change was planned on; None for a branch without snapshots.
            sending: Called when all is prepared and the catalog's pointer is about to be swapped.

        Returns:
            The new snapshot's id.

        Raises:
            CommitFailure: Nothing, or nothing certain, is known of the outcome; see its attributes.
        """
        return commit(self, change, expected, sending)

    def _fact(self, name: str, read: Callable[[], _T]) -> _T:
        """Something that only a change of the table's metadata by others can change: asked for once a `refresh`."""
        if name not in self._facts:
            self._facts[name] = read()
        found: _T = self._facts[name]
        return found

    def _spec(self, number: int) -> Any:
        if number not in self._specs:
            self._specs[number] = self.handle.specs().get(number)
        return self._specs[number]
