"""Recordings of released builds of TiCDC end as upstream, but for tables that docs/protocols.md says are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.mark.structures import ParameterSet

from applier import wording
from applier.changefeed.completeness import Reason, Why
from tests import recordings
from tests.recorded.test_protocols import LATE, advance, as_plain, replaying, unexplained
from tests.replay import doubted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_TIME = {("T-v8.5.3/types", "debezium-plain")}
"""What `make test` runs; `make test-recorded` runs all."""

PROTOCOLS = ("simple", "open", "canal-json", "avro", "debezium")

_TEXT = "no CREATE TABLE shows whether it holds text or bytes"
_NAMELESS = {
    **{f"types.t_{name}": _TEXT for name in ("large", "names", "bin", "text", "gen", "charset")},
    "types.t_time": "no CREATE TABLE shows how many fractional digits it has",
    "types.t_int": "no CREATE TABLE shows whether it holds signed or unsigned numbers",
}
REFUSED = {
    ("N-v8.5.4/types", "open"): {"types.t_time": "its text has other fractional digits than the column"},
    ("T-v6.5.12/types", "avro-string"): {"types.t_dec": "A value of types.t_dec.d_65_30 cannot be read as decimal"},
    ("T-v8.5.3/types", "debezium-no-old-value"): _NAMELESS,
    ("T-v8.5.3/types", "debezium-plain"): _NAMELESS,
}
"""Tables that are parked, with what is said of each: bytes in text, and digits that the build does not write."""

UNCREATED = {("T-v6.5.12/types", "avro-string"), *(case for case in REFUSED if case[1].startswith("debezium"))}
"""Feeds with neither watermarks nor DDL."""


NOT_COMPARED = {case: {"types.t_real"} for case in UNCREATED if case[1].startswith("debezium")}
"""FLOAT looks like DOUBLE there, so cells of these tables have other digits than SQL shows."""


def cases() -> Iterator[ParameterSet]:
    """Build and scenario, and the variant."""
    for folder in sorted(recordings.GOLDEN.glob("builds/*/*")):
        place = str(folder.relative_to(recordings.GOLDEN / "builds"))
        for variant in recordings.variants(f"builds/{place}"):
            yield pytest.param(place, variant, marks=() if (place, variant) in EVERY_TIME else pytest.mark.soak)


def sent(place: str, variant: str) -> Mapping[str, Any]:
    """What upstream held at the end, as the build sends it."""
    state = recordings.expected(f"builds/{place}")[-1]
    if variant.startswith("avro") and (place, variant) in UNCREATED:
        return as_plain(state)
    if (place, variant) != ("N-v8.5.4/types", "canal-json-content-compatible"):
        return state
    # This build writes the text `null` as it writes NULL.
    texts = state["tables"]["types.t_text"]
    rows = [[None if cell == "null" else cell for cell in row] for row in texts["rows"]]
    return {**state, "tables": {**state["tables"], "types.t_text": {**texts, "rows": rows}}}


@pytest.mark.parametrize(("place", "variant"), list(cases()))
def test_ends_as_upstream_or_refuses_by_name(
    place: str, variant: str, spark: SparkSession, lake: dict[str, str], tmp_path: Path
) -> None:
    """Each table has all cells of upstream, or is parked with the sentence of its build."""
    protocol = next(name for name in PROTOCOLS if variant.startswith(name))
    name = re.sub(r"\W+", "-", f"{place}-{variant}")
    with replaying(f"builds/{place}", protocol, variant, lake, tmp_path, name) as found:
        found.raw["tables"]["include"] = ["*.*", f"!{LATE}"]
        if (place, variant) in UNCREATED:
            found.raw["changefeed"]["order"] = "offset"
        with found.running(spark) as pipeline:
            assert advance(pipeline, pipeline.ends()).error is None
            known = pipeline.state.completeness
            parked = {str(table): known[table].reason.detail for table in pipeline.state.parked}
            lacking = {str(table): why for table, why in doubted(found, pipeline).items() if str(table) not in parked}
            state, refused = sent(place, variant), REFUSED.get((place, variant), {})
            whole = {table: rows for table, rows in state["tables"].items() if table not in refused}
            unlike = NOT_COMPARED.get((place, variant), set())
            problems = unexplained(found, {**state, "tables": whole}, protocol)

        assert parked.keys() == refused.keys()
        assert [said for table, said in parked.items() if refused[table] not in said] == []
        uncreated = wording.clause(Reason(Why.NO_CREATE)) if (place, variant) in UNCREATED else ""
        assert set(lacking.values()) <= {uncreated}
        named = {re.split(": | should not be there", line)[0] for line in problems}
        assert named <= refused.keys() | unlike, problems
