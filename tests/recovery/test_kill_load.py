"""kill -9 of a real process that loads an export: given again, the same command goes on, and nothing counts twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests import recordings
from tests.recorded.test_load import exported
from tests.recovery.extent import every
from tests.recovery.process import Applier, Ended, once
from tests.recovery.snapshots import faults_of
from tests.replay import Replay, differences, replay

LINE = 20
"""The export is of this line of the recording's states."""

BEGINNING = [
    ("request-done:2", "copy-shown:2"),
    ("load-staged:2", "load-committed", "request-taken:2", "resume-taken-in"),
    ("load-committed:3", "load-committed:2", "commit-sent:2"),
    *((point,) for point in ("request-taken", "request-done", "load-staged", "load-committed:4")),
    *((point,) for point in ("load-begun", "resume-begun", "copy-shown", "resume-shown", "resume-done")),
]
"""Points one after the other, in a load at which the changefeed begins."""

BEGUN = ("load-begun", "resume-", "copy-")
"""How the points behind the first checkpoint begin: from there on, `run` brings the tables back as well."""

AGAIN = [
    ("load-committed:2",),
    ("load-committed:2", "load-staged", "request-done:2"),
    ("request-taken:2",),
    *((point,) for point in ("request-done", "load-staged", "load-committed")),
]
"""The same, in a load of tables that the changefeed has."""

COMING_BACK = [
    ("resume-taken-in",),
    ("resume-begun", "resume-taken-in", "resume-shown"),
    ("resume-done",),
    ("resume-range-read",),
]
"""Points in the run that applies what such tables miss."""


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("points", every(BEGINNING, 20), ids="-".join)
def test_killed_while_a_changefeed_begins(points: tuple[str, ...], tmp_path: Path) -> None:
    """Until it begins, `run` refuses to; from there on either command brings the tables. Then every table is equal."""
    found = _replay(tmp_path)
    for point in points:
        killed = Applier(found.raw, tmp_path, kill_at=point, command="load").wait()
        assert killed.code == -signal.SIGKILL, f"never came to {point}: {killed.everything}"
        if not point.startswith(BEGUN):
            refused = once(found.raw, tmp_path)
            assert refused.code == 3
            assert "Run `applier load -c " in refused.said
    if len(points) > 1 or not point.startswith(BEGUN):
        _well(Applier(found.raw, tmp_path, command="load").wait())
    _well(once(found.raw, tmp_path))
    _is_equal(found)
    # A table that was shown before the kill is filled once more, in place of what it showed.
    assert point.startswith(("copy-", "resume-shown")) or faults_of(found) == []


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("points", "coming"), list(zip(every(AGAIN, 20), every(COMING_BACK, 20), strict=False)))
def test_killed_while_living_tables_are_loaded_again(
    points: tuple[str, ...], coming: tuple[str, ...], tmp_path: Path
) -> None:
    """Readers see each table as it was, or as it is in the end; its identity and its properties stay."""
    found = _replay(tmp_path, dump=False)
    _well(once(found.raw, tmp_path))
    before = {name: found.catalog.load_table(found.identifier(name)).metadata.table_uuid for name in found.tables()}
    options = ("--from", str(tmp_path / f"dump-{LINE}-csv"))
    for point in points:
        killed = Applier(found.raw, tmp_path, *options, kill_at=point, command="load").wait()
        assert killed.code == -signal.SIGKILL, f"never came to {point}: {killed.everything}"
    _is_equal(found)
    ended = Applier(found.raw, tmp_path, *options, command="load").wait()
    _well(ended)
    assert "Catching up: " in ended.said
    _is_equal(found)
    for point in coming:
        killed = once(found.raw, tmp_path, kill_at=point)
        assert killed.code == -signal.SIGKILL, f"never came to {point}: {killed.everything}"
    _well(once(found.raw, tmp_path))
    _is_equal(found)
    after = {name: found.catalog.load_table(found.identifier(name)).metadata.table_uuid for name in found.tables()}
    assert before == after


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_loaded_beside_a_run(tmp_path: Path) -> None:
    """A run that goes on takes the tables over; a second load meanwhile does no harm."""
    found = _replay(tmp_path, dump=False)
    run = Applier(found.raw, tmp_path)
    run.until("step")
    options = ("--from", str(tmp_path / f"dump-{LINE}-csv"))
    loads = [Applier(found.raw, tmp_path, *options, command="load") for _ in range(2)]
    ended = [load.wait() for load in loads]
    assert 0 in [item.code for item in ended], [item.everything for item in ended]
    for item in ended:
        assert item.code == 0 or "Another process loads table" in item.said, item.everything
    _well(run.end())
    _is_equal(found)


def _replay(folder: Path, *, dump: bool = True) -> Replay:
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": f"{folder}/tables"}
    found = replay("txns", "canal-json-ext", lake, folder, "canal-json")
    export = exported("txns", LINE, "csv", folder)
    if dump:
        found.raw["upstream"] = {"dump": str(export)}
    return found


def _well(ended: Ended) -> None:
    assert ended.code == 0, ended.everything[-3000:]


def _is_equal(found: Replay) -> None:
    assert differences(found, recordings.expected("txns")[-1]) == []
