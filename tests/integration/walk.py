"""A user in an empty folder, who types what README and docs/ print."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Walk:
    """A user in an empty folder, with an environment of Python that has nothing but the wheel.

    Attributes:
        folder: Where the user is.
        took: Seconds of each step.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "shop"
        self.folder.mkdir()
        self.took: dict[str, float] = {}
        own = ("PYTHONPATH", "VIRTUAL_ENV", "COLUMNS", "APPLIER_CONFIG")
        self.environment = {name: value for name, value in os.environ.items() if name not in own}
        self.environment["PATH"] = f"{folder}/venv/bin{os.pathsep}{os.environ['PATH']}"
        subprocess.run([sys.executable, "-m", "venv", f"{folder}/venv"], check=True, env=self.environment)

    def does(self, command: str, step: str = "") -> list[str]:
        """The lines that a command prints, which ends well."""
        began = time.monotonic()
        done = subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.took[step or command] = round(time.monotonic() - began, 1)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout.strip().splitlines()

    @contextmanager
    def doing(self, command: str) -> Iterator[None]:
        """A command that goes on, until SIGTERM; it ends well then."""
        began = time.monotonic()
        log = self.folder / "run.log"
        with (
            log.open("w") as errors,
            subprocess.Popen(
                shlex.split(command), cwd=self.folder, env=self.environment, stdout=errors, stderr=errors
            ) as process,
        ):
            try:
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()
        self.took[command] = round(time.monotonic() - began, 1)
        assert process.returncode == 0, log.read_text(encoding="utf-8")


def commands(page: Path, after: str) -> list[str]:
    """The commands of the first block without a language behind a place of a page."""
    text = page.read_text(encoding="utf-8").partition(after)[2]
    found = re.search(r"```\n(.*?)\n *```", text, re.DOTALL)
    assert found is not None
    lines = found[1].replace("\\\n", " ").splitlines()
    return [re.sub(r" +", " ", line.partition(" #")[0]).strip() for line in lines]
