"""Places the files of an Iceberg table, and converts them between Java objects and Iceberg's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from applier.sink.format.files import DataFile, parse_plan
from applier.sink.format.types import Field
from applier.sink.iceberg.java import translated

if TYPE_CHECKING:
    from applier.sink.iceberg.table import Table


class TableFiles:
    """Places and describes the files of a table, by its specs as of the last `refresh`.

    Args:
        table: The table.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._spec_of: dict[int, Any] = {}

    @cached_property
    def _specs(self) -> Any:
        return self._table.handle.specs()

    @cached_property
    def _locations(self) -> Any:
        return self._table.handle.locationProvider()

    def partition(self, values: Sequence[Any]) -> Any:
        """Partition values of the current spec, given as single-value JSON in its order, as the Java object.

        They pass as JSON because py4j would turn a small long into an Integer, which Iceberg's writers refuse.
        """
        kind = self._table.handle.spec().partitionType()
        ids = [field["field-id"] for field in self._table.spec_json["fields"]]
        text = json.dumps({str(number): value for number, value in zip(ids, values, strict=True)})
        return self._table.java.iceberg.SingleValueParser.fromJson(kind, text)

    def location(self, name: str, partition: Any = None) -> str:
        """Where a new file of that name belongs."""
        if partition is None:
            return str(self._locations.newDataLocation(name))
        return str(self._locations.newDataLocation(self._table.handle.spec(), partition, name))

    def written(self, description: Mapping[str, Any]) -> DataFile:
        """Describe a data file that was just written, from Iceberg's JSON of it.

        Args:
            description: All of the JSON but the partition spec, which is the current one, and the content.
        """
        value = {"spec-id": int(self._table.spec_json["spec-id"]), "content": "data", **description}
        with translated(f"Iceberg refuses a new file of table {self._table}"):
            (parsed,) = self.to_java([value])
            return DataFile.parse(value, java=parsed)

    def staged(self, java_file: Any) -> DataFile:
        """Describe a Java `DataFile` of any spec of the table, such as one that Spark staged."""
        number = int(java_file.specId())
        if number not in self._spec_of:
            self._spec_of[number] = self._specs.get(number)
        text = self._table.java.iceberg.ContentFileParser.toJson(java_file, self._spec_of[number])
        return DataFile.parse(json.loads(text), java=java_file)

    def planned(self, scan: Any) -> list[DataFile]:
        """Plan a Java scan and describe its data files, each with its delete files.

        The REST protocol's answer to a scan is the one form in which Iceberg writes a whole plan as one text: one call
        through the gateway instead of three a file.
        """
        iceberg = self._table.java.iceberg
        tasks = scan.planFiles()
        found = iceberg.relocated.com.google.common.collect.Lists.newArrayList(tasks.iterator())
        tasks.close()
        responses = iceberg.rest.responses
        response = responses.FetchPlanningResultResponse.builder()
        response = response.withPlanStatus(iceberg.rest.PlanStatus.COMPLETED).withFileScanTasks(found)
        response = response.withSpecsById(self._table.handle.specs()).build()
        return parse_plan(json.loads(responses.FetchPlanningResultResponseParser.toJson(response)))

    def null_count(self, snapshot_id: int, field: Field) -> int | None:
        """NULLs in a column of a snapshot by the files' metrics, dead rows included; None if a file does not show."""
        java = self._table.java
        with translated(f"Cannot plan table {self._table}"):
            scan = self._table.handle.newScan().useSnapshot(snapshot_id).includeColumnStats(java.texts([field.name]))
            tasks = scan.planFiles()
            found = [java.plain(task.file().nullValueCounts() or {}) for task in java.items(tasks)]
            tasks.close()
        nulls = [{int(number): int(count) for number, count in counts.items()}.get(field.id) for counts in found]
        return None if None in nulls else sum(filter(None, nulls))

    def to_java(self, values: Iterable[Mapping[str, Any]]) -> list[Any]:
        """Data files and delete files of any spec of the table as Java objects, from Iceberg's JSON of them."""
        java = self._table.java
        parse = java.iceberg.ContentFileParser.fromJson
        return [parse(java.node(json.dumps(value)), self._specs) for value in values]
