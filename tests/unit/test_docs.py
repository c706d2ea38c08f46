"""What the documentation says, compared with the code, the tests and the recordings that it speaks of."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from click import ClickException
from pydantic import BaseModel
from typer.main import get_command

from applier import cli
from applier.changefeed.completeness import Wholeness
from applier.changefeed.table import Column, ColumnType
from applier.changefeed.types import TypeRules
from applier.config import settings as config
from applier.decode.decoder import WireForm
from applier.decode.values.convert import to_array
from applier.errors import ConfigError
from applier.runtime import logs
from applier.watch.report import LACKING, TableState
from tests import recordings

_ROOT = Path(__file__).parents[2]
_DOCUMENTS = sorted(
    [
        *_ROOT.glob("*.md"),
        *_ROOT.glob("docs/**/*.md"),
        _ROOT / "schemas/README.md",
        _ROOT / "deploy/README.md",
        *_ROOT.glob("examples/**/*.md"),
    ]
)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
_QUOTED = re.compile(r"Message `golden-(\w+)` partition (\d+), offset (\d+):\n\n```json\n(.*?)\n```", re.DOTALL)
_BLOCK = "```{}\n(.*?)\n```"

_BASE = {
    "changefeed": {"name": "shop", "protocol": "simple"},
    "source": {"archive": "topic"},
    "catalog": {"name": "lake", "type": "hadoop", "warehouse": "lake"},
}


def _blocks(path: Path, language: str) -> list[str]:
    return re.findall(_BLOCK.format(language), path.read_text(encoding="utf-8"), re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """The sections of a page, as GitHub names them in a link."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_links_lead_to_what_they_name() -> None:
    """Every link within the repository leads to a file, and one that is called like a test to a file with that test."""
    assert _misses(_broken_links) == []


def _misses(of: Callable[[Path], Iterator[str]], documents: Sequence[Path] = _DOCUMENTS) -> list[str]:
    """What is wrong with pages, each with the name of its page."""
    return [f"{document.relative_to(_ROOT)}: {miss}" for document in documents for miss in of(document)]


def _broken_links(document: Path) -> Iterator[str]:
    for text, target in _LINK.findall(document.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = document.parent / name if name else document
        if not path.exists():
            yield f"{target} does not exist"
            continue
        if anchor and path.suffix == ".md" and anchor not in _anchors(path):
            yield f"{target} has no such section"
        if re.fullmatch(r"`test_\w+`", text) and f"def {text[1:-1]}(" not in path.read_text(encoding="utf-8"):
            yield f"{target} has no {text}"


def test_code_that_is_named_exists() -> None:
    """A file that a page names by its folder is there, and so is a private name where it says a name is."""
    assert _misses(_unknown_code) == []


def _unknown_code(document: Path) -> Iterator[str]:
    for text in re.findall(r"`([^`\n]+)`", document.read_text(encoding="utf-8")):
        if re.fullmatch(r"(?:applier|bench|tests|deploy|schemas)/[\w/.-]+\.\w+", text) and not (_ROOT / text).exists():
            yield f"{text} does not exist"
        if re.fullmatch(r"_[A-Za-z]\w+", text) and text not in _source():
            yield f"no code has {text}"
        module = re.fullmatch(r"applier((?:\.[a-z_]+)*)\.([A-Z]\w+)", text)
        if module and f"class {module[2]}" not in _source():
            yield f"no code has {text}"


@cache
def _source() -> str:
    """All code of the product."""
    return "\n".join(file.read_text(encoding="utf-8") for file in _ROOT.glob("applier/**/*.py"))


def _prose(document: Path) -> str:
    """A document without generated parts, blocks, links and code: these have the words of something else."""
    text = document.read_text(encoding="utf-8")
    if "This page is generated" in text:
        return ""
    for quoted in (r"<!-- [a-z]+ -->.*?<!-- end of", r"```.*?```", r"`[^`\n]+`", r"\[[^\]\n]*\]\([^)\s]+\)"):
        text = re.sub(quoted, "", text, flags=re.DOTALL)
    return text


def test_prose_is_plain() -> None:
    """No page lets something tell what it shows, reports or determines, and none hides who does it."""
    assert _misses(_unplain, [path for path in _DOCUMENTS if "decisions" not in path.parts]) == []


def _unplain(document: Path) -> Iterator[str]:
    yield from re.findall(
        r".*\b(?:tells?|told|somebody|nobody|whoever|of ours|of before|of which|by now|(?:is|are) said|"
        r"nothing shows|indeed)\b.*",
        _prose(document),
        re.IGNORECASE,
    )


def test_every_failure_has_its_test() -> None:
    """Each row of the tables of failures, and each claim of the README, links to a test."""
    tables = (_ROOT / "docs/runbook.md").read_text(encoding="utf-8").split("| failure | what happens | test |")[1:]
    tables.append((_ROOT / "README.md").read_text(encoding="utf-8").partition("| claim |")[2])
    text = "\n".join(table.partition("\n\n")[0] for table in tables)
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]

    assert len(rows) > 100
    assert [row for row in rows if not re.search(r"\]\([^)]*tests/\S+\.py\)", row)] == []


