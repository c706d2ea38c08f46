"""What a failed job of Spark is to a user: its kinds and what the system said, never a row."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError

from applier.errors import TransientError
from applier.runtime.tasks.spark import reported


class _Failed(Py4JJavaError):  # type: ignore[misc]  # published without types
    """An error as py4j gives it, with the report of a job for its text."""

    def __init__(self, text: str) -> None:
        Exception.__init__(self, text)
        self.java_exception = None

    def __str__(self) -> str:
        return str(self.args[0])


def test_a_full_disk_is_named_whatever_class_the_error_has() -> None:
    """PySpark gives errors of tasks that it does not know as Java does."""
    report = "org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device\\n row: secret"
    with pytest.raises(TransientError) as found, reported("load rows of table lake.shop.orders"):
        raise _Failed(report)
    assert found.value.what.startswith("Spark cannot load rows of table lake.shop.orders: ")
    assert found.value.what.endswith("; caused by: No space left on device")
    assert "secret" not in found.value.what
