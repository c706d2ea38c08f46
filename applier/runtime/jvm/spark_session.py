"""Builds the Spark session: quiet, with the catalog, Kafka and Iceberg."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from applier.config.reading.paths import sqlite_file
from applier.config.settings import Config
from applier.errors import ApplierError, ConfigError, TransientError
from applier.runtime.jvm import cds_archive, executors, jars, java_home, java_options
from applier.runtime.logs import announce, logger
from applier.runtime.stop_requests import STOPPING, StopRequested, kept_handlers, leaving
from applier.runtime.storage_keys import KEYS

_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"

_DEFAULTS = {
    "spark.master": "local[*]",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_LOCAL_DEFAULTS = {
    # A name that does not resolve stops Spark in containers, and one that does opens its ports to the network.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A task that runs out of memory would end the JVM, without a word about the message that was too large for it.
    "spark.executor.killOnFatalError.depth": "0",
}

_CLUSTER_DEFAULTS = {
    # A changefeed without much to do gives its executors back, or the next one on the cluster would wait for ever.
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "60s",
    # What an idle executor holds of an earlier step is of no use any more.
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "120s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "120s",
    # As on Kubernetes and YARN. On a standalone cluster Spark takes whole workers, and cannot count what it asks for.
    "spark.executor.cores": "1",
}
"""`spark.executor.instances` is the most of them, where it is set."""

_SHRINKING_COLLECTIONS = 4
"""Full collections in a row until the heap is as small as `java_options` has it: the first give back 0, 10 and 40 %."""

_ARENAS = "2"
"""Pools of C's `malloc` in the JVM. In glibc's eight for each core what Zstandard took and gave back would stay."""

_NOISE = re.compile(
    r"WARNING: Using incubator modules: jdk\.incubator\.vector|Picked up JAVA_TOOL_OPTIONS:"
    r"|\s|Caused by: |Suppressed: |Traceback \(most recent call last\):"
)
"""Lines that every start prints, and those of a stack trace below its first one, of Java or of Python's workers."""

_LOG_LINE = re.compile(r"([A-Z]+) ([^\s:]+): (.*?)(?:: Traceback \(most recent call last\):)?")
"""As log4j2.properties lays a line out; any other is the JVM's own, or in a layout of the user."""


def build_session(name: str, spark: Mapping[str, str], catalog_name: str, catalog: Mapping[str, str]) -> SparkSession:
    """Start Spark, or return the running session with these settings applied.

    Ctrl-C reaches only Python: the JVM lives in a session of its own and ends when this process does. `spark` wins over
    every default of applier, which adds to its `spark.jars` and `spark.sql.extensions`.

    Raises:
        ConfigError: No suitable Java was found, the settings do not let Spark start, or executors cannot run our tasks.
        TransientError: The jars cannot be fetched, or the cluster does not answer.
        StopRequested: A stop was requested meanwhile, where a stop request ends a wait.
    """
    KEYS.take(catalog)
    settings = _settings(name, spark, catalog_name, catalog)
    local = settings["spark.master"].startswith("local")
    is_there, began = SparkContext._gateway is not None, time.monotonic()
    _set_environment(settings, local=local)
    try:
        with kept_handlers():
            if not is_there:
                _start_jvm(settings)
            # The handler comes with the context, so that the session is made without it.
            SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
        session = SparkSession.builder.config(map=dict[str, Any](settings)).getOrCreate()
        if not local:
            executors.prepare(session.sparkContext, _local_warehouse(catalog))
    except ApplierError:
        raise
    except Exception as error:
        if STOPPING.event.is_set():
            # What Spark makes of a call that was left is no reason of its own.
            raise StopRequested from error
        problem = f"Spark did not start on {settings['spark.master']}: {_first_line(error)}"
        raise ConfigError([problem]) if local else TransientError(problem) from error
    if not is_there:
        announce("Spark is started", seconds=round(time.monotonic() - began, 1))
    return session


@contextmanager
def running(config: Config, properties: Mapping[str, str]) -> Iterator[SparkSession]:
    """Spark with the catalog of these properties, until the block ends; see `build_session`.

    A session that runs in this process already is used as it is, and left running.
    """
    if SparkContext._active_spark_context is not None:
        yield SparkSession.builder.getOrCreate()
        return
    with leaving(), STOPPING.waiting():
        session = build_session(f"applier {config.changefeed.name}", config.spark, config.catalog.name, properties)
    try:
        yield session
    finally:
        with suppress(Exception):  # The JVM may have ended, or be unwell: what is left over harms nothing.
            java: Any = session.sparkContext._jvm
            java.applier.CachingFileIO.deleteOld()
        session.stop()


