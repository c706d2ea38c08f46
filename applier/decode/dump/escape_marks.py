"""Puts marks of two bytes in place of escapes, all at once: no byte of the data moves."""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any

import numpy as np

from applier.decode.dump.csv_form import CsvForm

_SPARE = bytes([*range(0x1F, 0x0D, -1), 0x7F, *range(1, 9), 0x0B, 0x0C])
"""Bytes that may stand for something longer where the data holds none of them."""

_LETTERS = (string.ascii_letters + string.digits).encode()

_BACKSLASH = ord("\\")


def spare_bytes(data: bytes, taken: bytes) -> Iterator[bytes]:
    """Bytes that the data does not hold and that are not taken."""
    return (byte for number in _SPARE if (byte := bytes([number])) not in taken and byte not in data)


def marked(data: bytes, form: CsvForm) -> tuple[bytes, list[tuple[bytes, int]]] | None:
    """The data with a mark in place of each escape, and the byte behind the backslash for which each mark stands.

    NULL may begin with a backslash, which is no escape then.

    Returns:
        None where the data leaves no byte for marks, or has too many different escapes.
    """
    taken = form.separator + form.delimiter + form.null
    mark = next(spare_bytes(data, taken), None)
    letters = [letter for letter in _LETTERS if letter not in taken]
    if mark is None:
        return None
    changed = bytearray(data)
    array = np.frombuffer(changed, np.uint8)
    starts = _starts(array, form.null)
    follow = array[starts + 1]
    found = np.flatnonzero(np.bincount(follow, minlength=256))
    if len(found) > len(letters):
        return None
    letter_of = np.zeros(256, np.uint8)
    letter_of[found] = letters[: len(found)]
    array[starts], array[starts + 1] = mark[0], letter_of[follow]
    pairs = zip(letters, found.tolist(), strict=False)
    return bytes(changed), [(mark + bytes([letter]), byte) for letter, byte in pairs]


def _starts(array: Any, null: bytes) -> Any:
    """Where escapes begin: at every other backslash of those that stand side by side, but not at NULL."""
    places = np.flatnonzero(array == _BACKSLASH)
    numbers = np.arange(len(places))
    is_first = np.diff(places, prepend=-2) != 1
    first = np.maximum.accumulate(np.where(is_first, numbers, 0))
    starts = places[(numbers - first) % 2 == 0]
    starts = starts[starts < len(array) - 1]
    return starts[~_are(array, starts, null)] if null.startswith(b"\\") and len(null) > 1 else starts


def _are(array: Any, places: Any, text: bytes) -> Any:
    """At which places a text stands."""
    fits = places + len(text) <= len(array)
    for index, byte in enumerate(text):
        fits &= array[np.minimum(places + index, len(array) - 1)] == byte
    return fits
