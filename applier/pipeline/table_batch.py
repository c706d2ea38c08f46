"""Rows of one table that one commit takes, and what their step read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow.compute as pc

from applier.changefeed.message import TopicPartition
from applier.changefeed.table import TableName, TableVersion
from applier.changefeed.window import OffsetRange
from applier.pipeline.scan.task_result import Part


class ReadExtent(NamedTuple):
    """What a step in offset order reads, for the stamps of its commits.

    Attributes:
        window: The offsets.
        topic_ids: Ids of their topics, where the source can tell.
    """

    window: Mapping[TopicPartition, OffsetRange]
    topic_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one table that one commit takes.

    Attributes:
        name: Upstream name.
        parts: Reduced rows from all tasks.
        upto: Resolved ts that the commit is stamped with: all rows at or below it are in the table afterwards.
        before_ddl: A DDL follows in the same step. After a crash it may have been done already: a DROP, for instance.
        extent: In a feed in offset order what was read, all of whose rows at or below `upto` the table has afterwards.
    """

    name: TableName
    parts: Sequence[Part]
    upto: int
    before_ddl: bool = False
    extent: ReadExtent | None = None

    @property
    def newest(self) -> TableVersion:
        """The newest version that its rows are written in; one that has only the key if there are deletes alone."""
        return max((part.version for part in self.parts), key=lambda version: (not version.keys_only, version.version))

    @property
    def newest_ts(self) -> int:
        """Commit ts of its newest row."""
        return max((pc.max(part.rows["m.ts"]).as_py() for part in self.parts if part.rows), default=0)


def segments_below(due: Mapping[tuple[TableName, int], object], name: TableName, upto: int) -> list[int]:
    """Segments of a table that are due before a DDL: one at the most, as earlier DDL took theirs."""
    return sorted(number for owner, number in due if owner == name and number <= upto)
