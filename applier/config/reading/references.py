"""Replaces `${NAME}` by an environment variable, and `${file:PATH}` by what a file holds."""

from __future__ import annotations

import os
import re
from pathlib import Path

REFERENCE = re.compile(r"\$\{(?:file:(?P<file>[^}]*)|(?P<variable>\w+))\}")
"""What stands for a value that lies outside the configuration."""


def resolved(text: str, folder: Path) -> tuple[str, list[str]]:
    """A text with the values of its references, and what is wrong with them; relative paths begin in the folder."""
    problems: list[str] = []

    def value(match: re.Match[str]) -> str:
        try:
            return _variable(match["variable"]) if match["file"] is None else _content(folder, match["file"])
        except ValueError as error:
            problems.append(str(error))
            return ""

    return REFERENCE.sub(value, text), problems


def _variable(name: str) -> str:
    if name not in os.environ:
        raise ValueError(f"the environment variable {name} is not set")
    return os.environ[name]


def _content(folder: Path, name: str) -> str:
    """The text of a file without the newlines at its end, which editors and `echo` add."""
    if not name:
        raise ValueError("${file:} names no file: write ${file:/run/secrets/NAME}")
    path = folder / name
    try:
        content = path.read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"the file {path} is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such path is possible"
        what = f"the file {path} cannot be read ({reason}): check its path, its mount and its rights"
        raise ValueError(what) from None
    if not content:
        raise ValueError(f"the file {path} is empty: write the value into it")
    return content
