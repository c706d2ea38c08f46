"""What people read decides nothing: no code compares, cuts or searches it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "applier"

TEXTS = {"because", "detail", "hint", "problem", "reason", "sentence", "way_out", "what"}
"""Names of texts for people."""

CUTS = {"count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "rpartition", "split"}
CUTS |= {"startswith"}
"""Methods that look into a text."""

READS = {
    "config/reading/problems.py",  # Whether a sentence has its full stop.
    "pipeline/schema_changes/decision.py",  # Whether a refusal shows the statement.
    "sink/control/rows.py",
    "sink/iceberg/orphans.py",  # What Java says of its own errors.
}
"""Texts of others are recognised here."""


def _is_text(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in TEXTS


def _decided(tree: ast.AST) -> Iterator[ast.expr]:
    """Where a text is compared with another text, or looked into."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            others = [side for side in sides if not _is_text(side)]
            is_typed = all(isinstance(side, ast.Call | ast.Constant) and not _is_words(side) for side in others)
            if any(map(_is_text, sides)) and not is_typed:
                yield node
        elif isinstance(node, ast.Call) and isinstance(cut := node.func, ast.Attribute) and cut.attr in CUTS:
            yield from [node] if _is_text(cut.value) else []


def _is_words(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_no_code_looks_into_what_people_read() -> None:
    """A text is made at the edge, from an enum and its data: another wording, or language, changes nothing."""
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for file in sorted(ROOT.rglob("*.py"))
        if str(file.relative_to(ROOT)) not in READS
        for node in _decided(ast.parse(file.read_text()))
    ]

    assert found == []
