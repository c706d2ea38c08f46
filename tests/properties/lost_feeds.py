"""A draw in, a feed out that has lost messages on its way to the applier, and what it cannot show for that."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from applier.changefeed.message import TopicPartition
from tests.properties import spoilt
from tests.properties.elements import Elements
from tests.properties.histories import History
from tests.properties.lives import Life, Lives
from tests.properties.told_by_rows import TYPES
from tests.ticdc import Changefeed, Habits
from tests.upstream import Ddl, Name
from tests.wires import Registry, messages

PROTOCOLS = ("simple", "simple", "simple", "open", "canal-json", "debezium")
_MORE_NAMES = [Name("shop", "side"), Name("mart", "side")]
"""For tables that exchange partitions, which all need a name that is free."""


@dataclass(slots=True)
class LostFeed:
    """A changefeed with bad messages, and without some of its DDL.

    Args:
        random: The draw.
        size: Events of the database.
        claims: Where rows go that are too large for a message.

    Attributes:
        order: As in the configuration.
        protocol: Its protocol.
        feed: What was sent.
        bad: Tables with a bad message.
        places: Where such messages are.
        hidden: Tables of which the feed does not hold a CREATE TABLE or a RENAME.
        blurred: Those that have a name which they, or others, left unseen: the feed does not show whose its rows are.
        story: What became of it.
    """

    random: random.Random
    size: int
    claims: Path
    order: str = field(init=False)
    protocol: str = field(init=False)
    feed: Changefeed = field(init=False)
    bad: set[Life] = field(default_factory=set)
    places: list[tuple[TopicPartition, int]] = field(default_factory=list)
    hidden: set[Life] = field(default_factory=set)
    blurred: set[Life] = field(default_factory=set)
    story: list[str] = field(default_factory=list)
    _unseen: set[int] = field(default_factory=set)
    _moments: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        chance = self.random
        self.order = chance.choice(["resolved", "resolved", "resolved", "offset"])
        self.protocol = chance.choice(PROTOCOLS)
        elements = Elements(
            renames=chance.random() < 0.5,
            upkeep=chance.random() < 0.5,
            include=chance.random() < 0.5,
            databases=chance.random() < 0.2,
            partitions=chance.random() < 0.5,
        )
        self.feed = self._sent(elements)
        self.story.append(f"{self.order} {self.protocol} {elements} {self.feed.habits}")
        if chance.random() < 0.5:
            self._hide()
        if self.order == "offset":
            self._moments = self._exact()
        self._spoil()

    @property
    def lives(self) -> Lives:
        """The tables of the database."""
        return Lives(self.feed.database)

    def _sent(self, elements: Elements) -> Changefeed:
        chance, by_offset = self.random, self.order == "offset"
        history = History(chance, chance.choice([0.25, 0.4]), elements=elements)
        if self.protocol != "simple":
            history.types, history.keyless = TYPES, 0.0
            history.database.tells_former = self.protocol == "debezium"
        if elements.partitions:
            history.names = [*history.names, *_MORE_NAMES]
        history.begin(chance.randint(2, 3))
        history.go_on(self.size)
        history.database.tick()
        habits = Habits(
            partitions=1 if by_offset else chance.randint(1, 2),
            dispatcher=chance.choice(["table", "index-value", "scatter"]),
            twice=chance.choice([0.0, 0.1]),
            resolve=chance.choice([0.3, 0.6]),
            edges=0.4,
            restart=chance.choice([0.0, 0.05]),
            leaps=not by_offset,
        )
        feed = Changefeed(
            history.database, habits, chance.randrange(1 << 30), messages(self.protocol, registry=Registry())
        )
        feed.send()
        return feed

    def _spoil(self) -> None:
        chance, lives = self.random, self.lives
        for kind, record in spoilt.spoil(self.feed, chance, chance.choice([0, 1, 1, 2, 3, 4]), self.claims):
            item, _ = record["change"]
            self.places.append((TopicPartition(record["topic"], record["partition"]), record["offset"]))
            self.bad.add(lives.at(item.ts)[item.schema.name])
            self.story.append(f"row of {_short(item.schema.name)} at {item.ts % 1000} {kind}")

    # ---- DDL that do not come

    def _hide(self) -> None:
        chance = self.random
        ddl = [item for item in self.feed.database.log if isinstance(item, Ddl)]
        alone = {item.ts for item in ddl if sum(other.ts == item.ts for other in ddl) == 1}
        made = [item for item in ddl if item.kind == "CREATE"]
        # Without it, the tables that are known do not show who takes the name in a swap.
        traded = {name for item in ddl if item.ts not in alone for name in item.names}
        others = [item for item in ddl if item.kind in ("RENAME", "ERASE") and item.ts in alone]
        others = [
            item for item in others if traded.isdisjoint((*item.names, *([item.schema.name] if item.schema else [])))
        ]
        chosen = chance.sample(made, min(len(made), chance.choice([0, 0, 1, 2])))
        chosen += chance.sample(others, min(len(others), chance.choice([0, 1, 1, 2])))
        for item in chosen:
            spoilt.hide(self.feed, item)
            self.story.append(f"no {item.kind} of {_short(item.names[0])} at {item.ts % 1000}")
        self._unseen = {item.ts for item in chosen if item.kind != "CREATE"}
        for item in chosen:
            self._note(item, ddl)

    def _note(self, hidden: Ddl, ddl: list[Ddl]) -> None:
        if hidden.schema is None or hidden.kind == "ERASE":
            return
        name, before = hidden.schema.name, hidden.before and hidden.before.name
        life = self.lives.at(hidden.ts)[name]
        self.hidden.add(life)
        later = [self.lives.at(item.ts) for item in ddl if item.ts > hidden.ts]
        # Or its rows come under the name of a table that left it unseen.
        if any(before and at.get(before) == life for at in later) or self.is_left_unseen(name, hidden.ts - 1):
            self.blurred.add(life)

    def is_left_unseen(self, name: Name, ts: int) -> bool:
        """Whether a table that is not there at a moment left its name by a DDL that the feed does not hold."""
        at, is_unseen = dict[Name, Life](), False
        for item in (item for item in self.feed.database.log if isinstance(item, Ddl) and item.ts <= ts):
            before, at = at, self.lives.at(item.ts)
            if name in before and name not in at:
                is_unseen = item.ts in self._unseen
        return is_unseen

    # ---- offset order

    def as_of(self, resolved_ts: int, next_offset: int) -> int:
        """The TSO as of which tables are that were read so far; 0 where they are as of none."""
        return self._moments.get(next_offset, 0) if self.order == "offset" else resolved_ts

    def _exact(self) -> dict[int, int]:
        """By next offset, the TSO that all is of which lies before it, and before which all lies there."""
        found: dict[int, int] = {}
        newest = mark = 0
        sent: set[Ddl] = set()
        ddl = [record["of"] for record in self.feed.records if isinstance(record["of"], Ddl)]
        for record in self.feed.records:
            of = record["of"]
            if isinstance(of, int):
                due = {item for item in ddl if item.ts <= of}
                mark = of if of >= newest and due <= sent else 0
            elif of is not None or record["change"] is not None:
                item = of if of is not None else record["change"][0]
                sent |= {item} if isinstance(item, Ddl) else set()
                newest, mark = max(newest, item.ts), 0
            found[record["offset"] + 1] = mark
        return found


def _short(name: Name) -> str:
    return f"{name.database}.{name.table}"
