"""The defaults and changes of type that a real TiDB was asked for are computed as it stored them.

`tests/integration/tidb/test_computed.py` makes and checks the answers.
"""

from __future__ import annotations

import json

from tests import computed
from tests.computed import ANSWERS, Refused

FOUND = json.loads(ANSWERS.read_text())
RARE = ("DATE", "TIME", "YEAR", "FLOAT(", "DOUBLE(")


def test_plain_defaults_are_what_tidb_stored() -> None:
    """None of them is refused, save dates, times and years that are not written as TiDB prints them, and FLOAT(M,D)."""
    wrong = []
    for kind, written, kept, shown in FOUND["defaults"]:
        wanted = computed.shown_as(kind, shown)
        found = [(written.strip("'"), computed.default_of(kind, written))]
        if not kind.startswith("BIT"):  # SQL shows b'101', a message the number.
            found.append((kept, computed.kept_default_of(kind, kept)))
        for text, one in found:
            is_rare = kind.startswith(RARE) and text != shown
            if one != wanted or isinstance(one, Refused):
                wrong += [] if is_rare and isinstance(one, Refused) else [(kind, text, wanted, one)]
    assert len(FOUND["defaults"]) > 360
    assert wrong == []


def test_changes_of_type_are_what_tidb_stored() -> None:
    """What strict mode refuses is refused; what becomes a date, a time, a year or FLOAT(M,D) may be refused as well."""
    wrong = []
    for old, new, value, shown, is_done in FOUND["casts"]:
        found = computed.cast_of(old, new, value)
        wanted: object = computed.shown_as(new, shown) if is_done else Refused
        if isinstance(found, Refused):
            is_rare = new.startswith(RARE) and not old.startswith("DATE") and "is not known" in found
            right = is_rare or not is_done
        else:
            right = found == wanted or value.endswith("  ")  # Other versions cut these spaces.
        if not right:
            wrong.append((old, new, value, wanted, found))
    assert len(FOUND["casts"]) > 430
    assert wrong == []
