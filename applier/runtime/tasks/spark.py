"""Runs one piece of work on many parts in Spark's tasks, a task a part: what comes back is what the work returns."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast
from zipimport import zipimporter

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_chain, wait_fixed

from applier.errors import ApplierError, TransientError, worst
from applier.runtime.permanent_errors import SPARK, Cause, chain_of, refusal, told
from applier.runtime.tasks.task_error import PYTHON, defect, is_of_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


_Part = TypeVar("_Part")
_Result = TypeVar("_Result")

_PAUSES = (1.0, 5.0)
"""Seconds between attempts at a part that an outside system spoilt."""

_OF_SYSTEM = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO)))
"""What the operating system says of storage: it knows nothing of rows."""


def map_in_tasks(
    session: SparkSession, action: str, work: Callable[[_Part], _Result], parts: Sequence[_Part]
) -> list[_Result]:
    """Do work on each part in one job, a task a part, and return what it gave; all of them must be picklable.

    The action is what the work does, for messages: `load rows of table t`. Spark may do the work twice on a part, and
    what one of the two returned counts.

    Raises:
        ApplierError: The work raised it on a part; what cannot pass comes first.
        TransientError: Spark or the storage failed for a reason that may pass.
    """
    if not parts:
        return []
    with reported(action):
        outcomes = session.sparkContext.parallelize(parts, len(parts)).map(partial(_outcome, work)).collect()
    if len(outcomes) != len(parts):
        # PySpark takes the end of the stream for that of the results, also where the JVM could not send them all.
        raise TransientError(f"Spark cannot {action}: it gave no answer for a part of the work.")
    if errors := [outcome for outcome in outcomes if isinstance(outcome, ApplierError)]:
        raise worst(errors)
    return cast("list[_Result]", outcomes)


def _outcome(work: Callable[[_Part], _Result], part: _Part) -> _Result | ApplierError:
    spare_the_next()
    # Spark tries a task that fails again, and what it says of that may hold rows. An error that is returned ends the
    # job, and one request that a storage does not answer is to end none of hours.
    again = Retrying(
        retry=retry_if_exception_type(TransientError),
        wait=wait_chain(*map(wait_fixed, _PAUSES)),
        stop=stop_after_attempt(1 + len(_PAUSES)),
        reraise=True,
    )
    try:
        return again(work, part)
    except ApplierError as error:
        return error


@contextmanager
def reported(action: str) -> Iterator[None]:
    """Raise what a failed job means, without the rows that its own message may hold."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        if PYTHON in text and is_of_code(text):
            raise defect(text) from error
        # PySpark gives errors of tasks that it does not know as Java does. What a failed job says may hold rows.
        chain = [Cause(cause.kind, cause.code, cause.code) for cause in chain_of(error)]
        lasting = refusal(f"Spark cannot {action}", chain, SPARK)
        told_by_system = [said for said in _OF_SYSTEM if said in text]
        reasons = "; caused by: ".join([told(chain), *told_by_system[:1]])
        raise lasting or TransientError(f"Spark cannot {action}: {reasons}") from error
