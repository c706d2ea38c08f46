"""Decides whether a backslash within text escapes, by texts that can be read in both ways."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


class UnclearForm(ValueError):
    """The first rows do not show how a file is written; the text says what is unclear, and shows no value."""


def decided(readings: Mapping[bool, Iterable[bytes]], follow: bytes, raw: bytes) -> bool | None:
    """Whether a backslash within text escapes; None where it makes no difference to the texts that were looked at.

    Where it would, and each text is one that Dumpling could have written with escapes, it has: they are its default.

    Args:
        readings: The texts between delimiters, as they stand there, if a backslash escapes and if it does not; only the
            readings in which the rows are whole.
        follow: What may follow a backslash that escapes.
        raw: Bytes that stand in no text where a backslash escapes.
    """
    texts = {escapes: list(found) for escapes, found in readings.items()}
    if True in texts and False in texts and not _may_escape(texts[True], follow, raw):
        del texts[True]
    if len(texts) == 1:
        return next(iter(texts))
    return True if any(b"\\" in text for text in texts[False]) else None


def _may_escape(texts: Iterable[bytes], follow: bytes, raw: bytes) -> bool:
    escape = rb"\\[%s]" % re.escape(follow)
    written = re.compile(rb"(?:%s|[^\\%s])*+" % (escape, re.escape(raw)), re.DOTALL)
    return all(written.fullmatch(text) for text in texts)
