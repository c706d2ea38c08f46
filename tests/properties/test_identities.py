"""Random identities: names, versions and schema ids; SCHEDULES, SEED_FROM and SEED as for schedules."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.disasters import Disasters
from tests.properties.identities import Identity
from tests.properties.test_schedules import SEEDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEW = None if "SEED_FROM" in os.environ else 1


@pytest.mark.parametrize("seed", SEEDS[:_FEW])
def test_every_table_that_is_shown_as_whole_is_the_database(
    seed: int, spark: SparkSession, disasters: Disasters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every checkpoint what `status` shows as whole has every cell, and all else has a cause."""
    identity = Identity(seed, spark, disasters, monkeypatch)
    try:
        identity.run()
    except BaseException as error:
        error.add_note(f"Run it again: make soak SEED={seed}. It went: {'; '.join(identity.story)}")
        error.add_note(f"The database saw: {'; '.join(identity.past)}")
        raise

    assert identity.looks > 0
