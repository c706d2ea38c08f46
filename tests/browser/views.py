"""Made-up views of changefeeds, for the page."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from applier.watch import compose
from applier.watch.history import Point
from applier.watch.report import (
    DdlReport,
    DroppedTable,
    HolderReport,
    LetterReport,
    PartitionProgress,
    StatusReport,
    StepProgress,
    TableProgress,
    Trouble,
    View,
    iso,
    judged,
)
from applier.ways_out import WaysOut

NOW = 1_795_608_018.0
"""2026-11-25 12:00:18 UTC."""

_QUICKSTART = Path(__file__).with_name("quickstart.json")
"""What `/status.json` said of the quickstart's changefeed."""

_NAMES = ("shop.customers", "shop.orders", "shop.order_items", "shop.products", "shop.stock")

HOSTILE = (
    "<script>document.title='owned'</script>.a",
    '"><img src=x onerror=document.title="owned">.b',
    "shop.\u202egpj.exe",
    "shop.\x1b[2J\x07x",
    "shop.</style></title></script>'`--",
    "shop.javascript:alert(1)",
    "shop.a\u200bb\u2028c",
)
"""Names that would run, hide, or turn something if they were not escaped."""


def points(now: float = NOW, seconds: int = 3 * 3600, *, gap: bool = True) -> list[Point]:
    """Some hours of points: a calm feed with a burst, and a while in which nothing was known."""
    found = []
    for at in range(int(now - seconds) // 10 * 10, int(now), 10):
        ago = now - at
        if gap and 4800 < ago < 5700:
            continue
        wave = 0.5 + 0.5 * math.sin(at / 1700) + 0.15 * math.sin(at / 61)
        burst = math.exp(-(((ago - 2600) / 300) ** 2))
        lag = 0.6 + 0.4 * wave + 5.0 * burst + (11.0 * (ago - 4500) / 300 if 4500 < ago <= 4800 else 0)
        found.append(Point(at, round(lag, 3), int(2900 + 9200 * wave**2 + 21000 * burst), 9000, int(4000 * burst)))
    return found


def steps(now: float = NOW, count: int = 20) -> tuple[StepProgress, ...]:
    """The last steps, newest first."""
    found = []
    for at in range(count):
        share = 1 + 0.5 * math.sin(at * 1.7)
        times = {"plan": 0.002, "read": 0.03 * share, "decode": 0.06 * share, "apply": 0.62 * share, "checkpoint": 0.11}
        if at % 7 == 3:
            times = {"maintain": 0.48, **times}
        rows = int(1900 * share)
        found.append(StepProgress(4812 - at, iso(int((now - 2 * at) * 1000)), 0.8, rows + 90, rows, 4, 0, times))
    return tuple(found)


def table(name: str, number: int = 0, **given: object) -> TableProgress:
    """A table in step."""
    stamp = 470_700_000_000_000_000 + number
    at = iso(int((NOW - 3 * (number % 40) - 1) * 1000))
    rows, files = 1000 + number * 7919 % 900_000, 3 + number * 31 % 60
    known = TableProgress(name, name, "in step", stamp, at, 0.7, rows, files, at, 10**18 + number, 10**18 + number)
    return replace(known, **given)  # type: ignore[arg-type]


def dropped(name: str, place: str) -> DroppedTable:
    """A table that was dropped upstream and is kept; the process does not know its rows."""
    return DroppedTable(
        name, place, 470_606_913_415_151_618, iso(int(NOW * 1000)), WaysOut.of_dropped("lake", *place.split(".", 1))
    )


def report(tables: Sequence[TableProgress], lag: float = 0.7, now: float = NOW) -> StatusReport:
    """A report on a changefeed that is held."""
    since, seen = iso(int((now - 9 * 3600) * 1000)), iso(int((now - 0.4) * 1000))
    resolved = iso(int((now - lag) * 1000))
    found = StatusReport(
        "shop",
        300.0,
        iso(int(now * 1000)),
        resolved_ts=int((now - lag) * 1000) << 18,
        resolved=resolved,
        lag_seconds=lag,
        step=4812,
        holder=HolderReport("process 4711 on loader-1", "loader-1", 4711, 12, since, seen, 0.4, released=False),
        steps=steps(now),
        explanation="Apply takes 70% of the steps' time: commits of rows to tables, 4 a step on average.",
        tables=tuple(tables),
        dropped=(),
        partitions=tuple(
            PartitionProgress("shop", at, 88_000 + 97 * at, 1, iso(int((now - 0.7 - 0.1 * at) * 1000)))
            for at in range(4)
        ),
        schema_changes=(
            DdlReport(
                9,
                since,
                "shop.orders",
                "add_column",
                "applied",
                "",
                "ALTER TABLE `orders` ADD COLUMN `note` VARCHAR(200)",
                since,
            ),
            DdlReport(
                8,
                since,
                "shop.stock",
                "create_table",
                "applied",
                "",
                f"CREATE TABLE `stock` ({', '.join(f'`c{at}` INT' for at in range(30))})",
                since,
            ),
        ),
        schema_change_count=7,
        cut=tuple(
            f"SELECT * FROM lake.{one.iceberg} VERSION AS OF {one.cut_snapshot_id};"
            for one in tables
            if one.cut_snapshot_id
        ),
    )
    return replace(found, stale=(*judged(found, ""), *compose.lacking(tables, {}, WaysOut())))


def fresh(now: float = NOW) -> View:
    """All is well."""
    return View(
        report([table(name, at * 17) for at, name in enumerate(_NAMES)], now=now), points(now), "running", None, now
    )


def quickstart() -> View:
    """The tables that `make demo` makes, as if their changefeed went on; the last hours are made up."""
    known = json.loads(_QUICKSTART.read_text("utf-8"))
    tables = [TableProgress(**one) for one in known["tables"]]
    moved = [
        replace(
            one,
            lag_seconds=0.7,
            rows=one.rows * 1043 + 7,
            files=one.files + 3 * at,
            committed=iso(int((NOW - 1 - at) * 1000)),
        )
        for at, one in enumerate(tables)
    ]
    found = report(moved)
    ddl = tuple(DdlReport(**one) for one in known["schema_changes"])
    found = replace(
        found, changefeed="quickstart", schema_changes=ddl, schema_change_count=len(ddl), cut=tuple(known["cut"])
    )
    return View(found, points(), "running", None, NOW)


def stale() -> View:
    """Parked and incomplete tables, dead letters, a refused DDL, and a system that does not answer."""
    parked = table(
        "shop.orders",
        3,
        state="parked",
        because="Table shop.orders is parked since resolved ts 470699999999999999: a DDL cannot be applied.",
        way_out="mend what the reason names, then run `applier resume -c applier.toml --tables 'shop.orders'`.",
        lag_seconds=5400.0,
        cut_snapshot_id=None,
    )
    lacking = table(
        "shop.stock",
        4,
        state="incomplete",
        because="Table shop.stock is incomplete: the feed does not hold its CREATE TABLE, so rows may be missing.",
        way_out="run `applier resume -c applier.toml --tables 'shop.stock'` if the feed still holds its CREATE TABLE; "
        "or export it with `tiup dumpling --params 'time_zone=+00:00' -o DIR` and run "
        "`applier load -c applier.toml --from DIR --tables 'shop.stock'`.",
        cut_snapshot_id=None,
    )
    loading = table(
        "shop.products",
        5,
        state="loading",
        because="Table shop.products is loading: its rows are still to be loaded.",
        way_out="run `applier load -c applier.toml --from DIR --tables 'shop.products'` again, which goes on.",
        caught_up=0.73,
        lag_seconds=None,
        cut_snapshot_id=None,
    )
    found = report(
        [
            table("shop.customers"),
            parked,
            lacking,
            loading,
            table("shop.old", 6, state="dropped", lag_seconds=None, cut_snapshot_id=None),
        ],
        lag=412.0,
    )
    refused = DdlReport(
        10,
        found.now,
        "shop.orders",
        "modify_column",
        "pending",
        "a bigint cannot become a varchar in place",
        "ALTER TABLE `orders` MODIFY COLUMN `id` VARCHAR(20)",
        found.now,
    )
    letter = LetterReport("shop", 2, 88_112, "The value ends within a string at byte 211.", 4801, found.now)
    found = replace(
        found,
        schema_changes=(refused, *found.schema_changes),
        dead_letters=(letter,),
        dead_letter_count=3,
        dropped=(
            dropped("shop.stock", "shop.stock_dropped_470606913415151618"),
            dropped("shop.ratings", "shop.ratings"),
        ),
        notes=(Trouble("3 messages were set aside as dead letters."),),
    )
    return View(found, points()[:-40], "running", "Kafka at broker-1:9092 does not answer: connection refused.", NOW)


def many(count: int = 1000) -> View:
    """A changefeed of many tables, three of them parked."""
    found = [table(f"shop.t{at:04d}", at) for at in range(count)]
    for at in (count // 2, count * 7 // 10, count * 9 // 10):
        name = found[at].table
        found[at] = replace(
            found[at], state="parked", because=f"Table {name} is parked: asked for.", way_out="run `applier resume`."
        )
    return View(report(found), points(), "running", None, NOW)


def starting() -> View:
    """Nothing is known yet."""
    empty = StatusReport("shop", 300.0, iso(int(NOW * 1000)))
    return View(
        replace(empty, stale=tuple(judged(empty, "start `applier run -c applier.toml`."))), (), "starting", None, NOW
    )


def hostile() -> View:
    """Names, statements and messages that attack the page."""
    tables = [
        table(
            name,
            at,
            state="parked",
            because=f"Table {name} is parked: {name}.",
            way_out=f"run `applier resume '{name}'`.",
        )
        for at, name in enumerate(HOSTILE)
    ]
    found = report(tables)
    bad = HOSTILE[0]
    holder = replace(found.holder, name=bad) if found.holder else None
    found = replace(
        found,
        changefeed=bad,
        holder=holder,
        notes=tuple(map(Trouble, HOSTILE)),
        schema_changes=tuple(
            DdlReport(at, found.now, name, bad, name, name, name * 9, found.now) for at, name in enumerate(HOSTILE)
        ),
        dead_letters=tuple(LetterReport(name, 0, at, name, 1, found.now) for at, name in enumerate(HOSTILE)),
        dead_letter_count=7,
        dropped=tuple(dropped(name, bad) for name in HOSTILE),
        partitions=tuple(PartitionProgress(name, 0, 1, None, None) for name in HOSTILE),
    )
    return View(found, points(), "running", bad, NOW)
