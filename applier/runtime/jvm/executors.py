"""Executors on other machines: gives them this package, and finds out whether they can run its tasks.

That comes first: an applier that cannot work must not hold a changefeed.
"""

from __future__ import annotations

import re
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from applier.errors import ConfigError
from applier.runtime import terminal
from applier.runtime.jvm.probe import Interpreter, look
from applier.runtime.logs import logger
from applier.runtime.pulse import PULSE

_PACKAGE = Path(__file__).parents[2]

_SHIPPED = "applier-shipped"
"""Stem of the archive that executors get."""

PATIENCE_SECONDS = 60.0
"""A stage of which no task runs for so long waits for executors; it is said again each time that this has passed."""

_LOOK_SECONDS = 5.0

WAY = (
    "name a Python with the packages of requirements.lock in spark.pyspark.python, which every executor has or which "
    "spark.archives brings: see docs/cluster.md."
)

SHARED = (
    "keep the tables where all machines of the cluster reach them: in an object store, or in a folder that each of "
    "them has at the same path."
)

_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH.*?(\d+\.\d+)", re.DOTALL)
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]*)"')
_TRACEBACK = re.compile(
    r"PythonException: Traceback.*?^((?:\w+\.)*\w+(?:Error|Exception)\b[^\n]*)", re.DOTALL | re.MULTILINE
)


def prepare(context: Any, warehouse: str) -> None:
    """Give the executors of a SparkContext this package, and let one of them load what tasks need.

    From here on, until the context is stopped, it is said when no executor is there for the tasks. The warehouse is the
    folder of the tables where it is one of this machine, else "".

    Raises:
        ConfigError: Their Python cannot run the tasks, or cannot write into the warehouse.
    """
    threading.Thread(target=_tell_waits, args=(context,), name="executors", daemon=True).start()
    _ship(context)
    since = time.monotonic()
    try:
        with (
            terminal.waiting("asking an executor of the cluster whether it can run tasks"),
            _made_in(warehouse) as folder,
        ):
            found: Interpreter = context.parallelize([folder], 1).map(look).first()
    except Exception as error:
        if (reason := _reason(str(error))) is None:
            raise
        raise _refusal(context.master, reason) from error
    if reason := unfit(found, look()):
        raise _refusal(context.master, reason)
    if not found.may_write:
        what = f"catalog.warehouse: the executors of {context.master} cannot write into {warehouse} of this machine."
        raise ConfigError([f"{what} Hint: {SHARED}"])
    seconds = round(time.monotonic() - since, 1)
    logger().info("executors can run tasks", master=context.master, python=found.program, seconds=seconds)


def unfit(found: Interpreter, own: Interpreter) -> str:
    """Why a Python cannot run the tasks of this one; "" if it can."""
    python = f"Python {found.python} at {found.program}"
    if found.missing:
        return f"{python} lacks {', '.join(found.missing)}"
    if _SHIPPED not in found.applier:
        return f"{python} takes applier from {found.applier} and not from its driver"
    if found.broken:
        return f"{python} cannot load the code of tasks ({found.broken})"
    for name, version in own.versions.items():
        if (theirs := found.versions[name]).partition(".")[0] != version.partition(".")[0]:
            return f"{python} has {name} {theirs}, and the driver {version}"
    return ""


def _reason(text: str) -> str | None:
    """Why Python does not come so far as to say what it has; None where that is not why the job failed."""
    if match := _OTHER_PYTHON.search(text):
        return f"their Python is {match[1]}, and the driver's {sys.version_info[0]}.{sys.version_info[1]}"
    if match := _NO_PROGRAM.search(text):
        return f"they have no program {match[1]}"
    if match := _TRACEBACK.search(text):
        return f"their Python cannot load applier ({match[1].strip()})"
    return None


def _refusal(master: str, reason: str) -> ConfigError:
    return ConfigError([f"spark.pyspark.python: the executors of {master} cannot run tasks: {reason}. Hint: {WAY}"])


@contextmanager
def _made_in(warehouse: str) -> Iterator[str]:
    """A folder in a warehouse, made as those of tables; "" without a warehouse, and where the driver can make none."""
    folder = Path(warehouse) / f".applier-{uuid.uuid4().hex}"
    try:
        if warehouse:
            folder.mkdir(parents=True)
    except OSError:
        warehouse = ""  # The first table tells why.
    try:
        yield str(folder) if warehouse else ""
    finally:
        if warehouse:
            folder.rmdir()


def _ship(context: Any) -> None:
    """Send this package, as it is installed here. Executors that start later get it, too, while the context lives."""
    folder = Path(context._temp_dir)  # noqa: SLF001 - Spark removes it with the context
    shutil.copytree(_PACKAGE, folder / _SHIPPED / "applier", ignore=shutil.ignore_patterns("__pycache__", "*.jar"))
    before = list(sys.path)
    context.addPyFile(shutil.make_archive(str(folder / _SHIPPED), "zip", folder / _SHIPPED))
    # It is for the executors: what this process has yet to import comes from where the rest came from.
    sys.path[:] = before


def _tell_waits(context: Any) -> None:
    """Say when the job under way has no executor; ends with the context."""
    since = told = time.monotonic()
    # Where the JVM is gone, or the context stopped, there is nothing left to say.
    with suppress(Exception):
        while True:
            time.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            stages = active_stages(context)
            if not stages or any(stage.numActiveTasks for stage in stages):
                since = told = now
            elif now - told >= PATIENCE_SECONDS:
                told = now
                # No restart of this process would bring executors.
                PULSE.beat()
                hint = "others hold the cores of the cluster, or none of its workers has spark.executor.memory free."
                logger().warning(
                    "waiting for executors", master=context.master, waited_seconds=round(now - since), hint=hint
                )


def active_stages(context: Any) -> list[Any]:
    """What Spark says of the stages under way."""
    tracker = context.statusTracker()
    return [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None]
