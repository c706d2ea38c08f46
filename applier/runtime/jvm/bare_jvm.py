"""A JVM without Spark, for classes of its jars that need none: it is there in a second."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from applier.errors import ConfigError
from applier.runtime.jvm import java_home


def spark_jars() -> Path:
    """The folder of pyspark's jars, found without paying for `import pyspark`; the working directory without it."""
    spec = importlib.util.find_spec("pyspark")
    return Path((spec.submodule_search_locations or [""])[0]) / "jars" if spec else Path()


@contextmanager
def bare_jvm(class_path: Sequence[Path | str], options: Sequence[str] = ()) -> Iterator[Any]:
    """Py4j's view of a JVM with some jars and those of pyspark, until the block ends; what it says is thrown away.

    Raises:
        ConfigError: No Java was found, or it does not start with these options.
    """
    spark = spark_jars()
    settings = {
        "jarpath": str(next(spark.glob("py4j-*.jar"), spark)),
        "classpath": os.pathsep.join([f"{spark}/*", *map(str, class_path)]),
        "java_path": str(java_home.find() / "bin" / "java"),
        "javaopts": ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *options],
    }
    try:
        port, token = launch_gateway(0, enable_auth=True, die_on_exit=True, **settings)
    except Exception as error:
        raise ConfigError(["Java does not start with the options of spark.driver.extraJavaOptions."]) from error
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
