"""Lets the relative paths of a configuration begin in the folder of its file, from wherever a command is started."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from applier.config.reading.problems import Problems

_KEYS = {
    "changefeed": re.compile(r"claim_check"),
    "source": re.compile(r"archive"),
    "source.storage": re.compile(r"uri"),
    "source.kafka": re.compile(r"kafka\..*\.location"),
    "upstream": re.compile(r"schemas|dump|ca|cert|key"),
    "registry": re.compile(r"ca|client_cert|client_key"),
    "catalog": re.compile(r"uri|warehouse|.*[.-]file"),
    "http": re.compile(r"certificate|key"),
    "spark": re.compile(
        r"spark\.(jars|jars\.ivy|jars\.ivySettings|files|archives|submit\.pyFiles|driver\.extraClassPath|local\.dir"
        r"|eventLog\.dir|sql\.warehouse\.dir|metrics\.conf|kerberos\.keytab|.*(File|\.file|\.keyStore|\.trustStore))"
    ),
}
"""The keys of each section that hold paths. What tasks find in folders of their own, such as a Python, is not here."""

_ADDRESS = re.compile(r"\$\{|[A-Za-z][A-Za-z0-9+.-]*:[/:]")
_SQLITE = re.compile(r"(jdbc:sqlite:|sqlite:///)(file:)?((?!\$\{)[^?:][^?]*)(.*)")


def with_whole_paths(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The values of a configuration with absolute paths: relative ones begin in a folder."""
    found = dict(values)
    for path, pattern in _KEYS.items():
        name, _, inner = path.partition(".")
        outer = found.get(name)
        section = outer.get(inner) if inner and isinstance(outer, dict) else outer
        if not isinstance(section, dict):
            continue
        keys = filter(pattern.fullmatch, section)
        whole = {key: _whole(path, key, section[key], section, folder) for key in keys}
        found[name] = {**found[name], inner: section | whole} if inner else section | whole
    return found


def of_file(values: dict[str, Any], problems: Problems) -> dict[str, Any]:
    """The values of a file with absolute paths; a catalog that relative ones would begin a second time is noted."""
    found = with_whole_paths(values, Path(problems.file).parent.resolve())
    if isinstance(given := values.get("catalog"), dict):
        _note_second_lake(given, found["catalog"], problems)
    return found


def _whole(path: str, key: str, text: Any, section: dict[str, Any], folder: Path) -> Any:
    if not isinstance(text, str) or not text:
        return text
    if (path, key) == ("catalog", "warehouse") and section.get("type") == "rest":
        return text  # It may be a name.
    if (path, key) == ("catalog", "uri"):
        return _SQLITE.sub(lambda it: f"{it[1]}{it[2] or ''}{_joined(folder, it[3])}{it[4]}", text)
    if path != "spark":
        return _absolute(text, folder)
    mark = os.pathsep if key.endswith("ClassPath") else ","
    return mark.join(_absolute(part.strip(), folder) if part.strip() else part for part in text.split(mark))


def _absolute(text: str, folder: Path) -> str:
    if _ADDRESS.match(text):
        return text
    scheme = "file:" if text.startswith("file:") else ""
    return f"{scheme}{_joined(folder, text.removeprefix('file:'))}"


def _joined(folder: Path, path: str) -> str:
    # Without dots: Iceberg compares locations as texts.
    return os.path.normpath(folder / path)


def _note_second_lake(given: dict[str, Any], whole: dict[str, Any], problems: Problems) -> None:
    """Note a catalog that is where the working directory puts it, and not where the configuration does."""
    here = {key: _whole("catalog", key, given.get(key), given, Path()) for key in ("uri", "warehouse")}
    key = "warehouse" if given.get("type") == "hadoop" else "uri"
    old, new = _file(here[key]), _file(whole.get(key))
    if old is None or new is None or old.is_absolute() or not old.exists() or new.exists():
        return
    moved = f"move that file to {new}, or " if key == "uri" else ""
    written = " and ".join(
        f'{name} = "{_whole("catalog", name, given[name], given, Path.cwd())}"'
        for name in ("uri", "warehouse")
        if isinstance(given.get(name), str) and here[name] != whole.get(name)
    )
    problems.add(
        f"catalog.{key}",
        f"a catalog is at {old.absolute()}, and none at {new}, where the path leads: paths begin in the folder of the "
        f"configuration, not in the working directory. To go on with that catalog, {moved}write {written}",
    )


def sqlite_file(uri: str) -> Path | None:
    """The file of a catalog in SQLite, by its address; None for any other."""
    match = _SQLITE.fullmatch(uri)
    return Path(match[3]) if match else None


def _file(text: Any) -> Path | None:
    """The file or folder of this machine that a text means; None for an address elsewhere."""
    if not isinstance(text, str) or not text:
        return None
    return sqlite_file(text) or (None if re.match(r"[A-Za-z][\w+.-]*:", text) else Path(text))
