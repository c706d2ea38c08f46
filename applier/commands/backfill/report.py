"""What a backfill did, or would do: nouns, and tables for a terminal."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console

from applier.runtime.escaping import Text, escaped, grid

STOPPED = "The backfill was stopped before the end: the same command goes on from here."
"""What an outcome says that is not done."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How a table in a branch differs from `main`, which readers see.

    Rows that changed have the same key and other values. The keys are those of some rows: + for new ones, - for those
    that go, ~ for those that change.
    """

    table: str
    rows_main: int
    rows_branch: int
    only_main: int
    only_branch: int
    changed: int
    keys: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether both hold the same rows."""
        return not (self.only_main or self.only_branch or self.changed)


@dataclass(slots=True)
class Outcome:
    """What a backfill did, or would do.

    Attributes:
        sentences: What happened, in order.
        spans: Per partition its name, its first offset, the one after its last, and how many of them are covered.
        aims: Of each table that would be written its upstream name, its Iceberg name, main or the branch, and the
            resolved ts that its stamp covers; "" where it has no stamp, or the feed carries no watermark.
        differences: Tables of a branch against those that readers see.
        is_done: False if it was stopped before the end.
        left: How many dead letters it could not make up for.
    """

    sentences: list[str] = field(default_factory=list)
    spans: list[tuple[str, int, int, int]] = field(default_factory=list)
    aims: list[tuple[str, str, str, str]] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    is_done: bool = True
    left: int = 0


def render(outcome: Outcome, console: Console) -> None:
    """Print an outcome."""
    if outcome.spans:
        console.print(grid("offsets", ("partition", "from", "to", "covered"), outcome.spans))
    if outcome.aims:
        console.print(grid("tables", ("upstream", "iceberg", "into", "covered up to"), outcome.aims))
    if outcome.differences:
        columns = ("table", "rows", "in the branch", "gone", "new", "changed", "keys")
        rows = [
            (d.table, d.rows_main, d.rows_branch, d.only_main, d.only_branch, d.changed, " ".join(d.keys))
            for d in outcome.differences
        ]
        console.print(grid("branch against main", columns, rows))
    for sentence in outcome.sentences:
        console.print(Text(escaped(sentence)), soft_wrap=True)
