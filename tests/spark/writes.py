"""Applies changes that are in this process to one table, as the pipeline does for each batch of a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from applier.changefeed.change_batch import ChangeBatch, Changes
from applier.sink.commit.stamp import Stamp
from applier.sink.write.table_writer import CommitWork, TableWriter


def apply(
    writer: TableWriter,
    batch: Changes,
    stamp: Stamp,
    *,
    exact: bool,
    is_complete: bool = False,
    lacking: Mapping[str, str] | None = None,
) -> CommitWork:
    """Commit changes; arguments as of `TableWriter.plan` and `CommitWork`."""
    key = batch.deletes.column_names if isinstance(batch, ChangeBatch) else None
    work = CommitWork(is_complete=is_complete, lacking=lacking or {})
    for attempt in writer.attempts(work, stamp):
        with attempt:
            plan = writer.plan(key, exact=exact, work=work)
            if not writer.take(work, plan.run(batch)):
                writer.take(work, replace(plan, exact=False).run(batch))
    return work
