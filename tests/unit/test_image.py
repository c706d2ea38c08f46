"""The image without a daemon: its recipe, its entrypoint and its health check, as programs of this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from tests.deploy_tools import CONFIG, tool

_ROOT = Path(__file__).parents[2]
_DEPLOY = _ROOT / "deploy"


def test_the_recipe_has_no_finding() -> None:
    """Of hadolint, save for what the file itself excuses."""
    done = subprocess.run(
        [tool("hadolint"), "--no-color", str(_DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_runs_as_a_numbered_user_that_is_not_root() -> None:
    """Kubernetes proves `runAsNonRoot` by the number alone."""
    users = re.findall(r"^USER (.+)$", (_DEPLOY / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)

    assert users == ["10001:10001"]


def _programs(folder: Path, **scripts: str) -> dict[str, str]:
    """An environment whose programs are these scripts."""
    for name, text in scripts.items():
        file = folder / name
        file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        file.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def _entered(environment: dict[str, str], *arguments: str) -> list[str]:
    command = ["/bin/bash", str(_DEPLOY / "entrypoint.sh"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_entrypoint_runs_applier(tmp_path: Path) -> None:
    """With the arguments of the container as they are."""
    environment = _programs(tmp_path, applier='printf "%s\\n" "$@"')

    assert _entered(environment, "run", "--config", "a b.toml") == ["run", "--config", "a b.toml"]


def test_the_entrypoint_starts_an_executor_as_spark_asks_for_it(tmp_path: Path) -> None:
    """With each option of its JVM whole, and the memory and names of the executor."""
    home = tmp_path / "java" / "bin"
    home.mkdir(parents=True)
    _programs(home, java='printf "%s\\n" "$@"')
    environment = _programs(tmp_path, python=f'[ "$1" = -c ] && echo /spark || echo {home.parent}') | {
        "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
        "SPARK_JAVA_OPT_1": "-XX:OnOutOfMemoryError=kill -9 %p",
        "SPARK_EXECUTOR_MEMORY": "2g",
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "shop-exec-7",
    }

    found = _entered(environment, "executor")

    assert found[:6] == [
        "-Dspark.driver.port=7078",
        "-XX:OnOutOfMemoryError=kill -9 %p",
        "-Xms2g",
        "-Xmx2g",
        "-cp",
        "/spark/jars/*",
    ]
    assert found[6] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    given = dict(zip(found[7::2], found[8::2], strict=True))
    assert given["--executor-id"] == "7"
    assert given["--podName"] == "shop-exec-7"


@contextmanager
def _answering(code: int) -> Iterator[int]:
    """The port of a process whose `/healthz` answers so."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code if self.path == "/healthz" else 404)
            self.end_headers()
            self.wfile.write(b"no progress")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server names it
            pass

    with HTTPServer(("127.0.0.1", 0), Health) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def _health(folder: Path, http: str) -> tuple[int, str]:
    file = folder / "applier.toml"
    file.write_text(CONFIG + http, encoding="utf-8")
    environment = os.environ | {"APPLIER_CONFIG": str(file), "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, str(_DEPLOY / "healthcheck.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_health_is_what_the_process_says_of_itself(tmp_path: Path) -> None:
    """Well, stuck, gone; without a port there is nothing to ask."""
    with _answering(200) as port:
        assert _health(tmp_path, f"[http]\nport = {port}\n") == (0, "")
    with _answering(503) as port:
        code, said = _health(tmp_path, f"[http]\nport = {port}\n")
    assert (code, "answers 503: no progress" in said) == (1, True)
    code, said = _health(tmp_path, f"[http]\nport = {port}\n")
    assert (code, "does not answer" in said) == (1, True)
    assert _health(tmp_path, "") == (0, "")


def test_the_unit_is_one_of_systemd(tmp_path: Path) -> None:
    """With a program that exists in place of the installed one."""
    text = (_DEPLOY / "systemd/applier@.service").read_text(encoding="utf-8")
    file = tmp_path / "applier@shop.service"
    file.write_text(text.replace("/opt/applier/.venv/bin/applier", "/bin/true"), encoding="utf-8")

    done = subprocess.run(
        [tool("systemd-analyze"), "verify", "--man=no", str(file)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
