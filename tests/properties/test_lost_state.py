"""Random losses of what a changefeed knows; SCHEDULES, SEED_FROM and SEED as for schedules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.disasters import Disasters
from tests.properties.lost_state import LostState
from tests.properties.test_schedules import SEEDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEW = None if "SEED_FROM" in os.environ else 1
"""`make test` takes the last one, which is short, and `make soak` as many as of the others."""


@pytest.mark.parametrize("seed", SEEDS[::-1][:_FEW])
def test_every_table_that_is_called_true_is_the_database(
    seed: int, spark: SparkSession, disasters: Disasters, tmp_path: Path
) -> None:
    """Whatever is lost of state, messages and memory: no table is live, and in step to `status`, that differs."""
    lost = LostState(seed, spark, disasters, tmp_path)
    try:
        lost.run()
    except BaseException as error:
        error.add_note(f"Run it again: make soak SEED={seed}. It went: {'; '.join(lost.story)}")
        error.add_note(f"The database saw: {'; '.join(lost.past)}")
        raise
