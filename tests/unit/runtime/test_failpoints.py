from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from applier.runtime import failpoints

SCRIPT = (
    "from applier.runtime import failpoints\nfor n in range(3):\n    failpoints.reach('here')\n    print(n, flush=True)"
)


@pytest.mark.parametrize(
    ("asked", "printed", "code"),
    [
        ("here", "", -signal.SIGKILL),
        ("here:2", "0\n", -signal.SIGKILL),
        ("there", "0\n1\n2\n", 0),
        ("", "0\n1\n2\n", 0),
    ],
)
def test_process_dies_where_it_is_told(asked: str, printed: str, code: int) -> None:
    """APPLIER_KILL_AT kills the process at a point, or at the n-th time it comes there, and is nothing otherwise."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={failpoints.KILL_AT: asked}, capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.returncode) == (printed, code)


def test_process_stands_still_where_it_is_told() -> None:
    """With STOP it is stopped at the point, and goes on behind it once it is continued."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env={failpoints.KILL_AT: "here:2:STOP"}, stdout=subprocess.PIPE, text=True
    ) as process:
        stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED)
        process.send_signal(signal.SIGCONT)
        printed, _ = process.communicate(timeout=60)

    assert stopped is not None
    assert (stopped.si_code, stopped.si_status) == (os.CLD_STOPPED, signal.SIGSTOP)
    assert (printed, process.returncode) == ("0\n1\n2\n", 0)
