"""Changes of rows that a table lacks are noticed in each protocol, and rows that may be new never are."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from applier.changefeed.table import TableName
from applier.config import settings
from applier.errors import TableIncomplete
from applier.pipeline.build import assembled
from tests.few import few
from tests.handmade import DATABASE, KEY, TS, Canal, Change, Debezium, Message, Open, Row, Simple, Wire, quoted
from tests.spark.feeds import read

pytestmark = pytest.mark.spark

NAME = TableName(DATABASE, "account")
WIRES: dict[str, Wire] = {"simple": Simple(), "open": Open(), "canal-json": Canal(), "debezium": Debezium()}


def row(number: int, text: str) -> Row:
    """A row of the table."""
    return {KEY: number, "v": text}


def insert(number: int) -> Change:
    """A new row; in Open just as an update without its old row."""
    return Change(NAME.table, ["v"], None, row(number, "new"))


def update(number: int) -> Change:
    """An update with its old row."""
    return Change(NAME.table, ["v"], row(number, "old"), row(number, "newer"))


def delete(number: int) -> Change:
    """A delete."""
    return Change(NAME.table, ["v"], row(number, "old"), None)


@dataclass
class Feed:
    """A changefeed of one protocol with one table, which begins with its CREATE TABLE.

    Attributes:
        messages: All that it holds so far.
    """

    spark: SparkSession
    lake: dict[str, str]
    folder: Path
    name: str
    protocol: str
    ts: int = TS + 2
    messages: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        create = f"CREATE TABLE {quoted(NAME.table)} ({quoted(KEY)} INT NOT NULL PRIMARY KEY, v VARCHAR(50))"
        wire = WIRES[self.protocol]
        self.messages.append(wire.ddl(f"CREATE DATABASE {quoted(DATABASE)}", TS + 1, "QUERY", "", ()))
        self.messages.append(wire.ddl(create, TS + 2, "CREATE", NAME.table, ["v"]))

    def apply(self, changes: Sequence[Change], incomplete: str = "refuse", **changefeed: str) -> tuple[int, str]:
        """Send changes and apply them in one step; how many rows it did not find, and the state of the table."""
        wire = WIRES[self.protocol]
        for change in changes:
            self.ts += 1
            self.messages.append(wire.row(change, self.ts))
        self.ts += 1
        self.messages.append(wire.watermark(self.ts))
        with assembled(settings.parse(self._config(incomplete, changefeed)), take_over=True) as pipeline:
            step = pipeline.step()
            assert step.error is None
            assert step.moved
            return step.status.notes["not_found"], pipeline.state.completeness[NAME].state

    def rows(self) -> dict[int, str]:
        """Rows as Spark reads them."""
        found = read(self.spark, (self.name, NAME.table)).to_pylist()
        return {item[KEY]: item["v"] for item in found}

    def _config(self, incomplete: str, changefeed: Mapping[str, str]) -> dict[str, object]:
        with gzip.open(self.folder / "feed.jsonl.gz", "wt") as file:
            for offset, message in enumerate(self.messages):
                key, value = (None if part is None else base64.b64encode(part).decode() for part in message)
                record = {"topic": "t", "partition": 0, "offset": offset, "key": key, "value": value}
                file.write(json.dumps(record) + "\n")
        return {
            "changefeed": {"name": self.name, "protocol": self.protocol, **changefeed},
            "source": {"archive": str(self.folder / "feed.jsonl.gz")},
            "catalog": {"name": "lake", **self.lake},
            "tables": {"route": f"{self.name}.{{table}}", "incomplete": incomplete},
        }


Make = Callable[[str], Feed]


@pytest.fixture
def make(spark: SparkSession, warehouse: Path, tmp_path: Path, fresh_name: Callable[[], tuple[str, str]]) -> Make:
    """Makes changefeeds of a protocol."""
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{warehouse}/catalog.db", "warehouse": f"{warehouse}/tables"}
    return lambda protocol: Feed(spark, lake, tmp_path, "_".join(fresh_name()), protocol)


@pytest.mark.parametrize("protocol", few(WIRES, 2))
def test_new_rows_beside_changed_ones_are_no_missing_rows(make: Make, protocol: str) -> None:
    """Rows that come, change, go, and come and go within one step: nothing is missing, and the table stays live."""
    feed = make(protocol)

    assert feed.apply([insert(1), insert(2), insert(3)]) == (0, "live")
    assert feed.apply([insert(4), update(1), delete(2), insert(5), delete(5), insert(6), update(6)]) == (0, "live")
    assert feed.apply([insert(2), update(4), delete(3), insert(3)]) == (0, "live")


@pytest.mark.parametrize(
    "change", [update(9), pytest.param(delete(9), marks=pytest.mark.soak)], ids=["update", "delete"]
)
@pytest.mark.parametrize("protocol", WIRES)
def test_a_change_of_a_row_that_must_be_there_is_counted(make: Make, protocol: str, change: Change) -> None:
    """A delete and an update with its old row show that the row was there, also beside rows that may be new."""
    feed = make(protocol)
    feed.apply([insert(1), insert(2)])

    with pytest.raises(TableIncomplete, match="does not hold 1 row that the feed updates or deletes"):
        feed.apply([insert(3), change, update(1)], on_table_error="stop")
    feed.messages, feed.ts = feed.messages[:-4], feed.ts - 4
    found = feed.apply([insert(3), change, update(1)], incomplete="allow", on_table_error="stop")
    assert found == (1, "incomplete")


@pytest.mark.parametrize("incomplete", few(["refuse", "allow"]))
@pytest.mark.parametrize("protocol", WIRES)
def test_a_change_of_a_row_that_must_be_there_parks_the_table(make: Make, protocol: str, incomplete: str) -> None:
    """Nothing of the step is committed to it, whatever becomes of tables that are not whole."""
    feed = make(protocol)
    feed.apply([insert(1), insert(2)])

    assert feed.apply([insert(3), delete(9), update(1)], incomplete=incomplete) == (0, "parked")
    assert feed.rows() == {1: "new", 2: "new"}


def test_an_update_that_looks_like_an_insert_is_not_counted(make: Make) -> None:
    """Open without old values does not show that the row was there; that of a delete is still shown beside it."""
    feed = make("open")
    feed.apply([insert(1), insert(2)])

    assert feed.apply([insert(1), insert(9)]) == (0, "live")
    assert feed.apply([insert(10), delete(11)], incomplete="allow", on_table_error="stop") == (1, "incomplete")
