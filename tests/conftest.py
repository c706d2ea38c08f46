"""What every test may ask for: one Spark session with an Iceberg catalog, and the services of tests/services."""

from __future__ import annotations

import os
import platform
import signal
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
import structlog

from applier.decode import protocols
from applier.errors import ConfigError
from applier.runtime.jvm import jars, java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = [f"tests.services.{name}" for name in ("kafka", "registry", "s3", "spark_cluster", "tidb")]

# Every JVM here, also of a broker or of a process that is killed, ends before the optimising compiler could pay.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# The same cases on every machine; `make soak` looks for new ones.
hypothesis.settings.register_profile("applier", derandomize=True, deadline=None)
hypothesis.settings.load_profile("applier")

# A shell lets jobs behind it ignore these, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

_QUICK = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    # Compiling a plan, or planning it anew in its middle, costs more than to run it over the few rows of a test.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings of the session. Processes of their own, in tests/recovery and tests/integration, have those of users."""

_NO_WAIT_FOR_THE_DISK = {"jdbc.synchronous": "OFF"}
"""Properties of the driver of SQLite: no test takes the power away, and each commit waits 20 ms for a disk."""

_HEAVY = ("spark", "kafka", "registry", "s3", "tidb", "browser")


def pytest_report_header() -> str:
    """The versions that matter."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "pyiceberg"))
    try:
        home = str(java_home.find())
    except ConfigError:
        home = "no Java"
    iceberg = next(name for name in jars.names("spark") if name.startswith("iceberg"))
    return f"Python {platform.python_version()}, {packages}, {iceberg}, {home}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests after the heavy fixtures that they use, and run those that use none first."""
    for item in items:
        for name in _HEAVY:
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(name)
        if "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    items.sort(key=lambda item: any(item.get_closest_marker(name) for name in (*_HEAVY, "recovery", "slow")))


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """No test logs to the standard error of another, which is closed."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _new_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test begins with the decoder of another, whose registry may have had the same address."""
    monkeypatch.setattr(protocols, "_OF_THREAD", threading.local())


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the catalog `lake`: its database is catalog.db, its tables are under tables."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def lake(warehouse: Path) -> dict[str, str]:
    """Properties of the catalog `lake` that the Spark session has: SQLite and a local folder."""
    return _catalog(warehouse)


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, warehouse: Path) -> Iterator[SparkSession]:
    """The Spark session of the run, with the catalog `lake`; use namespaces of your own.

    A process has one JVM: no folder may override this, or its tests would get the catalog of whoever came first.
    """
    from applier.runtime.jvm.spark_session import build_session  # noqa: PLC0415 - tests without it must not load Spark

    settings = _QUICK | {f"spark.sql.catalog.lake.{key}": value for key, value in _NO_WAIT_FOR_THE_DISK.items()}
    groups = {"s3": "s3", "catalog": "postgresql"}
    needed = [groups[name] for name in groups if any(item.get_closest_marker(name) for item in request.session.items)]
    if needed:
        settings["spark.jars"] = ",".join(str(jar) for group in needed for jar in jars.fetch(group))
    session = build_session("applier-tests", settings, "lake", _catalog(warehouse))
    yield session
    session.stop()


def _catalog(warehouse: Path) -> dict[str, str]:
    return {"type": "jdbc", "uri": f"jdbc:sqlite:{warehouse}/catalog.db", "warehouse": f"{warehouse}/tables"}
