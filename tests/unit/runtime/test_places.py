"""Where rows run: one rule for messages, rows and files."""

from __future__ import annotations

import pytest

from applier.runtime.places import Places, Where

MB = 1 << 20


@pytest.mark.parametrize(
    ("places", "messages", "size", "waiting", "is_started", "where"),
    [
        (Places(), 0, 0, 0, True, Where.HERE),
        (Places(True, True), 0, 0, 0, False, Where.HERE),
        (Places(), 10, 8 * MB, 10, True, Where.HERE),
        (Places(True), 10, 8 * MB, 10**9, False, Where.HERE),
        (Places(True, True), 10, 8 * MB, 10, False, Where.TASKS),
        (Places(True), 10, 20 * MB, 10, False, Where.TASKS),
        (Places(), 10, 20 * MB, 499_999, False, Where.IN_CHUNKS),
        (Places(), 10, 20 * MB, 500_000, False, Where.PROCESSES),
        (Places(), 10, 20 * MB, 10, True, Where.PROCESSES),
    ],
)
def test_where_a_window_is_decoded(
    places: Places, messages: int, size: float, waiting: int, is_started: bool, where: Where
) -> None:
    """By its size, by what waits, and by whether tasks of Spark run on other machines."""
    assert places.of_window(messages, size, 10 * MB, waiting, is_started=is_started).where is where


def test_a_window_that_cannot_be_shorter_is_not_read_at_once() -> None:
    """It has more bytes than a step may read, so none may be in memory at once."""
    assert Places().of_window(1, 8 * MB, 0, 1, is_started=False).where is Where.IN_CHUNKS


@pytest.mark.parametrize(
    ("places", "size", "is_by_java", "where"),
    [
        (Places(True), 9 * MB, False, Where.TASKS),
        (Places(True), MB, False, Where.HERE),
        (Places(True), 9 * MB, True, Where.HERE),
        (Places(), 9 * MB, False, Where.HERE),
    ],
)
def test_where_files_are_written_anew(places: Places, size: float, is_by_java: bool, where: Where) -> None:
    """In tasks where they are large, and tasks reach them."""
    found = places.of_files(size, is_by_java=is_by_java)

    assert found.where is where
    assert found.because
