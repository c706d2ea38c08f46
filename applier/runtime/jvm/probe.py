"""What an executor finds when it is asked whether it can run tasks of applier; imports nothing that may be missing."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec

NEEDED = (
    "cramjam",
    "fastavro",
    "fsspec",
    "lz4",
    "mmh3",
    "msgspec",
    "numpy",
    "pyarrow",
    "pydantic",
    "pyiceberg",
    "pyroaring",
    "requests",
    "rich",
    "structlog",
    "tenacity",
    "urllib3",
)
"""Packages that tasks load; the executors' Spark brings pyspark and py4j."""

TASKS = (
    "applier.pipeline.scan.decode_task",
    "applier.consume.kafka.spark",
    "applier.consume.tasks.spark",
    "applier.pipeline.batches.stager",
    "applier.pipeline.load.spark",
    "applier.sink.evolve.move_rows",
    "applier.sink.write.merge",
)
"""Modules that hold the code of tasks."""

_ALIKE = ("pyarrow", "numpy")
"""Packages in which tasks and driver exchange data."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """What a Python has, by its version and path.

    Attributes:
        applier: The file of applier's package.
        missing: The packages of `NEEDED` that it lacks.
        broken: Why the code of tasks cannot be loaded; "" if it can, and where a package is missing.
        versions: Versions of the packages in which tasks and driver exchange data; none where a package is missing.
        may_write: Whether it may write into the folder that it is asked for; True for none.
    """

    python: str
    program: str
    applier: str
    missing: tuple[str, ...]
    broken: str
    versions: dict[str, str]
    may_write: bool


def look(folder: str = "") -> Interpreter:
    """What the Python that calls this has."""
    own = import_module("applier").__file__ or ""
    missing = tuple(name for name in NEEDED if find_spec(name) is None)
    broken, versions = "", dict[str, str]()
    if not missing:
        versions = {name: version(name) for name in _ALIKE}
        try:
            for name in TASKS:
                import_module(name)
        except Exception as error:  # noqa: BLE001 - a package may fail with anything while it is loaded
            broken = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    may_write = not folder or os.access(folder, os.W_OK | os.X_OK)
    return Interpreter(platform.python_version(), sys.executable, own, missing, broken, versions, may_write)
