"""The progress of a job, kept as a part of the changefeed's own checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from applier.changefeed.checkpoint import Checkpoint, Resuming
from applier.changefeed.table import TableVersion
from applier.pipeline.state import State
from applier.sink.control.control import DeadLetter, SchemaDecision


@dataclass(frozen=True, slots=True)
class JobLedger:
    """Control tables of a job.

    What it decides about DDL goes to the audit of the changefeed, marked with the job: after a crash it distinguishes
    what this attempt has done from what the changefeed or an earlier attempt did.

    Args:
        main: State of the changefeed.
        job: Name of the job.
        hold: See `Resuming`.
    """

    main: State
    job: str
    hold: str = ""

    def confirm(self) -> None:
        """See `Control.confirm`."""
        self.main.control.confirm()

    def load_versions(self) -> list[TableVersion]:
        """All table versions."""
        return list(self.main.versions.values())

    def save_versions(self, versions: Iterable[TableVersion]) -> None:
        """See `Control.save_versions`."""
        self.main.control.save_versions(versions)

    def decisions(self, since: int = 0) -> list[SchemaDecision]:
        """What this job decided at or above a commit ts, what its tables have of before, and what a user lets pass."""
        resuming = self.main.checkpoint.resuming
        had = resuming.progress.ddl if resuming is not None and resuming.job == self.job else ()
        known = {(item.commit_ts, item.sql) for item in had}
        return [
            item
            for item in self.main.control.decisions(since)
            if item.decision == "to skip" or item.job == self.job or (item.commit_ts, item.sql) in known
        ]

    def record_schema_changes(self, decisions: Sequence[SchemaDecision]) -> None:
        """See `Control.record_schema_changes`; rows that come late of these DDL may come once the tables are back."""
        own = [replace(item, job=self.job) for item in decisions]
        self.main.control.record_schema_changes(own)
        self.main.ddl.note(own)

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Keep messages that the changefeed did not meet as bad ones: their tables were left out."""
        known = {(item.topic, item.partition, item.offset) for item in self.letters(every=True)}
        self.main.control.bury([item for item in letters if (item.topic, item.partition, item.offset) not in known])

    def letters(self, *, every: bool = False) -> list[DeadLetter]:
        """See `Control.letters`."""
        return self.main.control.letters(every=every)

    def append_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write the changefeed's checkpoint again, with this progress in it."""
        self.main.write(lambda last: replace(last, resuming=Resuming(self.job, checkpoint, self.hold)))

    def release(self) -> None:
        """Nothing: the changefeed is released as a whole."""
