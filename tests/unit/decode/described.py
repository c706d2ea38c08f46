"""Recorded feeds whose rows describe themselves in, a model of the tables that they lead to out."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from applier.changefeed.event import Bootstrap, Event, Resolved, RowChange, SchemaChange
from applier.decode.decoder import Decoder
from applier.decode.options import DecoderOptions
from applier.decode.protocols import build
from tests import expected, recordings
from tests.model import Model, Table, replay

ADDED: Mapping[str, Mapping[str, Any]] = {
    "keys.k_nulluk": {"pk2": 0},
    "mid.evt": {"x1": "x1", "x4": "x4"},
    "mid.tag": {"x2": "x2"},
    "mid.acct": {"x3": "x3"},
}
"""Columns added while rows lay in the table, which therefore have the default."""


def decoder_of(protocol: str, scenario: str, variant: str, folder: Path) -> Decoder:
    """A decoder that knows of a recorded changefeed what its operator knows."""
    config = recordings.config(scenario, variant)
    large = (config["sink"].get("kafka-config") or {}).get("large-message-handle") or {}
    claimed = large.get("large-message-handle-option") == "claim-check"
    return build(
        protocol,
        DecoderOptions(
            timezone=config["server_time_zone"],
            claim_check=str(recordings.claim_check(scenario, variant, folder)) if claimed else None,
        ),
    )


def script(scenario: str) -> str:
    """The statements that ran, with their commit ts."""
    return gzip.decompress((recordings.GOLDEN / scenario / "script.sql.gz").read_bytes()).decode()


def left_out(scenario: str, variant: str) -> frozenset[str]:
    """Columns that `column-selectors` keep out of a feed."""
    selectors = recordings.config(scenario, variant)["sink"].get("column-selectors") or []
    return frozenset(name[1:] for selector in selectors for name in selector["columns"] if name.startswith("!"))


def events(decoder: Decoder, scenario: str, variant: str) -> Iterator[Event]:
    """All events of a recording."""
    for record in recordings.records(scenario, variant):
        yield from decoder.decode(record["key"], record["value"])


def counts(found: Iterator[Event]) -> Counter[str]:
    """How many events of each kind."""
    kinds: Counter[str] = Counter()
    for event in found:
        match event:
            case RowChange():
                kinds[f"row {event.op.name}"] += 1
                kinds["rows"] += 1
            case SchemaChange():
                kinds["ddl"] += 1
            case Resolved():
                kinds["resolved"] += 1
            case Bootstrap():
                kinds["bootstrap"] += 1
    return kinds


class Mirror:
    """A model of a recorded changefeed beside what SQL showed.

    Args:
        decoder: The decoder.
        scenario: Name of the scenario.
        variant: Name of the variant.
        typed: False to know of the tables no more than rows tell.
        without: Tables that the feed cannot tell.
    """

    def __init__(
        self,
        decoder: Decoder,
        scenario: str,
        variant: str,
        *,
        typed: bool = True,
        without: frozenset[str] = frozenset(),
    ) -> None:
        self._without = without
        self._scenario, self._variant = scenario, variant
        self._lines = recordings.expected(scenario)
        self._known = expected.tables(self._lines)
        self._left_out = left_out(scenario, variant)
        self.model = Model(decoder, self._known if typed else {})
        self.compared = 0
        if scenario == "midstream":
            self._fill(self._lines[0]["tables"])

    def follow(self) -> None:
        """Replay the recording and compare all tables at each watermark that SQL was asked at."""
        lines = {line["resolved_ts"]: line for line in self._lines}
        for ts in replay(self.model, self._records()):
            if ts in lines:
                self._compare(lines.pop(ts))
        assert set(lines) <= {self._lines[0]["resolved_ts"]}

    def finish(self) -> None:
        """Replay the recording of a feed without watermarks, and compare all tables at its end."""
        for record in self._records():
            self.model.read(record)
        self.model.finish()
        self._compare(self._lines[-1])

    def _records(self) -> Iterator[dict[str, Any]]:
        return recordings.records(self._scenario, self._variant)

    def _fill(self, contents: expected.Contents) -> None:
        for text, shown in contents.items():
            name = expected.name_of(text)
            table = self.model.tables[name] = Table(self._known[name].key)
            for row in expected.rows(shown):
                table.put(row)

    def _compare(self, line: dict[str, Any]) -> None:
        for text, shown in line["tables"].items():
            name = expected.name_of(text)
            wanted = expected.rows(shown, without=self._left_out)
            found = self.model.tables[name].contents if name in self.model.tables else []
            if text in self._without or (name not in self.model.tables and self._is_left_out(text)):
                continue
            defaults = {c: v for c, v in ADDED.get(text, {}).items() if wanted and c in wanted[0]}
            assert expected.bag([{**defaults, **row} for row in found]) == expected.bag(wanted), (
                text,
                line["resolved_ts"],
            )
            self.compared += sum(len(row) for row in wanted)

    def _is_left_out(self, text: str) -> bool:
        """A table without any key is in no feed that does not force it."""
        return not self._known[expected.name_of(text)].key
