"""What all commands have in common: the configuration, help texts with examples, versions, completion."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.main import get_command
from typer.testing import CliRunner

from applier import cli
from applier.runtime.versions import commit

GOLDEN = Path(__file__).parent / "golden_help"


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command with its names."""
    root: Any = group or get_command(cli.app)
    for name, item in root.commands.items():
        if hasattr(item, "commands"):
            yield from commands(item, (*path, name))
        else:
            yield (*path, name), item


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code, and what is printed to either stream."""
    monkeypatch.setattr(sys, "argv", ["applier", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    structlog.reset_defaults()  # A command decides how the process logs.
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out + said.err


@pytest.mark.parametrize(("names", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in commands()])
def test_every_help_ends_with_examples_that_can_be_pasted(names: tuple[str, ...], command: Any) -> None:
    """Their options exist, and none that is needed is missing."""
    lines = [line.strip() for line in command.epilog.splitlines()[2:]]

    assert lines
    for line in lines:
        program, *rest = shlex.split(line)
        assert (program, tuple(rest[: len(names)])) == ("applier", names)
        assert len(line) <= 118
        command.make_context("applier", rest[len(names) :])


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("arguments", [["--help"], ["init", "--help"]], ids=["applier", "init"])
def test_help_looks_as_recorded(
    arguments: list[str], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read the difference aloud before you record it anew: `RECORD_HELP=1 pytest` writes the files."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERMINAL_WIDTH", str(width))
    file = GOLDEN / f"{'-'.join(['applier', *arguments[:-1]])}-{width}.txt"

    assert get_command(cli.app).main(arguments, "applier", standalone_mode=False) == 0
    shown = capsys.readouterr().out
    if os.environ.get("RECORD_HELP"):
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")
    # Commands to paste stay whole.
    assert all(len(line) <= width for line in shown.partition("Examples:")[0].splitlines())


def test_the_versions_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of applier, and of all that decides how it behaves."""
    code, shown = run(["--version"], monkeypatch, capsys)

    python = ".".join(map(str, sys.version_info[:3]))
    assert code == 0
    assert shown.startswith(f"applier {version('applier')} (commit {commit()}, Python {python}, Spark 4.")
    assert ", Iceberg 1." in shown


def test_the_configuration_may_be_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option comes before it, and a file in the folder is not guessed."""
    monkeypatch.chdir(tmp_path)
    Path("applier.toml").write_text("")
    monkeypatch.delenv("APPLIER_CONFIG", raising=False)
    assert run(["status"], monkeypatch, capsys) == (
        2,
        "Missing option '--config' / '-c' (env var: 'APPLIER_CONFIG').\n",
    )

    monkeypatch.setenv("APPLIER_CONFIG", "none.toml")
    assert run(["status"], monkeypatch, capsys) == (
        2,
        "Cannot read the configuration none.toml: No such file or directory. Write one with `applier init FILE`.\n",
    )
    assert "Cannot read the configuration other.toml" in run(["status", "-c", "other.toml"], monkeypatch, capsys)[1]


def test_an_unknown_log_level_names_the_known_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything starts."""
    code, shown = run(["run", "-c", "x.toml", "--log-level", "loud"], monkeypatch, capsys)

    assert code == 2
    assert shown.endswith("'loud' is not one of 'debug', 'info', 'warning', 'error'.\n")


def test_a_subject_needs_a_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without one the option could have no effect."""
    file = tmp_path / "applier.toml"
    file.write_text(
        '[changefeed]\nname = "a"\nprotocol = "simple"\n[source]\narchive = "x"\n[catalog]\nname = "l"\ntype = "hive"\n'
    )

    assert run(["check", "-c", str(file), "--subject", "x"], monkeypatch, capsys) == (
        2,
        (
            f"--subject needs a schema registry, and {file} has no section [registry]. "
            "Leave --subject out, or add the section.\n"
        ),
    )


def test_commands_are_completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As the shell asks for it."""
    monkeypatch.setenv("_APPLIER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "applier dead")
    monkeypatch.setenv("COMP_CWORD", "1")

    with pytest.raises(SystemExit) as ended:
        get_command(cli.app).main([], "applier", standalone_mode=False)

    assert (ended.value.code, capsys.readouterr().out) == (0, "dead-letters\n")


@pytest.mark.parametrize("command", ["backfill", "status", "load", "ddl skip", "park"])
def test_each_option_is_explained_by_itself(command: str) -> None:
    """Nobody reads a list of options from its top: none leans on the line above, and rules have their signs."""
    shown = CliRunner().invoke(cli.app, [*command.split(), "--help"], terminal_width=200).output

    assert "The same" not in shown
    assert "--tables" not in shown or "shop.b*" in shown
    assert "--log-level" not in shown or "<debug|info|warning|error>" in shown
