"""A table that is brought back takes the DDL as the feed did, whatever `[ddl]` says by then."""

from __future__ import annotations

import pytest

from tests.spark.world import Make

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("then", "now", "left"), [("ignore", "apply", {1, 2}), ("apply", "ignore", {2})])
def test_a_policy_that_changed_does_not_count_for_ddl_that_the_feed_has_passed(
    make: Make, then: str, now: str, left: set[int]
) -> None:
    """The job reads the TRUNCATE again, from the CREATE TABLE on."""
    world = make()
    world.settings["ddl"] = {"truncate-table": then}
    world.create("a")
    world.put("a", 1)
    world.ddl("TRUNCATE TABLE a")
    world.put("a", 2)
    world.resolve()
    world.run()
    assert world.keys("a") == left

    world.settings["ddl"] = {"truncate-table": now}
    world.spark.sql(f"DROP TABLE lake.{world.name}__shop.a PURGE")
    world.start()
    world.heal(world.table("a").way_out)
    world.run()
    assert world.keys("a") == left
    assert world.table("a").state == "in step"
