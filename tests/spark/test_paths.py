"""A load and a resume, and every function of applier that runs on the way, compared with the pages that list them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from applier.commands.follower import Follower
from applier.commands.load.command import load
from applier.sink.control.rows import TableRequest, request_rows
from applier.sink.control.tables import REQUESTS
from tests.call_trace import Trace, traced
from tests.paths import LOAD, RESUME, calls, points
from tests.spark.world import Make, World
from tests.unit.decode.dump import dumpling

if TYPE_CHECKING:
    from applier.sink.control.control import Control

pytestmark = pytest.mark.spark


def _here(parts: Sequence[object], _: int) -> SimpleNamespace:
    """Run tasks in this process, where their calls are seen, and not in those of Spark."""
    return SimpleNamespace(map=lambda work: SimpleNamespace(collect=lambda: [work(part) for part in parts]))


@pytest.fixture
def world(make: Make) -> World:
    """A feed of a table with a row, up to a watermark."""
    found = make()
    found.create("a")
    found.put("a", 1)
    found.resolve()
    return found


def export(folder: Path, tso: int) -> str:
    """An export of that table, with one row."""
    folder.mkdir()
    declared = "CREATE TABLE `a` (`id` bigint NOT NULL, `v` varchar(9), PRIMARY KEY (`id`));\n"
    (folder / "metadata").write_text(dumpling.METADATA.replace("470606910897520641", str(tso)))
    (folder / "shop.a-schema.sql").write_text(declared)
    (folder / "shop.a.000000000.csv").write_text('"id","v"\n1,"one"\n')
    return str(folder)


def _hold(trace: Trace, name: str) -> None:
    trace.hold_to(calls(name))
    # Each point of the page comes after the one in the row above.
    reached = iter(trace.points)
    assert [point for point in points(name) if point not in reached] == []


def test_a_load_runs_through_the_listed_calls(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first load of a changefeed, of a table whose rows are all in the export."""
    address = export(tmp_path / "export", world.ts)
    monkeypatch.setattr(world.spark.sparkContext, "parallelize", _here)
    with traced() as trace:
        load(world.config, address, (), lambda line: None)
    assert world.rows("a") == {1: "one"}
    _hold(trace, LOAD)


def test_a_resume_runs_through_the_listed_calls(world: World) -> None:
    """A table that was parked by hand, and misses one row."""
    world.run()
    world.obey(f"applier park -c {world.path} --tables shop.a --why 'a look'")
    world.put("a", 2)
    world.resolve()
    world.run()
    request = TableRequest("again", "resume", ("shop.a",), "", "a test")
    with world.applier() as pipeline:
        follower = Follower(pipeline)
        cast("Control", pipeline.state.control).write(REQUESTS, request_rows(request))
        with traced() as trace:
            assert not follower.turn().resuming
    assert world.keys("a") == {1, 2}
    _hold(trace, RESUME)
