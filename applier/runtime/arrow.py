"""Loads Arrow without pandas, which it would import with its first array: 0.25 CPU seconds and 50 MB a process."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _Hidden(MetaPathFinder):
    def find_spec(self, name: str, _path: object, _target: object = None) -> None:
        if name == "pandas":
            raise ImportError(name)


def load_alone() -> None:
    """Import Arrow, and let it find that there is no pandas; what imports pandas afterwards, as PySpark does, gets it.

    Before any other import of Arrow: it looks once.
    """
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        import pyarrow as pa  # noqa: PLC0415 - pandas is hidden only now

        pa.scalar(0)
    finally:
        sys.meta_path.remove(hidden)
