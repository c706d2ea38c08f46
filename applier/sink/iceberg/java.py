"""Converts the values that calls into Iceberg's Java library take and return."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from py4j.java_gateway import JavaClass, JavaPackage
from py4j.protocol import Py4JError, Py4JJavaError

from applier.errors import OutsideRefused, TransientError
from applier.runtime.permanent_errors import CATALOG, System, causes, redacted, refusal, told
from applier.runtime.places import Places
from applier.sink.iceberg.clock import Clock

Each: TypeAlias = Callable[[str, Callable[[Any], Any], Sequence[Any]], list[Any]]
"""Does work on many parts in Spark's tasks: takes what it does, in words for messages, the work and the parts."""


class FileTasks(NamedTuple):
    """Spark's tasks that read and write data files, and what decides whether they do."""

    run: Each
    places: Places


class JavaError(TransientError):
    """Iceberg's Java library refused or failed.

    Attributes:
        action: What was being done, as a sentence without a full stop.
        kind: Simple name of the Java exception, such as `ValidationException`; "" where py4j itself failed.
        detail: Its message, with credentials cut out.
    """

    def __init__(self, action: str, kind: str, detail: str) -> None:
        super().__init__(f"{action}: {detail or kind}")
        self.action = action
        self.kind = kind
        self.detail = detail

    def __reduce__(self) -> tuple[type[JavaError], tuple[str, str, str]]:
        return type(self), (self.action, self.kind, self.detail)


class Java:
    """One JVM, as seen through the gateway of a Spark session (classic, not Connect).

    Calls may come from any thread; py4j gives each thread a connection of its own.

    Args:
        session: The session.
        tasks: Its tasks, where they may read and write data files.

    Attributes:
        clock: The times of the snapshots that it makes.
    """

    def __init__(self, session: Any, tasks: FileTasks | None = None) -> None:
        self.session = session
        self.tasks = tasks
        self.clock = Clock()
        self.jvm: Any = session.sparkContext._jvm
        self.iceberg: Any = _Package(self.jvm.org.apache.iceberg)
        self.own: Any = _Package(self.jvm.applier)
        self._gateway: Any = session.sparkContext._gateway
        self._mapper: Any = self.iceberg.util.JsonUtil.mapper()
        self._list_class: Any = self.jvm.java.lang.Class.forName("java.util.ArrayList")
        self._map_class: Any = self.jvm.java.lang.Class.forName("java.util.HashMap")

    @property
    def client(self) -> Any:
        """py4j's own end of the gateway."""
        return self._gateway._gateway_client

    def strings(self, values: Iterable[str]) -> Any:
        """A `String[]`."""
        texts = list(values)
        array = self._gateway.new_array(self.jvm.java.lang.String, len(texts))
        for index, text in enumerate(texts):
            array[index] = text
        return array

    def map(self, values: Mapping[str, str]) -> Any:
        """A `java.util.Map` of strings, in one call instead of one an element."""
        return self._mapper.readValue(json.dumps(dict(values)), self._map_class)

    def items(self, iterable: Any) -> Iterator[Any]:
        """Elements of a Java `Iterable`."""
        iterator = iterable.iterator()
        while iterator.hasNext():
            yield iterator.next()

    def plain(self, value: Any) -> Any:
        """A Java map or list of plain values as Python, in one call instead of three an element."""
        return json.loads(self._mapper.writeValueAsString(value))

    def texts(self, values: Iterable[str]) -> Any:
        """A `java.util.List` of strings, in one call instead of one an element."""
        return self._mapper.readValue(json.dumps(list(values)), self._list_class)

    def node(self, text: str) -> Any:
        """A JSON text as the tree that Iceberg's parsers take."""
        return self._mapper.readTree(text)

    def constant(self, interface: str, value: Any) -> Any:
        """An object of a Java interface with one method of one argument, which returns `value` without a call back.

        The interface is named in full, such as `java.util.function.Function`; a method that returns nothing has the
        value None.
        """
        handles, classes = self.jvm.java.lang.invoke, self.jvm.java.lang.Class
        anything = classes.forName("java.lang.Object")
        constant = handles.MethodHandles.constant(anything, value)
        taking = handles.MethodHandles.dropArguments(
            constant, 0, self.jvm.java.util.Collections.singletonList(anything)
        )
        return handles.MethodHandleProxies.asInterfaceInstance(classes.forName(interface), taking)

    def write_plain_files(self) -> None:
        """Let Hadoop write local files without a checksum file beside each, as Python writes them anyway.

        Hadoop sets the mode of every file that it makes by starting `chmod`, so a commit starts half as many processes.
        """
        local = self.jvm.org.apache.hadoop.fs.FileSystem.getLocal(self.session.sparkContext._jsc.hadoopConfiguration())
        local.setWriteChecksum(False)


class _Package:
    """A Java package or class that asks the JVM only once what one of its names is; py4j would ask each time."""

    def __init__(self, package: JavaPackage | JavaClass) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._package, name)
        known = _Package(found) if isinstance(found, JavaPackage | JavaClass) else found
        setattr(self, name, known)
        return known

    def __call__(self, *arguments: Any) -> Any:
        """Make an object of the class."""
        return self._package(*arguments)


@contextmanager
def translated(action: str, systems: Sequence[System] = CATALOG) -> Iterator[None]:
    """Turn whatever py4j raises inside into a `JavaError` that starts with `action`.

    Raises:
        OutsideRefused: The failure would come again: rights, a log-in, a class that is not there.
    """
    try:
        yield
    except Py4JJavaError as error:
        raise _failure(action, error.java_exception, systems) from None
    except Py4JError as error:
        raise JavaError(action, "", redacted(str(error))) from None
    except Exception as error:
        # PySpark turns some Java exceptions into classes of its own, which keep the original.
        origin = getattr(error, "_origin", None)
        if origin is None:
            raise
        raise _failure(action, origin, systems) from None


def _failure(action: str, throwable: Any, systems: Sequence[System]) -> JavaError | OutsideRefused:
    chain = causes(throwable)
    return refusal(action, chain, systems) or JavaError(action, chain[0].kind, told(chain))
