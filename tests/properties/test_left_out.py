"""Members of messages that are left out, one by one and several at once: a message never says another value without.

Either it is refused, or it waits, or it says the same, or the difference stands in the table below with its reason.
"""

from __future__ import annotations

import random

import pytest

from tests.fuzz.corpus import Feed, feeds
from tests.properties.left_out import differs, members, named, parts, reason, samples, without

pytestmark = pytest.mark.slow

VARIANTS = (
    "simple-json",
    "simple-json-checksum-shanghai",
    "open",
    "open-updated-columns",
    "canal-json-ext",
    "canal-json-content-compatible",
    "debezium",
    "debezium-noschema",
)

OLD_COLUMNS = "A column that an old image lacks did not change: TiCDC may send the changed ones alone."
ABSENT = "A column that a row lacks is left out by column-selectors: nothing is known of it, and it is not NULL."
ZERO = "TiCDC leaves the member out where it is 0, false or empty, so that is what its absence says."

DIFFERENCES = {
    ("simple", r"value data\.\*"): ABSENT,
    ("simple", r"value old\.\*"): ABSENT,
    ("simple", r"value tableSchema\.columns\.#\.dataType\.(length|decimal|unsigned|elements)"): ZERO,
    ("simple", r"value tableSchema"): "DDL of a database has none; of a table its statement says the same.",
    ("simple", r"value (checksum|checksum\.\w+)"): "A row without a checksum is not verified.",
    ("open", r"value u\.\*"): ABSENT,
    ("open", r"value d\.\*"): ABSENT,
    ("open", r"value p\.\*"): OLD_COLUMNS,
    ("open", r"value p"): "Without output-old-value an UPDATE has no old row; of a table without a key it is refused.",
    ("canal-json", r"value old\.#\.\*"): OLD_COLUMNS,
    ("canal-json", r"value _tidb"): "Without the extension there is no commit ts: the row pass refuses the row or DDL.",
    ("debezium", r"value payload\.after\.\*"): ABSENT,
    ("debezium", r"value payload\.before\.\*"): ABSENT,
    ("debezium", r"value payload\.before"): "Without output-old-value an update has no old row.",
    ("debezium", r"key payload\.[^.]+"): "Without a schema, the payload alone names the key columns.",
}
"""What may differ without a member: protocol and member, and why."""

TOGETHER = {
    (
        "canal-json",
        r"value mysqlType\.\*",
    ): "Without its type and its value, a column is left out; either alone is refused."
}
"""The same for members that are left out with others."""

MOST_MEMBERS = 60
"""Members of one document that are left out in turn, drawn where it has more: schemas name the same ones many times."""


@pytest.fixture(scope="module")
def sources() -> list[Feed]:
    """Recorded feeds of the protocols that write JSON."""
    return feeds(("types", "ddl", "pk"), VARIANTS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_member_that_is_left_out_changes_no_value(variant: str, sources: list[Feed]) -> None:
    """Each member of each kind of message, alone."""
    silent, checked, dice = set(), 0, random.Random(variant)
    for feed in (feed for feed in sources if feed.variant == variant):
        for message, found in list(samples(feed))[:30]:
            for where, document, put in parts(feed, message):
                paths = list(members(document))
                for path in dice.sample(paths, min(len(paths), MOST_MEMBERS)):
                    checked += 1
                    if reason(feed, where, path, DIFFERENCES) is None and differs(
                        feed, put(without(document, [path])), found
                    ):
                        silent.add(f"{where} {named(path)}")

    assert checked > 300
    assert sorted(silent) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_several_members_that_are_left_out_change_no_value(variant: str, sources: list[Feed]) -> None:
    """Random sets of members without those whose absence may say something else."""
    dice = random.Random(variant)
    for feed in (feed for feed in sources if feed.variant == variant):
        for message, found in list(samples(feed))[:20]:
            for where, document, put in parts(feed, message):
                paths = [
                    path for path in members(document) if reason(feed, where, path, DIFFERENCES | TOGETHER) is None
                ]
                for _ in range(8):
                    chosen = dice.sample(paths, min(len(paths), dice.randrange(2, 6)))
                    assert not differs(feed, put(without(document, chosen)), found), (where, chosen)
