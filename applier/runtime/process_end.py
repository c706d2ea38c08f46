"""How the process ends: the exit code of each error, and its sentence."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from applier.errors import ApplierError, ConfigError, IncompatibleSchema, NeverRan
from applier.runtime.escaping import escaped

_PACKAGE = Path(__file__).parents[1]

_CLOSED = 141
"""What a shell shows of a process that a closed pipe ended: 128 and the number of SIGPIPE."""

_WRITERS = ("cli.py", "console.py", "utils.py", "_output.py")
"""Files of applier, Rich, Typer and structlog from which the output is written."""


_JVM_GONE = "Spark's Java process, which applier had started, is gone."
_JVM_HINT = (
    "a system that is short of memory ends the largest process: give it more, or lower spark.driver.memory; what was "
    "applied stays, and a restart goes on from it."
)


class Ending(NamedTuple):
    """An exit code, and the lines that say why; "" where there is no one to read them."""

    code: int
    text: str = ""


def ending_of(error: BaseException) -> Ending:
    """How the process ends after an error; a defect leaves a file with its traceback."""
    if isinstance(error, ApplierError):
        if isinstance(error, ConfigError):
            return Ending(2, "\n".join(map(escaped, error.problems)))
        return Ending(1 if isinstance(error, IncompatibleSchema | NeverRan) else 3, escaped(str(error)))
    if type(error).__module__.startswith(("click", "typer")) and hasattr(error, "format_message"):
        return Ending(2, escaped(error.format_message(), lines=True))
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return Ending(130, "Interrupted.")
    if isinstance(error, SystemExit):
        # Rich, which has nobody left to print for, ends the process itself.
        return Ending(_CLOSED)
    if _is_of_jvm(error):
        return Ending(3, f"{_JVM_GONE} Hint: {_JVM_HINT}")
    if isinstance(error, OSError):
        return _unwritten(error) if _is_of_output(error) else _of_system(error)
    if isinstance(error, MemoryError):
        return Ending(3, "The process has no memory left. Hint: give it more, or lower source.bytes_per_step.")
    return _defect(error)


def flushed(end: Ending) -> Ending:
    """This end, or another one if what was printed cannot be written: a disk that is full, a pipe that is closed."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return _unwritten(error)
    return end


def with_streams() -> None:
    """Have standard output and error also where they were closed, and let no character fail that they cannot show."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - it stays
        elif hasattr(stream := getattr(sys, name), "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _is_of_output(error: OSError) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return error.filename is None and Path(frames[-1].filename).name in _WRITERS


def _is_of_jvm(error: BaseException) -> bool:
    """Whether py4j finds nobody at the other end."""
    lost = isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError"
    return lost and any(
        Path(frame.filename).parent.name == "py4j" for frame in traceback.extract_tb(error.__traceback__)
    )


def _unwritten(error: OSError) -> Ending:
    """A pipe that is closed ends the process without a word, as there is nobody to read it."""
    # Python writes what is left once more at its end, and would fail again.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    if isinstance(error, BrokenPipeError):
        os.dup2(nowhere, 2)
        return Ending(_CLOSED)
    return Ending(3, f"Cannot write the output: {error.strerror}.")


def _of_system(error: OSError) -> Ending:
    reason = error.strerror or str(error) or type(error).__name__
    where = f"{error.filename}: " if error.filename else ""
    hint = "check the rights and the space there; what was applied stays, and a restart goes on from it."
    return Ending(3, escaped(f"The system refuses: {where}{reason}. Hint: {hint}"))


def _defect(error: BaseException) -> Ending:
    """The text of the error stays in the file, as it may show values of rows."""
    lines = traceback.format_exception(error)
    place = next((_place(frame) for frame in reversed(traceback.extract_tb(error.__traceback__)) if _place(frame)), "")
    what = f"applier failed unexpectedly, with {type(error).__name__}{place}: this is a defect of applier."
    try:
        handle, path = tempfile.mkstemp(prefix="applier-defect-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"applier {version('applier')}, Python {sys.version}\n{''.join(lines)}")
    except OSError:
        return Ending(70, f"{what}\n{''.join(lines)}")
    hint = f"please report it with {path}, which has the traceback and may show values of rows."
    return Ending(70, f"{what} Hint: {hint}")


def _place(frame: traceback.FrameSummary) -> str:
    """Where in applier a frame is; "" for other packages."""
    file = Path(frame.filename)
    return f" at applier/{file.relative_to(_PACKAGE)}:{frame.lineno}" if file.is_relative_to(_PACKAGE) else ""
