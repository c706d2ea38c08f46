"""Reports code that failed in another process by kind and place, never by its message or a row."""

from __future__ import annotations

import re

from applier.errors import OutsideRefused, TerminalError
from applier.runtime.jvm.executors import WAY

_OUTAGE = re.compile(
    r"applier\.errors\.TransientError|MemoryError|ConnectionError|TimeoutError|OSError|EOFError|BrokenPipeError"
)
_RAISED = re.compile(r"^([\w.]+(?:Error|Exception|Refused|Interrupt))\b", re.MULTILINE)
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_PLACE = re.compile(r'File "(?:[^"]*/)?(applier/[^"]+)", line (\d+)')

_CODE = re.compile(
    r"(Arithmetic|Assertion|Attribute|Import|Index|Key|ModuleNotFound|Name|Recursion|Type|Value|ZeroDivision)Error"
)
"""What code raises, and no storage."""

PYTHON = "org.apache.spark.api.python.PythonException"
"""What the code of a task raised, as Java shows it: PySpark has a class for it only where the job is a query."""


def is_of_code(traceback: str) -> bool:
    """Whether a task that ended with this traceback meets the same again, wherever it runs."""
    kinds = _RAISED.findall(traceback)
    return bool(kinds) and _CODE.fullmatch(kinds[-1]) is not None


def is_outage(traceback: str) -> bool:
    """Whether a task that ended with this traceback may succeed later."""
    return _OUTAGE.search(traceback) is not None


def defect(traceback: str) -> TerminalError:
    """The error for a task that another process ran and that ended with this traceback."""
    if missing := _MISSING.findall(traceback):
        what = f"A task needs the module {missing[-1]}, which its Python does not have."
        return OutsideRefused(what, f"install it where tasks run; for executors, {WAY}")
    kinds = _RAISED.findall(traceback)
    places = _PLACE.findall(traceback)
    where = f" at {places[-1][0]} line {places[-1][1]}" if places else ""
    what = f"A task failed with {kinds[-1] if kinds else 'an unknown error'}{where}."
    return TerminalError(what, "this is a defect of applier, and a retry meets it again: please report it.")
