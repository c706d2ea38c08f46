"""Dead letters: a wrong protocol is no dead letter, and those that stay can be seen and given up."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from applier.commands import dead_letters
from applier.commands.status.command import status
from applier.config import settings as config
from applier.errors import ConfigError, NeverRan, TerminalError
from applier.pipeline.build import assembled
from tests.spark.test_undated import archive

pytestmark = pytest.mark.spark

TS = 470_606_913_410_433_024


def message(**fields: Any) -> tuple[None, bytes]:
    """A message of Canal-JSON."""
    whole = {"id": 0, "database": "shop", "table": "a", "pkNames": ["id"], "es": 1, "ts": 1, "sql": "", "old": None}
    return None, json.dumps(
        {**whole, "isDdl": False, "mysqlType": None, "sqlType": None, "data": None, **fields}
    ).encode()


CREATE = message(
    isDdl=True, type="CREATE", sql="CREATE TABLE a (id BIGINT PRIMARY KEY)", pkNames=None, _tidb={"commitTs": TS}
)
ROW = message(
    type="INSERT", mysqlType={"id": "bigint"}, sqlType={"id": -5}, data=[{"id": "1"}], _tidb={"commitTs": TS + 1}
)
RESOLVED = message(type="TIDB_WATERMARK", _tidb={"watermarkTs": TS + 9})
BAD = (None, b"no \x1b[31mmessage")


@pytest.fixture
def raw(warehouse: Path, tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """A configuration that sets bad messages aside."""
    name = re.sub(r"\W+", "_", request.node.name)[-40:].strip("_")
    lake = {"type": "jdbc", "uri": f"jdbc:sqlite:{warehouse}/catalog.db", "warehouse": f"{warehouse}/tables"}
    return {
        "changefeed": {"name": name, "protocol": "canal-json", "on_bad_message": "dead_letter"},
        "source": {"archive": str(archive(tmp_path / "feed", [CREATE, ROW, BAD, RESOLVED]))},
        "catalog": {"name": "lake", **lake},
        "tables": {"route": f"{name}__{{database}}.{{table}}"},
    }


def run(raw: dict[str, Any]) -> None:
    """Apply all that is there."""
    with assembled(config.parse(raw), take_over=True) as pipeline:
        while pipeline.step().moved:
            pass


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("order", ["resolved", "offset"])
def test_a_wrong_protocol_is_refused_before_anything_is_set_aside(order: str, raw: dict[str, Any]) -> None:
    """First messages of which none can be read end the run before anything is written, and the first is named."""
    raw["changefeed"] |= {"protocol": "open", "order": order}

    with pytest.raises(TerminalError, match="Cannot decode open message at shop_t/0:0") as refusal:
        run(raw)

    assert "check changefeed.protocol and the topics under [source]; nothing was written" in refusal.value.hint
    with pytest.raises(NeverRan):
        dead_letters.found(config.parse(raw))


@pytest.mark.usefixtures("spark")
def test_a_changefeed_keeps_its_protocol(raw: dict[str, Any]) -> None:
    """Another protocol under the same name is refused by both names."""
    run(raw)
    raw["changefeed"]["protocol"] = "simple"

    with pytest.raises(ConfigError, match="protocol: simple, but the messages .* so far were of canal-json"):
        run(raw)


def test_dead_letters_can_be_seen_and_given_up(
    raw: dict[str, Any], spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list names place and error, one is shown without its bytes, and what is given up no longer counts."""
    run(raw)
    settings = config.parse(raw)
    (letter,) = dead_letters.found(settings)
    place = dead_letters.place_of(letter)
    assert place == "shop_t/0:2"
    assert json.loads(dead_letters.to_json([letter]))[0]["place"] == place
    dead_letters.render([letter], Console(width=200))
    assert place in capsys.readouterr().out

    dead_letters.render_one(dead_letters.content(settings, place), Console(width=200), values=False)
    shown = capsys.readouterr().out
    assert "value: 15 bytes" in shown
    assert "message" not in shown.partition("value:")[2]
    dead_letters.render_one(dead_letters.content(settings, place), Console(width=200), values=True)
    assert "value: 15 bytes: no \\x1b[31mmessage" in capsys.readouterr().out

    with pytest.raises(ConfigError, match="--why is empty"):
        dead_letters.discard(settings, [place], "")
    with pytest.raises(ConfigError, match="There is no dead letter at shop_t/0:7"):
        dead_letters.discard(settings, ["shop_t/0:7"], "noise")
    dead_letters.discard(settings, [place], "noise of a test")

    assert dead_letters.found(settings) == []
    assert status(settings, now_ms=(TS >> 18) + 1000).dead_letter_count == 0
    rows = spark.read.table(f"lake.applier_{settings.changefeed.name}.dead_letters").collect()
    assert b"discarded: noise of a test" in [bytes(row["value"]) for row in rows]
    with pytest.raises(ConfigError, match="There are no dead letters"):
        dead_letters.discard(settings, [], "again")
