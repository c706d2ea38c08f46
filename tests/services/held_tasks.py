"""A Python for executors whose tasks wait where a test wants them to: each does its work, and does not hand it over.

A folder tells the tasks what to do, so that no test depends on time. Nothing of this is in `applier/`.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services.spark_cluster import python_without_applier

_CODE = '''
"""Lets the tasks of the first attempt wait after their work, while the folder has a file called as their job."""
import os
import sys
import time
from importlib.machinery import PathFinder
from pathlib import Path

FOLDER = Path({folder!r})
PLACES = {{
    "applier.pipeline.scan.decode_task": ("DecodeTask", "decode"),
    "applier.pipeline.batches.stager": ("Work", "stage"),
    "applier.sink.format.storage": ("LocalStorage", "create"),
}}


def wait(job):
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None or context.attemptNumber():
        return
    executor = Path(f"/proc/{{os.getppid()}}/stat").read_text().rpartition(")")[2].split()[1]
    (FOLDER / f"{{job}}-{{context.partitionId()}}").write_text(executor)
    while (FOLDER / job).exists() or (FOLDER / f"{{job}}-{{context.partitionId()}}-only").exists():
        time.sleep(0.05)


def elsewhere(location):
    """The same path on another disk, if the folder has one."""
    return str(FOLDER / "disk") + location if (FOLDER / "disk").exists() else location


class Loader:
    def __init__(self, own, kind, job):
        self.own, self.kind, self.job = own, kind, job

    def create_module(self, spec):
        return self.own.create_module(spec)

    def exec_module(self, module):
        self.own.exec_module(module)
        kind, job = getattr(module, self.kind), self.job
        if job == "create":
            here = kind.create
            kind.create = lambda own, location: here(own, elsewhere(location))
            return
        call = kind.__call__

        def held(self, *arguments):
            found = call(self, *arguments)
            wait(job)
            return found

        kind.__call__ = held


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in PLACES:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = Loader(spec.loader, *PLACES[name])
        return spec


sys.meta_path.insert(0, Finder)
'''


class HeldTasks:
    """Tasks of two jobs, `decode` and `stage`, that wait until a test lets them go; a second attempt never waits.

    Args:
        folder: An empty folder.

    Attributes:
        python: What executors run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "told"
        self._folder.mkdir(parents=True)
        self.python = python_without_applier(folder / "python")
        found = subprocess.run(
            [self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True, timeout=60, capture_output=True, text=True,
        )  # fmt: skip
        packages = Path(found.stdout.strip())
        (packages / "held_tasks.py").write_text(_CODE.format(folder=str(self._folder)), encoding="utf-8")
        (packages / "zz_held_tasks.pth").write_text("import held_tasks\n", encoding="utf-8")

    def hold(self, job: str, task: int | None = None) -> None:
        """Let the tasks of a job wait from now on, or one of them; those of an earlier run are forgotten."""
        for file in self._folder.glob(f"{job}-*"):
            if not file.name.endswith("-only"):
                file.unlink()
        (self._folder / (job if task is None else f"{job}-{task}-only")).touch()

    def let_go(self, job: str) -> None:
        """Let the tasks of a job go on, and forget which have come."""
        for file in self._folder.glob(f"{job}*"):
            file.unlink()

    @contextmanager
    def own_disk(self) -> Iterator[None]:
        """Let tasks write what they write on this machine to a disk that this machine does not see."""
        disk = self._folder / "disk"
        disk.mkdir()
        yield
        shutil.rmtree(disk)

    def executor_of(self, job: str, task: int = 0, seconds: float = 240) -> int:
        """Wait until a task has done its work and waits, and return the id of its executor."""
        file, deadline = self._folder / f"{job}-{task}", time.monotonic() + seconds
        while not (file.exists() and file.read_text()):
            assert time.monotonic() < deadline, f"no task of the job {job} has come so far"
            time.sleep(0.05)
        return int(file.read_text())
