"""Selects the tables of the changefeed that the filter rules of `--tables` mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from applier.changefeed.filter import TableFilter
from applier.changefeed.table import TableName
from applier.errors import ConfigError

_SHOWN = 10


def selected(rules: Sequence[str], known: Iterable[TableName]) -> list[TableName]:
    """The tables that rules as in `tables.include` mean, in order; all of them without rules.

    Raises:
        ConfigError: A rule is malformed, or no table matches.
    """
    names = sorted(known)
    try:
        found = [name for name in names if TableFilter(rules or ("*.*",)).admits(name)]
    except ValueError as error:
        raise ConfigError([f"--tables: {error}."]) from error
    if not found:
        shown = ", ".join(map(str, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")
        what = (
            f"--tables {','.join(rules)}: the changefeed has no such table" if rules else "The changefeed has no tables"
        )
        raise ConfigError([f"{what}; its tables are: {shown or 'none'}."])
    return found