def _settings(name: str, spark: Mapping[str, str], catalog_name: str, catalog: Mapping[str, str]) -> dict[str, str]:
    master = spark.get("spark.master", _DEFAULTS["spark.master"])
    local = master.startswith("local")
    defaults = _DEFAULTS | (_LOCAL_DEFAULTS if local else _cluster_defaults(spark)) | _security(master)
    defaults |= java_options.FEW_CORES_HEAP if java_options.has_few_cores(master) else {}
    own_jars = [jar for group in jars.groups(catalog) for jar in jars.fetch(group)]
    return (
        defaults
        | {"spark.app.name": name}
        | _catalog_settings(catalog_name, catalog)
        | dict(spark)
        | {"spark.sql.extensions": _joined(spark.get("spark.sql.extensions"), _EXTENSIONS)}
        | _with_jars(spark, own_jars, local=local)
    )


def _cluster_defaults(spark: Mapping[str, str]) -> dict[str, str]:
    instances = spark.get("spark.executor.instances")
    return _CLUSTER_DEFAULTS | ({"spark.dynamicAllocation.maxExecutors": instances} if instances else {})


def _security(master: str) -> dict[str, str]:
    """Settings that keep others off the ports between driver and executors, whose first message lists all settings.

    On Kubernetes and YARN Spark makes a secret for each application and hands it to the executors. Master and workers
    of a standalone cluster have to know the same secret, so there the user has to set it for all of them.
    """
    if not master.startswith(("k8s://", "yarn", "local-cluster")):
        return {}
    own = {"spark.authenticate.secret": secrets.token_hex(32)} if master.startswith("local-cluster") else {}
    return {"spark.authenticate": "true", "spark.network.crypto.enabled": "true", **own}


def _with_jars(spark: Mapping[str, str], own: Sequence[Path], *, local: bool) -> dict[str, str]:
    """Settings that let Spark find our jars: on the class path of its only JVM, where that is all there is.

    Spark copies what `spark.jars` names at every start, and loads it by a class loader of its own, which the
    archive of classes does not cover. Executors elsewhere, and jars of the user that must see ours, need just that.
    """
    if not local or any(key in spark for key in ("spark.jars", "spark.jars.packages")):
        listed = _joined(spark.get("spark.jars"), *map(str, own))
        options = {} if local else java_options.of_executors(spark)
        return {"spark.jars": listed, "spark.driver.extraJavaOptions": java_options.of_driver(spark), **options}
    return {
        "spark.driver.extraClassPath": cds_archive.joined(own, spark.get("spark.driver.extraClassPath")),
        "spark.driver.extraJavaOptions": java_options.of_driver(spark, cds_archive.java_options(own)),
    }


def _joined(given: str | None, *own: str) -> str:
    items = [item.strip() for item in (given or "").split(",") if item.strip()]
    return ",".join(dict.fromkeys([*items, *own]))


def _catalog_settings(name: str, catalog: Mapping[str, str]) -> dict[str, str]:
    # A cached table hides the commits of another process for 30 seconds, and the fence would compare with an old head.
    properties = {"cache-enabled": "false"} | dict(catalog)
    if properties.get("type") == "jdbc":
        properties = {"jdbc.schema-version": "V1"} | properties
    if (file := sqlite_file(properties.get("uri", ""))) is not None:
        _make_folder(file.absolute().parent)
    if "catalog-impl" in properties:
        # Iceberg takes one of the two, and the configuration needs a type.
        properties.pop("type", None)
    if _local_warehouse(properties):
        properties = {"io-impl": "applier.LocalFileIO"} | properties
    elif "io-impl" in properties:
        # Where it is not set, a REST catalog may say what it is.
        properties |= {"io-impl": "applier.CachingFileIO", "applier.io-impl": properties["io-impl"]}
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {
        f"{prefix}.{key}": value for key, value in properties.items()
    }


