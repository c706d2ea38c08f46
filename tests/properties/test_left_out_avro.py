"""Members of Avro messages that are left out, one by one: a message never says another value without.

Either it is refused, or it waits, or it says the same, or the difference stands in the table below with its reason.
"""

from __future__ import annotations

import random

import pytest

from tests.few import few
from tests.fuzz.corpus import feeds
from tests.properties.left_out import differs, reason_of, samples
from tests.properties.left_out_avro import framed_changes, registered, simple_changes
from tests.properties.test_left_out import ABSENT
from tests.properties.test_left_out import DIFFERENCES as OF_SIMPLE

pytestmark = pytest.mark.slow

SCENARIOS = ("types", "ddl", "pk")
FRAMED = few(["avro-before-value", "debezium-avro", "avro-plain", "avro-precise", "avro-string-checksum"])

KEY = "The Kafka key alone names the key columns."
DIGITS = "Avro itself says that a decimal without a scale has no digits behind the point."

DIFFERENCES = {
    ("avro", r"key field \*"): KEY,
    ("debezium-avro", r"key field \*"): KEY,
    ("avro", r"value field \*"): f"{ABSENT} A row without its key columns is refused by the row pass.",
    ("debezium-avro", r"value field (before|after)\.\*"): f"{ABSENT} A row without its key columns is refused later.",
    ("avro", r"value schema .*\.scale"): DIGITS,
    ("debezium-avro", r"value schema .*\.scale"): DIGITS,
    (
        "avro",
        r"value schema fields\.#\.default",
    ): "Without a default of the op field, an INSERT may be an UPDATE: v6.5.",
    ("avro", r"value field _ticdc_before"): "Without avro-include-before-value an UPDATE has no old row.",
}
"""What may differ without a member: protocol and member, and why."""

SIMPLE = {
    **OF_SIMPLE,
    ("simple", r"value (preT|t)ableSchema\.columns\.#\.default"): "Null is what says that a column has no DEFAULT.",
}
"""The same for Simple-Avro."""

MOST_CHANGES = [20, pytest.param(80, marks=pytest.mark.soak)]
"""Members of one message that are left out in turn, drawn where it has more; `make test-recorded` takes both."""


@pytest.mark.parametrize("most", MOST_CHANGES)
@pytest.mark.parametrize("variant", FRAMED)
def test_a_member_of_a_schema_that_is_left_out_changes_no_value(variant: str, most: int) -> None:
    """Each attribute of the schemas and each field of the records, of each kind of message."""
    silent, checked, dice = set(), 0, random.Random(variant)
    for feed in feeds(SCENARIOS, [variant]):
        registry = registered(feed)
        for message, found in list(samples(feed))[:30]:
            changes = [
                change
                for change in framed_changes(feed, registry, message)
                if reason_of(feed.protocol, change[0], DIFFERENCES) is None
            ]
            for name, put in dice.sample(changes, min(len(changes), most)):
                checked += 1
                if differs(feed, put(), found):
                    silent.add(name)

    assert checked > 300
    assert sorted(silent) == []


@pytest.mark.parametrize("most", MOST_CHANGES)
def test_an_optional_member_of_simple_avro_that_is_left_out_changes_no_value(most: int) -> None:
    """Each union with null, and each column of an image."""
    silent, checked, dice = set(), 0, random.Random("simple-avro")
    for feed in feeds(SCENARIOS, ["simple-avro"]):
        for message, found in list(samples(feed))[:40]:
            changes = list(simple_changes(message))
            for name, put in dice.sample(changes, min(len(changes), most)):
                checked += 1
                if reason_of("simple", name, SIMPLE) is None and differs(feed, put(), found):
                    silent.add(name)

    assert checked > 300
    assert sorted(silent) == []
