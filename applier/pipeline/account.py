"""Holds what becomes of each change of a window against what the state of its table says: a change without a fate is a
defect, and ends the step before it commits anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from applier.changefeed.fate import Fate, Fates
from applier.changefeed.filter import TableFilter
from applier.changefeed.table import TableName
from applier.pipeline.scan.window_scan import WindowScan
from applier.pipeline.state import State


def check(scan: WindowScan, parked: Collection[TableName], state: State) -> None:
    """Make sure that nothing of a window is passed over without a word.

    Args:
        scan: The window; its dead letters are kept, and tables with a bad message are parked.
        parked: Tables that were parked before it.
        state: What is known of the tables.

    Raises:
        AssertionError: Something is: a defect of applier.
    """
    found = scan.results
    read, total = found.measures["entries"], found.fates.total()
    if read != total or found.bad or found.waiting:
        msg = f"{read} changes were read, and {total} have a fate: {dict(found.counts)}"
        raise AssertionError(msg)
    admits = TableFilter(scan.job.include).admits
    for fate, name in found.fates:
        if fate is Fate.LEFT_OUT and name is not None and admits(name) and name not in parked:
            _must(name in state.parked, f"changes of table {name} are left out, and it is not parked")
        elif fate is Fate.SET_ASIDE:
            _must(bool(scan.bad), "a message is set aside, and no dead letter holds it")
        elif fate is Fate.DOUBTED:
            _must(name in found.late, f"changes of table {name} came late, and no table lacks them for that")
    for fate, _ in found.fates:
        _must(fate is not Fate.HELD or bool(found.held), "changes are to be read again, and no offset is held for them")


def _must(is_so: bool, what: str) -> None:  # noqa: FBT001 - an assertion
    if not is_so:
        raise AssertionError(what)


def settled(fates: Fates, written: Collection[TableName], parked: Collection[TableName]) -> Fates:
    """The fates behind a step: what a table did not take that was parked in it is left out."""
    found: Fates = Counter()
    for (fate, name), count in fates.items():
        is_parked = fate is Fate.APPLIED and name in parked and name not in written
        found[Fate.LEFT_OUT if is_parked else fate, name] += count
    return found
