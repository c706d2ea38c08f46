"""The defaults and changes of type that a real TiDB was asked for are computed as it stored them.

`tests/integration/tidb/test_computed.py` makes and checks the answers.
"""

from __future__ import annotations

import json

from tests import computed
from tests.computed import ANSWERS, Refused

FOUND = json.loads(ANSWERS.read_text())


def test_plain_defaults_are_what_tidb_stored() -> None:
    """None of them is refused, neither as the statement writes it nor as TiDB keeps it."""
    wrong = []
    for kind, written, kept, shown in FOUND["defaults"]:
        wanted = computed.shown_as(kind, shown)
        texts = [computed.default_of(kind, written)]
        if not kind.startswith("BIT"):  # SQL shows b'101', a message the number.
            texts.append(computed.kept_default_of(kind, kept))
        wrong += [(kind, written, kept, wanted, one) for one in texts if one != wanted or isinstance(one, Refused)]
    assert len(FOUND["defaults"]) > 360
    assert wrong == []


def test_changes_of_type_are_what_tidb_stored() -> None:
    """What strict mode refuses is refused; so are no dates, and dates as times, though TiDB takes them."""
    wrong = []
    for old, new, value, shown, is_done in FOUND["casts"]:
        found = computed.cast_of(old, new, value)
        wanted: object = computed.shown_as(new, shown) if is_done else Refused
        if isinstance(found, Refused):
            is_none = wanted is None or (new.startswith("TIME") and value.startswith("2024-"))
            right = not is_done or ("is not known" in found and is_none)
        else:
            right = found == wanted or value.endswith("  ")  # Other versions cut these spaces.
        if not right:
            wrong.append((old, new, value, wanted, found))
    assert len(FOUND["casts"]) > 430
    assert wrong == []
