"""Command `init`: a first configuration, from what the user says and what the topics show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from applier.changefeed.table import TableName
from applier.commands.init.look import Findings, Sight, look
from applier.commands.init.write import MEANINGS, Answers, named, protocol_of, text, unmade
from applier.config.protocols import IN_TOPICS, PROTOCOLS
from applier.config.reading.paths import with_whole_paths
from applier.config.reading.references import REFERENCE
from applier.config.section import nearest
from applier.config.settings import CATALOGS, lacking, load
from applier.errors import DUMPED, ApplierError, ConfigError
from applier.runtime.figures import counted

_SECRET = re.compile(r"password|secret|token|credential|jaas\.config$|ssl\.keystore\.key$", re.IGNORECASE)
_OPTIONS = {
    "source.kafka.kafka.bootstrap.servers": "--servers",
    "source.kafka.topic_pattern": "--topic-pattern",
    "source.kafka.topics": "--topics",
    "source.kafka.kafka.": "--kafka kafka.",
    "kafka.* options under [source.kafka]": "options given by --kafka",
    "kafka.security.* options": "options --kafka kafka.security.…",
    "registry.url": "--registry",
    "[registry] url": "--registry",
}
"""By a key of the configuration, which is not written yet: the option that the user gave, or may give."""


def options(pairs: Sequence[str], option: str) -> dict[str, str]:
    """The keys and values of a repeated option KEY=VALUE.

    It raises ConfigError for one that has no `=`, or holds a secret that the file would show.
    """
    found = {}
    for pair in pairs:
        key, mark, value = pair.partition("=")
        if not mark or not key:
            raise ConfigError([f"{option} {pair!r} is not of the form KEY=VALUE."])
        if _SECRET.search(key) and not REFERENCE.search(value):
            what = f"{option} {key} would put a secret into the file."
            raise ConfigError([f"{what} Put it into an environment variable, and write '{key}=${{NAME}}' in quotes."])
        found[key] = value
    return found


def init(file: Path, answers: Answers, *, say: Callable[[str], None], force: bool = False) -> None:
    """Write a configuration; what is not known becomes a comment that says what to fill in. `force` replaces a file.

    Raises:
        ConfigError: The file is there already or cannot be written, an answer is wrong, or the cluster and the topics
            are not named.
        ApplierError: The topics could not be looked at, and the protocol is not known.
    """
    if file.exists() and not force:
        raise ConfigError([f"{file} is there already. Choose another name, or replace it with --force."])
    _refuse(answers)
    say("Looking at the topics …")
    sight = _sight(answers, say)
    _refuse_unread(answers, sight)
    try:
        file.write_text(text(_beside(file, answers), sight or Sight({}, Findings())), encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"Cannot write {file}: {error.strerror or error}."]) from error
    _report(file, answers, sight, say)


def split(topics: str) -> list[str]:
    """The names of a list with commas."""
    return [name.strip() for name in topics.split(",") if name.strip()]


def _sight(answers: Answers, say: Callable[[str], None]) -> Sight | None:
    """What the topics show; None where they cannot be reached, and the user names the protocol."""
    try:
        return look(answers.kafka, answers.registry, answers.protocol)
    except ConfigError as error:
        raise ConfigError([*map(_as_typed, error.problems)]) from error
    except ApplierError as error:
        if answers.protocol is None:
            own = _as_typed(error.hint)
            hint = f"{own} To write the file all the same, name TiCDC's protocol: --protocol NAME.".lstrip()
            raise type(error)(error.what, hint) from error
        say(f"Nothing could be looked at: {error.what}")
        return None


def _as_typed(text: str) -> str:
    """A hint, or a problem, with the options of the command line in place of keys of the configuration."""
    for key, option in _OPTIONS.items():
        text = text.replace(key, option)
    return text


def _beside(file: Path, answers: Answers) -> Answers:
    """The answers as the file has to hold them: paths of the command line begin in the working directory."""
    if file.absolute().parent == Path.cwd():
        return answers
    given = {"source": {"kafka": dict(answers.kafka)}, "catalog": dict(answers.catalog)}
    whole = with_whole_paths(given, Path.cwd())
    return replace(answers, kafka=whole["source"]["kafka"], catalog=whole["catalog"])


def _refuse_unread(answers: Answers, sight: Sight | None) -> None:
    """Reject --protocol if no sampled message uses it. Skipped if it needs a registry and none is given."""
    named = answers.protocol
    if sight is None or named is None or not sight.findings.messages or named in sight.findings.protocols:
        return
    if PROTOCOLS[named].carries.schema == "registry" and not answers.registry:
        return
    found = sight.findings.protocols
    look = (
        f"They look like {' or '.join(found)}: leave out --protocol" if found else "They fit no other protocol either"
    )
    way_out = f"{look}, or check the topics and TiCDC's `protocol` of the sink."
    raise ConfigError([f"None of the {sight.findings.messages} messages looked at is of protocol {named}. {way_out}"])


def _refuse(answers: Answers) -> None:
    kafka = answers.kafka
    missing = [] if kafka.get("kafka.bootstrap.servers") else ["--servers HOST:PORT"]
    missing += [] if kafka.get("topics") or kafka.get("topic_pattern") else ["--topics NAME,NAME"]
    problems = [f"applier init needs {' and '.join(missing)}."] if missing else []
    for option, given, known in (
        ("--protocol", answers.protocol, IN_TOPICS),
        ("--catalog", answers.catalog.get("type"), tuple(CATALOGS)),
    ):
        if given and given not in known:
            near = nearest(given, known)
            hint = f"did you mean {near}?" if near else f"known are {', '.join(known)}."
            problems.append(f"{option} {given} is not known, {hint}")
    for option, value in (("--registry", answers.registry), ("--uri", answers.catalog.get("uri"))):
        password = urlsplit((value or "").removeprefix("jdbc:")).password
        if password and not REFERENCE.fullmatch(password):
            problems.append(
                f"{option} holds a password. Put it into an environment variable, and write ${{NAME}} in its place."
            )
    problems += _lacks(answers.catalog)
    if problems:
        raise ConfigError(problems)


def _lacks(catalog: Mapping[str, str]) -> Iterator[str]:
    """Which keys are wrong or missing for the type of catalog that the user names; without one, all is filled in."""
    for key, problem in lacking(catalog).items() if "type" in catalog else ():
        if key in MEANINGS:
            yield f"--catalog {catalog['type']} needs --{key} as well: {MEANINGS[key]}."
        else:
            yield f"--catalog-option {key}: {problem.replace('did you mean ', 'did you mean --')}"


def _report(file: Path, answers: Answers, sight: Sight | None, say: Callable[[str], None]) -> None:
    findings = sight.findings if sight else Findings()
    if protocol := protocol_of(answers, findings) if findings.messages else None:
        mark = {True: "with", False: "without", None: "not known whether with"}[findings.has_watermark]
        say(f"{counted(findings.messages, 'message')} looked at: protocol {protocol}, {mark} a resolved ts.")
    elif sight and not findings.messages:
        say("The topics hold no message yet: what TiCDC sends will show its protocol and its tables.")
    if findings.tables:
        say(f"{counted(len(findings.tables), 'table')} seen: {named(findings.tables)}.")
    say(f"Wrote {file}.")
    try:
        load(file)
    except ConfigError as error:
        say("Before it can be used, fill in its commented lines, and mend:")
        for problem in error.problems:
            say(f"  {problem}")
    for line in _next(shlex.quote(str(file)), unmade(findings)):
        say(line)


def _next(path: str, older: Sequence[TableName]) -> Iterator[str]:
    if not older:
        yield f"Next: applier check -c {path}, then applier run -c {path}."
        return
    whose = "their" if len(older) > 1 else "its"
    yield f"The messages looked at hold rows of {named(older)}, but not {whose} CREATE TABLE."
    yield "If the database had rows before the changefeed, export them and load them. Next:"
    databases = sorted({name.database for name in older})
    filters = " ".join(f"--filter {shlex.quote(_all_of(name))}" for name in databases)
    yield f"  tiup dumpling -h HOST -P 4000 -u USER {DUMPED} {filters} -o /exports"
    yield f"  applier check -c {path}"
    yield f"  applier load -c {path} --from /exports"
    yield f"  applier run -c {path}"
    yield "Without an export, `applier load` without --from reads the rows of a TiDB that upstream.url names."


def _all_of(database: str) -> str:
    quoted = database.replace("`", "``")
    return f"{database}.*" if re.fullmatch(r"\w+", database) else f"`{quoted}`.*"
