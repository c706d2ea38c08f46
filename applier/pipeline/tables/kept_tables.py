"""Names in the catalog of tables that were dropped upstream and are kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from applier.changefeed.table import TableName

_ASIDE = re.compile(r"(.+)_dropped_([0-9]+)", re.DOTALL)


def aside(identifier: tuple[str, ...], dropped_at: str) -> tuple[str, ...]:
    """Where a kept table goes once another one takes its name; `dropped_at` is the commit ts of its DROP."""
    return (*identifier[:-1], f"{identifier[-1]}_dropped_{dropped_at}")


def upstream(identifier: tuple[str, ...], places: Mapping[tuple[str, ...], TableName]) -> TableName | None:
    """The table that a kept one was upstream, by its name in the catalog; None for a name that no kept table can have.

    `places` has each table that the changefeed has ever had, by its identifier.
    """
    found = _ASIDE.fullmatch(identifier[-1])
    before = None if found is None else places.get((*identifier[:-1], found[1]))
    return before or places.get(identifier)


def all_aside(
    listed: Iterable[tuple[str, ...]], places: Mapping[tuple[str, ...], TableName]
) -> dict[tuple[str, ...], int]:
    """Those of some identifiers that are kept tables which gave their names away, with the commit ts of each DROP."""
    matches = ((identifier, _ASIDE.fullmatch(identifier[-1])) for identifier in listed if identifier not in places)
    return {at: int(found[2]) for at, found in matches if found is not None and (*at[:-1], found[1]) in places}


def namespaces(places: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Those that may hold kept tables."""
    return sorted({identifier[:-1] for identifier in places})
