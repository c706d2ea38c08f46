"""Every image of each change that a feed brings, by plain Python, held against the tables of changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyiceberg.table import StaticTable

from applier.changefeed.history import COMPLETE_FROM, KEPT_FROM
from tests.lab import OTHERS
from tests.properties.life_shapes import LifeShape
from tests.properties.lives import Life, follow
from tests.ticdc import Record
from tests.upstream import Change, Database, Ddl, Name, Row, Rows, Schema

_SHOWN = 3


@dataclass(slots=True)
class _Images:
    """The images of one life: what each change is, and its row, by commit ts, key and side."""

    schema: Schema
    rows: dict[tuple[int, int, str], tuple[str, Row]] = field(default_factory=dict)
    versions: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class LifeChanges:
    """The changes of all tables of a life.

    Args:
        database: The upstream.
        records: What was sent of it.
        shape: The shape of all tables.
    """

    database: Database
    records: Sequence[Record]
    shape: LifeShape

    def at(self, ts: int) -> dict[Life, list[Row]]:
        """The rows that the table of changes of each life has at a moment, if it has had all of them."""
        return {life: list(self._shown(images)) for life, images in self._images(ts).items()}

    def problems(
        self,
        ts: int,
        names: Mapping[Name, Life],
        whole: Mapping[Name, StaticTable],
        tables: Mapping[Name, StaticTable],
    ) -> list[str]:
        """What is wrong with the tables of changes of tables.

        Args:
            ts: The moment.
            names: The tables, of which those that are not whole may have the changes of later moments already.
            whole: Those whose changes are all there up to the moment. One without changes has had none since its load.
            tables: The tables of changes that are there.
        """
        now, later = self.at(ts), self.at(self.database.ts)
        found = list[str]()
        for name, life in names.items():
            table = tables.get(name)
            here = [] if table is None else _rows(table)
            begin = 0 if table is None else int(table.properties.get(COMPLETE_FROM) or 0)
            if name in whole:
                begin = begin if table is not None else int(whole[name].properties.get(KEPT_FROM) or 0)
                problem = _differing(here, now.get(life, []), begin)
            else:
                problem = _differing(_keys(here), _keys(later.get(life, [])), self.database.ts)
            found += [f"changes of {name}, complete from {begin}: {line}" for line in problem]
        return found

    def _images(self, ts: int) -> dict[Life, _Images]:
        sent, names, found = self._sent(), dict[Name, Life](), dict[Life, _Images]()
        for item in self.database.log:
            if item.ts > ts:
                break
            if isinstance(item, Ddl):
                follow(item, names)
                life = None if item.schema is None else names.get(item.schema.name)
                if life is not None and item.schema is not None:
                    self._rewrite(found.setdefault(life, _Images(item.schema)), item.schema)
            else:
                self._take(found[names[item.schema.name]], item, sent.get((item.ts, item.schema.name), []))
        return found

    def _sent(self) -> dict[tuple[int, Name], list[Change]]:
        """The changes of each transaction as they were sent, each once or more."""
        found: dict[tuple[int, Name], list[Change]] = {}
        for record in self.records:
            if record["change"] is not None:
                item, change = record["change"]
                found.setdefault((item.ts, item.schema.name), []).append(change)
        return found

    def _rewrite(self, images: _Images, schema: Schema) -> None:
        images.schema = schema
        rewrite = self.database.rewrites.get(schema.version)
        if rewrite is not None and schema.version not in images.versions:
            images.versions.add(schema.version)
            images.rows = {key: (op, rewrite(row)) for key, (op, row) in images.rows.items()}

    def _take(self, images: _Images, item: Rows, changes: Iterable[Change]) -> None:
        for old, new in changes:
            op = "insert" if old is None else "delete" if new is None else "update"
            is_moved = old is not None and new is not None and old["id"] != new["id"]
            if old is not None and (new is None or is_moved or self.shape.history == "images"):
                images.rows[item.ts, int(str(old["id"])), "before"] = op, old
            if new is not None:
                images.rows[item.ts, int(str(new["id"])), "after"] = op, new

    def _shown(self, images: _Images) -> Iterator[dict[str, Any]]:
        for (ts, _, image), (op, row) in images.rows.items():
            (shaped,) = self.shape.rows(images.schema, [row])
            time = datetime.fromtimestamp((ts >> 18) / 1000, UTC)
            yield {**shaped, "_commit_ts": ts, "_commit_time": time, "_op": op, "_image": image}


def _rows(table: StaticTable) -> list[dict[str, Any]]:
    found = table.scan().to_arrow()
    rows: list[dict[str, Any]] = found.select([n for n in found.column_names if not n.startswith(OTHERS)]).to_pylist()
    return [{**row, "_commit_time": row["_commit_time"].astimezone(UTC)} for row in rows]


def _keys(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows by what no DDL changes."""
    return [{name: row[name] for name in ("id", "_commit_ts", "_op", "_image")} for row in rows]


def _differing(here: Iterable[Mapping[str, Any]], there: Iterable[Mapping[str, Any]], begin: int) -> list[str]:
    """How rows differ from those that are wanted; at or below `begin`, some may be missing."""
    has, wants = _bag(here), _bag(there)
    extra, lost = has - wants, Counter({row: 1 for row in wants if row[0] > begin}) - has
    return [
        f"{len(rows)} rows are {what}: {sorted(rows)[:_SHOWN]}"
        for rows, what in ((extra, "too many"), (lost, "missing"))
        if rows
    ]


def _bag(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, str]]:
    return Counter((int(row["_commit_ts"]), repr(sorted(row.items()))) for row in rows)
