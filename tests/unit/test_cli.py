"""What a command says by its exit code reaches the shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from applier import cli
from applier.errors import CheckpointConflict, ConfigError, IncompatibleSchema

CONFIG = """
[changefeed]
name = "shop"
protocol = "simple"
[source]
archive = "topic"
[catalog]
name = "lake"
type = "jdbc"
uri = "jdbc:sqlite:{folder}/catalog.db"
warehouse = "{folder}/tables"
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A configuration file of a changefeed that never ran."""
    file = tmp_path / "applier.toml"
    file.write_text(CONFIG.format(folder=tmp_path))
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["status"], 1),
        (["status", "--json"], 1),
        (["check"], 0),
        (["check", "--ddl", "ALTER TABLE shop.nothing DROP COLUMN x"], 2),
        (["status", "--max-lag", "soon"], 2),
        (["nothing"], 2),
    ],
)
def test_the_exit_code_of_a_command_is_that_of_the_process(
    arguments: list[str], code: int, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict that is not good ends with its code, as a probe or a script expects."""
    monkeypatch.setattr(sys, "argv", ["applier", *arguments, *([] if "nothing" in arguments else ["-c", config])])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert (ended.value.code or 0) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError(["Wrong."]), 2), (IncompatibleSchema("Wrong."), 1), (CheckpointConflict("Wrong."), 3)],
)
def test_an_error_is_one_sentence_and_its_code(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each kind of error has one."""

    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert (ended.value.code, capsys.readouterr().err) == (code, "Wrong.\n")


def test_the_process_ends_with_it(config: str) -> None:
    """Also as `python -m applier`."""
    command = [sys.executable, "-m", "applier", "status", "-c", config]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"})

    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "stale · there is no table yet")
