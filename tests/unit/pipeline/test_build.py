"""What is said where a pipeline begins and where it ends."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest import mock

import pytest
from pyspark import SparkContext
from structlog.testing import capture_logs

from applier.commands.plan.read_only_pipeline import _readable
from applier.errors import ApplierError, CheckpointConflict, OutsideRefused, TerminalError
from applier.pipeline import build
from applier.pipeline.build import _announce_new_catalog, _release, assembled, taken
from applier.runtime.jvm import spark_session
from applier.runtime.stop_requests import STOPPING, StopRequested, leaving, stop_signals
from tests.unit.commands.check.world import World

if TYPE_CHECKING:
    from applier.pipeline.state import State


class Held:
    """A state whose changefeed cannot be released."""

    def __init__(self, error: ApplierError) -> None:
        self.control, self._error = self, error

    def release(self) -> None:
        """Fail."""
        raise self._error


def test_a_process_that_is_done_ends_well_although_storage_takes_nothing() -> None:
    """All that it had to write is there; the next process finds out by itself that this one is gone."""
    with capture_logs() as said:
        _release(cast("State", Held(OutsideRefused("Cannot write x: Read-only file system."))))

    assert [(line["event"], line["error"]) for line in said] == [
        ("changefeed not released", "Cannot write x: Read-only file system.")
    ]
    with pytest.raises(CheckpointConflict):
        _release(cast("State", Held(CheckpointConflict("It was taken."))))


def test_a_new_catalog_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration that was moved begins a second lake; the log shows where."""
    monkeypatch.chdir(tmp_path)
    world = World(tmp_path)
    world.raw["catalog"]["uri"] = "jdbc:sqlite:./lake/catalog.db"

    with capture_logs() as said:
        _announce_new_catalog(world.config)
        (tmp_path / "lake").mkdir()
        (tmp_path / "lake/catalog.db").touch()
        _announce_new_catalog(world.config)

    assert [line["file"] for line in said] == [f"{tmp_path}/lake/catalog.db"]
    assert [line["log_level"] for line in said] == ["info"]
    assert said[0]["reason"] == (
        "This lake has no record of changefeed shop: no tables and no checkpoint. "
        f"It begins anew at {tmp_path}/lake/catalog.db, in {tmp_path}/tables."
    )
    assert "hint" not in said[0]


def test_a_catalog_is_not_made_anew_over_the_files_of_a_lake(tmp_path: Path) -> None:
    """Its file was lost or lies elsewhere: nothing is written, and the way out works."""
    world = World(tmp_path)
    (tmp_path / "tables/applier_shop/checkpoints").mkdir(parents=True)

    with capture_logs() as said, pytest.raises(TerminalError) as refused:
        _announce_new_catalog(world.config)
    world.raw["catalog"]["warehouse"] = f"{tmp_path}/other"
    assert _announce_new_catalog(world.config)

    assert said == []
    assert refused.value.what == (
        f"The catalog at {tmp_path}/catalog.db has no tables, but {tmp_path}/tables/applier_shop holds files of "
        "changefeed shop: their catalog is another one, or it is lost."
    )
    assert refused.value.hint.endswith("to begin anew, set catalog.warehouse to a folder without such files.")


def test_a_first_start_is_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog and a warehouse without anything contradict no first start."""
    world, catalog = World(tmp_path), mock.Mock(**{"load.return_value": None, "namespaces.return_value": []})
    world.raw["catalog"]["uri"] = "jdbc:postgresql://db/lake"
    monkeypatch.setattr(build, "look_first", mock.Mock())
    got_as_far = mock.Mock(side_effect=CheckpointConflict("It got as far."))
    monkeypatch.setattr("applier.pipeline.build.Control.open", got_as_far)

    with capture_logs() as said, stop_signals(60), pytest.raises(CheckpointConflict):
        taken(world.config, catalog, mock.Mock(), cast("Any", None), None, take_over=False)

    assert [(line["event"], line["log_level"]) for line in said] == [("changefeed is new", "info")]


@pytest.mark.parametrize(("spaces", "is_refused"), [([], True), ([("other",)], False)])
def test_a_catalog_in_a_database_is_held_against_its_warehouse_too(
    spaces: list[tuple[str, ...]], is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changefeed that was forgotten leaves files, and its catalog has namespaces: it may begin anew."""
    world, catalog = World(tmp_path), mock.Mock(**{"load.return_value": None, "namespaces.return_value": spaces})
    world.raw["catalog"]["uri"] = "jdbc:postgresql://me:secret@db/lake?password=secret"
    (tmp_path / "tables/applier_shop/checkpoints").mkdir(parents=True)
    monkeypatch.setattr(build, "look_first", mock.Mock())
    got_as_far = mock.Mock(side_effect=CheckpointConflict("It got as far."))
    monkeypatch.setattr("applier.pipeline.build.Control.open", got_as_far)

    with capture_logs() as said, stop_signals(60), pytest.raises(TerminalError) as refused:
        taken(world.config, catalog, mock.Mock(), cast("Any", None), None, take_over=False)

    assert refused.value.what.startswith("The catalog at jdbc:postgresql://db/lake has") is is_refused
    assert [(line["event"], line["log_level"]) for line in said] == (
        [] if is_refused else [("changefeed is new", "warning")]
    )
    assert "secret" not in f"{refused.value} {said}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_start_is_left_at_once(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """By a stop request while Spark starts, also where Spark makes an error of its own of it."""

    def start(*_: object) -> None:
        try:
            signal.raise_signal(number)
        except StopRequested as error:
            raise RuntimeError("An error occurred while calling None.SparkSession") from error

    monkeypatch.setattr(spark_session, "_settings", lambda *_: {"spark.master": "local[1]"})
    monkeypatch.setattr(spark_session, "_set_environment", lambda *_, local: None)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(spark_session, "_start_jvm", start)
    monkeypatch.setattr("os._exit", lambda code: None)
    with stop_signals(60), pytest.raises(StopRequested), assembled(World(tmp_path).config):
        pytest.fail("it began")

    assert capfd.readouterr().err.endswith("Stopped while waiting; nothing was left half done.\n")


def test_a_stop_that_leaves_work_undone_says_so_and_fails(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`load && run` would begin the changefeed without the rows that were to be loaded."""
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    with pytest.raises(StopRequested), stop_signals(1, "Give it again."), leaving(), STOPPING.waiting():
        signal.raise_signal(signal.SIGINT)

    assert (codes, capfd.readouterr().err) == ([130], "Stopped. Give it again.\n")


def test_the_changefeed_is_not_taken_after_a_stop_request(tmp_path: Path) -> None:
    """The catalog is not even asked."""
    nothing = cast("Any", None)
    with stop_signals(60):
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(StopRequested):
            taken(World(tmp_path).config, nothing, nothing, nothing, nothing, take_over=False)


def test_looking_makes_no_catalog(tmp_path: Path) -> None:
    """Iceberg makes the file of a catalog as soon as it opens it, so that of an empty one is elsewhere."""
    section = World(tmp_path).config.catalog

    with _readable(section) as properties:
        assert not properties["uri"].startswith(f"jdbc:sqlite:{tmp_path}")
        assert properties["warehouse"] == section.properties["warehouse"]
    (tmp_path / "catalog.db").touch()
    with _readable(section) as properties:
        assert properties == section.properties