def _local_warehouse(catalog: Mapping[str, str]) -> str:
    """The folder of the tables where it is one of this machine, else "": a path of other catalogs may be in HDFS."""
    warehouse = catalog.get("warehouse", "")
    is_local = catalog.get("type") == "jdbc" and "catalog-impl" not in catalog
    return re.sub("^file:/*", "/", warehouse) if is_local and warehouse.startswith(("/", "file:")) else ""


def _make_folder(folder: Path) -> None:
    """Make the folder of a catalog in SQLite, which does not do so itself."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError([f"catalog.uri: cannot make the folder {folder}: {error.strerror}."]) from error


def _set_environment(settings: Mapping[str, str], *, local: bool) -> None:
    """Point spark-submit at a fitting Java and, on this machine, its workers at this very Python and Spark."""
    os.environ["JAVA_HOME"] = str(java_home.find())
    os.environ.setdefault("MALLOC_ARENA_MAX", _ARENAS)
    python = settings.get("spark.pyspark.python")
    if python or local:
        os.environ["PYSPARK_PYTHON"] = python or sys.executable
    if local:
        os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)


def _start_jvm(settings: Mapping[str, str]) -> None:
    reader, writer = os.pipe()
    said = _Stderr(reader)
    said.start()
    try:
        with _submit_arguments(settings):
            gateway: Any = launch_gateway(None, {"stderr": writer, "start_new_session": True})  # type: ignore[no-untyped-call]
    except PySparkException as error:
        os.close(writer)
        raise ConfigError([f"Spark's JVM did not start: {said.end()}"]) from error
    os.close(writer)
    SparkContext._ensure_initialized(gateway=gateway)


def end_jvm(seconds: float) -> None:
    """End the JVM of this process, after its session; TimeoutExpired where it is there after so many seconds."""
    gateway: Any = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(seconds)


def collect_garbage() -> None:
    """Let the JVM of this process shrink its heap to what is used; nothing without Spark."""
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    # Where the JVM is gone, the next step says so.
    with suppress(Exception):
        for _ in range(_SHRINKING_COLLECTIONS):
            gateway.jvm.java.lang.System.gc()


def finished_tasks() -> int:
    """Tasks that the stages under way have finished: a sign of progress within a long job. 0 without Spark."""
    context = SparkContext._active_spark_context
    if context is None:
        return 0
    return sum(stage.numCompletedTasks for stage in executors.active_stages(context))


@contextmanager
def _submit_arguments(settings: Mapping[str, str]) -> Iterator[None]:
    """Hand the settings to spark-submit in a file of this user; its command line is open to the whole machine."""
    given = os.environ.get("PYSPARK_SUBMIT_ARGS")
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".properties") as file:
        file.writelines(f"{key}={_property(value)}\n" for key, value in settings.items())
        file.flush()
        ours = f"--properties-file {shlex.quote(file.name)} --load-spark-defaults"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{ours} {given or 'pyspark-shell'}"
        try:
            yield
        finally:
            if given is None:
                del os.environ["PYSPARK_SUBMIT_ARGS"]
            else:
                os.environ["PYSPARK_SUBMIT_ARGS"] = given


def _property(value: str) -> str:
    """A value as java.util.Properties reads it back."""
    escaped = value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


class _Stderr(threading.Thread):
    """Logs what the JVM says, a line each: stack traces, which tell a user nothing, are left out."""

    def __init__(self, reader: int) -> None:
        super().__init__(name="jvm-stderr", daemon=True)
        self._reader = reader
        self._latest: deque[str] = deque(maxlen=3)

    def run(self) -> None:
        with os.fdopen(self._reader, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not _NOISE.match(line):
                    self._latest.append(line.strip())
                    _log(line.strip())

    def end(self) -> str:
        """Wait for the end of the stream and return its last lines."""
        self.join(timeout=5)
        return " ".join(self._latest) or "it said nothing"


def _log(line: str) -> None:
    match = _LOG_LINE.fullmatch(line)
    level, of, said = match.groups() if match else ("ERROR", "JVM", line)
    write = logger().warning if level == "WARN" else logger().error
    write("spark", **{"from": of, "said": said})


def _first_line(error: Exception) -> str:
    """What went wrong: Java's own message where there is one, without the stack."""
    cause = getattr(error, "java_exception", None)
    text = str(cause.toString() if cause is not None else error).strip()
    return text.splitlines()[0] if text else type(error).__name__
