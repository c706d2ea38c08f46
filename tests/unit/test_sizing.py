"""The figures of docs/sizing.md are those of the results that it names."""

from __future__ import annotations

import re
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"


def test_each_measured_figure_is_in_its_result() -> None:
    """Speed, CPU seconds and peak of a row are of one line of applier, whose tables were exact or compared later."""
    text = (_DOCS / "sizing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .+? \| ([\d,]+) \| ([\d.]+) \| ([\d,]+) \| \[.+\]\((.+)\) \|$", text, re.MULTILINE)
    assert len(rows) == text.partition("## Measured")[2].count("](../bench/results/") - 1

    for speed, cpu, peak, link in rows:
        lines = (_DOCS / link).read_text(encoding="utf-8").splitlines()
        columns = [line.split() for line in lines if line.startswith("applier") and line.endswith(" exact")]
        assert any({speed, cpu, peak} <= set(found) for found in columns), (speed, cpu, peak, link)