def test_configurations_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block of TOML is a configuration, or part of one."""
    monkeypatch.setenv("KAFKA_LOGIN", "org.apache.kafka.common.security.scram.ScramLoginModule required;")
    assert _misses(_refused_configurations) == []


def _refused_configurations(document: Path) -> Iterator[str]:
    for block in _blocks(document, "toml"):
        try:
            config.parse({**_BASE, **tomllib.loads(block)})
        except (ConfigError, tomllib.TOMLDecodeError) as error:
            yield f"{error}\n{block}"


def test_every_key_is_documented() -> None:
    """The page has each key of each section."""
    page = (_ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    chapters = {match[1]: match[2] for match in re.finditer(r"## \[([\w.]+)\]\n(.*?)(?=\n## |\Z)", page, re.DOTALL)}
    for section, model in _sections(config.Config, ""):
        for key, field in model.model_fields.items():
            if _model(field.annotation) is None:
                assert f"`{key}`" in chapters[section] if section else key in chapters, f"{section}.{key}"


def _sections(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    yield path, model
    for key, field in model.model_fields.items():
        inner = _model(field.annotation)
        if inner is not None:
            yield from _sections(inner, f"{path}.{key}".lstrip("."))


def _model(annotation: Any) -> type[BaseModel] | None:
    options = [annotation, *get_args(annotation)]
    return next((option for option in options if isinstance(option, type) and issubclass(option, BaseModel)), None)


def test_quoted_messages_are_recorded_ones() -> None:
    """A message that is shown with its place has these very bytes there; … stands for what is left out."""
    assert _misses(_other_messages) == []


def _other_messages(document: Path) -> Iterator[str]:
    for scenario, partition, offset, shown in _QUOTED.findall(document.read_text(encoding="utf-8")):
        value = next(
            record["value"].decode()
            for record in recordings.records(scenario, "simple-json")
            if (record["partition"], record["offset"]) == (int(partition), int(offset))
        )
        pattern = ".*".join(re.escape(piece) for piece in shown.split("…"))

        if not re.fullmatch(pattern, value, re.DOTALL):
            yield f"{scenario}/{partition}:{offset} is {value}"


@cache
def _sentences() -> frozenset[str]:
    """Every text of the code, with … for what is filled in."""
    found = set()
    for file in _ROOT.glob("applier/**/*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.add("".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return frozenset(found)


def test_refusals_are_worded_as_the_code_words_them() -> None:
    """Each sentence of the limitations is one that the code prints."""
    lines = [line for block in _blocks(_ROOT / "docs/limitations.md", "") for line in block.splitlines()]

    assert [line for line in lines if line not in _sentences()] == []


def test_each_refusal_has_one_line_on_cause_and_way_out() -> None:
    """A page to look messages up in: what stands below them is a line, and no essay."""
    page = (_ROOT / "docs/limitations.md").read_text(encoding="utf-8")
    blocks = page.split("```")
    below = [text.strip("\n").split("\n\n")[0] for text in blocks[2::2]]

    assert len(below) > 50
    assert [text for text in below if not text or "\n" in text or text.startswith("#")] == []


def _known_commands() -> dict[str, list[Any]]:
    """Every command of the command line; a group has several."""
    known = getattr(get_command(cli.app), "commands")  # noqa: B009 - typer declares a command, and this one is a group
    return {name: [*getattr(item, "commands", {"": item}).values()] for name, item in known.items()}


def test_every_command_has_its_section() -> None:
    """The page and the table of README have the commands that exist, and no other; the page links its sections."""
    page = (_ROOT / "docs/commands.md").read_text(encoding="utf-8")
    table = (_ROOT / "README.md").read_text(encoding="utf-8").partition("## Commands")[2].partition("\n## ")[0]
    commands = _known_commands().keys()

    assert set(re.findall(r"^## `applier ([\w-]+)`$", page, re.MULTILINE)) == commands
    assert set(re.findall(r"^\| \[`applier [\w-]+`\]\(#applier-([\w-]+)\) \|", page, re.MULTILINE)) == commands
    assert set(re.findall(r"`applier ([\w-]+)`", table)) == commands


@pytest.mark.parametrize("name", _known_commands())
def test_a_section_has_what_its_command_takes(name: str) -> None:
    """A section shows a form, exit codes and one link, and each option of it is one of its command."""
    page = (_ROOT / "docs/commands.md").read_text(encoding="utf-8")
    section = page.partition(f"## `applier {name}`\n")[2].partition("\n## ")[0]
    options = {option for command in _known_commands()[name] for each in command.params for option in each.opts}
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ") and "---" not in line]

    assert re.search(rf"^```\napplier {name} ", section, re.MULTILINE)
    assert "**Exit codes:** " in section
    assert len(re.findall("^More: ", section, re.MULTILINE)) == len(_LINK.findall(section)) == 1
    assert set(re.findall(r"--[a-z-]+", " ".join(rows))) <= options


def test_the_table_of_states_has_those_of_the_code() -> None:
    """One table explains each state, and shows which of them lack rows; other pages link it."""
    page = (_ROOT / "docs/operations.md").read_text(encoding="utf-8").partition("## The states of a table")[2]
    rows = re.findall(r"^\| `([a-z ]+)` \|.*\| (yes|no)\b[^|]*\|$", page.partition("\n## ")[0], re.MULTILINE)

    assert sorted(state for state, _ in rows) == sorted({*get_args(TableState), *get_args(Wholeness)})
    assert set(LACKING) <= {state for state, is_in_cut in rows if is_in_cut == "no"}


def test_every_log_event_is_explained() -> None:
    """The page on output has the events that the code logs, with their fields."""
    page = (_ROOT / "docs/output.md").read_text(encoding="utf-8")
    for event, fields in _events():
        line = next((line for line in page.splitlines() if f"| `{event}` |" in line), "")
        missing = [name for name in fields if f"`{name}`" not in line]
        assert event == "step" or (line and not missing), f"{event}: {missing or 'not explained'}"


def _events() -> Iterator[tuple[str, list[str]]]:
    for file in _ROOT.glob("applier/**/*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and re.match(r"logger\(\)\.|announce$|Guard$", ast.unparse(node.func)):
                event = node.args[0]
                assert isinstance(event, ast.Constant)
                fields = [keyword.arg for keyword in node.keywords if keyword.arg]
                is_guard = ast.unparse(node.func) == "Guard"
                yield str(event.value).removesuffix(" …"), ["error"] if is_guard else fields


def test_every_field_of_the_status_line_is_explained() -> None:
    """The page on output has each field, of a feed with and without a watermark."""
    page = (_ROOT / "docs/output.md").read_text(encoding="utf-8")
    policies = ("had", "left_out", "doubted", "zero_dates", "dead_letters")
    notes = dict.fromkeys((*policies, "days", "compacted", "vectors", "manifests", "expired", "orphans"), 1)
    stages = dict.fromkeys(("maintain", "plan", "read", "decode", "apply", "checkpoint"), 0.0)
    for resolved_ts in (1 << 40, 0, None):
        line = logs.StatusLine(1, resolved_ts, 0, 0, 0, 0, 0, 0, stages, notes)

        assert [name for name in line.fields() if f"| `{name}` |" not in page] == []


def test_the_layers_are_those_of_the_import_contract() -> None:
    """The page on architecture has the layers of pyproject.toml, in their order."""
    contracts = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    page = (_ROOT / "docs/dev/architecture.md").read_text(encoding="utf-8")
    table = page.partition("| layer |")[2].partition("\n\n")[0]
    rows = [re.findall(r"\[`(\w+)`\]", line.split("|")[1]) for line in table.splitlines()[2:]]

    assert rows == [layer.split(" | ") for layer in layers]


def test_the_version_is_that_of_the_project() -> None:
    """The newest release of the changelog, and the image that pages name, have the version of pyproject.toml."""
    version = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    changes = (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    tags = {tag for path in _DOCUMENTS for tag in re.findall(r"applier:(\d[\w.]*)", path.read_text(encoding="utf-8"))}

    newest, state = re.findall(r"^## \[(.+?)\] - (.+)$", changes, re.MULTILINE)[0]
    assert newest == version
    assert re.fullmatch(r"unreleased|\d{4}-\d\d-\d\d", state)
    assert tags == {version}


def test_every_page_is_on_a_journey() -> None:
    """A page that the journeys do not name is found by chance alone."""
    folder = _ROOT / "docs"
    named = {
        target.partition("#")[0] for _, target in _LINK.findall((folder / "README.md").read_text(encoding="utf-8"))
    }
    pages = {str(page.relative_to(folder)) for page in (*folder.glob("*.md"), *folder.glob("dev/*.md"))}

    assert pages - named == {"README.md"}


def test_verbs_exist() -> None:
    """Each `make` verb that a document names is one of the Makefile."""
    verbs = set(re.findall(r"^([a-z-]+):", (_ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {verb for path in _DOCUMENTS for verb in re.findall(r"`make ([a-z-]+)", path.read_text(encoding="utf-8"))}

    assert named - verbs == set()


def _edge_values() -> list[tuple[str, str, str]]:
    page = (_ROOT / "docs/types.md").read_text(encoding="utf-8")
    table = page.partition("## Edge values")[2].partition("##")[0]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table.splitlines() if "|" in line]
    return [(kind, upstream, shown) for kind, upstream, shown in rows[2:]]


@pytest.mark.parametrize(("kind", "upstream", "shown"), _edge_values())
def test_edge_values_are_what_is_shown(kind: str, upstream: str, shown: str) -> None:
    """A value of the table on types, as Simple sends it, becomes the value beside it."""
    column = Column("c", _type(kind))

    array, _ = to_array([upstream], column, WireForm(binary="base64", members="index"), TypeRules(), "d.t.c")

    assert _shown(array[0].as_py()) == shown


def _type(text: str) -> ColumnType:
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?( unsigned)?", text)
    assert match is not None
    if match[1] in ("enum", "set"):
        return ColumnType(match[1], elements=tuple(re.findall("'(.*?)'", match[2])))
    length, scale = [*(int(number) for number in (match[2] or "").split(",") if number), None, None][:2]
    if match[1] == "datetime":
        length, scale = None, length
    return ColumnType(match[1], match[3] is not None, length, scale)


def _shown(value: Any) -> str:
    if value is None:
        return "NULL"
    return json.dumps(value) if isinstance(value, list) else str(value)


_COMMAND = re.compile(
    r"applier (?:run|check|status|backfill|load|verify|adopt|park|resume|forget|plan|dead-letters|ddl)\b.*"
)
_PLACEHOLDERS = {"COMMIT_TS": "1", "SECONDS": "1", "PLACE…": "PLACE", "…": "X"}


def _messages() -> Iterator[str]:
    """Every text of the code that is not a docstring, with X for what is filled in."""
    for file in _ROOT.glob("applier/**/*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        nodes = list(ast.walk(tree))
        quiet = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        quiet |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(v.value) if isinstance(v, ast.Constant) else "X" for v in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in quiet:
                yield node.value


def _commands() -> list[str]:
    """Commands that messages and pages show, between back quotes or, on a page, on a line of their own."""
    pages = [path.read_text(encoding="utf-8") for path in _DOCUMENTS]
    found = [text for whole in (*_messages(), *pages) for text in re.findall(r"`(applier [^`\n]*)", whole)]
    found += [text for page in pages for text in re.findall(r"^ *(?:\.venv/bin/)?(applier .*)$", page, re.MULTILINE)]
    return sorted({text for text in found if _COMMAND.fullmatch(text)})


def test_a_command_that_is_shown_is_one() -> None:
    """The command line takes it as it is printed; the bare name of a command is no command to paste."""
    shown = _commands()

    assert len(shown) > 50
    assert {command: why for command in shown if (why := _why_it_is_no_command(command))} == {}


def _why_it_is_no_command(shown: str) -> str:
    text = re.sub(r"[\[\]]", "", re.sub(r"\{\w*\}|<.*?>", "X", shown))
    for placeholder, value in _PLACEHOLDERS.items():
        text = text.replace(placeholder, value)
    words = shlex.split(text.partition(" > ")[0], comments=True)[1:]
    command: Any = get_command(cli.app)
    while hasattr(command, "commands"):
        if not words:
            return "it is a group of commands"
        if words[0] not in command.commands:
            return f"{words[0]} is no command"
        command = command.commands[words.pop(0)]
        if not words:
            return ""
    try:
        command.make_context("applier", words)
    except ClickException as error:
        return error.format_message()
    return ""


def test_spark_reads_with_the_jars_that_applier_writes_with() -> None:
    """The line to paste names their versions."""
    jars = (_ROOT / "applier/runtime/jvm/jars.xml").read_text(encoding="utf-8")
    found = re.findall(r'org="([^"]+)" name="(iceberg-spark-runtime[^"]*|sqlite-jdbc)" rev="([^"]+)"', jars)
    page = (_ROOT / "docs/reading.md").read_text(encoding="utf-8")

    assert f"--packages {','.join(map(':'.join, found))} " in page
