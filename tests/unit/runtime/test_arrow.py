"""Arrow is loaded without pandas, which PySpark finds afterwards."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
from applier.runtime import arrow
arrow.load_alone()
import pyarrow as pa
assert pa.array([1, None]).to_pylist() == [1, None]
assert "pandas" not in sys.modules
import pandas
assert pandas.__version__
"""


def test_arrow_does_without_pandas_and_hides_it_from_nobody_else() -> None:
    """In a process of its own: this one has imported both."""
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True)
