"""Many Canal-JSON rows at once: the half of a message that describes its table is compared instead of parsed."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from applier.changefeed.event import RowChange
from applier.decode.canal import columns as canal_rows
from applier.decode.canal.decoder import CanalJsonDecoder
from applier.decode.columnar.groups import FEWEST as ENOUGH
from applier.decode.options import DecoderOptions
from tests.unit.decode.canal import test_canal_json

TYPES = {"id": "bigint", "name": "varchar"}


def message(number: int, types: Mapping[str, str] = TYPES, **members: Any) -> bytes:
    """A row as TiCDC writes it, members in its order."""
    row = {name: f"{number}{name}" if kind == "varchar" else str(number) for name, kind in types.items()}
    told = {"sqlType": dict.fromkeys(types, 12), "mysqlType": dict(types), "data": [row]}
    times = {"es": 1707103832263 + number, "ts": 1707103833001 + number}
    whole = json.loads(test_canal_json.message(**times, **told, _tidb={"commitTs": 447507027004751877 + number}))
    for name in ("data", "_tidb"):
        whole[name] = whole.pop(name)
    return compact(whole | members)


def compact(whole: Mapping[str, Any]) -> bytes:
    """JSON as TiCDC writes it, without spaces."""
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode()


def alone(values: Sequence[bytes]) -> list[tuple[int, Mapping[str, Any]]]:
    """Commit ts and row of each message, read one by one."""
    decoder = CanalJsonDecoder(DecoderOptions())
    events = [event for value in values for event in decoder.decode(None, value)]
    return [(event.commit_ts, event.after or {}) for event in events if isinstance(event, RowChange)]


def together(values: Sequence[bytes]) -> tuple[list[tuple[int, Mapping[str, Any]]], list[int]]:
    """The same of those that are read at once, and the places of the others."""
    decoder: CanalJsonDecoder = CanalJsonDecoder(DecoderOptions())
    decoder.decode(None, values[0])
    blocks, rest = decoder.bulk.read([None] * len(values), values)
    found: dict[int, tuple[int, Mapping[str, Any]]] = {}
    for block in blocks:
        columns = [array.to_pylist() for array in block.columns.values()]
        for place, ts, *values_ in zip(block.places, block.commit_ts, *columns, strict=True):
            found[place] = ts, dict(zip(block.columns, values_, strict=True))
    return [found[place] for place in sorted(found)], rest


@pytest.mark.parametrize(
    "types",
    [
        TYPES,
        {"id": "bigint", "old": "varchar", "sql": "varchar", "mysqlType": "varchar", "data": "varchar"},
        {"id": "bigint", "größe": "varchar", "},old:": "varchar"},
        {"id": "bigint", "kind": "varchar", "e": "enum('}','{\",\"old\":')"},
    ],
)
def test_whatever_the_columns_are_called(types: dict[str, str]) -> None:
    """Names and types that look like what is searched for cut nothing off."""
    values = [message(number, types) for number in range(2 * ENOUGH)]
    found, rest = together(values)
    assert rest == []
    assert found == alone(values)


@pytest.mark.parametrize("order", [("data", "old"), ("old", "data")])
def test_the_order_of_the_images_does_not_matter(order: tuple[str, str]) -> None:
    """Old values may come before the new ones or behind them, or the row before its types."""
    plain = [json.loads(message(number)) for number in range(ENOUGH)]
    members = [name for name in plain[0] if name not in order]
    start = members.index("type") + 1
    values = [compact({name: row[name] for name in (*members, *order)}) for row in plain]
    first = [compact({name: row[name] for name in (*members[:start], *order, *members[start:])}) for row in plain]
    assert together(values)[0] == together(first)[0] == alone(values)


def test_times_of_another_length() -> None:
    """Times with a digit more move all that follows."""
    values = [message(number) for number in range(ENOUGH)]
    values += [message(number, es=10 * 1707103832263) for number in range(ENOUGH)]
    found, rest = together(values)
    assert rest == []
    assert found == alone(values)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param((b'"name":"varchar"', b'"name":"varbinar"'), id="another type"),
        pytest.param((b'"type":"INSERT"', b'"type":"INSERR"'), id="another kind"),
        pytest.param((b'"pkNames":["id"]', b'"pkNames":["ix"]'), id="another key"),
        pytest.param((b'"ts":1', b'"ts":x'), id="a time that is none"),
        pytest.param((b'"_tidb"', b'"type":"DELETE","_tidb"'), id="a second kind"),
        pytest.param((b'"_tidb"', b'"mysqlType":{"id":"int","name":"int"},"_tidb"'), id="other types behind"),
    ],
)
def test_what_differs_from_the_others_is_left(change: tuple[bytes, bytes]) -> None:
    """A message that is described otherwise is read by itself, as if the others were not there."""
    values = [message(number) for number in range(2 * ENOUGH)]
    values[ENOUGH] = values[ENOUGH].replace(*change, 1)
    found, rest = together(values)
    assert rest == [ENOUGH]
    del values[ENOUGH]
    assert found == alone(values)


@pytest.mark.parametrize("columns", [3, 12])
def test_the_order_of_the_types_does_not_matter(columns: int) -> None:
    """TiCDC writes them as Go walks a map: few columns from any of them on, many in any order. A wrong one is found."""
    types = {"id": "bigint", **{f"name{number}": "varchar" for number in range(1, columns)}}
    dice = random.Random(columns)
    values = []
    for number in range(3 * ENOUGH):
        turn = dice.randrange(columns)
        names = [*list(types)[turn:], *list(types)[:turn]] if columns <= 8 else dice.sample(list(types), columns)
        values.append(message(number, types, mysqlType={name: types[name] for name in names}))
    odd = 2 * ENOUGH
    swapped = types | {"id": "varchar", "name1": "bigint"}
    values[odd] = message(odd, types, mysqlType=swapped)
    found, rest = together(values)
    assert rest == [odd]
    del values[odd]
    assert found == alone(values)


def test_types_of_another_length_are_not_looked_at_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """TiCDC tells the `sqlType` of an unsigned number by its value: such messages are parsed, and no more than that."""
    looks = Mock(wraps=canal_rows._end)
    monkeypatch.setattr(canal_rows, "_end", looks)
    lengths = ({"id": -5, "name": 12}, {"id": 3, "name": 12})
    values = [message(number, sqlType=lengths[number % 2]) for number in range(4 * ENOUGH)]
    found, rest = together(values)
    assert rest == []
    assert found == alone(values)
    assert looks.call_count <= 1 + canal_rows._MOST_ORDERS
