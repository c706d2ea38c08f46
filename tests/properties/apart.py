"""What runs left out in, which tables may not be shown as whole out."""

from __future__ import annotations

from dataclasses import dataclass, field

from applier.pipeline.step import Pipeline
from tests.lab import Lab
from tests.upstream import Database, Name

LEFT_OUT = {"tables": {"include": ["*.*", "!mart.apart*"]}}
"""The configuration of a run that leaves some tables out."""


def is_apart(name: Name) -> bool:
    """Whether runs may leave a table out."""
    return name.database == "mart" and name.table.startswith("apart")


@dataclass(slots=True)
class Witness:
    """Sees which tables there were while a run left them out.

    Args:
        database: The upstream.

    Attributes:
        reached: Resolved ts of the newest checkpoint that it saw.
        missed: Ids of tables that lack what happened meanwhile, or their beginning.
    """

    database: Database
    reached: int = 0
    missed: set[int] = field(default_factory=set)

    def see(self, resolved_ts: int, *, is_left_out: bool) -> None:
        """Take note of a checkpoint, and of whether the run that wrote it left tables out."""
        if is_left_out and resolved_ts > self.reached:
            # A DDL at the resolved ts itself may follow it, and find another run.
            between = [item.ts for item in self.database.log if self.reached < item.ts < resolved_ts]
            for ts in [self.reached, *between]:
                tables = self.database.at(ts).items()
                self.missed |= {schema.id for name, (schema, _) in tables if is_apart(name)}
        self.reached = max(self.reached, resolved_ts)

    def problems(self, lab: Lab, pipeline: Pipeline) -> list[str]:
        """Tables that are shown as whole and are not, and the other way round; [] if all is well."""
        found = []
        for name, (schema, _) in sorted(self.database.at(pipeline.state.resolved_ts).items()):
            is_live = lab.is_live(pipeline, name)
            if is_live and schema.id in self.missed:
                found.append(f"{name} is live, but a run left it out")
            if not is_live and not is_apart(name):
                found.append(f"{name} is not live")
        return found
