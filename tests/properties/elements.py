"""A seed in, what a schedule has beside crashes out: each element in a share of all schedules, in any company."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Elements:
    """What a schedule has beside rows, DDL, crashes and restarts.

    Attributes:
        letters: DDL are typed in any letters, with and without quotes and databases.
        renames: A statement renames several tables: swaps, shifts, turns and cut-overs.
        shuffled: The parts of such a statement come in any order; not in offset order, where a step may end between.
        topics: Each table has a topic of its own; not in offset order, where nothing orders two topics.
        upkeep: A table is made under a name that another one just left, and days pass between steps, after which every
            table is maintained.
        include: Runs begin with `tables.include` changed: some tables are left out, and taken in again.
        filtered: The changefeed leaves out deletes, and the configuration ignores TRUNCATE; see `tests/upstream.py`.
        keyless: Most tables have no key, and restarts send their rows again to other partitions, as the topic grows;
            not in offset order, where a later step takes them for new.
        databases: A database is dropped and made again, often in other letters, and so are tables.
        beside: Files are merged and snapshots expire while steps go on, as soon as two files or snapshots are there.
        partitions: Most tables are partitioned, and exchange partitions with new tables.
    """

    letters: bool = False
    renames: bool = False
    shuffled: bool = False
    topics: bool = False
    upkeep: bool = False
    include: bool = False
    filtered: bool = False
    keyless: bool = False
    databases: bool = False
    beside: bool = False
    partitions: bool = False

    @staticmethod
    def drawn(seed: int, order: str = "resolved") -> Elements:
        """Those of a seed."""
        chance = random.Random(f"elements of {seed}")
        letters, renames, shuffled, topics = (chance.random() < share for share in (0.4, 0.4, 0.5, 0.5))
        upkeep, include, filtered = (chance.random() < share for share in (0.3, 0.3, 0.25))
        keyless = chance.random() < 0.3
        by_offset = order == "offset"
        return Elements(
            letters=letters,
            renames=renames,
            shuffled=renames and shuffled and not by_offset,
            topics=renames and topics and not by_offset,
            upkeep=upkeep,
            include=include and not by_offset,
            filtered=filtered,
            keyless=keyless and not by_offset,
            databases=random.Random(f"databases of {seed}").random() < 0.3,
            beside=random.Random(f"beside {seed}").random() < 0.5,
        )


PLAIN = Elements()
