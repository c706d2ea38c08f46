"""Which columns of a table are applier's, through changes of applier and of others."""

from __future__ import annotations

import pytest

from applier.sink.format.own_columns import OwnColumns
from applier.sink.format.types import TableSchema


def schema(**ids: int) -> TableSchema:
    """Columns with these field ids."""
    fields = [f'{{"id": {at}, "name": "{name}", "required": false, "type": "long"}}' for name, at in ids.items()]
    return TableSchema.parse(f'{{"type": "struct", "schema-id": 0, "fields": [{", ".join(fields)}]}}')


BEGUN = schema(id=1, v=2)


@pytest.mark.parametrize(
    ("now", "lost"),
    [
        (schema(v=2, id=1), []),
        (schema(id=1, v=2, note=3), []),
        (schema(id=1), ["v"]),
        (schema(id=1, v=3), ["v"]),
        (schema(id=2, v=1), ["id", "v"]),
    ],
    ids=["in another order", "with one of others", "dropped", "made anew", "swapped"],
)
def test_a_table_lacks_what_has_another_id_or_name(now: TableSchema, lost: list[str]) -> None:
    """The names are those of before, where a schema of then is kept."""
    own = OwnColumns.read(OwnColumns.of(BEGUN).to_text())
    assert (own.fit(now), own.lost(now, [now, BEGUN])) == (not lost, lost)
    assert own.lost(now, [] if lost else [now]) == []


def test_columns_of_others_stay_theirs_behind_a_change_of_applier() -> None:
    """They may drop them again, but not what applier has added."""
    before, after = schema(id=1, v=2, note=3), schema(id=1, note=3, v=4)
    own = OwnColumns.read(OwnColumns.of(BEGUN).behind(before, after).to_text())
    assert own.fit(after)
    assert own.fit(schema(id=1, v=4, note=5))
    assert not own.fit(schema(id=1, note=3))
