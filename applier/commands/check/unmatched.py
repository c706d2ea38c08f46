"""Patterns of tables, and columns of layouts, that fit nothing that was seen: misspelt ones, mostly."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping

from applier.changefeed.filter import TablePattern
from applier.changefeed.table import TableName, fold
from applier.config.section import nearest
from applier.config.tables import TablesSection

_SHOWN = 3

_NEAR = 0.3
"""Likeness from which on a name counts as near, as `difflib` measures it."""


def unmatched(tables: TablesSection, seen: Mapping[TableName, Collection[str]]) -> Iterator[str]:
    """A sentence for each; none where no table was seen.

    Args:
        tables: What the configuration says of tables.
        seen: The tables that are known, with their columns; () where they are not known.
    """
    patterns = {f'tables.include "{text}"': text for text in tables.include if not text.lstrip().startswith("!")}
    patterns |= {f'[tables."{text}"]': text for text in tables.layouts}
    for key, text in patterns.items() if seen else ():
        if not any(TablePattern(text).names(name) for name in seen):
            # A pattern of all tables of a database means one by its name.
            names = sorted({f"{name.database}.*" if text.endswith(".*") else str(name) for name in seen})
            near = difflib.get_close_matches(text, names, n=_SHOWN, cutoff=_NEAR)
            there = f"Nearest are {', '.join(near)}" if near else f"Seen are {', '.join(names[:_SHOWN])}"
            yield f"{key} fits no table seen so far. {there}: correct it, unless its tables are to come."
    for name, columns in seen.items():
        layout = tables.layout_of(name)
        known = {fold(column): column for column in columns}
        if layout is None or not known:
            continue
        named = [*(each.column for each in layout.partition or ()), *(each.column for each in layout.sort or ())]
        for column in dict.fromkeys(each for each in named if fold(each) not in known):
            near_one = nearest(column, known)
            hint = f"did you mean {known[near_one]}?" if near_one else f"its columns are {', '.join(columns)}."
            yield f"The layout of {name} names column {column}, which the table lacks: {hint}"
    yield from _not_there(tables, seen)


def _not_there(tables: TablesSection, seen: Mapping[TableName, Collection[str]]) -> Iterator[str]:
    """A sentence for each excluded or renamed column that no table of its pattern has: others may be meant."""
    known: dict[str, dict[str, str]] = {}
    for name, columns in seen.items():
        if (layout := tables.layout_of(name)) is not None:
            known.setdefault(layout.pattern, {}).update({fold(column): column for column in columns})
    for pattern, columns_of in known.items():
        section = tables.layouts[pattern].columns
        named = [*(("excludes", each) for each in section.exclude), *(("renames", each) for each in section.rename)]
        for does, column in named if columns_of else ():
            if fold(column) not in columns_of:
                near = nearest(column, columns_of)
                hint = f"did you mean {columns_of[near]}?" if near else "correct it, unless the column is to come."
                yield f'[tables."{pattern}".columns] {does} column {column}, which no table seen has: {hint}'
