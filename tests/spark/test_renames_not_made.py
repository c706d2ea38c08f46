"""A RENAME TABLE that the configuration ignores, and the command that is printed for it."""

from __future__ import annotations

import pytest

from tests.spark.test_resume import begun
from tests.spark.ways_out import export
from tests.spark.world import Make

pytestmark = pytest.mark.spark


@pytest.mark.soak
def test_a_table_whose_rename_was_ignored_is_loaded_by_the_printed_command(make: Make) -> None:
    """The feed cannot build it under its new name: a resume is refused at once, where it went on without an end."""
    world = begun(make, "a", "b")
    world.settings["ddl"] = {"rename-table": "ignore"}
    world.ddl("RENAME TABLE a TO c")
    world.put("c", 3)
    world.resolve()
    world.start()

    told = world.obey(f"applier resume -c {world.path} --tables shop.c", code=2)
    assert "behind which its RENAME is ignored" in " ".join(told.split())
    way_out = str(world.table("c").way_out)
    assert "applier resume" not in way_out
    world.heal(way_out.replace("--from DIR", f"--from {export(world)}"))
    world.start()
    assert (world.table("c").state, world.keys("c"), world.in_cut()) == ("in step", {1, 2, 3}, {"b", "c"})
