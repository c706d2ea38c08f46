"""What a command says by its exit code reaches the shell."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import structlog
from py4j.java_gateway import GatewayParameters, JavaGateway

from applier import cli
from applier.commands import before_spark
from applier.errors import CheckpointConflict, ConfigError, IncompatibleSchema, Unreachable
from tests.few import few

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


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    """A command decides how the process logs."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A configuration file of a changefeed that never ran."""
    file = tmp_path / "applier.toml"
    file.write_text(CONFIG.format(folder=tmp_path))
    (tmp_path / "topic").mkdir()
    (tmp_path / "topic/0.jsonl").touch()
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
    monkeypatch.setattr(cli, "loaded", raising(error))
    monkeypatch.setattr(sys, "argv", ["applier", "status", "-c", "applier.toml"])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert (ended.value.code, capsys.readouterr().err) == (code, "Wrong.\n")


def test_a_held_changefeed_is_refused_before_spark_starts(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark takes a minute to start on a busy machine, to say the same."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise CheckpointConflict("Held.")

    announced: list[str] = []
    monkeypatch.setattr("applier.runtime.logs.announce", announced.append)
    monkeypatch.setattr(before_spark, "refuse", refuse)
    monkeypatch.setattr(sys, "argv", ["applier", "ddl", "skip", "1", "--why", "x", "-c", config])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert (ended.value.code, capsys.readouterr().err.splitlines()[-1]) == (3, "Held.")
    assert announced == []


@pytest.mark.parametrize(
    "arguments", [["plan"], ["backfill", "--from", "beginning", "--plan"], ["load", "--plan"]], ids=" ".join
)
def test_a_look_ends_at_once_where_nothing_listens(
    arguments: list[str], config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark would wait five minutes for a broker whose port is wrong."""
    asked: list[dict[str, object]] = []

    def refuse(_: object, **how: object) -> NoReturn:
        asked.append(how)
        raise Unreachable("Nothing listens.")

    monkeypatch.setattr(before_spark, "refuse", refuse)
    monkeypatch.setattr(sys, "argv", ["applier", *arguments, "-c", config])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert (ended.value.code, capsys.readouterr().err.splitlines()[-1]) == (3, "Nothing listens.")
    assert asked[0]["takes"] is False
    assert "waits" not in asked[0]


def test_an_interrupt_of_the_very_start_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Already while the commands are put together."""
    monkeypatch.setattr(cli, "get_command", raising(KeyboardInterrupt()))

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert (ended.value.code, capsys.readouterr().err) == (130, "Interrupted.\n")


def raising(error: BaseException) -> Callable[..., NoReturn]:
    """A function that fails."""

    def fail(*_: object) -> NoReturn:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (PermissionError(13, "Permission denied", "/x"), 3, "The system refuses: /x: Permission denied. Hint: "),
        (MemoryError(), 3, "The process has no memory left. Hint: "),
        (KeyboardInterrupt(), 130, "Interrupted."),
        (KeyError("value of a row"), 70, "applier failed unexpectedly, with KeyError at applier/cli.py:"),
    ],
)
def test_no_user_reads_a_traceback(
    error: BaseException,
    code: int,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the system refuses is no defect; that of a defect is in a file which only its user can read."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cli, "loaded", raising(error))
    monkeypatch.setattr(sys, "argv", ["applier", "status", "-c", "applier.toml"])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    said, files = capsys.readouterr().err, list(tmp_path.iterdir())
    assert (ended.value.code, said.count("\n")) == (code, 1)
    assert said.startswith(sentence)
    assert "Traceback" not in said
    assert "value of a row" not in said
    assert len(files) == (code == 70)
    for file in files:
        assert file.stat().st_mode & 0o777 == 0o600
        assert f"report it with {file}, which" in said
        assert "KeyError: 'value of a row'" in file.read_text(encoding="utf-8")


def test_a_java_process_that_is_gone_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python meets a port on which nothing listens any more."""

    def fail(*_: object) -> None:
        JavaGateway(gateway_parameters=GatewayParameters(port=1)).jvm.System.exit(0)

    monkeypatch.setattr(cli, "loaded", fail)
    monkeypatch.setattr(sys, "argv", ["applier", "status", "-c", "applier.toml"])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == 3
    assert (
        capsys.readouterr().err.splitlines()[-1].startswith("Spark's Java process, which applier had started, is gone.")
    )


def test_a_way_out_names_the_file_as_it_was_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command of a message can be pasted."""
    monkeypatch.setattr(cli, "loaded", raising(CheckpointConflict("No.", "run `applier run -c FILE --once`.")))
    monkeypatch.setattr(sys, "argv", ["applier", "status", "--config", "my files/a.toml"])

    with pytest.raises(SystemExit):
        cli.main()

    assert capsys.readouterr().err == "No. Hint: run `applier run -c 'my files/a.toml' --once`.\n"


@pytest.mark.parametrize("arguments", few(["status -c {0}", "ddl --help", "status --json -c {0}", "--help"], 2))
def test_an_output_that_cannot_be_written_is_no_verdict(arguments: str, config: str) -> None:
    """A reader that is gone ends the process as SIGPIPE does; a full disk is one sentence."""
    command = [sys.executable, "-m", "applier", *arguments.format(config).split()]
    reader, writer = os.pipe()
    os.close(reader)
    closed = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        filled = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert (closed.returncode, closed.stderr) == (141, "")
    assert (filled.returncode, filled.stderr) == (3, "Cannot write the output: No space left on device.\n")


@pytest.mark.parametrize("command", ["ddl list", "dead-letters list", "dead-letters list --json"])
def test_nothing_is_not_an_empty_list(
    command: str, config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the wrong folder a command says that the changefeed has never run, and ends as `status` does."""
    monkeypatch.setattr(sys, "argv", ["applier", *command.split(), "-c", config])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (1, "")
    assert said.err.startswith(
        "Changefeed shop has never run: there is no checkpoint of it in catalog lake, whose file"
    )


def test_the_process_ends_with_it(config: str) -> None:
    """Also as `python -m applier`."""
    command = [sys.executable, "-m", "applier", "status", "-c", config]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"})

    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "stale · there is no table yet")
