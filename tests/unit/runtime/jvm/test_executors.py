"""What an executor must have, and what is said where it has not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from applier.errors import ConfigError
from applier.runtime.jvm import executors, probe, spark_session
from applier.runtime.jvm.executors import _reason, _refusal, unfit

OWN = probe.look()
THEIRS = replace(OWN, python="3.11.9", program="/usr/bin/python3", applier="./applier-shipped.zip/applier/__init__.py")

_LOADED = """
import importlib, pkgutil, re, sys
from importlib.metadata import packages_distributions, requires
rooms = ("decode", "order", "consume.workers", "pipeline.scan", "pipeline.load", "sink.write", "sink.format")
for room in [f"applier.{room}" for room in rooms]:
    for found in pkgutil.walk_packages(importlib.import_module(room).__path__, room + "."):
        importlib.import_module(found.name)
own = {re.match(r"[\\w.-]+", each)[0].lower() for each in requires("applier") if "extra ==" not in each}
known = packages_distributions()
loaded = {name.partition(".")[0] for name in sys.modules}
print(*sorted(name for name in loaded if own & {each.lower() for each in known.get(name, [])}))
"""


def test_a_python_like_this_one_fits() -> None:
    """Another patch level of Python changes nothing."""
    assert (OWN.missing, OWN.broken) == ((), "")
    assert unfit(THEIRS, OWN) == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"missing": ("numpy", "pyarrow")}, "Python 3.11.9 at /usr/bin/python3 lacks numpy, pyarrow"),
        (
            {"broken": "ImportError: libz"},
            "Python 3.11.9 at /usr/bin/python3 cannot load the code of tasks (ImportError",
        ),
        (
            {"versions": {"pyarrow": "9.0.1", "numpy": "2.0"}},
            "Python 3.11.9 at /usr/bin/python3 has pyarrow 9.0.1, and",
        ),
        (
            {"applier": "/opt/applier/__init__.py"},
            "takes applier from /opt/applier/__init__.py and not from its driver",
        ),
    ],
)
def test_what_does_not_fit_is_named(changed: dict[str, object], why: str) -> None:
    """The interpreter that was asked, and what it lacks."""
    assert why in unfit(replace(THEIRS, **changed), OWN)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark",
            f"their Python is 3.12, and the driver's 3.{sys.version_info[1]}",
        ),
        ('java.io.IOException: Cannot run program "python3": error=2', "they have no program python3"),
        (
            "PythonException: Traceback (most):\n  x\nModuleNotFoundError: No module named 'applier'\n\tat org",
            "their Python cannot load applier (ModuleNotFoundError: No module named 'applier')",
        ),
        ("java.net.ConnectException: refused", None),
    ],
)
def test_a_python_that_does_not_come_so_far_is_told_from_a_cluster_that_is_away(text: str, why: str | None) -> None:
    """Only the configuration mends the first, and only time the second."""
    assert _reason(text) == why


def test_the_refusal_names_both_keys_and_the_page() -> None:
    """One sentence, and the way out."""
    assert str(_refusal("yarn", "they have no program python3")) == (
        "spark.pyspark.python: the executors of yarn cannot run tasks: they have no program python3. Hint: name a "
        "Python with the packages of requirements.lock in spark.pyspark.python, which every executor has or which "
        "spark.archives brings: see docs/cluster.md."
    )


class _Cluster:
    """A SparkContext whose executors may have another disk."""

    master = "spark://m"

    def __init__(self, folder: Path, *, has_other_disk: bool) -> None:
        self._temp_dir = str(folder / "temporary")
        self.has_other_disk, self.asked = has_other_disk, list[str]()

    def addPyFile(self, _: str) -> None:  # noqa: N802 - Spark's name
        """See pyspark."""

    def parallelize(self, items: list[str], _: int) -> _Cluster:
        """See pyspark."""
        self.asked = items
        assert all(Path(item).is_dir() for item in items if item)
        return self

    def map(self, function: Callable[[str], probe.Interpreter]) -> _Cluster:
        """See pyspark."""
        (folder,) = self.asked
        self.found = function("/nowhere" + folder if folder and self.has_other_disk else folder)
        return self

    def first(self) -> probe.Interpreter:
        """See pyspark."""
        return replace(self.found, applier=THEIRS.applier)


def test_a_warehouse_that_executors_do_not_reach_is_refused_at_the_start(tmp_path: Path) -> None:
    """Each task would write to a disk of its own; nothing stays of the question."""
    warehouse = tmp_path / "lake"

    with pytest.raises(ConfigError) as refused:
        executors.prepare(_Cluster(tmp_path, has_other_disk=True), str(warehouse))

    assert str(refused.value) == (
        f"catalog.warehouse: the executors of spark://m cannot write into {warehouse} of this machine. Hint: keep the "
        "tables where all machines of the cluster reach them: in an object store, or in a folder that each of them has "
        "at the same path."
    )
    assert list(warehouse.iterdir()) == []
    executors.prepare(_Cluster(tmp_path / "same", has_other_disk=False), str(warehouse))
    executors.prepare(_Cluster(tmp_path / "remote", has_other_disk=True), "")


@pytest.mark.parametrize(
    ("catalog", "folder"),
    [
        ({"type": "jdbc", "warehouse": "/a/b"}, "/a/b"),
        ({"type": "jdbc", "warehouse": "file:/a/b"}, "/a/b"),
        ({"type": "jdbc", "warehouse": "file:///a/b"}, "/a/b"),
        ({"type": "jdbc", "warehouse": "s3://bucket/a"}, ""),
        ({"type": "hadoop", "warehouse": "/a/b"}, ""),
        ({"type": "rest", "uri": "http://c"}, ""),
    ],
)
def test_executors_are_asked_for_a_folder_of_this_machine_alone(catalog: dict[str, str], folder: str) -> None:
    """A path without a scheme may be one of HDFS where Hadoop reads it."""
    assert spark_session._local_warehouse(catalog) == folder


def test_every_package_that_tasks_load_is_asked_for() -> None:
    """Those of applier's own requirements that their code imports, without what Spark brings."""
    loaded = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True).stdout.split()

    assert sorted(set(loaded) - {"pyspark", "py4j"}) == sorted(probe.NEEDED)


def test_a_job_without_an_executor_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its patience is over, and again, until a task runs or the context is stopped."""
    monkeypatch.setattr(executors, "_LOOK_SECONDS", 0)
    monkeypatch.setattr(executors, "PATIENCE_SECONDS", 0)
    active = iter([0, 0, 1])

    def stage(_: int) -> SimpleNamespace:
        return SimpleNamespace(numActiveTasks=next(active))

    tracker = SimpleNamespace(getActiveStageIds=lambda: [0], getStageInfo=stage)
    with capture_logs() as said:
        executors._tell_waits(SimpleNamespace(statusTracker=lambda: tracker, master="spark://m"))

    assert [line["event"] for line in said] == ["waiting for executors"] * 2
    assert said[0]["master"] == "spark://m"


def test_an_idle_applier_gives_executors_back_unless_told_otherwise() -> None:
    """`spark.executor.instances` becomes the most of them, as it would without dynamic allocation."""
    assert spark_session._cluster_defaults({})["spark.dynamicAllocation.minExecutors"] == "0"
    assert "spark.dynamicAllocation.maxExecutors" not in spark_session._cluster_defaults({})
    some = spark_session._cluster_defaults({"spark.executor.instances": "3"})
    assert some["spark.dynamicAllocation.maxExecutors"] == "3"
