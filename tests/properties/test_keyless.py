"""Rows without a key, sent again to whatever partitions of a topic that grows: the table is the database's.

KEYLESS says how many histories, SEED_FROM with which seed they begin.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Sequence

import pyarrow as pa
import pytest

from applier.changefeed.change_batch import KeylessBatch
from applier.changefeed.message import MESSAGE_SCHEMA, by_place
from applier.changefeed.table import Keyless, TableName
from applier.changefeed.types import TypeRules
from applier.decode.options import DecoderOptions
from applier.order.feed_order import ResolvedOrder
from applier.order.merge import IMAGE, merge, together
from applier.order.pieces import shares, within
from applier.pipeline.scan.decode_task import DecodeTask
from applier.pipeline.scan.task_result import Part, TaskResult
from tests.lab import bag
from tests.properties.histories import History
from tests.ticdc import Changefeed, Habits, Record

_FROM = int(os.environ.get("SEED_FROM") or 0)
SEEDS = range(_FROM, _FROM + int(os.environ.get("KEYLESS") or 40))


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_sent_again_to_other_partitions_count_once(seed: int) -> None:
    """Wherever a step ends in the feed, its tables hold what the database held at the watermark."""
    chance = random.Random(seed)
    feed = _feed(chance)
    tables: defaultdict[TableName, Counter[str]] = defaultdict(Counter)
    applied = 0
    for end in sorted({*(chance.randrange(len(feed.records)) for _ in range(4)), len(feed.records)}):
        sent = feed.records[:end]
        upto = max(applied, _watermark(sent))
        for (name, _), parts in _read(sent, applied, upto, tasks=chance.randint(1, 3)).parts.items():
            batch = merge([part.here for part in parts], parts[0].version.shape)
            assert isinstance(batch, KeylessBatch)
            assert _parted(parts) == [bag(rows.to_pylist()) for rows in (batch.inserts, batch.deletes)]
            tables[name].update(bag(batch.inserts.to_pylist()))
            tables[name].subtract(bag(batch.deletes.to_pylist()))
        applied = upto
        found = {name: sorted(rows.elements()) for name, rows in tables.items() if +rows}
        wanted = {TableName(*name): bag(rows) for name, (_, rows) in feed.database.at(applied).items() if rows}
        assert found == wanted
        assert all(count >= 0 for rows in tables.values() for count in rows.values())

    assert applied == feed.database.ts


def _parted(parts: Sequence[Part]) -> list[list[str]]:
    """What shares of the rows make of them, each of its own; what is found may be in any of them."""
    cuts = [part.apart(0, number, (), 4) for number, part in enumerate(parts)]
    told = [part.away for part, _ in cuts]
    found: list[list[str]] = [[], []]
    for share in shares(told, sum(one.size for one in told) / 3):
        rows = [
            [
                within(pieces[number], (IMAGE,), (), share) if is_coarse else pieces[number]
                for number, is_coarse in one.of(share)
            ]
            for one, (_, pieces) in zip(told, cuts, strict=True)
        ]
        tables = [pa.concat_tables(one) for one in rows if one]
        batch = merge([together(one) if share.is_all else one for one in tables], Keyless()) if tables else None
        if isinstance(batch, KeylessBatch):
            found = [
                one + bag(more.to_pylist()) for one, more in zip(found, (batch.inserts, batch.deletes), strict=True)
            ]
    return [sorted(one) for one in found]


def _feed(chance: random.Random) -> Changefeed:
    history = History(chance, ddl=0, keyless=1.0)
    history.begin(chance.randint(1, 2))
    history.go_on(25)
    dispatcher = chance.choice(["table", "ts", "scatter"])
    habits = Habits(partitions=chance.randint(1, 3), dispatcher=dispatcher, resolve=0.2, restart=0.15, grows=True)
    feed = Changefeed(history.database, habits, chance.randrange(1 << 30))
    feed.send()
    return feed


def _watermark(sent: Sequence[Record]) -> int:
    resolved = {record["partition"]: 0 for record in sent}
    for record in sent:
        message = json.loads(record["value"])
        if message["type"] == "WATERMARK":
            resolved[record["partition"]] = max(resolved[record["partition"]], message["commitTs"])
    return min(resolved.values(), default=0)


def _read(sent: Sequence[Record], applied: int, upto: int, tasks: int) -> TaskResult:
    """What tasks find that each read some of the partitions."""
    job = DecodeTask("simple", DecoderOptions(), TypeRules(), ("*.*",), (), upto, ResolvedOrder(applied))
    shares = [[record for record in sent if record["partition"] % tasks == task] for task in range(tasks)]
    return TaskResult.sum(
        job(by_place(pa.Table.from_pylist(sorted(share, key=lambda record: record["partition"]), MESSAGE_SCHEMA)))
        for share in shares
        if share
    )
