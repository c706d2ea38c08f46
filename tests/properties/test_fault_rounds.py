"""A call to catalog or storage that fails once leaves nothing half made; SCHEDULES and SEED as for schedules."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.disasters import Disasters
from tests.properties.fault_rounds import FaultRounds
from tests.properties.test_schedules import SEEDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEW = None if "SEED_FROM" in os.environ else 1
_ROUNDS = 8 if _FEW else 40
"""`make test` takes one seed and few rounds, `make soak` as many seeds as of the others."""


@pytest.mark.parametrize("seed", SEEDS[:_FEW])
def test_after_a_failed_call_every_table_is_the_database(seed: int, spark: SparkSession, disasters: Disasters) -> None:
    """Whichever call fails, before or behind its effect, alone or beside another writer: the same process goes on."""
    rounds = FaultRounds(seed, spark, disasters)
    try:
        rounds.run(_ROUNDS)
    except BaseException as error:
        error.add_note(f"Run it again: make soak SEED={seed}. It went: {'; '.join(rounds.story)}")
        raise

    assert sum(disasters.struck.values()) > 0
