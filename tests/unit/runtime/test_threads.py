"""Work beside a block, and systems that are asked side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from applier.runtime.threads import Asking, ask_all, beside


def test_work_goes_on_until_the_block_ends_however_it_does() -> None:
    """And its end is waited for: a renewal of a lease after its release would hold it again."""
    done = threading.Event()

    def work(over: threading.Event) -> None:
        over.wait()
        done.set()

    with pytest.raises(KeyError), beside("work", work):
        raise KeyError
    assert done.is_set()
    assert not any(thread.name == "work" for thread in threading.enumerate())


def test_work_that_does_not_end_is_left() -> None:
    """A server that does not answer must not hold the end of the process up."""
    answered = threading.Event()
    with beside("work", lambda _: answered.wait(), 0):
        pass
    left = next(thread for thread in threading.enumerate() if thread.name == "work")
    assert left.daemon
    answered.set()
    left.join()


def test_one_that_never_answers_holds_up_no_other() -> None:
    """An error that is enough ends the wait for all, and the seconds end it anyway."""
    over = threading.Event()

    def fail() -> None:
        raise KeyError

    for is_enough, seconds in ((lambda one: isinstance(one.error, KeyError), 60), (lambda _: False, 0.2)):
        silent, failing = Asking("silent", [("all", over.wait)]), Asking("failing", [("first", str), ("last", fail)])
        ask_all([silent, failing], seconds, is_enough)

        assert (silent.at, silent.answers, silent.is_alive()) == ("all", [], True)
        assert (failing.at, failing.answers, type(failing.error)) == ("last", [("first", "")], KeyError)
    over.set()


def test_what_was_opened_for_the_parts_is_closed_behind_an_error() -> None:
    """A JVM that asks Kafka would stay otherwise, beside that of Spark."""
    closed = threading.Event()

    def parts() -> Iterator[tuple[str, Callable[[], str]]]:
        try:
            yield "first", str
            yield "last", lambda: dict[str, str]()[""]
        finally:
            closed.set()

    asking = Asking("system", parts())
    asking.run()

    assert (asking.at, isinstance(asking.error, KeyError), closed.is_set()) == ("last", True, True)
