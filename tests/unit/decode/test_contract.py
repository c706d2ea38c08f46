"""One contract for all decoders: the same upstream row gives the same Iceberg row, but for the losses of its protocol.

Each recorded variant is held against `simple-json`, row by row and cell by cell. A difference must be one that
`docs/protocols.md` names for the protocol, and each loss that it names must be seen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from applier.changefeed.table import Column, TableName
from applier.decode.avro.namesakes import sanitised
from tests import recordings
from tests.fuzz.corpus import protocol_of
from tests.losses import explained
from tests.unit.decode.contract import Cells, Place, Written, feed

pytestmark = pytest.mark.slow

OFTEN, SELDOM = ("types", "pk"), ("ddl", "partition", "txns")
"""Scenarios that `make test` compares, and those that `make test-recorded` does: they are of the same types."""

CASES = [
    pytest.param(scenario, variant, marks=() if scenario in OFTEN else pytest.mark.soak)
    for scenario in (*OFTEN, *SELDOM)
    for variant in recordings.variants(scenario)
]
KEYLESS = {TableName("keys", "k_none"), TableName("keys", "k_nulluk")}
"""In feeds with `force-replicate` only."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for claim-check files."""
    return tmp_path_factory.mktemp("claims")


@dataclass(frozen=True, slots=True)
class Pair:
    """A variant beside `simple-json` of the same scenario."""

    scenario: str
    variant: str
    folder: Path

    @property
    def sides(self) -> tuple[Written, Written]:
        """What both would write; without commit ts where the variant has none."""
        wanted = feed(self.scenario, "simple-json", self.folder)
        found = feed(self.scenario, self.variant, self.folder / self.variant)
        has_times = any(ts for _, ts in found.rows)
        return (wanted.unsplit(), found.unsplit()) if has_times else (wanted.timeless(), found.timeless())

    @property
    def absent(self) -> set[TableName]:
        """Tables that TiCDC does not send: its encoder refuses them, or they have no key."""
        told = recordings.manifest(self.scenario)["variants"][self.variant]
        names = {TableName(*name.split(".", 1)) for name in told["tables_excluded_because_the_encoder_refuses_them"]}
        is_forced = recordings.config(self.scenario, self.variant)["sink"].get("force-replicate")
        return names if is_forced else names | KEYLESS

    @property
    def deselected(self) -> set[str]:
        """Columns that `column-selectors` left out."""
        selectors = recordings.config(self.scenario, self.variant)["sink"].get("column-selectors") or []
        return {name[1:] for rule in selectors for name in rule["columns"] if name.startswith("!")}

    def differences(self, side: str) -> Iterator[tuple[str, Column | None, Any, Any]]:
        """Place, column, and both cells of everything that is not the same."""
        wanted, found = self.sides
        one: dict[Place, list[Cells]] = getattr(wanted, side)
        other: dict[Place, list[Cells]] = getattr(found, side)
        for place in one.keys() | other.keys():
            if place[0] not in self.absent:
                yield from self._in_place(place, one.get(place, []), other.get(place, []), wanted.columns)

    def _in_place(
        self, place: Place, rows: list[Cells], others: list[Cells], columns: Mapping[tuple[TableName, str], Column]
    ) -> Iterator[tuple[str, Column | None, Any, Any]]:
        """Rows of one table and commit ts come in any order: they are put side by side by what they share."""
        if len(rows) != len(others):
            yield f"{place[0]}: rows of commit ts {place[1]}", None, len(rows), len(others)
            return
        same = Counter(map(_whole, rows)) & Counter(map(_whole, others))
        left = _without(others, same)
        for row in _without(rows, same):
            match = max(range(len(left)), key=lambda n: sum(left[n].get(name) == cell for name, cell in row.items()))
            twin = left.pop(match)
            for name in row.keys() | twin.keys():
                if name in self.deselected and name not in twin:
                    continue
                if name not in row or name not in twin or row[name] != twin[name]:
                    column = columns.get((place[0], name))
                    yield f"{place[0]}.{name}", column, row.get(name, "absent"), twin.get(name, "absent")


def _whole(row: Cells) -> str:
    return repr(sorted(row.items()))


def _without(rows: list[Cells], some: Counter[str]) -> list[Cells]:
    rest = some.copy()
    left = []
    for row in rows:
        if rest[_whole(row)]:
            rest[_whole(row)] -= 1
        else:
            left.append(row)
    return left


@pytest.mark.parametrize(("scenario", "variant"), CASES)
def test_the_same_row_in_every_protocol(scenario: str, variant: str, folder: Path) -> None:
    """Each row of each transaction has the same cells in every variant; what differs is a loss of its protocol."""
    pair = Pair(scenario, variant, folder)
    protocol = protocol_of(variant)
    unexplained: dict[str, int] = defaultdict(int)
    for place, column, wanted, found in pair.differences("rows"):
        if not explained(protocol, column, wanted, found):
            unexplained[f"{place}: {wanted!r:.60} upstream, {found!r:.60} here"] += 1

    _, found = pair.sides
    assert sum(map(len, found.rows.values())) > 50
    assert _known(scenario, variant, dict(unexplained), found) == {}


@pytest.mark.parametrize(("scenario", "variant"), CASES)
def test_the_same_keys_go_in_every_protocol(scenario: str, variant: str, folder: Path) -> None:
    """Deletes, and updates that change the key, take the same rows away, however TiCDC splits them."""
    pair = Pair(scenario, variant, folder)
    lost = [place.split(":", maxsplit=1)[0] for place, *_ in pair.differences("gone")]

    assert [table for table in lost if not _is_unnamed(table, variant)] == []


def _is_unnamed(table: str, variant: str) -> bool:
    """Whether the feed cannot say which rows of a table went: each of these is a loss that `test_losses.py` shows."""
    if protocol_of(variant) == "avro" and variant != "avro-before-value":
        return table in ("keys.k_uk", "audit.codes")
    return "no-old-value" in variant and TableName(*table.split(".", 1)) in KEYLESS


def _known(scenario: str, variant: str, unexplained: dict[str, int], found: Written) -> dict[str, int]:
    """Differences that are no cell's: rows that the feed does not hold, and names that Avro cannot carry."""
    if "handlekey" in variant:
        missing = {place: count for place, count in unexplained.items() if ": rows of commit ts" in place}
        assert found.refused
        assert missing
        return {place: count for place, count in unexplained.items() if place not in missing}
    if variant == "avro-plain" and scenario == "types":
        names = {place.split(":")[0] for place in unexplained}
        assert names == {"types.t_gen.g_virtual"} | {
            f"types.t_names.{name}"
            for original in ("1st", "Mixed Case", "a-b", "c.d", "sélect")
            for name in (original, sanitised(original))
        }
        return {}
    return unexplained
