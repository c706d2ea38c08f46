"""Names of tables as Spark SQL takes them, for statements that are printed to be pasted."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def spark_name(parts: Iterable[str]) -> str:
    """A name of several parts."""
    return ".".join(_quoted(part) for part in parts)


def _quoted(part: str) -> str:
    if _PLAIN.fullmatch(part):
        return part
    return "`" + part.replace("`", "``") + "`"
