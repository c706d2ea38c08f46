"""The shape of `applier/`: how long files and classes are, whether names are unique, and whether imports go in circles.

`make structure` prints every offender and fails if there is one.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "applier"

FILE_LINES = 500
CLASS_LINES = 250


def offenders(root: Path = ROOT) -> list[str]:
    """One sentence for each file or class that breaks a rule.

    Args:
        root: The package.
    """
    files = sorted(root.rglob("*.py"))
    return [*_lengths(root, files), *_names(root, files), *_circles(root, files)]


def _lengths(root: Path, files: list[Path]) -> Iterator[str]:
    for file in files:
        text, where = file.read_text("utf-8"), file.relative_to(root.parent)
        lines = len(text.splitlines())
        if lines > FILE_LINES:
            yield f"{where} has {lines} lines, at most {FILE_LINES} are allowed."
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.end_lineno is not None:
                lines = node.end_lineno - node.lineno + 1
                if lines > CLASS_LINES:
                    yield f"Class {node.name} in {where} has {lines} lines, at most {CLASS_LINES} are allowed."


def _names(root: Path, files: list[Path]) -> Iterator[str]:
    places: dict[str, list[str]] = defaultdict(list)
    for file in files:
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(file.relative_to(root.parent)))
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield f"{len(found)} classes have the name {name}: {', '.join(found)}."


def _circles(root: Path, files: list[Path]) -> Iterator[str]:
    """Imports for types count as well: a reader follows them as any other."""
    trees = {
        ".".join(file.relative_to(root.parent).with_suffix("").parts): ast.parse(file.read_text("utf-8"))
        for file in files
    }
    graph: dict[str, set[str]] = {}
    for module, tree in trees.items():
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
        named = {(str(node.module), name.name) for node in imports for name in node.names}
        graph[module] = {full if (full := f"{of}.{name}") in trees else of for of, name in named} & trees.keys()
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        yield f"Modules import each other: {' ← '.join(circle.args[1])}."


if __name__ == "__main__":
    sentences = offenders()
    sys.stdout.writelines(f"{sentence}\n" for sentence in sentences)
    sys.exit(bool(sentences))
