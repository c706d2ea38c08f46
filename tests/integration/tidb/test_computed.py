"""The defaults and changes of type that the applier computes are what a real TiDB stores."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from tests import computed
from tests.computed import ANSWERS, Refused
from tests.integration.tidb import literals, stored
from tests.services.tidb import Tidb

SESSIONS = (
    (stored.STRICT, "+00:00", False),
    (stored.STRICT, "+00:00", True),
    ("", "Asia/Shanghai", False),
    ("STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE", "America/New_York", False),
    ("ALLOW_INVALID_DATES", "+00:00", False),
)
"""SQL mode, time zone, and whether by ADD COLUMN."""
SEED = int(os.environ.get("SEED", "1"))


@pytest.mark.soak
def test_the_recorded_answers_are_those_of_tidb(tidb: Tidb) -> None:
    """What `tests/unit/sink/evolve/tidb_answers.json` holds; with ANSWERS=write in the environment it is made anew."""
    columns = [(kind, text) for kind, texts in literals.PLAIN.items() for text in texts.split(", ")]
    with stored.session(tidb) as cursor:
        found = stored.defaults(cursor, columns, added=True)
        casts = [
            [old, new, *made]
            for old, (values, kinds) in literals.CONVERTED.items()
            for new in kinds.split("; ")
            for made in stored.casts(cursor, old, new, values.split(", "))
        ]
    defaults: list[Any] = [[*column, *answer] for column, answer in zip(columns, found, strict=True) if answer]
    answers = {"defaults": defaults, "casts": casts}
    if os.environ.get("ANSWERS") == "write":
        lines = [
            f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]" for name, rows in answers.items()
        ]
        ANSWERS.write_text("{" + ",\n".join(lines) + "}\n")
    assert json.loads(ANSWERS.read_text()) == json.loads(json.dumps(answers))


@pytest.mark.parametrize(("mode", "zone", "added"), SESSIONS)
@pytest.mark.parametrize("draws", [100, pytest.param(2000, marks=pytest.mark.soak)])
def test_drawn_defaults_are_what_tidb_stores(mode: str, zone: str, *, added: bool, draws: int, tidb: Tidb) -> None:
    """A default is refused, or it is the value of the rows; the text that TiDB keeps of it gives the same."""
    chance = random.Random(f"{SEED} {mode} {zone}")
    columns = [(literals.kind(chance), literals.literal(chance)) for _ in range(draws)]
    with stored.session(tidb, mode, zone) as cursor:
        found = stored.defaults(cursor, columns, added=added)
    wrong = []
    for column, answer in zip(columns, found, strict=True):
        if answer is None:
            continue
        wanted = computed.shown_as(column[0], answer.value)
        texts = [computed.default_of(*column, zone.replace("+00:00", "UTC"))]
        if not column[0].startswith(("BIT", "TIMESTAMP")):
            texts.append(computed.kept_default_of(column[0], answer.kept))
        wrong += [(*column, wanted, one) for one in texts if not isinstance(one, Refused) and one != wanted]
    assert wrong == []


@pytest.mark.parametrize("draws", [3, pytest.param(100, marks=pytest.mark.soak)])
def test_drawn_changes_of_type_are_what_tidb_stores(draws: int, tidb: Tidb) -> None:
    """A change is refused, or it gives TiDB's values; the session is blamed only for what strict mode refuses."""
    chance, wrong = random.Random(f"{SEED} casts"), []
    with stored.session(tidb) as cursor:
        for _ in range(draws):
            old, new = literals.kind(chance), literals.kind(chance)
            while computed.reason(old, new):
                old, new = literals.kind(chance), literals.kind(chance)
            values = [literals.literal(chance) for _ in range(12)]
            for value, after, is_done in stored.casts(cursor, old, new, values):
                if computed.shown_as(old, value) is None:
                    continue  # Dates that no calendar has are NULL in the table already.
                found = computed.cast_of(old, new, value)
                wanted = computed.shown_as(new, after) if is_done else Refused("strict SQL mode")
                if isinstance(found, Refused) and not (is_done and "strict SQL mode" in found):
                    continue
                if found != wanted:
                    wrong.append((old, new, value, wanted, found))
    assert wrong == []
