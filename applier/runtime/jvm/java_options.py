"""Options of Java that suit what the JVMs of a driver and of executors do: what they compile, and how they collect."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_COMPILER = " ".join(
    f"-XX:{name}={10 * usual}"
    for name, usual in {
        "Tier4InvocationThreshold": 5_000,
        "Tier4MinInvocationThreshold": 600,
        "Tier4CompileThreshold": 15_000,
        "Tier4BackEdgeThreshold": 40_000,
    }.items()
)
"""The JVM's optimising compiler starts ten times as late. The first minutes of a job run a lot of code a few thousand
times, and compiling that took two fifths of the JVM's CPU time; what is hot is compiled all the same."""

_HEAP = "-XX:GCTimeRatio=4 -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30"
"""The heap grows where a fifth of the time goes into collecting it, and not a thirteenth, and gives back what it does
not need: a job that mostly waits for Kafka and for Python has no use for the largest heap that it may have."""

_QUIET = "-XX:-UsePerfData"
"""No figures for `jstat`, which the JVM would note twenty times a second, also while it has nothing to do."""

_FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
"""Nothing is worth optimising in the driver of a cluster: it plans and commits, and what runs long runs elsewhere. To
compile took two fifths of its CPU time in the first minutes."""

_ONE_COLLECTOR = "-XX:+UseSerialGC"
"""Collects on one thread, which is less work where cores are few: the default one marks what lives anew whenever a
few large buffers were received, thirty times in a gigabyte. The JVM does not start with two collectors, so ours stays
away where the user names one."""

_LARGE_BUFFERS = "-XX:G1HeapRegionSize=32m -XX:InitiatingHeapOccupancyPercent=70"
"""Executors move buffers of some megabytes between Kafka, Python and each other. The collector takes what is larger
than half a region for a reason to mark all that lives: an eighth of their CPU time. Any other collector passes these
over; its name would not be safe, as an executor whose machine names another one does not start."""

_MANIFESTS_AT_ONCE = "-Diceberg.worker.num-threads=16"
"""Iceberg reads and writes manifests of all tables in one pool, by default of as many threads as there are cores. On
object storage each waits for an answer most of the time: with two threads ten tables take turns for two seconds."""

_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")

_FEW_CORES = 3
"""As many as read in the driver: with more Spark's tasks read, and fill the heap together."""

FEW_CORES_HEAP = {"spark.driver.memory": "1536m"}
"""The collector of one thread lets the heap grow as far as it may. In all, a backlog of twenty million messages takes
2.5 GB with this heap and 3 with the one of many cores, and not more time."""

_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


def of_driver(spark: Mapping[str, str], *ours: str) -> str:
    """Options of the driver's JVM, by Spark's settings; those of the user come last, and win."""
    quiet = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    given = spark.get("spark.driver.extraJavaOptions", "")
    # The user's come last: of two equal -D the JVM takes the last.
    compiler = _COMPILER if spark.get("spark.master", "local").startswith("local") else _FIRST_COMPILER
    options = [quiet, compiler, _HEAP, _QUIET, _collector(spark, given), _MANIFESTS_AT_ONCE, *ours, given]
    return " ".join(filter(None, options))


def _collector(spark: Mapping[str, str], given: str) -> str:
    """The collector that suits the cores, where the configuration names none; empty to leave it to Java."""
    elsewhere = [spark.get("spark.driver.defaultJavaOptions", ""), *map(os.environ.get, _JAVA_VARIABLES)]
    if any(_COLLECTOR.search(options or "") for options in [given, *elsewhere]):
        return ""
    return _ONE_COLLECTOR if has_few_cores(spark.get("spark.master", "local[*]")) else ""


def has_few_cores(master: str) -> bool:
    """Whether Spark runs so few tasks at once in the driver's JVM that it reads messages without them."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if match is None:
        # Those of a cluster run elsewhere.
        return not master.startswith("local")
    cores = os.cpu_count() if match[1] == "*" else int(match[1] or 1)
    return cores is not None and cores <= _FEW_CORES


def of_executors(spark: Mapping[str, str]) -> dict[str, str]:
    """The setting that holds options of executors; those of the user come last, and win."""
    given = spark.get("spark.executor.extraJavaOptions", "")
    return {"spark.executor.extraJavaOptions": " ".join(filter(None, [_COMPILER, _LARGE_BUFFERS, _QUIET, given]))}
