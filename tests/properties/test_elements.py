"""Every element of a schedule is really drawn: what the feeds of 200 seeds hold, without the job."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Collection

from tests.properties.apart import is_apart
from tests.properties.elements import Elements
from tests.properties.schedules import feed_of
from tests.ticdc import Changefeed
from tests.upstream import Ddl, Name, Rows

SEEDS = range(200)


def _ddl(feed: Changefeed) -> list[Ddl]:
    return [item for item in feed.database.log if isinstance(item, Ddl)]


def _statements(feed: Changefeed) -> list[list[Ddl]]:
    """Statements that rename several tables, as their parts."""
    counts = Counter(ddl.ts for ddl in _ddl(feed))
    return [[ddl for ddl in _ddl(feed) if ddl.ts == ts] for ts, count in counts.items() if count > 1]


def _sent(feed: Changefeed) -> list[tuple[str, str]]:
    """Topics and texts of DDL in the order of sending."""
    values = [(record["topic"], json.loads(record["value"])) for record in feed.records if record["partition"] == 0]
    return [(topic, value["sql"]) for topic, value in values if "sql" in value]


def _found(feed: Changefeed) -> set[str]:
    """What a feed holds."""
    found = _of_databases(feed)
    for ddl in _ddl(feed):
        if not any(name.quoted in ddl.sql for name in ddl.names):
            found.add("letters")
        left = {item.before.name for item in _ddl(feed) if item.before is not None and item.ts < ddl.ts}
        if ddl.kind == "CREATE" and left & set(ddl.names):
            found.add("created anew")
    sent = _sent(feed)
    for parts in _statements(feed):
        texts = [ddl.sql for ddl in parts]
        found.add(f"{len(parts)} renames")
        if len({topic for topic, sql in sent if sql in texts}) > 1:
            found.add("topics")
        places = [next(place for place, (_, sql) in enumerate(sent) if sql == text) for text in texts]
        if places != sorted(places):
            found.add("shuffled")
    rows = [item for item in feed.database.log if isinstance(item, Rows)]
    if any(is_apart(item.schema.name) for item in rows):
        found.add("rows of tables that runs leave out")
    if feed.database.filtered and any(change.new is None for item in rows for change in item.changes):
        found.add("deletes that the feed leaves out")
    if _has_moved(feed, {item.schema.name for item in rows if not item.schema.key}):
        found.add("rows without a key in another partition")
    return found


def _of_databases(feed: Changefeed) -> set[str]:
    """What becomes of databases, and of the letters of names."""
    assert all(_is_once(feed.database.at(ddl.ts)) for ddl in _ddl(feed)), "a table is there twice"
    if all(ddl.schema is not None for ddl in _ddl(feed)):
        return set()
    is_other = not _is_once({name for ddl in _ddl(feed) for name in ddl.names})
    return {"databases", "other letters"} if is_other else {"databases"}


def _is_once(names: Collection[Name]) -> bool:
    """Whether no two names differ in letters alone."""
    return len({(name.database.lower(), name.table.lower()) for name in names}) == len(names)


def _has_moved(feed: Changefeed, names: set[Name]) -> bool:
    """Whether a row of some tables came to two partitions."""
    places: defaultdict[bytes, set[int]] = defaultdict(set)
    for record in feed.records:
        places[record["value"]].add(record["partition"])
    return any(len(where) > 1 and _table(value) in names for value, where in places.items())


def _table(value: bytes) -> Name | None:
    message = json.loads(value)
    is_row = message["type"] in {"INSERT", "UPDATE", "DELETE"}
    return Name(message["database"], message["table"]) if is_row else None


def test_each_element_is_drawn() -> None:
    """Of 200 seeds many hold each of them, and a seed draws the same again."""
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        elements = Elements.drawn(seed)
        feed = feed_of(random.Random(seed), elements=elements)
        assert feed.records == feed_of(random.Random(seed), elements=Elements.drawn(seed)).records
        counts.update(_found(feed))
        counts["days later"] += elements.upkeep

    assert {name: count for name, count in counts.items() if count < 10} == {}
    assert counts.keys() == {
        *("letters", "2 renames", "3 renames", "4 renames", "topics", "shuffled"),
        *("created anew", "days later", "rows of tables that runs leave out", "deletes that the feed leaves out"),
        *("rows without a key in another partition", "databases", "other letters"),
    }
