"""Loads of exports in the life of some tables: each begins, goes on after a crash, and ends, or is given up."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from unittest import mock

from applier.changefeed.table import TableName
from applier.decode.dump.export import Export
from applier.errors import TerminalError
from applier.pipeline.load import loading
from applier.pipeline.load.loading import Loader
from applier.pipeline.step import Pipeline
from tests.properties import exports
from tests.properties.lives import Life, Lives
from tests.ticdc import TOPIC, Record
from tests.upstream import Ddl, Name


@dataclass(slots=True)
class OpenLoad:
    """A load that has begun.

    Attributes:
        export: What it loads.
        names: The tables.
        request: The id of its last request.
        is_loaded: All rows are in the tables aside.
    """

    export: Export
    names: Sequence[TableName]
    request: str = ""
    is_loaded: bool = False

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.names))} as of {self.export.tso}"


@dataclass(slots=True)
class Loads:
    """The loads of one changefeed, and what they make of its tables.

    Args:
        lives: The tables of the database.
        random: The draw.
        folder: Where exports go.

    Attributes:
        open: Loads under way.
        begun: All loads.
        loading: Tables that were to be loaded, and are not live since.
        unborn: Names under which tables are loaded that the changefeed did not know.
        lacked: Tables that the load at which the changefeed begins left out.
        left_behind: Those of them that were not live since.
        whole_at: TSOs of the exports of a table of which rows were loaded.
    """

    lives: Lives
    random: random.Random
    folder: Path
    open: list[OpenLoad] = field(default_factory=list)
    begun: list[OpenLoad] = field(default_factory=list)
    loading: set[Life] = field(default_factory=set)
    unborn: set[Name] = field(default_factory=set)
    lacked: set[Life] = field(default_factory=set)
    left_behind: set[Life] = field(default_factory=set)
    whole_at: dict[Life, set[int]] = field(default_factory=lambda: defaultdict(set))
    _numbers: count[int] = field(default_factory=count)

    def begin(self, names: Iterable[Name], tso: int) -> OpenLoad:
        """Export tables; their load is under way from here on."""
        chosen = sorted(names)
        folder = exports.write(
            self.lives.database, chosen, tso, self.folder / f"export-{next(self._numbers)}", self.random
        )
        load = OpenLoad(Export.find(str(folder)), [TableName(*name) for name in chosen])
        self.open.append(load)
        self.begun.append(load)
        return load

    def drawn_tso(self, reached: int, resolved_ts: int) -> int | None:
        """A moment of which an export may be while the feed has come to another; None if there is none."""
        past = [item.ts for item in self.lives.database.log if item.ts <= reached]
        if not past:
            return None
        ddl = [item.ts for item in self.lives.database.log if isinstance(item, Ddl) and item.ts <= reached]
        near = [ts for ts in past if abs(ts - resolved_ts) <= 10]
        kinds = [past, past[-8:], ddl, ddl[-6:], near, [ts for ts in (resolved_ts,) if past[0] <= ts <= reached]]
        return self.random.choice(self.random.choice([kind for kind in kinds if kind]))

    def bulk(self, pipeline: Pipeline, load: OpenLoad) -> Mapping[TableName, TerminalError]:
        """Load rows aside, as a process of its own does, with small commits or large ones."""
        lives = self.lives.at(load.export.tso)
        for name in load.names:
            self.whole_at[lives[Name(*name)]].add(load.export.tso)
        targets = replace(pipeline.targets, confirm=lambda: None)
        with mock.patch.object(loading, "GROUP_BYTES", self.random.choice([1, 40, 1 << 20])):
            refused = Loader(targets, load.export, exports.FORM).all(load.names)
        load.is_loaded = True
        return refused

    def note(self, names: Iterable[Name], lives: Mapping[Name, Life]) -> None:
        """Take note that tables are to be loaded, or catch up."""
        for name in names:
            if name in lives:
                self.loading.add(lives[name])
            else:
                self.unborn.add(name)

    def may_wait(self, name: Name, life: Life | None) -> bool:
        """Whether a table may be parked for a load."""
        return life in self.loading or name in self.unborn

    def owed(self, life: Life, refused: Iterable[int]) -> set[int]:
        """Of the statements of a table that were refused, those that no export of it holds."""
        latest = max(self.whole_at.get(life, ()), default=0)
        return {ts for ts in refused if ts > latest}


def reached(records: Sequence[Record]) -> int:
    """The resolved ts that all partitions have come to; those of a topic of a dropped table stay behind."""
    found: dict[int, int] = {}
    for record in records:
        if record["topic"] == TOPIC:
            resolved = record["of"] if isinstance(record["of"], int) else 0
            found[record["partition"]] = max(found.get(record["partition"], 0), resolved)
    return min(found.values(), default=0)
