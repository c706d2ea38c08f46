"""A folder in, a standalone Spark cluster on 127.0.0.1 out: one master, workers, and Pythons for their executors.

The processes know nothing of this checkout: no PYTHONPATH, and a folder of their own to work in.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from applier.runtime.jvm import java_home
from tests.services.process import JavaProcess, free_ports

_HOME = Path(pyspark.__file__).parent

_HEAP = "-Xmx256m"

_EXECUTOR = b"CoarseGrainedExecutorBackend"


class SparkCluster:
    """A master and its workers, each a process of its own.

    Args:
        folder: Logs (`master.log`, `worker-N.log`), and what executors write: `work-N/app-*/*/stderr`.
        workers: How many.
        cores: Cores of each worker.
        memory: Memory of each worker, as Spark writes it; executors of a job share it.
        python: What executors run where a job names no `spark.pyspark.python`: the worker's `PYSPARK_PYTHON`.

    Attributes:
        master: Value for `spark.master`.
        folder: As given.
    """

    def __init__(
        self, folder: Path, workers: int = 2, cores: int = 1, memory: str = "1g", python: Path | None = None
    ) -> None:
        self.folder = folder
        port, page, *ports = free_ports(2 + 2 * workers)
        self.master = f"spark://127.0.0.1:{port}"
        self._page = f"http://127.0.0.1:{page}/json/"
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK"))}
        environment |= {
            "JAVA_HOME": str(java_home.find()),
            "SPARK_HOME": str(_HOME),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        if python is not None:
            environment["PYSPARK_PYTHON"] = str(python)
        classes = [_HEAP, "-cp", str(_HOME / "jars" / "*")]

        def process(name: str, arguments: list[str]) -> JavaProcess:
            return JavaProcess(f"Spark's {name}", [*classes, *arguments], folder / f"{name}.log", environment)

        address = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
        self._master = process("master", ["org.apache.spark.deploy.master.Master", *address])
        self._workers = []
        for number in range(workers):
            # Spark runs a slow task once more on another host only.
            place = ["--host", f"127.0.0.{number + 1}", "--port", str(ports[2 * number])]
            place += ["--webui-port", str(ports[2 * number + 1]), "--work-dir", str(folder / f"work-{number}")]
            given = [*place, "--cores", str(cores), "--memory", memory, self.master]
            self._workers.append(process(f"worker-{number}", ["org.apache.spark.deploy.worker.Worker", *given]))

    def start(self) -> None:
        """Start all processes and wait until every worker has registered."""
        self._master.start(lambda: bool(self.state()))
        for number in range(len(self._workers)):
            self.start_worker(number)

    def settings(self, python: Path) -> dict[str, str]:
        """What `[spark]` holds of a small job on it, whose executors run this Python."""
        return {
            "spark.master": self.master,
            "spark.driver.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.pyspark.python": str(python),
        }

    def stop(self) -> None:
        """End all processes; executors end with their worker. May be called twice."""
        for process in [*self._workers, self._master]:
            process.stop()

    def stop_worker(self, number: int) -> None:
        """End one worker, and the executors on it."""
        self._workers[number].stop()

    def start_worker(self, number: int) -> None:
        """Start a worker, as at first or after `stop_worker`."""
        expected = self._alive() + 1
        self._workers[number].start(lambda: self._alive() >= expected)

    def state(self) -> dict[str, Any]:
        """What the master's page says: `workers`, `activeapps` and more; empty while it does not answer."""
        try:
            with urllib.request.urlopen(self._page, timeout=5) as answer:  # noqa: S310 - http, as written above
                return dict(json.load(answer))
        except OSError:
            return {}

    def workers(self) -> list[int]:
        """Process ids of the workers that run."""
        return [worker.pid for worker in self._workers if worker.is_running]

    def executors(self) -> list[int]:
        """Process ids of all executors that run, of all jobs."""
        workers = self.workers()
        return [pid for pid, parent, command in _processes() if parent in workers and _EXECUTOR in command]

    def wait_for_executors(self, count: int, seconds: float = 60) -> list[int]:
        """Wait until exactly so many executors run, and return their ids. Raises TimeoutError if they never do."""
        deadline = time.monotonic() + seconds
        while len(found := self.executors()) != count:
            if time.monotonic() > deadline:
                msg = f"{len(found)} executors run, not {count}"
                raise TimeoutError(msg)
            time.sleep(0.1)
        return found

    def kill_executor(self, pid: int) -> None:
        """Kill an executor as the kernel does where memory ends; the cluster starts another one."""
        assert pid in self.executors(), f"{pid} is no executor of this cluster"
        os.kill(pid, signal.SIGKILL)

    def kill_worker_of(self, pid: int) -> None:
        """Kill the worker that an executor is on, as where its machine is lost, and start another one in its place."""
        parent = next(parent for own, parent, _ in _processes() if own == pid)
        number = next(at for at, worker in enumerate(self._workers) if worker.is_running and worker.pid == parent)
        os.kill(parent, signal.SIGKILL)
        self.stop_worker(number)
        self.start_worker(number)

    def _alive(self) -> int:
        return sum(worker["state"] == "ALIVE" for worker in self.state().get("workers", []))


def _processes() -> Iterator[tuple[int, int, bytes]]:
    """Id, parent's id and command line of every process of this machine."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            yield int(folder.name), parent, (folder / "cmdline").read_bytes()
        except OSError:
            # It ended meanwhile.
            continue


def bare_python(folder: Path) -> Path:
    """A new environment of Python that has no package at all; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    return folder / "bin" / "python"


def python_without_applier(folder: Path) -> Path:
    """A new environment of Python with every package of this one, but not `applier`; its interpreter."""
    python = bare_python(folder)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # Python reads .pth files, which name this checkout, in its own folder alone, and not in those that one adds.
    (own / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


@contextmanager
def spark_cluster(folder: Path, workers: int = 2, cores: int = 1, memory: str = "1g") -> Iterator[SparkCluster]:
    """A running cluster that is stopped at the end."""
    running = SparkCluster(folder, workers, cores, memory)
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A cluster with two workers of one core each, for the tests of a file."""
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
