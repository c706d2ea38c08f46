"""The namespaces of a changefeed's own tables, and the upstream databases that lie in none for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from applier.changefeed.table import fold


def control(changefeed: str) -> str:
    """Where its control tables are."""
    return f"applier_{changefeed}"


def loads(changefeed: str) -> str:
    """Where the tables are that it loads."""
    return f"{control(changefeed)}__load"


def resumes(changefeed: str) -> str:
    """Where the copies are of tables that it brings back."""
    return f"{control(changefeed)}__resume"


def own(changefeed: str) -> tuple[str, ...]:
    """All of them."""
    return control(changefeed), loads(changefeed), resumes(changefeed)


def _databases(changefeed: str, route: str) -> list[str]:
    """Upstream databases whose tables would lie in one of them; TiDB spells them in any letters."""
    level, *rest = route.split(".")
    before, database, behind = level.partition("{database}")
    if not database or len(rest) != 1 or "{" in before + behind:
        return []
    ends = fold(before), fold(behind)
    found = [name for name in own(changefeed) if fold(name).startswith(ends[0]) and fold(name).endswith(ends[1])]
    return [name for each in found if (name := each[len(before) : len(each) - len(behind)])]


def without_own(given: Any) -> Any:
    """The sections of a configuration as given, with these databases left out: their tables would be dropped as
    leftovers of the changefeed. Malformed ones stay as they are.
    """
    match given:
        case {"changefeed": {"name": str(name)}}:
            tables = given.get("tables", {})
            if not isinstance(tables, Mapping):
                return given
            include, route = tables.get("include", ("*.*",)), tables.get("route", "{database}.{table}")
            if isinstance(include, list | tuple) and isinstance(route, str):
                left_out = [f"!`{database}`.*" for database in _databases(name, route)]
                return {**given, "tables": {**tables, "include": (*include, *left_out)}}
    return given
