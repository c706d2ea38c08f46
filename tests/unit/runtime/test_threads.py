"""Work beside a block."""

from __future__ import annotations

import threading

import pytest

from applier.runtime.threads import beside


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
