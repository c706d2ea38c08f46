"""Parses the command line of `backfill`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from applier.changefeed.filter import rules_of
from applier.commands.backfill.bounds import Bound, parse
from applier.errors import ConfigError
from applier.sink.iceberg.snapshot import MAIN

REPAIR_BRANCH = "applier_repair"
"""Branch in which a repair is made ready, so that readers see it whole or not at all."""

_BRANCH = re.compile(r"[A-Za-z0-9_-]{1,60}")


@dataclass(frozen=True, slots=True)
class Request:
    """A backfill as it was asked for.

    Attributes:
        begin: Where the range begins.
        end: Where it ends.
        tables: Filter rules that choose tables; () for all.
        branch: Branch to build the tables in; "" for the tables that readers see.
        publish: Show the branch once it is built and compared.
        repair: Apply what is covered again.
        dead_letters: Apply again what the dead letters left out; the range is theirs.
    """

    begin: Bound
    end: Bound
    tables: tuple[str, ...] = ()
    branch: str = ""
    publish: bool = False
    repair: bool = False
    dead_letters: bool = False

    @property
    def builds(self) -> bool:
        """Whether tables are built beside what readers see."""
        return bool(self.branch) or self.repair or self.dead_letters


def asked(
    begin: str | None,
    end: str | None,
    *,
    tables: str = "",
    branch: str = "",
    publish: bool = False,
    repair: bool = False,
    dead_letters: bool = False,
) -> Request:
    """The request that the options make, by their texts; raises ConfigError with every problem found."""
    problems = []
    if publish and not branch:
        problems.append("--publish shows a branch: name it with --branch.")
    if repair and branch:
        problems.append("--repair shows its result at once, --branch does not: give one of them.")
    if branch and (branch in (MAIN, REPAIR_BRANCH) or not _BRANCH.fullmatch(branch)):
        problems.append(f"--branch {branch!r}: give letters, digits, - and _, and neither main nor {REPAIR_BRANCH}.")
    if dead_letters and (begin or end or branch or repair):
        problems.append("--dead-letters finds its own range: leave out --from, --to, --branch and --repair.")
    if not begin and not dead_letters:
        problems.append("--from is missing: give offsets, a time, a resolved ts, or beginning.")
    bounds = []
    for text, option, edge in ((begin, "--from", "beginning"), (end, "--to", "end")):
        try:
            bounds.append(parse(text or edge, option, edge))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    repair = repair or dead_letters
    branch = branch or (REPAIR_BRANCH if repair else "")
    return Request(bounds[0], bounds[1], rules_of(tables), branch, publish or repair, repair, dead_letters)
