"""What the tables of a small feed hold upstream, and an export of them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.spark.world import World
from tests.unit.decode.dump import dumpling

Rows = dict[int, str]


def database(world: World) -> dict[str, Rows]:
    """What the tables of the feed hold upstream, by its messages; an UPDATE shows a row from before it."""
    found: dict[str, Rows] = {}
    for message in sorted(world.messages, key=lambda message: max(message["_tidb"].values())):
        table, sql = message["table"], message.get("sql", "")
        if moved := re.fullmatch(r"RENAME TABLE (\w+) TO (\w+)", sql):
            found[moved[2]] = found.pop(moved[1])
        elif moved := re.fullmatch(r"ALTER TABLE (\w+) EXCHANGE PARTITION p0 WITH TABLE (\w+)", sql):
            parted, other = found[moved[1]], found[moved[2]]
            below = {key: parted.pop(key) for key in [*parted] if key < 10}
            found[moved[1]], found[moved[2]] = parted | other, below
        elif table:
            _apply(found.setdefault(table, {}), message["type"], message["data"] or ())
    return found


def _apply(rows: Rows, kind: str, data: Iterable[dict[str, str]]) -> None:
    for row in data if kind in ("INSERT", "UPDATE", "DELETE") else ():
        rows.pop(int(row["id"]), None)
        if kind != "DELETE":
            rows[int(row["id"])] = row["v"]


def export(world: World) -> str:
    """Export all tables as of a new watermark; a load that goes on has its export already."""
    folder = world.folder.parent / "export"
    if folder.exists():
        return str(folder)
    tso = world.resolve()
    folder.mkdir()
    (folder / "metadata").write_text(dumpling.METADATA.replace("470606910897520641", str(tso)))
    for table, rows in database(world).items():
        declared = f"CREATE TABLE `{table}` (`id` bigint NOT NULL, `v` varchar(9), PRIMARY KEY (`id`));\n"
        (folder / f"shop.{table}-schema.sql").write_text(declared)
        lines = "".join(f'{key},"{value}"\n' for key, value in sorted(rows.items()))
        (folder / f"shop.{table}.000000000.csv").write_text(f'"id","v"\n{lines}')
    return str(folder)
