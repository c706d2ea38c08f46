"""Names in the catalog of tables that were dropped upstream and are kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from applier.changefeed.table import TableName
from applier.errors import TableMismatch
from applier.pipeline.tables.ddl_stamp import DROPPED_AT
from applier.sink.commit.stamp import progress
from applier.sink.iceberg.catalog import Catalog

_ASIDE = re.compile(r"(.+)_dropped_([0-9]+)", re.DOTALL)


def aside(identifier: tuple[str, ...], dropped_at: str) -> tuple[str, ...]:
    """Where a kept table goes once another one takes its name; `dropped_at` is the commit ts of its DROP."""
    return (*identifier[:-1], f"{identifier[-1]}_dropped_{dropped_at}")


def upstream(
    identifier: tuple[str, ...], dropped_ts: int | None, places: Mapping[tuple[str, ...], TableName]
) -> TableName | None:
    """The table that a kept one was upstream, by its name in the catalog; None for a name that no kept table can have.

    A table of upstream may have a name as those of kept ones, which the commit ts of its DROP shows; None where that is
    not known yet. `places` has each table that the changefeed has ever had, by its identifier.
    """
    found = _ASIDE.fullmatch(identifier[-1])
    is_aside = found is not None and dropped_ts in (None, int(found[2]))
    before = places.get((*identifier[:-1], found[1])) if found is not None and is_aside else None
    return before or places.get(identifier)


def all_aside(
    listed: Iterable[tuple[str, ...]], places: Mapping[tuple[str, ...], TableName]
) -> dict[tuple[str, ...], int]:
    """Those that may be kept tables which gave their names away, by these alone, with the commit ts of each DROP."""
    matches = ((identifier, _ASIDE.fullmatch(identifier[-1])) for identifier in listed if identifier not in places)
    return {at: int(found[2]) for at, found in matches if found is not None and (*at[:-1], found[1]) in places}


def is_kept(catalog: Catalog, changefeed: str, identifier: tuple[str, ...], dropped_ts: int) -> bool:
    """Whether the table of such a name is the changefeed's, and was dropped then: others may have such names."""
    try:
        table = catalog.load(identifier)
        known = None if table is None else progress(table, changefeed)
    except TableMismatch:
        return False
    return known is not None and known.extra.get(DROPPED_AT) == str(dropped_ts)


def namespaces(places: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Those that may hold kept tables."""
    return sorted({identifier[:-1] for identifier in places})
