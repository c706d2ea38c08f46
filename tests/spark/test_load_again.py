"""What a load leaves aside, once readers have its rows: it must not be handed over a second time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from applier.commands.load.command import load
from applier.config import own_namespaces
from applier.sink.iceberg.catalog import Catalog
from tests.few import few
from tests.spark.ddl_applier import Crash
from tests.spark.feeds import read
from tests.spark.test_paths import export
from tests.spark.world import Make, World

pytestmark = pytest.mark.spark


def _let_files_go(world: World) -> None:
    """Others rewrite the table, and expire what it was before: the files of the export are removed."""
    table, then = f"{world.name}__shop.a", time.strftime("%F %T", time.gmtime(time.time() + 1))
    call = "CALL lake.system"
    world.spark.sql(f"{call}.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    world.spark.sql(f"{call}.expire_snapshots(table => '{table}', older_than => TIMESTAMP '{then}', retain_last => 1)")


def test_a_loaded_table_lets_its_old_metadata_go_as_others_do(make: Make, tmp_path: Path) -> None:
    """Its copy keeps them while the table of the export may still be needed."""
    world, key = make(), "write.metadata.delete-after-commit.enabled"
    world.create("a")
    world.put("a", 1)
    load(world.config, export(tmp_path / "export", world.resolve()), (), lambda _: None)
    world.put("a", 3)
    world.resolve()
    world.run()

    table = Catalog(world.spark, "lake").load((f"{world.name}__shop", "a"))

    assert table is not None
    assert world.keys("a") == {1, 3}
    assert table.setting(key) == "true"


@pytest.mark.parametrize("runs", few([True, False]))
def test_a_load_that_was_killed_as_it_ended_is_not_handed_over_again(
    runs: bool, make: Make, tmp_path: Path, crash: Callable[[str], None]
) -> None:
    """The table let the files go that both had: no step got past it, and no table of the changefeed went on."""
    world = make()
    world.create("a")
    world.put("a", 1)
    address = export(tmp_path / "export", world.resolve())
    crash("resume-done")
    with pytest.raises(Crash):
        load(world.config, address, (), lambda _: None)
    if runs:
        world.put("a", 3)
        world.resolve()
        world.run()
        assert Catalog(world.spark, "lake").list((own_namespaces.loads(world.name),)) == []
    _let_files_go(world)

    load(world.config, address, (), lambda _: None, again=True)
    world.run()

    assert world.keys("a") == ({1, 3} if runs else {1})
    assert world.table("a").state == "in step"
    assert Catalog(world.spark, "lake").list((own_namespaces.loads(world.name),)) == []


def test_tables_that_trade_names_behind_a_load_that_was_killed_as_it_ended_take_their_own_rows(
    make: Make, tmp_path: Path, crash: Callable[[str], None]
) -> None:
    """Readers see them already, and the export has each by a name that is the other one's when it is handed over."""
    world = make()
    tso = world.resolve()
    address = export(tmp_path / "export", tso)
    (tmp_path / "export" / "shop.b-schema.sql").write_text("CREATE TABLE `b` (`id` bigint PRIMARY KEY, `w` int);\n")
    (tmp_path / "export" / "shop.b.000000000.csv").write_text('"id","w"\n2,20\n')
    crash("resume-shown")
    with pytest.raises(Crash):
        load(world.config, address, (), lambda _: None)
    world.put("a", 3)
    world.ddl("RENAME TABLE a TO t, b TO a, t TO b", "a")
    world.resolve()

    world.run()

    found = {name: read(world.spark, (f"{world.name}__shop", name)).to_pylist() for name in ("a", "b")}
    assert {name: sorted(row["id"] for row in rows) for name, rows in found.items()} == {"a": [2], "b": [1, 3]}
    assert (world.table("a").state, world.table("b").state) == ("in step", "in step")
