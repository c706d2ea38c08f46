"""Spares a Python process of Spark what it would do again before and behind each task."""

from __future__ import annotations

import gc
import sys
from zipimport import zipimporter

_FIRST_TASKS = 3
"""Tasks until what a process keeps for the next ones is there: code that is loaded late, and what decoders remember."""

_tasks = 0


def spare_the_next() -> None:
    """Call it in a task whose code is loaded: what was loaded so far is not looked through any more.

    Before each task Spark lets Python read the directories of all archives again from which it imported, one for each
    package; behind each it collects garbage among all objects. Together that was a third of the CPU time of tasks of a
    second. An import that comes later finds its archive as before.
    """
    global _tasks  # noqa: PLW0603 - it is the process that counts them
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]
    # Not each time: what is in a cycle now is kept for ever, and each task brings objects of its own.
    if _tasks < _FIRST_TASKS:
        _tasks += 1
        gc.freeze()
